"""The ranks that this node starts: their numbers among those of all nodes, and the variables that tell them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core_sdk.environment import RankPlace, visible_gpus
from launch._command_line import UsageError
from launch._framework import Start
from launch._torchrun._config import LaunchConfig
from launch._torchrun._peer_nodes import NodeFacts


@dataclass(frozen=True)
class RanksOfNode:
    """The numbers of this node's ranks. A rank's number is the first one plus its local rank."""

    first: int
    num_ranks: int
    """The number of ranks on all nodes."""
    first_of_role: int
    num_of_role: int

    @classmethod
    def among(cls, nodes: Sequence[NodeFacts], node_rank: int) -> RanksOfNode:
        """Counts the ranks of the nodes in their order."""
        before, own = nodes[:node_rank], nodes[node_rank]
        return cls(
            first=sum(node.num_ranks for node in before),
            num_ranks=sum(node.num_ranks for node in nodes),
            first_of_role=sum(node.num_ranks for node in before if node.role == own.role),
            num_of_role=sum(node.num_ranks for node in nodes if node.role == own.role),
        )


def torchrun_variables_of(
    local_rank: int, ranks: RanksOfNode, start: Start, config: LaunchConfig, num_restarts: int
) -> dict[str, str]:
    """Returns the variables by which torchrun tells a rank its place. Raises `UsageError`."""
    place = RankPlace(
        ranks.first + local_rank, ranks.num_ranks, local_rank, config.num_local_ranks, start.node_rank, start.num_nodes
    )
    variables = {
        **place.variables(),
        "ROLE_RANK": str(ranks.first_of_role + local_rank),
        "ROLE_NAME": config.options.role,
        "ROLE_WORLD_SIZE": str(ranks.num_of_role),
        "MASTER_ADDR": start.chief_address,
        "MASTER_PORT": str(start.port),
        "TORCHELASTIC_RESTART_COUNT": str(num_restarts),
        "TORCHELASTIC_MAX_RESTARTS": str(config.options.max_restarts),
        "TORCHELASTIC_RUN_ID": config.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": config.options.signals_to_handle,
    }
    if config.options.virtual_local_rank:
        variables |= {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": _device_of(local_rank)}
    return variables


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
