"""`core-sdk keep`, `core-sdk discard` and `core-sdk code`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from core_sdk._ground.records import CodeRecord, SearcherMetric
from core_sdk._home import Home, open_view
from core_sdk._home.finding.tries import Tries, Try, read_tries, study_of
from core_sdk._interfaces.cli._home import open_home
from core_sdk._interfaces.cli._ids import TrialId, trial_option
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.render.text import printable
from core_sdk._interfaces.signatures import Argument, Option

if TYPE_CHECKING:
    from core_sdk._home.finding.noise import MeanDifference

Why = Annotated[str, Argument(help="The reason.", show_default=False)]


def keep(
    trial_id: TrialId,
    why: Why,
    branch: Annotated[
        str, Option(metavar="NAME", help="Move this branch of git on to the code of the try, or make it.")
    ] = "",
) -> None:
    """Keep a try: the next ones vary it. Warns where noise may explain its gain.

    core-sdk keep 4 "twice the accuracy, beyond noise"
    """
    from core_sdk._execution.studies import move_branch

    home = open_home()
    tries, one = _find(home, trial_id)
    found = tries.to_parent(one)
    if found is not None and (doubt := _doubt(found, tries)):
        say(f"try {one.try_id}: {doubt}")
    if branch:
        move_branch(Path.cwd(), branch, _code(one).commit)
    _decide(home, one, "keep", why)


def discard(
    trial_id: TrialId,
    why: Why,
    restore: Annotated[
        bool,
        Option(
            "--restore", help="Give this directory the parent's code back, unless it has changes that are in no try."
        ),
    ] = False,
) -> None:
    """Discard a try. Warns where it is better beyond noise.

    core-sdk discard 4 "no better than its parent" --restore
    """
    from core_sdk._execution.studies import restore as restore_code

    home = open_home()
    tries, one = _find(home, trial_id)
    found = tries.to_parent(one)
    if found is not None and found.mark == "beyond noise" and _is_better(found, tries):
        say(f"try {one.try_id} is better than its parent, beyond noise")
    changed = None
    if restore:
        if (parent := tries.parent_of(one)) is None:
            raise click.BadParameter(f"try {one.try_id} has no parent whose code could be restored")
        kept = {each.row.code.sha256 for each in tries.by_id.values() if each.row.code is not None}
        changed = restore_code(home, Path.cwd(), _code(parent), kept)
    _decide(home, one, "discard", why)
    if changed is not None:
        click.echo(f"restored the code of {one.row.parent}: {', '.join(changed[:10]) or 'nothing differs'}")


def code(
    trial_id: TrialId,
    diff: Annotated[int | None, trial_option("Compare with this try.", "its parent")] = None,
    checkout: Annotated[
        Path | None, Option(metavar="DIR", help="Unpack the code into this new directory.", show_default=False)
    ] = None,
    every: Annotated[bool, Option("--all", help="All of the difference, and not only 4 KB.")] = False,
) -> None:
    """Show which code a try has run: its commit, its digest, and its difference to that of the parent.

    core-sdk code 4
    core-sdk code 4 --diff 2
    core-sdk code 4 --checkout /tmp/of-4
    """
    from core_sdk._analysis.evidence import MOST_BYTES, bounded
    from core_sdk._analysis.studies import imported_elsewhere
    from core_sdk._execution.studies import check_out, diff_of

    home = open_home()
    tries, one = _find(home, trial_id)
    record = _code(one)
    if checkout is not None:
        check_out(home, record, checkout)
        click.echo(f"unpacked the code of try {one.try_id} into {checkout / record.directory}")
        return
    told = [f"try {one.try_id}: sha256 {record.sha256[:16]}" + (f", commit {record.commit}" if record.commit else "")]
    told += [f"linked, and no part of it: {', '.join(record.linked)}"] if record.linked else []
    told += imported_elsewhere(home, one)
    other = tries.of_trial(diff) if diff is not None else tries.parent_of(one)
    if other is not None:
        lines = [line for each in diff_of(home, _code(other), record).values() for line in each]
        told += [f"against {other.try_id}:", *lines] if lines else [f"the same as that of {other.try_id}"]
    told = list(map(printable, told))
    click.echo("\n".join(told) if every else bounded(MOST_BYTES, told))


def _find(home: Home, trial_id: int) -> tuple[Tries, Try]:
    """Reads a try with all of its study. Raises `click.BadParameter` for a trial that belongs to none."""
    record = home.trial(trial_id).read_record()
    if record.try_id is None:
        raise click.BadParameter(f"trial {trial_id} belongs to no try; `core-sdk trial verdict` decides about a trial")
    experiment_id, study = study_of(home, trial_id)
    with open_view(home) as view:
        tries = read_tries(view, experiment_id, SearcherMetric.named(study.best_by))
    return tries, tries.of_trial(trial_id)


def _code(one: Try) -> CodeRecord:
    if one.row.code is None:
        raise click.BadParameter(f"the code of try {one.try_id} is not known")
    return one.row.code


def _doubt(found: MeanDifference, tries: Tries) -> str:
    if found.mark in ("within noise", "one seed"):
        return f"{found.mark}: `core-sdk try --again` with the same code gives it more seeds"
    return "" if _is_better(found, tries) else "it is worse than its parent"


def _is_better(found: MeanDifference, tries: Tries) -> bool:
    return found.is_better(smaller_is_better=tries.metric.smaller_is_better)


def _decide(home: Home, one: Try, verdict: str, why: str) -> None:
    from core_sdk._execution.steering import trials

    trials.describe(home, one.try_id, verdict=verdict, verdict_reason=why)
    click.echo(f"try {one.try_id}: {verdict}")
