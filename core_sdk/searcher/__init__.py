"""Searches by your own method: a Python class that a runner drives, next to the master that runs the trials.

    from core_sdk.searcher import LocalSearchRunner

    runner = LocalSearchRunner(MyMethod(), searcher_dir="search")
    experiment_id = runner.run("config.yaml", model_dir=".")

The configuration says `searcher: {name: custom, metric: …}`. The runner submits the experiment, tells the method what
happens to its trials, and posts the method's operations to the master. It may be killed at any moment. When it is
started again, it continues with the same decisions. Names and semantics come from Determined 0.37.
"""

from core_sdk.search import (
    Close,
    Create,
    ExitedReason,
    Operation,
    Progress,
    SearcherState,
    SearchMethod,
    Shutdown,
    ValidateAfter,
)
from core_sdk.searcher._local import LocalSearchRunner
from core_sdk.searcher._remote import RemoteSearchRunner

__all__ = [
    "Close",
    "Create",
    "ExitedReason",
    "LocalSearchRunner",
    "Operation",
    "Progress",
    "RemoteSearchRunner",
    "SearchMethod",
    "SearcherState",
    "Shutdown",
    "ValidateAfter",
]
