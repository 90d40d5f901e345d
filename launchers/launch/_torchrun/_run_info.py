"""The run info of the ranks: what the launcher was told or a scheduler says, with the slots that the ranks take."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from core_sdk.environment import run_info, use_run_info
from core_sdk.records import PLACED, ClusterInfo, encode_file
from launch._torchrun._nodes import Nodes

_NAME = "run.json"


def write_run_info(nodes: Nodes, directory: Path) -> None:
    """Ranks that are started from now on find it by CORE_SDK_RUN_INFO."""
    info = nodes.run_info or run_info() or ClusterInfo(task_type=PLACED)
    path = directory / _NAME
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(encode_file(info if nodes.slots is None else _with_slots(info, nodes.slots)))
    use_run_info(path)


def _with_slots(info: ClusterInfo, slots: int) -> ClusterInfo:
    """As many slots as there are ranks, whatever was thought before."""
    if len(info._slot_ids) == slots:
        return info
    counts = list(info.container_slot_counts)
    counts[info.container_rank] = slots
    return msgspec.structs.replace(info, _slot_ids=list(range(slots)), container_slot_counts=counts)
