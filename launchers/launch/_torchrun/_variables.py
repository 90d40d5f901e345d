"""The variables by which torchrun tells a rank its place among the ranks of all nodes."""

from __future__ import annotations

from collections.abc import Sequence

from core_sdk._ground.environment import RankPlace, visible_gpus
from launch._command_line import UsageError
from launch._framework import Start
from launch._torchrun._config import LaunchConfig
from launch._torchrun._peer_nodes import NodeFacts


def torchrun_variables(
    local_rank: int, nodes: Sequence[NodeFacts], start: Start, config: LaunchConfig
) -> dict[str, str]:
    """Returns the variables of a rank of this node. Raises `UsageError`."""
    before, own = nodes[: start.node_rank], nodes[start.node_rank]
    role = [node for node in nodes if node.role == own.role]
    place = RankPlace(
        num_ranks(before) + local_rank,
        num_ranks(nodes),
        local_rank,
        own.num_ranks,
        start.node_rank,
        start.num_nodes,
    )
    variables = {
        **place.variables(),
        "ROLE_RANK": str(num_ranks([node for node in before if node.role == own.role]) + local_rank),
        "ROLE_NAME": own.role,
        "ROLE_WORLD_SIZE": str(num_ranks(role)),
        "MASTER_ADDR": start.chief_address,
        "MASTER_PORT": str(start.port),
        "TORCHELASTIC_RESTART_COUNT": str(max(node.num_restarts for node in nodes)),
        "TORCHELASTIC_MAX_RESTARTS": str(config.options.max_restarts),
        "TORCHELASTIC_RUN_ID": config.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": config.options.signals_to_handle,
    }
    if config.options.virtual_local_rank:
        variables |= {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": _device_of(local_rank)}
    return variables


def num_ranks(nodes: Sequence[NodeFacts]) -> int:
    return sum(node.num_ranks for node in nodes)


def defaults_of(config: LaunchConfig) -> dict[str, str]:
    """Returns the variables that a rank gets unless the launcher's environment has them, as under torchrun."""
    of_threads = {"OMP_NUM_THREADS": "1"} if config.num_local_ranks > 1 else {}
    return {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", **of_threads}


def _device_of(local_rank: int) -> str:
    """Returns the name of the one GPU that a rank sees with `--virtual-local-rank`. Raises `UsageError`."""
    if (devices := visible_gpus()) is None:
        return str(local_rank)
    if local_rank >= len(devices):
        raise UsageError(
            f"--virtual-local-rank: local rank {local_rank} has no GPU in CUDA_VISIBLE_DEVICES={','.join(devices)}"
        )
    return devices[local_rank]
