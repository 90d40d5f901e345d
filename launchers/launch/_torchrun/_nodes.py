"""The nodes and slots of a training, and the place where the nodes meet."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from core_sdk._ground.environment import Environment, job_placement, meeting_port, num_cpus, run_info, use_run_info
from core_sdk._ground.placement import Placement
from core_sdk._ground.records import PLACED, ClusterInfo, encode_file
from core_sdk.errors import AttemptError, PlacementError
from launch._command_line import UsageError
from launch._torchrun._options import TorchrunOptions, node_range

MASTER_PORT = 29400
_LOCALHOST = "localhost"
_RUN_INFO = "run.json"
_ENDPOINT = re.compile(r"(?P<address>\[[^\]]*\]|.*?)(:(?P<port>\d+))?", re.ASCII)
# The devices of NVIDIA's driver, of AMD's, and of the Windows on which this Linux runs.
_GPU_FILES = ("/dev/nvidia[0-9]*", "/dev/kfd", "/dev/dxg")


class Nodes(msgspec.Struct, frozen=True):
    num_nodes: int
    """The number of nodes; the highest one, if nodes may come and go."""
    node_rank: int
    """The number of this node; 0 if torchrun's rendezvous decides it, and each rank finds it in GROUP_RANK."""
    slots: int
    """The number of ranks on this node."""
    chief_address: str
    """The address of the first node; "localhost" for a single node."""
    port: int = MASTER_PORT
    """The port at which several nodes meet."""
    run_info: ClusterInfo | None = None
    """The ranks' run info, if a scheduler has placed them. It is None if the launcher's is used."""


def find_nodes(options: TorchrunOptions) -> Nodes:
    """Decides from torchrun's own options first, then the run info, then the scheduler, then the machine.

    Raises `UsageError`, and `AttemptError` for a run info that cannot be used.
    """
    path, info = Environment.read().run_info, run_info()
    if path is not None and info is not None:
        _check(path, info)
    port = meeting_port()
    nodes = decide_nodes(options.given, info, _count_gpus, _placement, is_sent_by_head=port is not None)
    nodes = replace(nodes, port=port or nodes.port)
    is_of_no_trial = nodes.run_info is not None and nodes.run_info.task_type == PLACED
    return replace(nodes, run_info=None) if info is not None and is_of_no_trial else nodes


def write_run_info(nodes: Nodes, directory: Path) -> None:
    """Writes the run info for later ranks, with the nodes and the slots that the ranks take, and sets its variable."""
    info = nodes.run_info or run_info() or ClusterInfo(task_type=PLACED)
    path = directory / _RUN_INFO
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(encode_file(_with_slots(info, nodes.slots)))
    use_run_info(path)


def decide_nodes(
    options: Mapping[str, Any],
    info: ClusterInfo | None,
    count_gpus: Callable[[], int],
    find_placement: Callable[[], Placement | None] = lambda: None,
    *,
    is_sent_by_head: bool = False,
) -> Nodes:
    """Decides on the nodes. `options` are torchrun's, by torch's names. Raises `UsageError`.

    The run info counts if it says more than the default, or if a head has started this launcher by ssh. Options take
    precedence over it. One with several nodes that has the place of the first may have been written for all of them:
    then the scheduler tells the place.
    """
    info = info if info is not None and (is_sent_by_head or _says_more_than_the_default(info)) else None
    if info is not None and len(info.container_addrs) > 1 and info.container_rank == 0 and not _say_all(options):
        with contextlib.suppress(UsageError):
            placement = find_placement()
            if placement is not None and list(placement.addresses) == info.container_addrs:
                here = msgspec.structs.replace(info, container_rank=placement.node_rank)
                return replace(_decide(options, here, count_gpus), port=placement.port, run_info=here)
    if info is not None or _say_all(options) or (placement := find_placement()) is None:
        return _decide(options, info, count_gpus)
    slots = _slots(options, None, lambda: placement.slots or count_gpus())
    nodes = _decide(options, _run_info(placement, slots), count_gpus)
    is_whole = nodes.num_nodes == len(placement.addresses)
    return replace(nodes, port=placement.port, run_info=_run_info(placement, nodes.slots) if is_whole else None)


def _decide(options: Mapping[str, Any], info: ClusterInfo | None, count_gpus: Callable[[], int]) -> Nodes:
    num_nodes = _num_nodes(options, info)
    # An override to fewer nodes, for example, takes this one out of the run info's group.
    group = info if info is not None and len(info.container_addrs) == num_nodes else None
    return Nodes(
        num_nodes=num_nodes,
        node_rank=_node_rank(options, group, num_nodes),
        slots=_slots(options, info, count_gpus),
        chief_address=_chief_address(options, group, num_nodes),
    )


def _check(path: Path, info: ClusterInfo) -> None:
    num_nodes, num_counts = len(info.container_addrs), len(info.container_slot_counts)
    if num_counts != num_nodes or info.container_rank not in range(num_nodes):
        raise AttemptError.bad_run_info(
            path,
            f"container_rank {info.container_rank}, {num_nodes} container_addrs and {num_counts} "
            "container_slot_counts contradict each other",
        )


def _says_more_than_the_default(info: ClusterInfo) -> bool:
    """Returns whether a run info says more than one node with one slot.

    `core-sdk run` says this regardless of the GPUs.
    """
    return bool(info.named_slot_ids) or len(info.container_addrs) > 1 or info.container_slot_counts != [1]


def _say_all(options: Mapping[str, Any]) -> bool:
    """Returns whether a scheduler need not be asked: the options name a single node, or the first node and this one."""
    if options.get("standalone") or node_range(options.get("nnodes", "2"))[1] == 1:
        return True
    is_first_known = bool(options.get("rdzv_endpoint")) or "master_addr" in options
    return is_first_known and ("node_rank" in options or is_dynamic(options))


def _placement() -> Placement | None:
    try:
        return job_placement()
    except PlacementError as error:
        raise UsageError(str(error)) from error


def _run_info(placement: Placement, slots: int) -> ClusterInfo:
    """Returns a run info without a trial, since the script begins one."""
    return ClusterInfo(
        task_type=PLACED,
        container_addrs=list(placement.addresses),
        container_rank=placement.node_rank,
        # A scheduler does not tell the slots of the other nodes, which usually have the same number.
        container_slot_counts=[slots] * len(placement.addresses),
        named_slot_ids=list(range(slots)) if placement.slots else [],
    )


def _with_slots(info: ClusterInfo, slots: int) -> ClusterInfo:
    """Returns the run info with as many slots as this node has ranks."""
    if len(info.named_slot_ids) == slots:
        return info
    counts = list(info.container_slot_counts)
    counts[info.container_rank] = slots
    return msgspec.structs.replace(info, named_slot_ids=list(range(slots)), container_slot_counts=counts)


def _num_nodes(options: Mapping[str, Any], info: ClusterInfo | None) -> int:
    if "nnodes" in options:
        return node_range(options["nnodes"])[1]
    if info is None or options.get("standalone"):
        return 1
    return len(info.container_addrs)


def _node_rank(options: Mapping[str, Any], group: ClusterInfo | None, num_nodes: int) -> int:
    if "node_rank" in options:
        node_rank = int(options["node_rank"])
        if node_rank not in range(num_nodes):
            raise UsageError(f"--node-rank={node_rank} is none of {num_nodes} nodes, which are counted from 0")
        return node_rank
    if group is not None:
        return group.container_rank
    if num_nodes > 1 and not is_dynamic(options):
        raise UsageError(f"which of the {num_nodes} nodes is this? Give --node-rank=0 on the first, 1 on the next")
    return 0


def _slots(options: Mapping[str, Any], info: ClusterInfo | None, count_gpus: Callable[[], int]) -> int:
    if "nproc_per_node" in options:
        return count_ranks(options["nproc_per_node"])
    if info is not None:
        return len(info.slot_ids)
    return max(count_gpus(), 1)


def count_ranks(nproc_per_node: str) -> int:
    """Returns the number that `--nproc-per-node=auto`, `cpu`, `gpu`, `xpu` or a number stands for.

    Imports torch, except for `cpu` and a number. Raises `UsageError`.
    """
    if nproc_per_node.isdecimal():
        if (given := int(nproc_per_node)) < 1:
            raise UsageError(f"--nproc-per-node={given} would start nothing: give 1 or more")
        return given
    if nproc_per_node == "cpu":
        return num_cpus()
    import torch  # a second, and only where devices have to be counted

    if nproc_per_node == "auto" and not torch.accelerator.is_available():
        return count_ranks("cpu")
    module: Any = torch.accelerator if nproc_per_node == "auto" else None
    if nproc_per_node != "auto":
        # A backend from outside torch has a module of its name, as CUDA and XPU have.
        module = getattr(torch, {"gpu": "cuda"}.get(nproc_per_node, nproc_per_node), None)
    if not hasattr(module, "device_count"):
        raise UsageError(f"--nproc-per-node={nproc_per_node} cannot be: give a number, auto, cpu, gpu or xpu")
    if not (count := int(module.device_count())):
        raise UsageError(f"--nproc-per-node={nproc_per_node}: this node has none")
    return count


def _chief_address(options: Mapping[str, Any], group: ClusterInfo | None, num_nodes: int) -> str:
    if options.get("rdzv_endpoint"):
        return split_endpoint(options["rdzv_endpoint"])[0]
    if "master_addr" in options:
        return str(options["master_addr"]).strip("[]")
    if num_nodes == 1:
        return _LOCALHOST
    if group is not None:
        return group.container_addrs[0]
    raise UsageError(
        f"{num_nodes} nodes need the first one's address: give --master-addr=HOST, or for a training whose nodes may "
        "come and go --rdzv-backend=c10d --rdzv-endpoint=HOST:PORT"
    )


def is_dynamic(options: Mapping[str, Any]) -> bool:
    """Returns whether the nodes agree on their places among themselves."""
    if "rdzv_backend" in options:
        return bool(options["rdzv_backend"] != "static")
    least, most = node_range(options.get("nnodes", "1"))
    return least != most or bool(options.get("standalone"))


def split_endpoint(endpoint: str) -> tuple[str, int | None]:
    """Splits `HOST:PORT`, where the port may be missing. An IPv6 address without a port needs its brackets."""
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None:  # with a line feed in it
        return endpoint, None
    return match["address"].strip("[]"), int(match["port"]) if match["port"] else None


def bracketed(address: str) -> str:
    """Puts brackets around an IPv6 address, since torch appends a colon and the port."""
    return f"[{address}]" if ":" in address else address


def _count_gpus() -> int:
    """Returns the number of GPUs that CUDA_VISIBLE_DEVICES leaves visible. Initializes none of them."""
    if sys.platform != "linux" or not any(map(glob.glob, _GPU_FILES)):
        return 0
    import torch  # a second, and only where there are GPUs and nothing else says how many ranks there are

    return torch.cuda.device_count()
