"""Arguments and options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Force = Annotated[
    bool, typer.Option("--force", help="Also with a checkpoint that is pinned, or that another trial began with.")
]
Metrics = Annotated[
    list[str] | None, typer.Option("--metric", metavar="NAME", help="Only this metric; may be repeated.")
]


def _check_expressions(metrics: list[str] | None) -> list[str] | None:
    from core_sdk.tracking.finding.groups import has_match

    try:
        for metric in metrics or ():
            has_match("", metric)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return metrics


ChartMetrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        help="Only this metric; '/loss$/': those in which this regular expression has a match. May be repeated.",
        callback=_check_expressions,
    ),
]
Formulas = Annotated[
    list[str] | None,
    typer.Option(
        "--formula",
        metavar="FORMULA",
        help="Draw this of the metrics of each trial: 'validation.loss - training.loss', 'exp(loss)'. May be repeated.",
    ),
]
Where = Annotated[
    str, typer.Option(metavar="CONDITION", help="Only those that fulfil it: 'lr>0.01 and state=COMPLETED'.")
]
Sort = Annotated[
    str, typer.Option(metavar="NAME", help="Order by this hyperparameter or metric; -NAME: the largest first.")
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Draw into this file: .svg, .html, .pdf or .png."),
]
Labels = Annotated[list[str], typer.Argument(metavar="LABEL…", help="The labels.", show_default=False)]
Remove = Annotated[bool, typer.Option("--remove", help="Take the labels away.")]
BestMetric = Annotated[
    str | None, typer.Option(help="The validation metric that says which trial is best.", show_default="recorded")
]
SmallerIsBetter = Annotated[
    bool | None, typer.Option("--smaller-is-better/--larger-is-better", help="How to read it.", show_default="smaller")
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=2**31 - 1,
        metavar="N",
        help="The trial's seed, `info.trial.trial_seed`; it has precedence over the script's.",
        show_default=False,
    ),
]
TrialName = Annotated[
    str | None,
    typer.Option(
        help="The trial's name; it has precedence over the script's.",
        show_default="a generated one, or what the script gives init()",
    ),
]
Notes = Annotated[
    str, typer.Option(metavar="TEXT", help="The trial's notes, in Markdown; they have precedence over the script's.")
]
NewLabels = Annotated[
    list[str] | None, typer.Option("--label", help="A label for the trial and its experiment; may be repeated.")
]
Detach = Annotated[
    bool,
    typer.Option(
        "--detach", help="Print the trial's number and return at once; `trial logs --follow` shows the output."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
ConfigFile = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG", exists=True, dir_okay=False, help="The experiment's YAML file.", show_default=False
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--config", metavar="KEY=VALUE", help="Has precedence over the file; VALUE is YAML. May be repeated."),
]


def read_config(path: Path) -> str:
    """Returns the text of a configuration file. Raises `typer.BadParameter`."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise typer.BadParameter(f"{path} is not text in UTF-8") from error
