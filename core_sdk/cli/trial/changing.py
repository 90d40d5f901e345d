"""The commands that change what people call a trial and what they know of it, and that hide or delete trials."""

from __future__ import annotations

import itertools
import sys
import time
from typing import Annotated

import typer

from core_sdk.cli._arguments import Force, Remove, TrialId, TrialIds, Yes
from core_sdk.cli._each import for_each
from core_sdk.cli._home import open_tracker
from core_sdk.cli.render.output import AsJson, confirm
from core_sdk.cli.render.text import printable
from core_sdk.errors import CoreSDKError
from core_sdk.records import TrialLabelsChanged, check_name
from core_sdk.tracking import HomeTracker
from core_sdk.tracking.rows import TrialRow


def register(app: typer.Typer) -> None:
    for command in (rename, note, label, archive, unarchive, delete):
        app.command()(command)


def rename(
    trial_id: TrialId,
    name: Annotated[str, typer.Argument(help='Its new name; "" is the generated one.', show_default=False)],
) -> None:
    """Give a trial another name. Several trials may have the same one."""
    open_tracker().describe_trial(trial_id, name=name)
    typer.echo(f"the name of trial {trial_id}: {printable(_row(trial_id).name)}")


def note(
    trial_id: TrialId,
    text: Annotated[
        str | None,
        typer.Argument(metavar="[TEXT]", help='Its new notes; "-" reads them from the input.', show_default=False),
    ] = None,
    append: Annotated[bool, typer.Option("--append", help="Add a paragraph to the notes that it has.")] = False,
) -> None:
    """Write a trial's notes, in Markdown, in place of those that it has. Without TEXT, print them."""
    notes = _row(trial_id).notes
    if text is not None:
        text = sys.stdin.read() if text == "-" else text
        notes = f"{notes}\n\n{text}" if append and notes else text
        open_tracker().describe_trial(trial_id, notes=notes)
    typer.echo("\n".join(map(printable, notes.splitlines())) or f"trial {trial_id} has no notes")


def label(
    trials_and_labels: Annotated[
        list[str],
        typer.Argument(metavar="ID… LABEL…", help="The trials' numbers, then the labels.", show_default=False),
    ],
    remove: Remove = False,
) -> None:
    """Give trials labels, or take them away."""
    trial_ids = [int(text) for text in itertools.takewhile(str.isdecimal, trials_and_labels)]
    texts = [check_name("the label", text) for text in trials_and_labels[len(trial_ids) :]]
    if not trial_ids or not texts:
        raise typer.BadParameter("give the numbers of trials, then labels, which are words: `trial label 12 13 paper`")
    for trial_id in trial_ids:
        _row(trial_id)  # an unknown one fails before anything is changed
    added, removed = ([], texts) if remove else (texts, [])
    for trial_id in trial_ids:
        open_tracker().append_change(trial_id, TrialLabelsChanged(time=time.time(), added=added, removed=removed))
        typer.echo(f"labels of trial {trial_id}: {printable(', '.join(_row(trial_id).labels)) or 'none'}")


def _row(trial_id: int) -> TrialRow:
    with open_tracker().view() as view:
        return view.trial(trial_id)


def archive(trial_ids: TrialIds, as_json: AsJson = False) -> None:
    """Hide trials that do not run from lists; `list --all` shows them.

    A trial that is resumed is in lists again.
    """
    _archive(trial_ids, True, as_json)


def unarchive(trial_ids: TrialIds, as_json: AsJson = False) -> None:
    """Show trials in lists again."""
    _archive(trial_ids, False, as_json)


def _archive(trial_ids: list[int], is_archived: bool, as_json: bool) -> None:
    tracker = open_tracker()

    def change(trial_id: int) -> str:
        tracker.archive_trial(trial_id, is_archived=is_archived)
        return "archived" if is_archived else "unarchived"

    for_each("trial", trial_ids, change, as_json)


def delete(
    trial_ids: TrialIds,
    force: Force = False,
    yes: Yes = False,
) -> None:
    """Delete trials, their records and their checkpoints.

    A trial with a checkpoint that is pinned, that another trial began with, that a running trial uses, or that is a
    version of a model is not deleted; --force overrides the first two.
    """
    tracker = open_tracker()
    trial_ids = list(dict.fromkeys(trial_ids))
    for trial_id in trial_ids:
        tracker.attempts(trial_id)  # an unknown one fails before anything is asked
    trials = [f"trial {trial_id}{_at_a_glance(tracker, trial_id)}" for trial_id in trial_ids]
    if len(trials) > 1:
        typer.echo("\n".join(trials), err=True)
    what = f"{trials[0]}, all its" if len(trials) == 1 else f"these {len(trials)} trials, all their"
    confirm(f"Delete {what} records and checkpoints?", yes)
    for trial_id in trial_ids:
        tracker.delete_trial(trial_id, is_forced=force)
        typer.echo(f"deleted trial {trial_id}")


def _at_a_glance(tracker: HomeTracker, trial_id: int) -> str:
    """Returns a short description by which a person notices a mistyped id; empty for a trial that cannot be read."""
    try:
        with tracker.view() as view:
            row = view.trial(trial_id)
    except CoreSDKError:
        return ""
    return f" of experiment {printable(row.experiment_name)!r} ({row.state}, {row.steps_completed:,} steps)"
