"""Reads Slurm's variables, which tell each process of a step all nodes of the step and its own place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from core_sdk._ground.placement._gpus import named_gpus
from core_sdk._ground.placement._host_list import expand_counts, expand_hosts
from core_sdk._ground.placement._jobs import slurm_step, slurm_step_name
from core_sdk._ground.placement._placement import Placement, bad_variable, port_of
from core_sdk.errors import PlacementError

_T = TypeVar("_T")


class SlurmJob(msgspec.Struct, frozen=True):
    """A job of Slurm, as its batch script sees it."""

    job_id: str
    """Such as `7`, or `7_12` in an array."""
    num_restarts: int
    """The number of requeues."""
    nodes: tuple[str, ...]


def slurm_job(variables: Mapping[str, str]) -> SlurmJob | None:
    """Returns the job to which this process belongs; None outside of a job. Raises `PlacementError`."""
    if not variables.get("SLURM_JOB_ID"):
        return None
    array, task = variables.get("SLURM_ARRAY_JOB_ID"), variables.get("SLURM_ARRAY_TASK_ID")
    return SlurmJob(
        job_id=f"{array}_{task}" if array and task else variables["SLURM_JOB_ID"],
        num_restarts=int(variables.get("SLURM_RESTART_COUNT") or 0),
        nodes=tuple(_parsed(variables, "SLURM_JOB_NODELIST", expand_hosts)),
    )


def slurm_placement(variables: Mapping[str, str]) -> Placement | None:
    """Returns the placement of this process; None outside of a step that `srun` has started.

    Raises a `PlacementError` if Slurm has started too few or too many processes.
    """
    if slurm_step(variables) is None:
        _check_alone(variables)
        return None
    addresses = _nodes(variables)
    node_rank = _parsed(variables, "SLURM_NODEID", int)
    _check_step(variables, addresses, node_rank)
    return Placement(
        addresses=tuple(addresses),
        node_rank=node_rank,
        slots=_num_gpus(variables),
        port=port_of(slurm_step_name(variables)),
    )


def _nodes(variables: Mapping[str, str]) -> list[str]:
    """Returns the nodes of the step, in the order in which Slurm numbers them.

    The step's own list is sorted, but Slurm numbers the nodes of a heterogeneous job component by component.
    """
    nodes = _parsed(variables, "SLURM_STEP_NODELIST", expand_hosts)
    lists = [f"SLURM_JOB_NODELIST_HET_GROUP_{group}" for group in range(_num_components(variables))]
    in_components = [node for name in lists if name in variables for node in _parsed(variables, name, expand_hosts)]
    ordered = [node for node in dict.fromkeys(in_components) if node in set(nodes)]
    return ordered if len(ordered) == len(nodes) else nodes


def _num_components(variables: Mapping[str, str]) -> int:
    """Returns the number of components of a heterogeneous job; 1 for any other job."""
    size = variables.get("SLURM_HET_SIZE", "")
    return int(size) if size.isdecimal() else 1


def _check_alone(variables: Mapping[str, str]) -> None:
    """Raises `PlacementError` in a job on several nodes, of which a process outside of a step uses only the first."""
    if not variables.get("SLURM_JOB_ID"):
        return
    text = variables.get("SLURM_JOB_NUM_NODES", "")
    # For a heterogeneous job this counts only the first component's nodes.
    num_nodes = max(int(text) if text.isdecimal() else 1, _num_components(variables))
    if num_nodes > 1:
        raise PlacementError(
            f"this job has {num_nodes} nodes, and the launcher was started on one of them only. Put srun before it, "
            "`srun --ntasks-per-node=1 python -m launch.torch_distributed …`, or give it --nnodes=1 to use only one."
        )


def _check_step(variables: Mapping[str, str], nodes: Sequence[str], node_rank: int) -> None:
    num_nodes, num_told = len(nodes), _parsed(variables, "SLURM_STEP_NUM_NODES", int)
    tasks = _parsed(variables, "SLURM_STEP_TASKS_PER_NODE", expand_counts)
    if max(tasks) > 1:
        raise PlacementError(
            f"srun has started {max(tasks)} launchers on a node, each of which would start a rank for every GPU. Start "
            "one: `srun --ntasks-per-node=1 …`; --nproc-per-node sets its number of ranks."
        )
    if num_told != num_nodes:
        raise bad_variable("SLURM_STEP_NUM_NODES", variables["SLURM_STEP_NUM_NODES"], f"{num_nodes} nodes")
    if node_rank not in range(num_nodes):
        raise bad_variable("SLURM_NODEID", variables["SLURM_NODEID"], f"a place among {num_nodes} nodes")
    if variables.get("SLURMD_NODENAME", nodes[node_rank]) != nodes[node_rank]:
        raise PlacementError(
            "Slurm counts the nodes of this step in another order than it lists them (as for `srun … : …`), so that "
            "the first node is not known. Start the step without `:`, or give the launcher --nnodes, "
            "--node-rank=$SLURM_NODEID and --master-addr."
        )


def _num_gpus(variables: Mapping[str, str]) -> int | None:
    """Returns the number of GPUs that this process may use. The job may have more on this node."""
    if "CUDA_VISIBLE_DEVICES" in variables:
        return len(named_gpus(variables["CUDA_VISIBLE_DEVICES"])) or None
    for name in ("SLURM_GPUS_PER_TASK", "SLURM_GPUS_ON_NODE"):
        # The value may begin with the type of GPU, as in `a100:4`.
        number = variables.get(name, "").rpartition(":")[2]
        if number.isdecimal() and int(number) > 0:
            return int(number)
    return None


def _parsed(variables: Mapping[str, str], name: str, parse: Callable[[str], _T]) -> _T:
    try:
        return parse(variables[name])
    except KeyError:
        raise bad_variable(name, None, "set in every step") from None
    except ValueError as error:
        raise bad_variable(name, variables[name], str(error)) from error
