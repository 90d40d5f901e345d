"""One home and one attempt on all ranks: the chief opens and claims them, and the others learn of them."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from core_sdk._distributed import DistributedContext
from core_sdk._ground.environment import Environment, is_home_spooled, leave_job, use_run_info
from core_sdk._ground.ownership import describe_foreign_owner
from core_sdk._ground.records import AttemptStarted, ClusterInfo, TrialRecord
from core_sdk._home import Home, TrialFolder
from core_sdk._home.attempts.claiming import Attempt, claim_attempt, start_record
from core_sdk._home.attempts.definition import Definition
from core_sdk._home.attempts.restarts import check_home, note_trial_of_launch
from core_sdk._home.attempts.run_info import is_restart
from core_sdk._home.journal import RankJournal, read_records

logger = logging.getLogger("core_sdk.core")


class _ClaimedAttempt(msgspec.Struct, frozen=True):
    """The description of the attempt that the chief sends to the other ranks."""

    home: Path
    number: int
    info: ClusterInfo
    record: TrialRecord
    start: AttemptStarted
    is_home_spooled: bool
    """Whether `home` is a spool on the chief's node."""


def open_home(distributed: DistributedContext, info: ClusterInfo | None) -> Home:
    """Makes the home on the chief if there is none, and returns it. `info` is the run info. Collective."""
    return Home(distributed.channel.broadcast_outcome(lambda: _create_home(info)))


def _create_home(info: ClusterInfo | None) -> Path:
    root = Environment.read().home
    check_home(root, info)
    home = Home.create(root.absolute())  # the script may change its working directory
    if words := describe_foreign_owner(home.root):
        logger.warning("the home %s %s", home.root, words)
    return home.root


def claim_together(
    home: Home, info: ClusterInfo | None, definition: Definition, distributed: DistributedContext
) -> Attempt:
    """Claims the attempt on the chief, and returns it as each rank holds it. Collective."""
    attempts: list[Attempt] = []

    def claim() -> _ClaimedAttempt:
        distributed.channel.check()
        attempt = claim_attempt(home, info, definition, distributed.size)
        attempts.append(attempt)
        return _ClaimedAttempt(
            home.root, attempt.number, attempt.info, attempt.record, attempt.start, is_home_spooled()
        )

    try:
        claimed = distributed.channel.broadcast_outcome(claim)
    except BaseException as error:
        for attempt in attempts:
            attempt.give_back(error)
        raise
    leave_job()
    attempt = attempts[0] if attempts else _of_other_rank(home, claimed, info, distributed.rank)
    if distributed.is_local_chief:
        note_trial_of_launch(attempt.folder, attempt.number, is_home_shared=attempt.is_home_shared)
    if is_restart(info, attempt.folder.trial_id, attempt.number) and attempt.is_home_shared:
        # The launcher has given this process, as it gave its predecessor, what was true for the first attempt.
        use_run_info(attempt.folder.run_info_path(attempt.number))
    return attempt


def _of_other_rank(home: Home, claimed: _ClaimedAttempt, own_info: ClusterInfo | None, rank: int) -> Attempt:
    folder = home.folder(claimed.record.trial_id)
    is_home_shared = _begins_with(folder.journal_path(claimed.number), claimed.start)
    own_folder = None if is_home_shared else _own_folder(claimed)
    start = start_record(folder, claimed.number, claimed.start.home, rank)
    own_or_shared = own_folder or folder
    journal = RankJournal(
        own_or_shared.journal_path(claimed.number, rank),
        start,
        is_kept=is_home_shared or own_folder is not None,
    )
    info = _on_this_node(claimed.info, own_info)
    return Attempt(folder, claimed.number, info, claimed.record, start, journal, None, is_home_shared)


def _begins_with(journal: Path, start: AttemptStarted) -> bool:
    """Returns whether the journal begins with the record `start`.

    It does not on a node that has nothing at this path, or another home with a trial of the same number.
    """
    try:
        return next(read_records(journal), None) == start
    except OSError:
        return False


def _own_folder(claimed: _ClaimedAttempt) -> TrialFolder | None:
    """Returns the trial's folder on this node where rank 0 or this rank records in a spool; None if there is none.

    The records of both get into the same home in the end.
    """
    if not (claimed.is_home_spooled or is_home_spooled()):
        return None
    home = Home(Environment.read().home)
    folder = home.folder(claimed.record.trial_id)
    return folder if folder.path.is_dir() and home.ownership().covers(claimed.start.home) else None


def _on_this_node(info: ClusterInfo, own_info: ClusterInfo | None) -> ClusterInfo:
    """Returns the chief's cluster info, with this node's own values in the fields that differ between nodes."""
    if own_info is None:
        return info
    return msgspec.structs.replace(
        info,
        container_rank=own_info.container_rank,
        named_slot_ids=own_info.named_slot_ids,
        container_slot_counts=own_info.container_slot_counts,
        gpu_uuids=own_info.gpu_uuids,
        agent_id=own_info.agent_id,
    )
