"""Arguments and options that several commands take."""

from __future__ import annotations

import contextlib
import datetime
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import click

from core_sdk._interfaces.signatures import Argument, Option

Force = Annotated[bool, Option("--force", help="In spite of pins, and of other trials that began with a checkpoint.")]
Metrics = Annotated[list[str] | None, Option("--metric", metavar="NAME", help="Only this metric; may be repeated.")]


def _check_expressions(metrics: list[str] | None) -> list[str] | None:
    from core_sdk._home.finding.groups import has_match

    try:
        for metric in metrics or ():
            has_match("", metric)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return metrics


ChartMetrics = Annotated[
    list[str] | None,
    Option(
        "--metric",
        metavar="NAME",
        help="Only this metric; '/loss$/': those in which this regular expression has a match. May be repeated.",
        callback=_check_expressions,
    ),
]
Formulas = Annotated[
    list[str] | None,
    Option(
        "--formula",
        metavar="FORMULA",
        help="Draw this of the metrics of each trial: 'validation.loss - training.loss', 'exp(loss)'. May be repeated.",
    ),
]
Where = Annotated[str, Option(metavar="CONDITION", help="Only those that fulfil it: 'lr>0.01 and state=COMPLETED'.")]
Sort = Annotated[str, Option(metavar="NAME", help="Order by this hyperparameter or metric; -NAME: the largest first.")]
Output = Annotated[
    Path | None,
    Option("--output", "-o", metavar="FILE", help="Draw into this file: .svg, .html, .pdf or .png."),
]
FollowOutput = Annotated[bool, Option("--follow", "-f", help="Also print what comes, until nothing more can come.")]
ReportGroup = Annotated[
    str | None,
    Option("--group", help="Only this group; the profiler's groups are shown only when asked for."),
]
Rank = Annotated[
    str | None,
    Option(
        metavar="RANK|all",
        help="What this rank has reported, or what all have.",
        show_default="of each metric, the lowest that reports it",
    ),
]
Superseded = Annotated[bool, Option("--superseded", help="Also what later reports of the same steps have superseded.")]
Labels = Annotated[list[str], Argument(metavar="LABEL…", help="The labels.", show_default=False)]
Remove = Annotated[bool, Option("--remove", help="Take the labels away.")]
BestMetric = Annotated[
    str | None,
    Option("--metric", "--sort-by", help="The validation metric that says what is best.", show_default="recorded"),
]
SmallerIsBetter = Annotated[
    bool | None, Option("--smaller-is-better/--larger-is-better", help="How to read it.", show_default="smaller")
]
Hparams = Annotated[
    list[str] | None,
    Option(
        "--hparam",
        metavar="NAME=VALUE",
        help="The value of a hyperparameter, for `info.trial.hparams`, and for '${args}' and '${hparams.NAME}' in "
        "COMMAND; VALUE is YAML. May be repeated.",
    ),
]
Seed = Annotated[
    int | None,
    Option(
        min=0,
        max=2**31 - 1,
        metavar="N",
        help="The trial's seed, `info.trial.trial_seed`; it has precedence over the script's.",
        show_default=False,
    ),
]


_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(text: str) -> float:
    """Returns the seconds of a time such as `90s`, `5m`, `1.5h`, `2d`, or of a number of seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if found is None or not (seconds := float(found[1]) * _UNITS_S[found[2]]):
        raise click.BadParameter(f"{text!r} is no time such as 90s, 5m or 2h")
    return seconds


def parse_guard(text: str) -> dict[str, Any]:
    """Returns the guard that words such as `loss above_median=12 action=go_back` say, as records keep it."""
    from core_sdk._ground import guards

    try:
        return guards.values_of(guards.parse_guard(text))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def parse_since(text: str) -> float:
    """Returns the time, in seconds since 1970, that is so long ago, or that is given as ISO 8601 has it."""
    with contextlib.suppress(click.BadParameter):
        return time.time() - parse_duration(text)
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise click.BadParameter(f"{text!r} is neither a time ago, such as 90s, 5m, 2h or 3d, nor a date") from None


Since = Annotated[
    float | None,
    Option(
        metavar="TIME",
        parser=parse_since,
        help="Only what is that new: 30m, 2h, 3d ago, or since 2026-11-27T14:00.",
        show_default="all",
    ),
]


def parse_slots(text: str) -> int:
    """Returns a number of slots from the command line. Raises `click.BadParameter`."""
    if not text.isdecimal() or not int(text):
        raise click.BadParameter(f"{text} is no number of slots: a slot is whole, and one trial has it at a time")
    return int(text)


def slots_option(help_text: str, show_default: str) -> Any:
    return Option(parser=parse_slots, metavar="N", help=help_text, show_default=show_default)


AvoidBusy = Annotated[
    bool,
    Option("--avoid-busy", help="Leave GPUs alone whose memory a program fills that has no slot; needs nvidia-ml-py."),
]


def _check_trial_name(name: str | None) -> str | None:
    from core_sdk._ground.records import check_name

    return None if name is None else check_name("the trial's name", name)


TrialName = Annotated[
    str | None,
    Option(
        callback=_check_trial_name,
        help="The trial's name; it has precedence over the script's.",
        show_default="a generated one, or what the script gives init()",
    ),
]
Notes = Annotated[
    str, Option(metavar="TEXT", help="The trial's notes, in Markdown; they have precedence over the script's.")
]
NewLabels = Annotated[
    list[str] | None, Option("--label", help="A label for the trial and its experiment; may be repeated.")
]
Detach = Annotated[
    bool,
    Option("--detach", help="Print the trial's number and return at once; `trial logs --follow` shows the output."),
]
NumNodes = Annotated[int, Option(min=1, help="Slurm: the number of nodes, on each of which COMMAND is started.")]
SbatchOptions = Annotated[
    list[str] | None,
    Option(metavar="OPTION", help="Slurm: an option of sbatch, as in --sbatch=--partition=gpu. May be repeated."),
]
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]
ConfigFile = Annotated[
    Path,
    Argument(metavar="CONFIG", exists=True, dir_okay=False, help="The experiment's YAML file.", show_default=False),
]
Overrides = Annotated[
    list[str] | None,
    Option("--config", metavar="KEY=VALUE", help="Has precedence over the file; VALUE is YAML. May be repeated."),
]


def read_config(path: Path) -> str:
    """Returns the text of a configuration file. Raises `click.BadParameter`."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{path} is not text in UTF-8") from error


def parse_hparams(assignments: Sequence[str]) -> dict[str, Any]:
    """Returns hyperparameters from `NAME=VALUE`, where VALUE is YAML as in a configuration: 0.1, true, [1, 2], adam."""
    hparams: dict[str, Any] = {}
    for assignment in assignments:
        from core_sdk._ground.config import parse_value  # slow to import

        name, equals, value = assignment.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{assignment!r} is not NAME=VALUE", param_hint="--hparam")
        if name != name.strip():
            meant = f"{name.strip()}={value.strip()}"
            raise click.BadParameter(f"the name {name!r} has a blank at its end: write {meant}", param_hint="--hparam")
        if name in hparams:
            raise click.BadParameter(f"{name!r} is given twice", param_hint="--hparam")
        hparams[name] = parse_value(value, f"--hparam {assignment}")
    return hparams
