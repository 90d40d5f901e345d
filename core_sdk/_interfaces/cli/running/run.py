"""`core-sdk run`."""

from __future__ import annotations

import enum
import os
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, NoReturn

import click

from core_sdk._interfaces.cli._arguments import (
    AvoidBusy,
    Detach,
    Hparams,
    NewLabels,
    Notes,
    NumNodes,
    SbatchOptions,
    Seed,
    SmallerIsBetter,
    TrialName,
    parse_duration,
    parse_guard,
    parse_hparams,
    slots_option,
)
from core_sdk._interfaces.cli._ids import WrittenTrial, trial_option
from core_sdk._interfaces.signatures import Argument, Option


class RunEngine(enum.StrEnum):
    local = "local"
    slurm = "slurm"


class OnStall(enum.StrEnum):
    tell = "tell"
    restart = "restart"


def run(
    command: Annotated[list[str], Argument(help="The command to start, after `--`.", show_default=False)],
    name: Annotated[
        str | None,
        Option(help="The experiment's name.", show_default="the script's name, or what it gives init()"),
    ] = None,
    trial_name: TrialName = None,
    notes: Notes = "",
    label: NewLabels = None,
    hparam: Hparams = None,
    seed: Seed = None,
    slots: Annotated[
        int | None,
        slots_option(
            "Wait for so many GPUs, or places on the CPU, and take them from all users of this machine; a launcher "
            "starts a rank for each.",
            "none are taken; a launcher asks the machine",
        ),
    ] = None,
    avoid_busy: AvoidBusy = False,
    detach: Detach = False,
    trial: WrittenTrial = None,
    writer: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="Start no trial: the script's init() reports about --trial under this name, next to its own program.",
        ),
    ] = None,
    parent: Annotated[int | None, trial_option("The trial of which this one is a variation.")] = None,
    hypothesis: Annotated[str, Option(metavar="TEXT", help="What the variation is expected to show.")] = "",
    metric: Annotated[
        str | None, Option(metavar="NAME", help="The metric that says what is best.", show_default="init()'s")
    ] = None,
    smaller_is_better: SmallerIsBetter = None,
    time_limit: Annotated[
        float | None,
        Option(metavar="TIME", parser=parse_duration, help="How long it may run: 90s, 5m, 2h."),
    ] = None,
    guard: Annotated[
        list[dict[str, Any]] | None,
        Option(
            metavar="RULE",
            parser=parse_guard,
            help="A rule about a metric, and what is done when it is broken: 'loss above_median=12 action=go_back'; "
            "may be repeated.",
        ),
    ] = None,
    on_stall: Annotated[
        OnStall | None, Option(help="What is done when its ranks stand still.", show_default="tell")
    ] = None,
    engine: Annotated[
        RunEngine, Option(help="Where it runs: on this machine, or as a job of Slurm.")
    ] = RunEngine.local,
    nodes: NumNodes = 1,
    sbatch: SbatchOptions = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Slurm: print the batch script, and submit nothing.")] = False,
) -> None:
    """Start a training script as a new trial, and keep its output.

    core-sdk run --name digits -- python train.py --lr 0.1
    core-sdk run --trial 12 --writer evaluator -- python evaluate.py
    core-sdk run --engine slurm --slots 8 --sbatch=--time=4:00:00 -- python -m launch.torch_distributed train.py

    The output is kept for `core-sdk trial logs` and shown on stdout: the script's stdout and stderr together, in their
    order. If stdout is a terminal, the script sees a terminal too. Ctrl-C and SIGTERM are handed on to the script: one
    that asks should_preempt() saves and stops, and a second Ctrl-C ends it. If the terminal is closed, or core-sdk
    itself is killed, the script goes on, and its output and its end are still recorded.

    With --slots it first waits until no other trial has the slots, of anybody on this machine, and those who came
    earlier have theirs: `core-sdk slot list` shows them. The trial begins, and gets its number, after that.

    With --metric and --larger-is-better every command knows by what the trial is best, unless it is told otherwise.

    A --guard names a metric, one of the rules not_finite, above_median, above_deviations, above, below and
    not_better_for, and an action: alert, stop or go_back. After go_back the command is started again, from the newest
    checkpoint before the trouble.

    With --parent or --hypothesis the sources in this directory are kept, so that `core-sdk trial evidence` can show
    what was changed. When its time is over, a script is asked to stop, as by `trial pause`, and killed 30 s later; one
    that has not called should_preempt() yet ends after 2 s, by a SIGTERM.

    With --writer the command takes the place of core-sdk: its output and its exit status are its own.
    """
    if trial is not None or writer is not None:
        given = (name, trial_name, notes or None, label, hparam, seed, slots, avoid_busy or None, detach or None,
                 parent, hypothesis or None, metric, smaller_is_better, time_limit, guard, on_stall)  # fmt: skip
        _write(command, trial, writer, is_alone=all(each is None for each in given))
    if engine == RunEngine.local and (nodes > 1 or sbatch or dry_run):
        raise click.BadParameter("--nodes, --sbatch and --dry-run are about Slurm: give --engine slurm, too")
    if smaller_is_better is not None and metric is None:
        raise click.BadParameter("--smaller-is-better and --larger-is-better say how to read --metric: give that, too")
    if avoid_busy and (slots is None or engine != RunEngine.local):
        raise click.BadParameter("--avoid-busy is for the GPUs of this machine that --slots takes")
    from core_sdk._execution.agent.starting import Agent

    agent = Agent() if engine == RunEngine.local else None  # it imports what it needs while we do
    from core_sdk._ground.environment import Environment
    from core_sdk._ground.records import TrialDescription, chosen_metric
    from core_sdk._home.attempts.definition import checked_description
    from core_sdk._home.attempts.starting import begin, check_beginning
    from core_sdk._home.folders import Home
    from core_sdk._interfaces.cli.running.attempt import keeping_sources, run_attempt

    decides = chosen_metric(None, metric, smaller_is_better)
    described = checked_description(
        TrialDescription(
            name=trial_name or "",
            notes=notes,
            labels=label or [],
            parent=parent,
            hypothesis=hypothesis,
            best_by=decides.best_name if decides else "",
            time_limit_s=time_limit,
            guards=guard or [],
            on_stall=on_stall.value if on_stall else "",
        )
    )
    hparams = parse_hparams(hparam or [])
    home = Environment.read().home
    if parent is not None:
        Home.open(home).trial(parent)  # an unknown one fails before anything is started
    start = partial(begin, home, command, name=name, described=described, hparams=hparams, seed=seed)
    start = partial(keeping_sources, start) if parent is not None or hypothesis else start
    if agent is not None:
        from core_sdk._interfaces.cli.running.slots import slots_in_turn

        check_beginning(command, name, hparams)  # before it waits
        with slots_in_turn(slots, home, avoids_busy=avoid_busy) as taken:
            raise click.exceptions.Exit(run_attempt(agent, partial(start, slots=taken), is_detached=detach))
    from core_sdk._execution.slurm.script import JobRequest
    from core_sdk._interfaces.cli.running.slurm import run_in_slurm

    decide = partial(start, num_slots=slots)
    request = JobRequest(nodes, slots, options=tuple(sbatch or ()))
    raise click.exceptions.Exit(run_in_slurm(decide, request, is_dry_run=dry_run, is_detached=detach))


def _write(command: Sequence[str], trial: int | None, writer: str | None, *, is_alone: bool) -> NoReturn:
    """Starts the command in the place of this process, as a writer of the trial."""
    from core_sdk._ground.environment import writer_variables
    from core_sdk._ground.records import check_writer_name
    from core_sdk._home.attempts.command import resolve

    if trial is None or writer is None:
        raise click.BadParameter("a writer needs both: --trial ID --writer NAME")
    if not is_alone:
        raise click.BadParameter("a writer does not describe the trial: give only --trial and --writer")
    try:
        variables = writer_variables(check_writer_name(writer), trial)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    argv = resolve(command)
    os.execve(argv[0], argv, os.environ | variables)
