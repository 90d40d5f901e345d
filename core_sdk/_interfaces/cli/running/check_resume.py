"""`core-sdk check-resume`."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from core_sdk._interfaces.cli._arguments import parse_duration
from core_sdk._interfaces.render.form import AsJson


class Disturbing(enum.StrEnum):
    stop = "stop"
    sigterm = "sigterm"
    kill = "kill"


def check_resume(
    command: Annotated[list[str], typer.Argument(help="The command to check, after `--`.", show_default=False)],
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Compare up to this step.", show_default="200 reports, or the end of the training"),
    ] = None,
    budget: Annotated[
        float,
        typer.Option(
            metavar="TIME",
            parser=parse_duration,
            help="Stop the undisturbed training after this time, and compare up to there.",
        ),
    ] = "5m",  # type: ignore[assignment]
    at: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MOMENT",
            help="Disturb it there: first, middle, epoch-end, validation, twice, sigterm, kill, kill-in-save, or the "
            "number of a step; may be repeated.",
            show_default="all of these",
        ),
    ] = None,
    how: Annotated[Disturbing, typer.Option(help="What happens at a step that is given by its number.")] = (
        Disturbing.stop
    ),
    tolerance: Annotated[
        float, typer.Option(min=0, max=1, help="The share by which values may differ; 0: not by a single bit.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="The seed of all these trials.")] = 1,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the homes and the output in this directory.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check whether a training goes on exactly after a stop, a SIGTERM or kill -9.

    core-sdk check-resume -- python train.py --epochs 2
    core-sdk check-resume --at 37 --at kill -- python -m launch.torch_distributed train.py

    The command is trained undisturbed, twice, and then once for each moment, at which it is disturbed; after that it is
    resumed. Every number that it reports must be the same, bit for bit. All trainings have homes of their own, which
    are removed; what the command writes elsewhere, it writes in each of them.

    Exit status: 0 if the training goes on exactly at every moment, 1 if not, 2 if it cannot be judged.
    """
    from core_sdk._analysis.resume_check import ResumeCheck
    from core_sdk._interfaces.render.output import print_object

    try:
        check = ResumeCheck(
            command,
            num_steps=steps,
            budget_s=budget,
            moments=None if at is None else [int(each) if each.isdecimal() else each for each in at],
            how=how.value,
            tolerance=tolerance,
            seed=seed,
            keep_in=keep,
            tell=(lambda line: None) if as_json else typer.echo,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--at") from None
    report = check.run()
    if as_json:
        print_object(report)
    elif report.problem:
        typer.echo(f"It cannot be judged: {report.problem}")
    elif report.is_exact:
        typer.echo("It goes on exactly.")
    else:
        typer.echo("It does not go on exactly.")
    raise typer.Exit(2 if report.problem else int(not report.is_exact))
