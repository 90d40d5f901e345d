"""Restarts a master that was killed, if it is needed. All decisions about this are made here.

A master in the background writes `master.json`, and removes it if it ends because it was told to, or because it has
nothing to do. A record without a master therefore means that the master was killed. It is restarted only on its own
host, in its own home and in no copy of it, with its own options, and only if an experiment needs it. A master inside a
command (`--local`) leaves no record: it runs again when somebody starts the command again.
"""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec

from core_sdk._execution.experiments.calling import begin_master, ensure_master, is_master_running, start_master
from core_sdk._ground.files import read_regular, write_atomically
from core_sdk._ground.records import MasterRecord, SearchRecord, decode_file, encode_file
from core_sdk._home.folders import Home
from core_sdk.errors import CoreSDKError, ExperimentError

_ADVICE = (
    "If the home was moved, `core-sdk home adopt` continues what was running; in a copy, `core-sdk experiment activate "
    "ID` does"
)


def announce_master(home_root: Path, options: Sequence[str]) -> None:
    """Records that a master runs in the background. The master itself calls it."""
    record = MasterRecord(host=platform.node(), options=list(options), home=Home(home_root).owner())
    write_atomically(Home(home_root).master, encode_file(record))


def dismiss_master(home_root: Path) -> None:
    """Removes the record of the last master, so that it is not restarted."""
    Home(home_root).master.unlink(missing_ok=True)


def revive_master(home_root: Path, *, waits: bool = False) -> str:
    """Starts a master in the background if one was killed and is needed. With `waits`, returns when it listens.

    It never fails, since it is not what the caller is for. Returns what people should be told: why none is started, in
    a home that was copied or moved. Otherwise empty.
    """
    with contextlib.suppress(CoreSDKError, OSError, ValueError):
        if not Home(home_root).master.exists() or is_master_running(home_root):
            return ""
        record = decode_file(read_regular(Home(home_root).master), MasterRecord)
        home = Home(home_root)
        if record.host != platform.node() or not _is_needed(home):
            return ""
        if not home.ownership().is_elsewhere(record.home):
            (start_master if waits else begin_master)(home_root, record.options)
        elif not record.is_told:
            return (
                "experiments were running when this home was copied or moved, and do not go on here by themselves. "
                + _ADVICE
            )
    return ""


def note_told(home_root: Path) -> None:
    """Records that what `revive_master` returned was told, so that it is told only once."""
    with contextlib.suppress(OSError, ValueError):  # it is told again then
        record = decode_file(read_regular(Home(home_root).master), MasterRecord)
        write_atomically(Home(home_root).master, encode_file(msgspec.structs.replace(record, is_told=True)))


def go_on_here(home: Home) -> bool:
    """Starts a master if the experiments of a home that was moved need one, and returns whether they do."""
    if not _is_needed(home):
        return False
    ensure_master(home.root)
    return True


def keep_going(home: Home, experiment_id: int) -> None:
    """Starts a master if the experiment has not ended and none runs, so that a caller can wait for its end.

    Raises `ExperimentError` if the experiment stands still, so that it would never end.
    """
    search = home.experiment(experiment_id).read().own_search
    if search is None or search.has_ended:
        return
    if search.state == "ACTIVE" and home.ownership().is_elsewhere(search.home):
        problem = "was running when this home was copied or moved, and does not go on here by itself. "
        raise ExperimentError.of(experiment_id, problem + _ADVICE)
    ensure_master(home.root)
    if search.is_damaged:
        raise ExperimentError.of(experiment_id, f"stands still: {search.reason.rstrip('.')}")


def _is_needed(home: Home) -> bool:
    """Returns whether an experiment of the home is active, or has trials that still run."""
    for experiment_id in home.experiment_ids():
        with contextlib.suppress(CoreSDKError):
            search = home.experiment(experiment_id).read().own_search
            if search is not None and _goes_on(search):
                return True
    return False


def _goes_on(search: SearchRecord) -> bool:
    is_at_rest = search.state == "PAUSED" and not search.num_running
    return not (search.has_ended or search.is_damaged or is_at_rest)
