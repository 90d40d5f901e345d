"""`init(writer=…)`: the Context of a program that reports about a trial next to its own program."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from core_sdk._distributed import DistributedContext
from core_sdk._ground.environment import WriterSettings, is_quiet, run_info
from core_sdk._ground.files import file_url
from core_sdk._ground.records import check_writer_name
from core_sdk._home import Home
from core_sdk._home.pushes import have_pushed, workspace_address
from core_sdk._home.storage import storage_from_url
from core_sdk.core._announcements import tell_of_writer
from core_sdk.core._attempt import open_home
from core_sdk.core._context import Context
from core_sdk.core._ranks import on_all_ranks
from core_sdk.core._settings import ProcessSettings
from core_sdk.core._writer._claiming import claim_writer
from core_sdk.core._writer._ledger import WriterLedger

logger = logging.getLogger("core_sdk.core")


def init_writer(
    writer: str | None,
    trial: int | str | None,
    of_trial: Mapping[str, Any],
    distributed: DistributedContext,
    settings: ProcessSettings,
    workspace: str | None = None,
) -> Context:
    """Returns the Context of the writer that `init()` or the environment names. Collective.

    `of_trial` are the arguments of `init()` that describe a trial; those that were not given are None.
    """
    environment = WriterSettings.read()
    if (name := writer or environment.name) is None:
        raise ValueError("init(trial=…) is for a writer: give it a name with init(writer=…)")
    given = ", ".join(argument for argument, value in of_trial.items() if value is not None)
    if given and writer is not None:
        raise ValueError(f"init(writer=…) takes no {given}: a writer does not describe the trial")
    if given:
        logger.info("%s of init() are not used: %r only writes to a trial", given, name)
    info = run_info()
    if (which := trial if trial is not None else environment.trial) is None:
        if info is None or info.trial_or_none is None:
            raise ValueError(f"init(writer={name!r}) does not say which trial to write to: give trial=…")
        which = info.trial.trial_id
    address = on_all_ranks(distributed, lambda: workspace_address(workspace) if distributed.is_chief else "")
    return open_writer(open_home(distributed, None), which, name, distributed, settings, address)


def open_writer(
    home: Home,
    which: int | str,
    name: str,
    distributed: DistributedContext,
    settings: ProcessSettings | None = None,
    address: str = "",
) -> Context:
    """Returns the Context of a writer of a trial, which its id or its name tells. Collective."""
    check_writer_name(name)
    which = int(which) if isinstance(which, str) and which.isdecimal() else which
    if isinstance(which, int) and (left := home.folder(which)).path.is_dir():
        Context.close_left(left, name)
    attempt, journal = claim_writer(home, which, name, distributed)
    if distributed.is_chief:
        have_pushed(attempt.folder, address)
    storage = storage_from_url(file_url(home.checkpoints))
    if distributed.is_chief and run_info() is None and not is_quiet():
        tell_of_writer(attempt)
    return Context(attempt, storage, distributed, settings or ProcessSettings(), WriterLedger(journal, attempt.folder))
