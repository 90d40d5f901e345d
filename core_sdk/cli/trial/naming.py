"""The commands that change what people call a trial, and what they know of it."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from core_sdk.cli._arguments import Labels, Remove, TrialId
from core_sdk.cli._home import open_tracker
from core_sdk.cli.render.text import printable
from core_sdk.records import TrialLabelsChanged, check_name
from core_sdk.tracking.rows import TrialRow


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


def label(trial_id: TrialId, labels: Labels, remove: Remove = False) -> None:
    """Give a trial labels, or take them away."""
    _row(trial_id)
    texts = [check_name("the label", text) for text in labels]
    added, removed = ([], texts) if remove else (texts, [])
    open_tracker().append_change(trial_id, TrialLabelsChanged(time=time.time(), added=added, removed=removed))
    typer.echo(f"labels of trial {trial_id}: {printable(', '.join(_row(trial_id).labels)) or 'none'}")


def _row(trial_id: int) -> TrialRow:
    with open_tracker().view() as view:
        return view.trial(trial_id)
