"""A runner that is killed at one of its dangerous moments: `killed_runner.py METHOD MOMENT SEARCHER_DIR CODE`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from searcher.methods import CONFIG, Promoting

from core_sdk._execution.experiments import submission
from core_sdk.search import SearchMethod
from core_sdk.searcher import LocalSearchRunner, _local, _runner

FIRST_MOMENTS = ("submitting", "found")
MOMENTS = ("saving", "saved", "posting", "posted")
NEVER = "never"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(function: Any, *, is_before: bool) -> Any:
    def replaced(*arguments: Any, **keywords: Any) -> Any:
        if is_before:
            die()
        result = function(*arguments, **keywords)
        die()
        return result

    return replaced


def arm(moment: str) -> None:
    """Arms the process to die when it reaches this moment for the first time."""
    places: dict[str, tuple[Any, str, bool]] = {
        "submitting": (submission, "call", True),
        "found": (_runner, "find_submitted", False),
        "saving": (_local, "fsync_tree", True),
        "saved": (LocalSearchRunner, "_save", False),
        "posting": (_runner, "call", True),
        "posted": (_runner, "call", False),
    }
    if moment in places:
        owner, name, is_before = places[moment]
        setattr(owner, name, dying(getattr(owner, name), is_before=is_before))


def method_of(name: str) -> SearchMethod:
    if name == "promoting":
        return Promoting()
    from searcher.studies import study

    return study()


if __name__ == "__main__":
    name, moment, directory, code = sys.argv[1:]
    arm(moment)
    LocalSearchRunner(method_of(name), Path(directory)).run(CONFIG, code)
