"""`core-sdk preview-search`: what a search costs, before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import click

from core_sdk._interfaces.cli._arguments import ConfigFile, Overrides, read_config
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.render.form import AsJson, choose_form
from core_sdk._interfaces.render.output import Properties, print_one
from core_sdk._interfaces.render.tables import Column, print_table
from core_sdk._interfaces.signatures import Option

if TYPE_CHECKING:
    from core_sdk.search._preview import Preview, Trained

Speed = Annotated[
    float | None,
    Option(min=1e-9, help="The units of training that a trial does in a second.", show_default=False),
]
Slots = Annotated[int | None, Option(min=1, help="The slots that there are.", show_default="as many as trials can use")]
TrialLength = Annotated[
    int | None, Option(min=1, help="The length of a training, if only the script knows it.", show_default=False)
]


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
    from core_sdk._ground.config import load
    from core_sdk.search._preview import preview

    loaded = load(read_config(config), source=str(config), overrides=override or ())
    for warning in loaded.warnings:
        say(f"warning: {warning}")
    try:
        found = preview(loaded.config, units_per_second=units_per_second, num_slots=slots, length=length)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    print_one(found, _properties(found), choose_form(as_json))
    if found.trained and not as_json:
        _print_trained(found.trained, found.unit)


def _properties(preview: Preview) -> Properties:
    units = ""
    if preview.num_units is not None and preview.num_units_at_most is not None:
        share = preview.num_units / preview.num_units_at_most
        units = f"{preview.num_units:,} {preview.unit}, {share:.1%} of what all trials would train"
    return {
        "Searcher": preview.searcher,
        "Trials": f"{preview.num_trials:,}, of which {preview.max_running:,} run at the same time",
        "Trained": units or "each trial to its own end; --length says how far that is",
        "Takes": None if preview.hours is None else f"{preview.hours:.3g} h",
        "GPU hours": f"{preview.gpu_hours:.3g}" if preview.gpu_hours else None,
    }


def _print_trained(trained: list[Trained], unit: str) -> None:
    click.echo()
    print_table(
        [
            Column("Trials", lambda row: f"{row.num_trials:,}", is_number=True),
            Column(f"End after {unit}", lambda row: f"{row.length:,}", is_number=True),
        ],
        trained,
    )
