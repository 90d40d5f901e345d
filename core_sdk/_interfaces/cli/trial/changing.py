"""The commands that change what people call a trial and what they know of it, and that hide or delete trials."""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import click

from core_sdk._execution.steering import trials
from core_sdk._home import Home, open_view
from core_sdk._home.rows import TrialRow
from core_sdk._interfaces.cli._arguments import Force, Remove, Where, Yes
from core_sdk._interfaces.cli._each import for_each
from core_sdk._interfaces.cli._home import open_home
from core_sdk._interfaces.cli._ids import MaybeTrialIds, TrialId, parse_trial
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.cli.trial.listing import choose_trials
from core_sdk._interfaces.render.form import AsJson
from core_sdk._interfaces.render.output import confirm
from core_sdk._interfaces.render.text import printable
from core_sdk._interfaces.signatures import Argument, Option
from core_sdk.errors import CoreSDKError

Quiet = Annotated[bool, Option("--quiet", "-q", help="Print only the numbers of the trials.")]


def rename(
    trial_id: TrialId,
    name: Annotated[str, Argument(help='Its new name; "" is the generated one.', show_default=False)],
) -> None:
    """Give a trial another name. Several trials may have the same one."""
    trials.describe(open_home(), trial_id, name=name)
    click.echo(f"the name of trial {trial_id}: {printable(_row(trial_id).name)}")


def note(
    trial_id: TrialId,
    text: Annotated[
        str | None,
        Argument(metavar="[TEXT]", help='Its new notes; "-" reads them from the input.', show_default=False),
    ] = None,
    append: Annotated[bool, Option("--append", help="Add a paragraph to the notes that it has.")] = False,
) -> None:
    """Write a trial's notes, in Markdown, in place of those that it has. Without TEXT, print them."""
    notes = _row(trial_id).notes
    if text is not None:
        text = sys.stdin.read() if text == "-" else text
        before = notes if append else None
        notes = f"{notes}\n\n{text}" if append and notes else text
        trials.describe(open_home(), trial_id, notes=notes, notes_before=before)
    click.echo("\n".join(map(printable, notes.splitlines())) or f"trial {trial_id} has no notes")


def label(
    trials_and_labels: Annotated[
        list[str],
        Argument(
            metavar="ID… LABEL…",
            help="A trial's number or name, further numbers, then the labels; with --where only labels.",
            show_default=False,
        ),
    ],
    where: Where = "",
    remove: Remove = False,
    quiet: Quiet = False,
) -> None:
    """Give trials labels, or take them away."""
    given, labels = ([], trials_and_labels) if where else _trials_first(trials_and_labels)
    if not labels:
        raise click.BadParameter("give the numbers of trials, then labels, which are words: `trial label 12 13 paper`")
    home = open_home()
    trial_ids = _chosen(given, where)
    for trial_id in trial_ids:
        _row(trial_id)  # an unknown one fails before anything is changed
    change = {"remove" if remove else "add": labels}
    for trial_id in trial_ids:
        trials.label(home, trial_id, **change)
        now = "" if quiet else printable(", ".join(_row(trial_id).labels)) or "none"
        click.echo(trial_id if quiet else f"labels of trial {trial_id}: {now}")


def _trials_first(texts: list[str]) -> tuple[list[int], list[str]]:
    """Returns the trials and the labels: a label is not a number, and the first text is a trial's name, if none."""
    num_trials = next((index for index, text in enumerate(texts) if index and not text.isdecimal()), len(texts))
    return [parse_trial(text) for text in texts[:num_trials]], texts[num_trials:]


def _chosen(trial_ids: list[int] | None, where: str) -> list[int]:
    """Returns the trials that are given, or those that fulfil a condition, archived ones too."""
    if bool(trial_ids) == bool(where):
        raise click.BadParameter("give the numbers of trials, or --where, one of them")
    if not where:
        return list(dict.fromkeys(trial_ids or ()))
    with open_view(open_home()) as view:
        found = choose_trials(view, view.trials(), where=where, with_archived=True).rows
    if not found:
        say("no trial fulfils the condition")
    return [row.trial_id for row in found]


def _row(trial_id: int) -> TrialRow:
    with open_view(open_home()) as view:
        return view.trial(trial_id)


def archive(trial_ids: MaybeTrialIds = None, where: Where = "", quiet: Quiet = False, as_json: AsJson = False) -> None:
    """Hide trials that do not run from lists; `list --all` shows them.

    A trial that is resumed is in lists again.
    """
    archive = partial(trials.archive, open_home())
    for_each("trial", _chosen(trial_ids, where), archive, as_json, done="archived", only_ids=quiet)


def unarchive(
    trial_ids: MaybeTrialIds = None, where: Where = "", quiet: Quiet = False, as_json: AsJson = False
) -> None:
    """Show trials in lists again."""
    unarchive = partial(trials.unarchive, open_home())
    for_each("trial", _chosen(trial_ids, where), unarchive, as_json, done="unarchived", only_ids=quiet)


def delete(
    trial_ids: MaybeTrialIds = None,
    where: Where = "",
    force: Force = False,
    yes: Yes = False,
    quiet: Quiet = False,
) -> None:
    """Delete trials, their records and their checkpoints.

    A trial with a checkpoint that is pinned, that another trial began with, that a running trial uses, or that is a
    version of a model is not deleted; --force overrides the first two. It also overrides a writer that still reports
    about the trial.
    """
    home = open_home()
    chosen = _chosen(trial_ids, where)
    for trial_id in chosen:
        home.trial(trial_id)  # an unknown one fails before anything is asked
    if not chosen:
        return
    shown = [f"trial {trial_id}{_at_a_glance(home, trial_id)}" for trial_id in chosen]
    if len(shown) > 1:
        click.echo("\n".join(shown), err=True)
    what = f"{shown[0]}, all its" if len(shown) == 1 else f"these {len(shown)} trials, all their"
    confirm(f"Delete {what} records and checkpoints?", yes)
    for trial_id in chosen:
        trials.delete(home, trial_id, force=force)
        click.echo(trial_id if quiet else f"deleted trial {trial_id}")


def _at_a_glance(home: Home, trial_id: int) -> str:
    """Returns a short description by which a person notices a mistyped id; empty for a trial that cannot be read."""
    try:
        with open_view(home) as view:
            row = view.trial(trial_id)
    except CoreSDKError:
        return ""
    return f" of experiment {printable(row.experiment_name)!r} ({row.state}, {row.steps_completed:,} steps)"
