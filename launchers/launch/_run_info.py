"""What the ranks of a launch are told that a scheduler has placed: a run info, as an agent would have written it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from core_sdk.environment import use_run_info
from launch._torchrun._nodes import Nodes

_NAME = "run.json"


def tell_ranks(nodes: Nodes, directory: Path) -> None:
    """Ranks that are started from now on find it by CORE_SDK_RUN_INFO. Does nothing where they are told already."""
    if nodes.run_info is None:
        return
    path = directory / _NAME
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(nodes.run_info))
    use_run_info(path)
