"""The trials of a home that are to be sent: a file for each, until all of it is there.

The pusher may be killed at any time: the next one continues. It is an annex, which is started by its name.
"""

from __future__ import annotations

import contextlib
import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

from core_sdk._ground.alive import is_alive
from core_sdk._ground.environment import WorkspaceSettings, agent_variables, is_home_spooled
from core_sdk._ground.files import read_regular, write_atomically
from core_sdk._ground.ownership import make_directory
from core_sdk._ground.records import decode_file, encode_file
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.pushes._logins import find_login

logger = logging.getLogger("core_sdk.tracking")

_PUSHER = "core_sdk._execution.steering"
"""The module of the pusher, an annex: it knows the verbs that people ask for in a workspace."""


class PushRecord(msgspec.Struct, kw_only=True, frozen=True):
    """`<home>/pushes/<trial>.json`: a trial that is to be sent to a workspace."""

    format: int = 1
    trial_id: int
    workspace: str
    """The address of the workspace."""


def workspace_address(workspace: str | None) -> str:
    """Returns the address of the workspace to which this process's trials are sent; empty if they are not.

    `workspace` is an address or the name of a login; None leaves it to CORE_SDK_SERVER. Raises `UnknownWorkspaceError`
    or `RecordDamagedError`.
    """
    settings = WorkspaceSettings.read()
    named = settings.server if workspace is None else workspace
    return find_login(named, settings).url if named else ""


def have_pushed(folder: TrialFolder, address: str) -> None:
    """Has a trial sent like `want_push`. Never fails, since it is not what the caller is for; no address sends none."""
    if not address:
        return
    if is_home_spooled():
        logger.warning(
            "trial %d is not sent to %s from here: this node does not see its home. Set CORE_SDK_SERVER where the "
            "training was begun",
            folder.trial_id,
            address,
        )
        return
    try:
        want_push(folder, address)
    except OSError as error:
        logger.warning("trial %d is not sent to %s: %s; `core-sdk push` sends it", folder.trial_id, address, error)


def keep_pushing(folder: TrialFolder) -> None:
    """Starts a pusher again that was killed while it had to send something of the trial. Never fails."""
    with contextlib.suppress(OSError):
        if is_push_wanted(folder):
            start_pusher(folder.home_root)


def want_push(folder: TrialFolder, workspace: str) -> None:
    """Has a trial sent to the workspace at this address, from now on until it has ended and all of it is there.

    Does not wait for that. Raises `OSError` if it cannot be noted.
    """
    make_directory(_directory(folder.home_root), exist_ok=True)
    record = PushRecord(trial_id=folder.trial_id, workspace=workspace)
    write_atomically(_path(folder.home_root, folder.trial_id), encode_file(record))
    start_pusher(folder.home_root)


def is_push_wanted(folder: TrialFolder) -> bool:
    """Returns whether something of the trial may have to be sent yet."""
    return _path(folder.home_root, folder.trial_id).exists()


def wanted_pushes(home_root: Path) -> list[PushRecord]:
    """Returns the trials that are to be sent, in order."""
    return sorted(_read_all(home_root), key=lambda each: each.trial_id)


def end_push(home_root: Path, record: PushRecord) -> None:
    """Notes that all of a trial is there, unless somebody has named another workspace meanwhile."""
    path = _path(home_root, record.trial_id)
    if _read(path) == record:
        path.unlink(missing_ok=True)


def pusher_lock(home_root: Path) -> Path:
    """Returns the path of the file that the home's pusher holds locked."""
    return _directory(home_root) / "pusher.lock"


def pusher_log(home_root: Path) -> Path:
    """Returns the path of the file in which the home's pusher writes down what goes wrong."""
    return _directory(home_root) / "pusher.log"


def start_pusher(home_root: Path) -> None:
    """Starts the home's pusher in the background, unless it is at work. It outlives this process."""
    if is_alive(pusher_lock(home_root)):
        return
    from core_sdk._machine.processes import start_helper  # which a training that sends nothing does not need

    start_helper(
        ["-P", "-m", _PUSHER, str(home_root.absolute())],
        env=agent_variables(),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _read_all(home_root: Path) -> Iterator[PushRecord]:
    for path in _directory(home_root).glob("*.json"):
        if (record := _read(path)) is not None and Home(home_root).folder(record.trial_id).exists():
            yield record


def _read(path: Path) -> PushRecord | None:
    with contextlib.suppress(FileNotFoundError, ValueError):
        return decode_file(read_regular(path), PushRecord)
    return None


def _directory(home_root: Path) -> Path:
    return home_root / "pushes"


def _path(home_root: Path, trial_id: int) -> Path:
    return _directory(home_root) / f"{trial_id}.json"
