"""`core-sdk submit`."""

from __future__ import annotations

import enum
from typing import Annotated

import click

from core_sdk._interfaces.cli._arguments import Hparams, NewLabels, NumNodes, SbatchOptions, parse_hparams, slots_option
from core_sdk._interfaces.cli.running.run import RunEngine, run
from core_sdk._interfaces.render.form import AsJson
from core_sdk._interfaces.signatures import Argument, Option


class ExperimentEngine(enum.StrEnum):
    local = "local"
    ray = "ray"
    slurm = "slurm"


def submit(
    command: Annotated[list[str], Argument(help="The command of the trial, after `--`.", show_default=False)],
    name: Annotated[str, Option(help="The experiment's name.", show_default="the script's name")] = "",
    notes: Annotated[str, Option(metavar="TEXT", help="The experiment's description.")] = "",
    label: NewLabels = None,
    hparam: Hparams = None,
    slots: Annotated[
        int | None, slots_option("GPUs, or places on the CPU; a launcher starts a rank for each.", "1 on each node")
    ] = None,
    engine: Annotated[ExperimentEngine, Option(help="Where it runs.")] = ExperimentEngine.local,
    nodes: NumNodes = 1,
    sbatch: SbatchOptions = None,
    priority: Annotated[
        int | None, Option(min=1, max=99, help="Smaller numbers are served first.", show_default="42")
    ] = None,
    max_restarts: Annotated[
        int | None, Option(min=0, help="How often it is started again after a failure.", show_default="5")
    ] = None,
    metric: Annotated[
        str | None,
        Option(metavar="NAME", help="The validation metric that says what is best.", show_default="loss"),
    ] = None,
    follow: Annotated[
        bool, Option("--follow", "-f", help="Show the trial until the end; exit with 0 only if it is COMPLETED.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Queue a training in the background, and start it again when it fails.

    core-sdk submit --slots 2 -- python -m launch.torch_distributed train.py --lr 0.1

    This is the short form of an experiment with one trial: it trains when its slots are free, and goes on from its
    newest checkpoint after a failure. `core-sdk queue list` shows it while it waits, and the commands of experiments
    steer it. A configuration (`core-sdk experiment create`) can say more.

    With --engine slurm it is a trial whose jobs follow each other, as of `core-sdk run --engine slurm --detach`.
    """
    if engine is ExperimentEngine.slurm:
        if as_json or any(each is not None for each in (priority, max_restarts, metric)):
            raise click.BadParameter(
                "--priority, --max-restarts, --metric and --json are for what a master runs, and a single trial on "
                "Slurm needs none: `core-sdk experiment create` submits an experiment to Slurm"
            )
        run(
            command,
            name=name or None,
            notes=notes,
            label=label,
            hparam=hparam,
            slots=slots,
            engine=RunEngine.slurm,
            nodes=nodes,
            sbatch=sbatch,
            detach=not follow,
        )
        return
    if nodes > 1 or sbatch:
        raise click.BadParameter("--nodes and --sbatch are about Slurm: give --engine slurm, too")
    from core_sdk._execution.steering import experiments
    from core_sdk._interfaces.cli.experiment.submitting import submit_to_master

    config = experiments.config_of_command(
        command,
        name=name,
        description=notes,
        labels=label or (),
        hparams=parse_hparams(hparam or []),
        metric=metric or "loss",
        max_restarts=5 if max_restarts is None else max_restarts,
        resources={"engine": engine.value, "slots_per_trial": slots or 1, "priority": priority or 42},
    )
    submit_to_master(lambda home: experiments.submit(home, config), "Created", as_json=as_json, is_followed=follow)
