"""Hyperparameter searches as pure state machines: events go in, operations come out.

`Search` is one search by the method that a configuration names. A driver uses it like this:

    search = Search(searcher, space, seed)          # values of `core_sdk._ground.config`
    operations = search.on(SearchStarted())         # the first event, once
    ...
    operations = search.on(event)                   # every later one, in the order in which they were recorded
    search.state()                                  # JSON values
    search = Search.restore(searcher, space, seed, state)

The same events always give the same operations, so that a driver can also continue by calling `on` with all recorded
events again and dropping the answers.

A driver must do this for each trial:

- `Create`: make the trial, start it, and report `TrialCreated`. Its seed is `create.trial_seed`.
- A trial that never gets a `ValidateAfter` trains as its script wants. For each of its validation reports, the driver
  reports the event that `search.read_report(request_id, metrics)` returns.
- `ValidateAfter(length)` is the next operation that the script gets from `searcher.operations()`. When the script has
  completed it, the driver reports `ValidationCompleted(request_id, metric, length)`. After `Pause`, the driver ends the
  trial's process with a checkpoint; a later `ValidateAfter` starts it again from there. After `Close`, the script gets
  only the operations that were ordered before.
- `Stop` asks the trial to save and to end, as a preemption does. Its later reports are ignored.
- A trial that will not run again has ended: `TrialClosed` is its last event, however it ended. `TrialExitedEarly` comes
  before it if the trial failed more often than it may be restarted, was canceled by the user, or raised `InvalidHP`. A
  paused trial is closed at once by `Close`.
- `Shutdown` ends the experiment, after the last `TrialClosed`. `Warn` is for the user.

At most `max_concurrent_trials` trials have a process or wait for one. When a trial is closed or paused, the answer to
that event starts the trials that take its place. A trial whose hyperparameters cannot be trained (`InvalidHP`) is
replaced, but at most `max(10, max_trials)` trials are, and none in a grid.

`CustomSearch` is driven in the same way; a user's `SearchMethod` decides. `AskTell` is a driver for
your own training loop. `simulation` drives a search whose trials do not train.
"""

from core_sdk.search._ask_tell import AskedTrial, AskTell
from core_sdk.search._custom import CustomSearch, SearcherState, SearchMethod
from core_sdk.search._events import (
    Event,
    ExitedReason,
    SearchStarted,
    TrialClosed,
    TrialCreated,
    TrialExitedEarly,
    TrialProgressed,
    ValidationCompleted,
)
from core_sdk.search._operations import (
    AnyOperation,
    Close,
    Create,
    Operation,
    Pause,
    Progress,
    Shutdown,
    Stop,
    ValidateAfter,
    Warn,
)
from core_sdk.search._search import Search

__all__ = [
    "AnyOperation",
    "AskTell",
    "AskedTrial",
    "Close",
    "Create",
    "CustomSearch",
    "Event",
    "ExitedReason",
    "Operation",
    "Pause",
    "Progress",
    "Search",
    "SearchMethod",
    "SearchStarted",
    "SearcherState",
    "Shutdown",
    "Stop",
    "TrialClosed",
    "TrialCreated",
    "TrialExitedEarly",
    "TrialProgressed",
    "ValidateAfter",
    "ValidationCompleted",
    "Warn",
]
