"""`core-sdk trial evidence`, `tree` and `verdict`: for varying a training and deciding what to keep."""

from __future__ import annotations

import enum
from typing import Annotated

import click

from core_sdk._execution.steering import trials
from core_sdk._ground.records import fields_of
from core_sdk._home import open_view
from core_sdk._home.finding.facts import read_facts
from core_sdk._home.finding.tree import trial_tree
from core_sdk._interfaces.cli._arguments import BestMetric, SmallerIsBetter
from core_sdk._interfaces.cli._home import open_home
from core_sdk._interfaces.cli._ids import OfExperiment, TrialId
from core_sdk._interfaces.render.form import AsJson, Fields, choose_form
from core_sdk._interfaces.render.output import print_list, print_object
from core_sdk._interfaces.render.text import printable
from core_sdk._interfaces.signatures import Argument, Option


class _Verdict(enum.StrEnum):
    KEEP = "keep"
    DISCARD = "discard"
    NONE = "none"


def evidence(
    trial_id: TrialId,
    metric: BestMetric = None,
    smaller_is_better: SmallerIsBetter = None,
    as_json: AsJson = False,
    fields: Fields = "",
) -> None:
    """Show in at most 4 KB what helps to decide about a trial: for people, and for models that pay by the token.

    With --json nothing is left out.

    It has what was varied (hyperparameters, and sources in lines), the curve in 30 points with its true extremes, the
    best and the last value with their steps, where the time went, and, unless it ended well, the last 20 lines of its
    output.
    """
    from core_sdk._analysis.evidence import read_evidence

    form = choose_form(as_json, fields=fields)
    home = open_home()
    with open_view(home) as view:
        found = read_evidence(home, view, trial_id, metric, smaller_is_better)
    if form.is_json:
        print_object(
            fields_of(found)
            | {
                "time": found.time.as_values(),
                "machine": None if found.machine is None else found.machine.as_values(),
            },
            form.fields,
        )
    else:
        click.echo("\n".join(map(printable, found.text().split("\n"))))


def tree(
    root: Annotated[
        int | None, Argument(metavar="[ID]", help="Only this trial and its variations.", show_default=False)
    ] = None,
    experiment: OfExperiment = None,
    metric: BestMetric = None,
    smaller_is_better: SmallerIsBetter = None,
    every: Annotated[bool, Option("--all", help="All of them, and not only the newest in 4 KB.")] = False,
    as_json: AsJson = False,
    fields: Fields = "",
) -> None:
    """Show trials below those that they vary, each with its best value, its verdict and its hypothesis."""
    from core_sdk._analysis.evidence import MOST_BYTES, bounded, tree_lines

    form = choose_form(as_json, fields=fields)
    home = open_home()
    with open_view(home) as view:
        if root is not None:
            view.trial(root)
        branches = trial_tree(read_facts(view, view.trials(experiment)), root)
    if form.is_json:
        names = ("trial_id", "parent", "hypothesis", "verdict", "verdict_reason", "state")
        rows = ({"depth": one.depth} | {name: getattr(one.trial.row, name) for name in names} for one in branches)
        print_list(rows, form.fields)
        return
    lines = [printable(line) for line in tree_lines(home, branches, metric, smaller_is_better)]
    click.echo("\n".join(lines) if every else bounded(MOST_BYTES, lines, is_end_kept=True))


def verdict(
    trial_id: TrialId,
    decision: Annotated[_Verdict, Argument(help="What was decided; none takes it back.", show_default=False)],
    why: Annotated[str, Option(metavar="TEXT", help="The reason.")] = "",
) -> None:
    """Record what was decided about a trial: to keep the variation, or to discard it."""
    decided = "" if decision is _Verdict.NONE else decision.value
    trials.describe(open_home(), trial_id, verdict=decided, verdict_reason=why)
    click.echo(f"the verdict on trial {trial_id}: {decision.value}")
