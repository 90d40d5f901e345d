"""Fetches a trial of a workspace into the home, in order to go on with it on this machine."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec

from core_sdk._execution.experiments.code import unpack_for_trial
from core_sdk._home import Home, TrialFolder
from core_sdk._home.moving.archive import import_trials
from core_sdk._home.pushes import find_login
from core_sdk._workspace.connection import WorkspaceConnection
from core_sdk._workspace.wire import AskedArchive
from core_sdk.errors import WorkspaceError


def fetch(home: Home, workspace: str, number: int) -> TrialFolder:
    """Takes a trial of a workspace into the home: its records, the code of a try, and the checkpoints that lie there.

    A trial that is here already, since it was fetched before or was sent from here, stays as it is.

    Raises `WorkspaceError`, `UnknownWorkspaceError`, `TrialNotFoundError`, `TrialRunningError`, `RecordDamagedError` or
    `CodeDamagedError`.
    """
    found = find_login(workspace)
    with tempfile.TemporaryDirectory(prefix="core-sdk-fetch-") as directory:
        archive = Path(directory) / "trial.tar"
        with WorkspaceConnection(found.url, found.token) as connection:
            connection.fetch(AskedArchive(number), archive)
        merged = import_trials(home, archive)
    known = merged.known | merged.taken
    if number not in known:
        raise WorkspaceError(found.url, "; ".join(merged.left) or f"it has no trial {number}")
    folder = home.folder(known[number])
    if number in merged.taken:
        record = folder.read_record()
        folder.write_record(msgspec.structs.replace(record, fetched_from=f"{found.url}/#/trials/{number}"))
        if record.code is not None:
            _use_code_here(home, folder, record.code.sha256)
    return folder


def _use_code_here(home: Home, folder: TrialFolder, sha256: str) -> None:
    """Has a command that starts in the trial's copy of the code, on the other machine, start in a copy that is here."""
    command = folder.read_command()
    if command is None or (there := Path(command.cwd)).parts[-3:-2] != ("runs",) or there.name != "code":
        return
    here = str(unpack_for_trial(home, sha256, folder).absolute())
    command.argv = [argument.replace(str(there), here) for argument in command.argv]
    command.cwd = here
    folder.write_command(command)
