"""`core-sdk study begin`, and `core-sdk board`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import click

from core_sdk._ground.records import SearcherMetric, StudyRecord, fields_of
from core_sdk._home import open_view
from core_sdk._home.finding.studies import find_study
from core_sdk._interfaces.cli._arguments import SmallerIsBetter, parse_duration, parse_slots
from core_sdk._interfaces.cli._group import command_group
from core_sdk._interfaces.cli._home import make_home, open_home
from core_sdk._interfaces.render.form import AsJson, Fields, choose_form
from core_sdk._interfaces.render.output import print_object
from core_sdk._interfaces.render.text import printable
from core_sdk._interfaces.signatures import Argument, Option

app = command_group()

OfStudy = Annotated[
    str, Option("--study", metavar="NAME", help="The study.", show_default="the one begun in this directory")
]


@app.command("begin")
def begin(
    name: Annotated[str, Argument(help="The name of the study, which is an experiment.", show_default=False)],
    metric: Annotated[str, Option(metavar="NAME", help="The metric that decides, by a trial's best value.")],
    smaller_is_better: SmallerIsBetter = None,
    budget: Annotated[
        float | None,
        Option(metavar="TIME", parser=parse_duration, help="How long each trial may run: 90s, 5m, 2h."),
    ] = None,
    seeds: Annotated[int, Option(min=1, max=100, help="How often each try is trained, with other seeds.")] = 3,
    slots: Annotated[
        int, Option(metavar="N", parser=parse_slots, help="The GPUs, or places on the CPU, of each trial.")
    ] = "1",  # type: ignore[assignment]
    script: Annotated[
        str,
        Option(metavar="COMMAND", help="The command of each try.", show_default="what `try` gives after `--`"),
    ] = "",
) -> None:
    """Begin a study in this directory: what decides, how long a try may take, how often it is repeated.

    core-sdk study begin digits --metric accuracy --larger-is-better --budget 90s --script "python train.py"

    All who try something in this directory, or below it, belong to the study. Another `begin` with the same name
    changes these settings for the tries that follow.
    """
    from core_sdk._execution.studies import begin_study

    record = StudyRecord(
        directory=str(Path.cwd().resolve()),
        best_by=SearcherMetric(name=metric, smaller_is_better=smaller_is_better is not False).best_name,
        command=shlex.split(script),
        budget_s=budget,
        num_seeds=seeds,
        num_slots=slots,
    )
    study, is_changed = begin_study(make_home(), name, record)
    verb = "changed" if is_changed else "began"
    click.echo(f'{verb} the study {name}, experiment {study.experiment_id}: `core-sdk try "HYPOTHESIS"` tries the code')


def board(
    study: Annotated[
        str, Argument(metavar="[STUDY]", help="Its name.", show_default="the one begun in this directory")
    ] = "",
    as_json: AsJson = False,
    fields: Fields = "",
) -> None:
    """Show a study on one screen, in at most 2 KB: what is best, and a line for each try.

    A line has the id, the number of values, their mean and spread over the seeds, the difference to the parent with its
    interval and whether noise explains it, the verdict or the state, and the hypothesis. The best try is marked with *.
    """
    from core_sdk._analysis.studies import board_text, read_board

    form = choose_form(as_json, fields=fields)
    home = open_home()
    found = find_study(home, study, Path.cwd())
    if any((home.root / "tries").glob("*.json")):  # few boards need what serves the line
        from core_sdk._execution.studies import ensure_served

        ensure_served(home)
    with open_view(home) as view:
        told = read_board(home, view, found.experiment_id, found.record)
    if form.is_json:
        print_object(fields_of(told), form.fields)
    else:
        click.echo("\n".join(map(printable, board_text(told).split("\n"))))
