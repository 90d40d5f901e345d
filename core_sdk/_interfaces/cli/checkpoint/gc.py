"""`core-sdk checkpoint gc`: deleting the checkpoints that a policy does not keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import click

from core_sdk._ground.records import KeepEvery, SearcherMetric
from core_sdk._home import open_view
from core_sdk._interfaces.cli._arguments import BestMetric, SmallerIsBetter, Yes
from core_sdk._interfaces.cli._failures import ExitCode
from core_sdk._interfaces.cli._home import open_home
from core_sdk._interfaces.cli._ids import OfExperiment, OfTrial
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.cli.checkpoint.selection import check_scope
from core_sdk._interfaces.render.form import AsJson
from core_sdk._interfaces.render.output import confirm, print_object
from core_sdk._interfaces.render.tables import Column, print_table
from core_sdk._interfaces.render.text import format_size
from core_sdk._interfaces.signatures import Option

if TYPE_CHECKING:
    from core_sdk._home.deletion.collection import CollectionPlan, Deletions, Verdict

# How long to wait for another collector that is deleting.
_WAIT_S = 60.0


def _number(help_text: str, default: int) -> Any:
    return Option(min=0, help=help_text, show_default=f"as recorded, else {default}")


def gc(
    experiment: OfExperiment = None,
    trial: OfTrial = None,
    save_experiment_best: Annotated[int | None, _number("Keep the best N of each experiment.", 0)] = None,
    save_trial_best: Annotated[int | None, _number("Keep the best N of each trial.", 1)] = None,
    save_trial_latest: Annotated[int | None, _number("Keep the latest N of each trial.", 1)] = None,
    keep_every: Annotated[
        str | None,
        Option(
            metavar="UNIT=N",
            help="Keep the first of each trial at or after each multiple of N steps or hours: steps=10000, hours=6.",
            show_default="as recorded, else none",
        ),
    ] = None,
    metric: BestMetric = None,
    smaller_is_better: SmallerIsBetter = None,
    inherited: Annotated[
        bool,
        Option(
            "--inherited",
            help="Also of what was stored outside the home before it was moved or restored. Not in a copy whose "
            "original is still used: these are its checkpoints, too.",
        ),
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would be deleted, and delete nothing.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Show which checkpoints a policy keeps, and why; then delete the others, and what dead processes have left.

    The policy is the one that the newest init() of an experiment gave in its checkpoint_storage; options replace its
    keys. Pinned checkpoints, versions of models, checkpoints that a trial began with or that a running trial needs,
    and the only good checkpoint of a trial are never deleted, nor is what may belong to another home.
    """
    from core_sdk._home.deletion.collection import Collector, Request  # storages, which are slow to import

    best = {"save_experiment_best": save_experiment_best, "save_trial_best": save_trial_best}
    given = best | {"save_trial_latest": save_trial_latest, "keep_every": _interval(keep_every)}
    home = open_home()
    with open_view(home) as view:
        check_scope(view, trial, experiment)
        storages = {row.storage for row in view.checkpoints(trial_id=trial, experiment_id=experiment)}
    request = Request(
        experiment_id=experiment,
        trial_id=trial,
        policy={key: value for key, value in given.items() if value is not None},
        metric=metric,
        smaller_is_better=smaller_is_better,
        with_inherited=inherited,
        storages=storages,
    )
    with Collector(home, request) as collector:
        plan = collector.plan()
    if not as_json:
        _show(plan)
    if not plan.rules and not request.policy:
        say("no policy is recorded, so that all checkpoints are kept: give one with --save-experiment-best, "
            "--save-trial-best, --save-trial-latest or --keep-every, or in checkpoint_storage")  # fmt: skip
    deletions = None
    if not dry_run:
        if plan.condemned:
            confirm(f"Delete {_amount(plan.condemned)}?", yes)
        with Collector(home, request) as collector:
            deletions = collector.carry_out(plan, wait_s=_WAIT_S)
    _report(plan, deletions, as_json)


def _show(plan: CollectionPlan) -> None:
    for experiment_id, rules in plan.rules.items():
        policy = rules.policy
        click.echo(
            f"experiment {experiment_id} keeps the best {policy.save_experiment_best}, and of each trial the best "
            f"{policy.save_trial_best}{_and_firsts(policy.keep_every)} and the latest {policy.save_trial_latest}, by "
            f"{_metric(rules.metric)}"
        )
    if plan.verdicts:
        print_table(_columns(), plan.verdicts)


def _interval(text: str | None) -> dict[str, int | float] | None:
    """Returns the `keep_every` of a policy that the option states. Raises `BadParameter`."""
    if text is None:
        return None
    unit, _, number = text.partition("=")
    try:
        every = {unit: int(number) if number.isdecimal() else float(number)}
        KeepEvery.checked(every)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not steps=N, N a whole number above 0, or hours=N") from None
    return every


def _and_firsts(every: KeepEvery | None) -> str:
    if every is None:
        return ""
    return f", the first of every {f'{every.steps:,} steps' if every.steps else f'{every.hours:g} hours'}"


def _metric(metric: SearcherMetric | None) -> str:
    if metric is None:
        return "no known metric (give one with --metric NAME)"
    return f"{'smallest' if metric.smaller_is_better else 'largest'} {metric.name}"


def _columns() -> Sequence[Column[Verdict]]:
    return [
        Column("ID", lambda verdict: verdict.storage_id),
        Column("Trial", lambda verdict: verdict.trial_id, is_number=True),
        Column("Steps", lambda verdict: verdict.steps_completed, is_number=True),
        Column("Size", lambda verdict: format_size(verdict.size_bytes), is_number=True),
        Column("What", lambda verdict: "keep" if verdict.is_kept else "delete"),
        Column("Why", lambda verdict: "; ".join(verdict.reasons), can_be_cut=True),
    ]


def _report(plan: CollectionPlan, deletions: Deletions | None, as_json: bool) -> None:
    problems = plan.problems if deletions is None else deletions.problems
    if as_json:
        values = {"rules": plan.rules, "verdicts": plan.verdicts, "freed_bytes": _size_bytes(plan.condemned)}
        deleted = None if deletions is None else [verdict.storage_id for verdict in deletions.deleted]
        print_object(values | {"deleted": deleted, "problems": problems})
    elif deletions is not None and plan.condemned:
        click.echo(f"deleted {_amount(deletions.deleted)}")
    else:
        click.echo(f"to be deleted: {_amount(plan.condemned)}" if plan.condemned else "nothing to delete")
    for verdict in deletions.spared if deletions else ():
        reasons = "; ".join(verdict.reasons)
        say(f"checkpoint {verdict.storage_id} of trial {verdict.trial_id} was not deleted: {reasons}")
    for problem in problems:
        say(f"nothing was deleted in {problem}")
    if problems:
        raise click.exceptions.Exit(ExitCode.FAILURE)


def _amount(verdicts: Sequence[Verdict]) -> str:
    return f"{len(verdicts)} checkpoint{'' if len(verdicts) == 1 else 's'}, {_size_bytes(verdicts):,} bytes"


def _size_bytes(verdicts: Sequence[Verdict]) -> int:
    return sum(verdict.size_bytes for verdict in verdicts)
