"""The commands that stop trials, and let them go on."""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated, Any

import click

from core_sdk._execution.steering import trials
from core_sdk._ground.records import RecordedKeep
from core_sdk._home import TrialFolder
from core_sdk._home.attempts.continuation import what_resume_does
from core_sdk._home.attempts.running import attempt_rows, await_end
from core_sdk._interfaces.cli._arguments import Detach, Hparams, NewLabels, Notes, Seed, TrialName, parse_hparams
from core_sdk._interfaces.cli._home import open_home, open_home_of, workspace
from core_sdk._interfaces.cli._ids import OwnOrFetchedTrial, TrialId, parse_checkpoint
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.render.form import AsJson
from core_sdk._interfaces.render.output import print_object
from core_sdk._interfaces.signatures import Argument, Option

_POLL_INTERVAL_S = 0.1
# Long enough for a save of the usual size; `trial pause --wait` waits for longer ones.
_STOPPING_WAIT_S = 60.0


def pause(
    trial_id: TrialId,
    wait: Annotated[bool, Option("--wait", help="Return when it has stopped.")] = False,
) -> None:
    """Ask a running trial to save a checkpoint and stop, or take one that waits out of Slurm's queue.

    The trials of a submitted experiment are paused together, by `core-sdk experiment pause`.
    """
    home = open_home()
    paused = trials.pause(home, trial_id, "core-sdk trial pause")
    say(f"trial {trial_id} {paused.done}")
    if wait and paused.attempt is not None:
        while any(row.is_running for row in attempt_rows(home.trial(trial_id)) if row.attempt == paused.attempt):
            time.sleep(_POLL_INTERVAL_S)
        say(f"trial {trial_id} has stopped: {what_resume_does(home.trial(trial_id))}")


def kill(trial_id: TrialId, as_json: AsJson = False) -> None:
    """Kill a running trial with all its processes, at once: it saves nothing, and is canceled.

    A trial whose script has already left its Context keeps its state: only its processes are ended.

    `trial pause` asks it to save a checkpoint and stop. `trial resume` goes on with a trial that was killed.
    """
    state = trials.kill(open_home(), trial_id, "core-sdk trial kill")
    if as_json:
        print_object({"trial_id": trial_id, "state": state})
    else:
        had_ended = "" if state == "CANCELED" else f": what was left of it, for it had ended before ({state})"
        say(f"killed trial {trial_id}{had_ended}")


def resume(
    trial_id: OwnOrFetchedTrial,
    command: Annotated[
        list[str] | None,
        Argument(metavar="-- COMMAND", help="What to run from now on.", show_default="the recorded command"),
    ] = None,
    again: Annotated[bool, Option("--again", help="Also one that is completed.")] = False,
    detach: Detach = False,
) -> None:
    """Resume a trial from its newest good checkpoint.

    The same command runs in the same directory. PATH, PYTHONPATH, CUDA_VISIBLE_DEVICES, NCCL_… and the other variables
    that docs/variables.md lists are as they were. All others are not recorded: give them again, as in
    `DATA=/data core-sdk trial resume 7`. A command after `--` replaces the recorded one from now on, for example to
    train on another number of ranks.

    If the trial was asked to pause and still runs, this waits up to a minute for its end. If it was started with
    --slots, or by a master, this waits for as many slots.

    `core-sdk trial resume vision/7` fetches trial 7 of the workspace `vision` into this home, goes on with it here, and
    sends it there as a trial of its own. A checkpoint must have been sent along, or lie in a storage that this machine
    reaches. With `core-sdk --workspace vision trial resume 7`, the machine that has sent the trial resumes it there, in
    the background.
    """
    if workspace():
        if command or again:
            raise click.UsageError("in a workspace, a trial is resumed with its recorded command, on its own machine")
        resumed = trials.resume(open_home(), trial_id)
        say(f"resumed trial {trial_id} {resumed.origin}, as its attempt {resumed.attempt}")
        return
    from core_sdk._execution.agent.starting import Agent

    agent = Agent()  # it imports what it needs while we do
    from core_sdk._home.attempts import starting
    from core_sdk._interfaces.cli.running.attempt import run_attempt
    from core_sdk._interfaces.cli.running.slots import slots_in_turn

    home, number = open_home_of(trial_id)
    folder = home.trial(number)
    trials.check_steered_alone(home, number)
    _await_stop(folder)
    if folder.read_slurm_job() is not None:
        from core_sdk._interfaces.cli.running.slurm import resume_in_slurm

        raise click.exceptions.Exit(resume_in_slurm(folder, command or (), is_again=again, is_detached=detach))
    with slots_in_turn(folder.read_record().slots_to_take, home.root) as slots:
        start = partial(starting.resume, folder, command or (), is_again=again, slots=slots)
        raise click.exceptions.Exit(run_attempt(agent, start, is_detached=detach))


def _await_stop(folder: TrialFolder) -> None:
    """Waits a limited time for the end of an attempt that was asked to stop; does not wait for any other."""
    attempt = folder.running_attempt()
    if attempt is not None and folder.read_stop_request(attempt) is not None:
        say(f"trial {folder.trial_id} is stopping: waiting for its end")
        await_end(folder, _STOPPING_WAIT_S)


def continue_(
    trial_id: TrialId,
    command: Annotated[
        list[str] | None,
        Argument(metavar="-- COMMAND", help="What to run.", show_default="the command of the other trial"),
    ] = None,
    hparam: Hparams = None,
    checkpoint: Annotated[
        str | None,
        Option(
            metavar="ID",
            parser=parse_checkpoint,
            help="The checkpoint to begin with.",
            show_default="the newest good one",
        ),
    ] = None,
    keep: Annotated[
        str | None,
        Option(
            metavar="all|model|NAME,…",
            help="What to keep of the checkpoint: all, the weights alone, or the parts of these names.",
            show_default="as the script says",
        ),
    ] = None,
    seed: Seed = None,
    trial_name: TrialName = None,
    notes: Notes = "",
    label: NewLabels = None,
    detach: Detach = False,
) -> None:
    """Start a new trial that begins with the newest good checkpoint of another trial.

    It has the same command, hyperparameters and seed, but for what is given here, and counts its steps from 0. The
    other trial stays as it is. --keep has precedence over what the script says: `State.restore(keep=…)`,
    `Trainer.fit(keep=…)` or `PyTorchTrainer(keep=…)`. A script that restores whole checkpoints fails with --keep model.
    """
    from core_sdk._execution.agent.starting import Agent

    agent = Agent()
    from core_sdk._ground.records import TrialDescription
    from core_sdk._home.attempts.definition import checked_description
    from core_sdk._home.attempts.starting import continue_from
    from core_sdk._interfaces.cli.running.attempt import keeping_sources, run_attempt
    from core_sdk._interfaces.cli.running.slots import slots_in_turn

    described = checked_description(TrialDescription(name=trial_name or "", notes=notes, labels=label or []))
    hparams, kept = parse_hparams(hparam or []), None if keep is None else _parse_keep(keep)
    more: dict[str, Any] = {"hparams": hparams, "storage_id": checkpoint, "keep": kept, "seed": seed}
    home, number = open_home_of(trial_id)
    source = home.trial(number)
    continued = source.read_record()
    with slots_in_turn(continued.slots_to_take, home.root) as slots:
        start = partial(continue_from, source, command or (), described=described, slots=slots, **more)
        start = partial(keeping_sources, start) if continued.is_variation else start
        raise click.exceptions.Exit(run_attempt(agent, start, is_detached=detach))


def _parse_keep(text: str) -> RecordedKeep:
    if text == "all":
        return "all"
    if text == "model":
        return "model"
    names = [name.strip() for name in text.split(",")]
    if "" in names:
        raise click.BadParameter(
            f"{text!r} has an empty name: give all, model, or names with commas between them", param_hint="--keep"
        )
    return names
