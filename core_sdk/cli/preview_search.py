"""`core-sdk preview-search`: what a search costs, before it runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from core_sdk.cli._arguments import ConfigFile, Overrides, read_config
from core_sdk.cli.render.output import AsJson

if TYPE_CHECKING:
    from core_sdk.config import ExperimentConfig

Speed = Annotated[
    float | None,
    typer.Option(min=1e-9, help="The units of training that a trial does in a second.", show_default=False),
]
Slots = Annotated[
    int | None, typer.Option(min=1, help="The slots that there are.", show_default="as many as trials can use")
]
TrialLength = Annotated[
    int | None, typer.Option(min=1, help="The length of a training, if only the script knows it.", show_default=False)
]

_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class Trained:
    """The trials that end at one length."""

    length: int
    num_trials: int


@dataclass(frozen=True)
class Preview:
    """The costs of a search. A value is None if it needs the length of a training or the speed, and that is unknown."""

    searcher: str
    num_trials: int
    max_running: int
    unit: str
    trained: list[Trained] | None
    num_units: int | None
    """The units that all trials train together."""
    num_units_at_most: int | None
    """The units if each trial trained to the end."""
    hours: float | None
    gpu_hours: float | None


def preview_search(
    config: ConfigFile,
    override: Overrides = None,
    units_per_second: Speed = None,
    slots: Slots = None,
    length: TrialLength = None,
    as_json: AsJson = False,
) -> None:
    """Show how many trials a search trains, and how far.

    The search is run with trials that do not train: each follows a curve that falls towards a limit, which chance has
    chosen. A unit of training is what the searcher counts: an epoch, for example.
    """
    from core_sdk.cli._messages import say
    from core_sdk.cli.render.output import print_one
    from core_sdk.config import load

    loaded = load(read_config(config), source=str(config), overrides=override or ())
    for warning in loaded.warnings:
        say(f"warning: {warning}")
    preview = _preview(loaded.config, units_per_second, slots, length)
    print_one(preview, _properties(preview), as_json)
    if preview.trained and not as_json:
        _print_trained(preview.trained, preview.unit)


def _preview(
    config: ExperimentConfig, units_per_second: float | None, num_slots: int | None, length: int | None
) -> Preview:
    from core_sdk.config.searchers import CustomSearcher
    from core_sdk.search import Search
    from core_sdk.search.simulation import simulate

    searcher = config.searcher
    if isinstance(searcher, CustomSearcher):
        raise typer.BadParameter("a custom search method is previewed by core_sdk.search.simulation, in Python")
    slots_per_trial = max(config.resources.slots_per_trial, 1)
    num_slots = min(filter(None, (num_slots, config.resources.max_slots)), default=None)
    if num_slots is not None and num_slots < slots_per_trial:
        raise typer.BadParameter(f"a trial needs {slots_per_trial} slots, and there are {num_slots}")
    search = Search(searcher, config.hyperparameters, seed=0)
    lengths = search.lengths or ([] if length is None else [length])
    simulation = simulate(search, validations=lengths or [1], num_slots=num_slots and num_slots // slots_per_trial)
    trained = Counter(trial.length for trial in simulation.trials)
    unit = getattr(searcher, "time_metric", None) or getattr(getattr(searcher, "max_length", None), "unit", None)
    seconds_per_unit = 1 / units_per_second if units_per_second and lengths else None
    return Preview(
        searcher=str(searcher.__struct_config__.tag),
        num_trials=len(simulation.trials),
        max_running=simulation.max_running,
        unit=unit or "units",
        trained=[Trained(*one) for one in sorted(trained.items())] if lengths else None,
        num_units=simulation.num_units if lengths else None,
        num_units_at_most=len(simulation.trials) * lengths[-1] if lengths else None,
        hours=seconds_per_unit and simulation.duration * seconds_per_unit / _SECONDS_PER_HOUR,
        gpu_hours=seconds_per_unit
        and simulation.num_units * seconds_per_unit * config.resources.slots_per_trial / _SECONDS_PER_HOUR,
    )


def _properties(preview: Preview) -> dict[str, str]:
    units = ""
    if preview.num_units is not None and preview.num_units_at_most is not None:
        share = preview.num_units / preview.num_units_at_most
        units = f"{preview.num_units:,} {preview.unit}, {share:.1%} of what all trials would train"
    return {
        "Searcher": preview.searcher,
        "Trials": f"{preview.num_trials:,}, of which {preview.max_running:,} run at the same time",
        "Trained": units or "each trial to its own end; --length says how far that is",
        "Takes": "" if preview.hours is None else f"{preview.hours:.3g} h",
        "GPU hours": f"{preview.gpu_hours:.3g}" if preview.gpu_hours else "",
    }


def _print_trained(trained: list[Trained], unit: str) -> None:
    from core_sdk.cli.render.tables import Column, print_table

    typer.echo()
    print_table(
        [
            Column("Trials", lambda row: f"{row.num_trials:,}", is_number=True),
            Column(f"End after {unit}", lambda row: f"{row.length:,}", is_number=True),
        ],
        trained,
    )
