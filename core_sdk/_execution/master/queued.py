"""The queue of a home: what waits or runs, on all engines, since when, and why it waits."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from core_sdk._execution.experiments.protocol import ExperimentStatus, HomeStatus, MasterStatus
from core_sdk._home import Home, open_view
from core_sdk._machine.slots import PostedTicket, obstacles, waiting_line
from core_sdk.errors import ExperimentNotFoundError, RecordDamagedError, SlurmError


class Queued(msgspec.Struct, frozen=True):
    """An experiment that has not ended; or a command or a trial, without a master, that waits."""

    experiment_id: int | None
    name: str
    state: str
    priority: int | None
    num_running: int
    num_waiting: int
    suspended: str
    """The reason why it stands still although it is active."""
    engine: str = "local"
    """Where it runs: `local`, `slurm`, or the address of a Ray cluster."""
    trial_id: int | None = None
    place: int | None = None
    """Its place in the line for this machine's slots, from 1; None if it has none, as in a cluster."""
    since: float | None = None
    """The time since which it, or the first of its trials that wait, waits, in seconds since the epoch."""
    why: str = ""
    """The reason for which it waits."""
    home: str = ""


def queue_of(home: Home, status: HomeStatus, tickets: Sequence[PostedTicket]) -> list[Queued]:
    """Returns what waits or runs in a home, in its order: first experiments, then commands, and trials in Slurm.

    `tickets` are the tickets of the whole machine.
    """
    line = {ticket.number: place for place, ticket in enumerate(waiting_line(tickets), 1)}
    own = [ticket for ticket in tickets if ticket.home == str(home.root) and ticket.number in line]
    master = status.pid if isinstance(status, MasterStatus) else None
    # A home waits with one ticket, for the first of its experiments that waits here.
    place = next((line[ticket.number] for ticket in own if ticket.pid == master), None)
    commands = (_of_command(ticket, tickets, line[ticket.number]) for ticket in own if ticket.pid != master)
    experiments = _of_experiments(home, status.experiments, place)
    return [*experiments, *sorted(commands, key=lambda row: row.place or 0), *_in_slurm(home)]


def _of_experiments(home: Home, told: Sequence[ExperimentStatus], place: int | None) -> Iterator[Queued]:
    for one in sorted(told, key=lambda one: (one.priority, one.place, one.experiment_id)):
        waits_here = one.waiting > 0 and not one.cluster
        yield Queued(
            one.experiment_id,
            _name(home, one.experiment_id),
            one.state,
            one.priority,
            len(one.running),
            one.waiting,
            one.suspended,
            one.cluster or "local",
            place=place if waits_here else None,
            since=one.since,
            why=one.suspended or one.why,
            home=str(home.root),
        )
        place = None if waits_here else place


def _of_command(ticket: PostedTicket, tickets: Sequence[PostedTicket], place: int) -> Queued:
    name, why = f"a command (process {ticket.pid})", obstacles(ticket.number, tickets)
    home = ticket.home or ""
    return Queued(None, name, "QUEUED", None, 0, 1, "", place=place, since=ticket.since, why=why, home=home)


def _in_slurm(home: Home) -> Iterator[Queued]:
    """Yields the trials that wait in Slurm's queue without a master."""
    # Few trials are jobs of Slurm's, and this runs for thousands: `Path` takes five times as long as the system call.
    runs, numbers = home.runs, home.trial_ids(include_deleted=True)
    jobs = [number for number in numbers if os.path.exists(f"{runs}/{number}/slurm.json")]  # noqa: PTH110
    if not jobs:
        return
    with open_view(home) as view:
        rows = [row for row in view.trials(trial_ids=jobs) if row.state == "QUEUED" and row.try_id is None]
    if not rows:
        return
    from core_sdk._execution.slurm.following import waiting_jobs  # what few homes need

    whys = {row.trial_id: "Slurm cannot be asked here" for row in rows}
    with contextlib.suppress(SlurmError):
        whys = {job.folder.trial_id: job.words for job in waiting_jobs(home.folder(row.trial_id) for row in rows)}
    for row in rows:
        if row.trial_id in whys:
            since = (home.folder(row.trial_id).path / "slurm.json").stat().st_mtime
            yield Queued(
                row.experiment_id,
                row.experiment_name,
                "QUEUED",
                None,
                0,
                1,
                "",
                "slurm",
                row.trial_id,
                since=since,
                why=whys[row.trial_id],
                home=str(home.root),
            )


def _name(home: Home, experiment_id: int) -> str:
    """Returns the experiment's name; empty if its record is damaged, or has been deleted."""
    try:
        return home.experiment(experiment_id).read().name
    except (ExperimentNotFoundError, RecordDamagedError):
        return ""


def homes_in_line(tickets: Sequence[PostedTicket]) -> set[Path]:
    """Returns the homes of this user that have or want slots of this machine, or have jobs in Slurm's queue."""
    found = {Path(ticket.home) for ticket in tickets if ticket.home is not None}
    with contextlib.suppress(SlurmError):
        from core_sdk._execution.slurm.commands import own_scripts

        found |= {path.parents[2] for path in map(Path, own_scripts()) if path.name == "slurm.sh"}
    return {path for path in found if path.is_dir()}
