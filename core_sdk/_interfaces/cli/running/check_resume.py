"""`core-sdk check-resume`."""

from __future__ import annotations

import enum
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from core_sdk._interfaces.cli._arguments import Output, parse_duration
from core_sdk._interfaces.render.form import AsJson
from core_sdk._interfaces.signatures import Argument, Option

if TYPE_CHECKING:
    from core_sdk._analysis.resume_check import MomentResult, ResumeReport


class Disturbing(enum.StrEnum):
    stop = "stop"
    sigterm = "sigterm"
    kill = "kill"


def check_resume(
    command: Annotated[list[str], Argument(help="The command to check, after `--`.", show_default=False)],
    steps: Annotated[
        int | None,
        Option(min=1, help="Compare up to this step.", show_default="200 reports, or the end of the training"),
    ] = None,
    budget: Annotated[
        float,
        Option(
            metavar="TIME",
            parser=parse_duration,
            help="The time for everything. The undisturbed training is stopped after a quarter of it, and moments for "
            "which too little is left are not tried.",
        ),
    ] = "5m",  # type: ignore[assignment]
    at: Annotated[
        list[str] | None,
        Option(
            metavar="MOMENT",
            help="Disturb it there: middle, kill, validation, twice, first, epoch-end, in-validation, kill-in-save, "
            "sigterm, or the number of a step; may be repeated.",
            show_default="all of these",
        ),
    ] = None,
    how: Annotated[Disturbing, Option(help="What happens at a step that is given by its number.")] = (Disturbing.stop),
    random: Annotated[
        int, Option(min=0, metavar="K", help="Disturb it at K moments that the seed chooses.", show_default=False)
    ] = 0,
    tolerance: Annotated[
        float, Option(min=0, max=1, help="The share by which values may differ; 0: not by a single bit.")
    ] = 0.0,
    resume_with: Annotated[
        str,
        Option(
            metavar="ARGUMENTS",
            help="Append these arguments when the training goes on, for a script that has checkpoints of its own.",
            show_default=False,
        ),
    ] = "",
    metrics_from: Annotated[
        str,
        Option(
            metavar="PATH",
            help="Compare what the script writes into this file of JSON lines, or into such files and TensorBoard's in "
            "this directory, below {dir}.",
            show_default="what it reports to a Context",
        ),
    ] = "",
    ranks: Annotated[
        str,
        Option(
            metavar="N,M",
            help="Put N in the place of {ranks} in COMMAND at first, and M when the training goes on.",
            show_default=False,
        ),
    ] = "",
    seed: Annotated[int, Option(min=0, max=2**31 - 1, help="The seed of all these trials.")] = 1,
    keep: Annotated[
        Path | None,
        Option(metavar="DIR", help="Keep the homes and the output in this directory.", show_default=False),
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Check whether a training goes on exactly after a stop, a SIGTERM or kill -9.

    core-sdk check-resume -- python train.py --epochs 2
    core-sdk check-resume --at 37 --at kill -- python -m launch.torch_distributed train.py
    core-sdk check-resume --resume-with "--resume auto" --metrics-from {dir}/log.jsonl -- python train.py --out {dir}

    The command is trained undisturbed, twice, and then once for each moment, at which it is disturbed; after that it is
    resumed. Every number that it reports must be the same, bit for bit. All trainings have homes of their own, which
    are removed, and directories of their own, which stand in the place of {dir} in COMMAND; what the command writes
    elsewhere, it writes in each of them.

    Exit status: 0 if the training goes on exactly at every moment that was tried, 1 if not, 2 if it cannot be judged.
    """
    from core_sdk._analysis.charts.svg import write_picture
    from core_sdk._analysis.resume_check import ResumeCheck, parting_charts
    from core_sdk._interfaces.render.drawing import check_format, draw_charts
    from core_sdk._interfaces.render.output import print_object

    check_format(output)
    try:
        check = ResumeCheck(
            command,
            num_steps=steps,
            budget_s=budget,
            moments=None if at is None else [int(each) if each.isdecimal() else each for each in at],
            how=how.value,
            num_random=random,
            tolerance=tolerance,
            resume_with=shlex.split(resume_with),
            metrics_from=metrics_from,
            ranks=_parse_ranks(ranks),
            seed=seed,
            keep_in=keep,
            tell=(lambda line: None) if as_json else click.echo,
        )
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    report = check.run()
    charts = parting_charts(report)
    if as_json:
        print_object(report)
    else:
        _print_costs(report.moments)
        if charts and output is None:
            draw_charts(charts[:1], None)
        click.echo(_conclusion(report))
    if output is not None and (drawable := [each for each in charts if each.strokes]):
        write_picture(output, drawable)
    raise click.exceptions.Exit(2 if report.problem else int(not report.is_exact))


def _parse_ranks(text: str) -> list[int]:
    numbers = text.split(",") if text else []
    if not all(each.strip().isdecimal() and int(each) for each in numbers):
        raise click.BadParameter(f"{text!r} is not two numbers of ranks such as 2,1", param_hint="--ranks")
    return [int(each) for each in numbers]


def _print_costs(moments: list[MomentResult]) -> None:
    from core_sdk._interfaces.render.tables import Column, print_table

    def seconds(value: float | None) -> str | None:
        return None if value is None else f"{value:.2f} s"

    resumed = [each for each in moments if each.first_report_s is not None]
    if resumed:
        print_table(
            [
                Column("Moment", lambda each: each.moment),
                Column("Save", lambda each: seconds(each.save_s), is_number=True),
                Column("First report", lambda each: seconds(each.first_report_s), is_number=True),
                Column("Steps twice", lambda each: each.steps_lost, is_number=True),
            ],
            resumed,
        )


def _conclusion(report: ResumeReport) -> str:
    if report.problem:
        return f"It cannot be judged: {report.problem}"
    if not report.is_exact:
        return "It does not go on exactly."
    return "It goes on exactly." if not report.not_tried else "It goes on exactly at the moments that were tried."
