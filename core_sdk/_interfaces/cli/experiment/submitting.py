"""`core-sdk experiment create`, `fork`, `continue` and `follow`."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from core_sdk._home import open_view
from core_sdk._interfaces.cli._arguments import ConfigFile, Overrides, read_config
from core_sdk._interfaces.cli._failures import ExitCode
from core_sdk._interfaces.cli._group import Group
from core_sdk._interfaces.cli._home import make_home, workspace
from core_sdk._interfaces.cli._ids import SubmittedId, trial_option
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.render.form import AsJson
from core_sdk._interfaces.render.output import print_object
from core_sdk._interfaces.signatures import Argument, Option

if TYPE_CHECKING:
    from core_sdk._execution.experiments.following import Follower
    from core_sdk._execution.experiments.submission import Submitted
    from core_sdk._home import Home

Follow = Annotated[
    bool, Option("--follow", "-f", help="Show the trials until the end; exit with 0 only if it is COMPLETED.")
]
Paused = Annotated[bool, Option("--paused", help="Wait for `core-sdk experiment activate`.")]


def register(app: Group) -> None:
    for command in (create, fork, follow):
        app.command()(command)
    app.command("continue")(continue_)


def create(
    config: ConfigFile,
    directory: Annotated[
        Path | None,
        Argument(
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="The code: each trial runs in a copy of its own.",
            show_default="the trials run here",
        ),
    ] = None,
    follow: Follow = False,
    paused: Paused = False,
    overrides: Overrides = None,
    include: Annotated[
        list[Path] | None,
        Option("--include", "-i", exists=True, help="A file or directory to add to the code; may be repeated."),
    ] = None,
    max_code_size: Annotated[int, Option(min=1, metavar="MIB", help="Refuse more code than this.")] = 1024,
    local: Annotated[
        bool,
        Option(
            "--local",
            help="Run the experiment inside this command, to its end. If the home has a master, that runs it.",
        ),
    ] = False,
    slots: Annotated[
        int | None,
        Option(min=1, help="With --local: places on the CPU for trials.", show_default="all GPUs, or all CPUs"),
    ] = None,
    test: Annotated[
        bool,
        Option(
            "--test",
            help="Run one trial until it has reported, stopped and gone on, and delete it. With --local, a Trainer "
            "trains one batch.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Submit an experiment: the trials that CONFIG describes.

    core-sdk experiment create search.yaml . --config searcher.max_trials=8 -f

    Files that .detignore or .coreignore name, in the syntax of .gitignore, stay out of the copies of DIR. The master,
    a process in the background, runs the trials on the GPUs of this machine, or else on its CPUs.

    With `core-sdk --workspace NAME`, they are sent to that workspace while they run here.
    """
    from core_sdk._execution.experiments.submission import submit
    from core_sdk._ground.environment.names import SERVER_VARIABLE, TEST_MODE_VARIABLE
    from core_sdk._home.pushes import find_login

    if slots is not None and not local:
        raise click.BadParameter("--slots is for --local: `core-sdk master up --slots N` gives them to the master")
    if test and (follow or paused or as_json):
        raise click.BadParameter("--test shows its steps as they are passed: give it alone, or with --local")

    text, changes = read_config(config), overrides or []
    if test:
        from core_sdk._interfaces.cli.experiment.testing import run_test, single_trial

        changes = single_trial(text, str(config), changes, is_local=local)

    variables = {TEST_MODE_VARIABLE: "1"} if test and local else {}
    if named := workspace():
        variables[SERVER_VARIABLE] = find_login(named).url

    def do(home: Home) -> Submitted:
        return submit(
            home,
            text,
            source=str(config),
            overrides=changes,
            model_dir=directory,
            includes=include or (),
            max_code_bytes=max_code_size << 20,
            is_paused=paused,
            variables=variables,
        )

    if test:
        raise click.exceptions.Exit(run_test(make_home(is_sent=True), do, is_local=local, num_places=slots))
    if local:
        raise click.exceptions.Exit(_run_locally(make_home(is_sent=True), do, slots, as_json=as_json))
    submit_to_master(do, "Created", as_json=as_json, is_followed=follow, is_sent=True)


def fork(
    experiment: SubmittedId,
    config_file: Annotated[
        Path | None,
        Option(exists=True, dir_okay=False, help="Another configuration.", show_default="EXPERIMENT's"),
    ] = None,
    overrides: Overrides = None,
    follow: Follow = False,
    paused: Paused = False,
    as_json: AsJson = False,
) -> None:
    """Submit another experiment with the same code, which begins from nothing."""
    from core_sdk._execution.experiments.submission import fork

    text = None if config_file is None else read_config(config_file)

    def do(home: Home) -> Submitted:
        changes = overrides or ()
        return fork(home, experiment, text, source=str(config_file), overrides=changes, is_paused=paused)

    submit_to_master(do, "Created", as_json=as_json, is_followed=follow)


def continue_(
    experiment: SubmittedId,
    new: Annotated[
        bool,
        Option("--new", help="Begin a new experiment of one trial, with the weights of a trial of this one."),
    ] = False,
    trial: Annotated[int | None, trial_option("With --new: that trial, by number or name.", "the best one")] = None,
    overrides: Overrides = None,
    follow: Follow = False,
    paused: Annotated[bool, Option("--paused", help="With --new: wait for `experiment activate`.")] = False,
    as_json: AsJson = False,
) -> None:
    """Let an experiment that has ended go on: its trials that are not completed, from their newest checkpoints.

    An experiment of a single trial goes on even if it is completed, and may change its configuration. A halving search
    goes on if somebody has canceled or killed it, but not if it has decided its own end.
    """
    from core_sdk._execution.experiments.submission import continue_as_new, continue_in_place

    if not new and (trial is not None or paused):
        raise click.BadParameter("--trial and --paused are for --new")

    def do(home: Home) -> Submitted:
        changes = overrides or ()
        if not new:
            return continue_in_place(home, experiment, overrides=changes, by="core-sdk experiment continue")
        chosen = _best_trial(home, experiment) if trial is None else trial
        return continue_as_new(home, chosen, overrides=changes, is_paused=paused)

    submit_to_master(do, "Created" if new else "Continued", as_json=as_json, is_followed=follow)


def follow(experiment: SubmittedId, as_json: AsJson = False) -> None:
    """Show the trials of an experiment as they go on, until its end; exit with 0 only if it is COMPLETED.

    --json prints the experiment when it has ended.
    """
    raise click.exceptions.Exit(_show(make_home(), experiment, as_json=as_json))


def submit_to_master(
    do: Callable[[Home], Submitted], done: str, *, as_json: bool, is_followed: bool, is_sent: bool = False
) -> None:
    """Submits by `do`, tells the experiment, and shows it to its end if `is_followed`."""
    from core_sdk._execution.experiments.calling import start_early

    home = make_home(is_sent=is_sent)
    start_early(home.root)
    submitted = _told(do(home), done, is_last=not is_followed, as_json=as_json)
    if is_followed:
        raise click.exceptions.Exit(_show(home, submitted.experiment_id, as_json=as_json))


def _show(home: Home, experiment_id: int, **options: Any) -> int:
    """Shows the experiment until it ends, and returns the exit status, as `live.show` does with these options."""
    from core_sdk._execution.experiments.following import Follower
    from core_sdk._interfaces.cli.experiment.live import show

    return show(Follower(home, experiment_id), **options)


def _told(submitted: Submitted, done: str, *, is_last: bool, as_json: bool) -> Submitted:
    """Prints the id of the submitted experiment; as JSON only if no other output follows."""
    for warning in submitted.warnings:
        say(f"warning: {warning}")
    if not as_json:
        click.echo(f"{done} experiment {submitted.experiment_id}")
    elif is_last:
        print_object(submitted)
    return submitted


def _best_trial(home: Home, experiment_id: int) -> int:
    from core_sdk._home.finding.best import best_trial

    with open_view(home) as view:
        best = best_trial(home, view, experiment_id)
    if best is None:
        raise click.BadParameter("no trial has reported the searcher's metric: name one with --trial")
    return best.trial_id


def _run_locally(home: Home, submit: Callable[[Home], Submitted], num_places: int | None, *, as_json: bool) -> int:
    """Runs one experiment to its end; returns the exit status.

    Ctrl-C and SIGTERM pause it: its trials save their checkpoints and end. Raises the errors of `local_master`.
    """
    from core_sdk._execution.master.local import local_master

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with local_master(home, num_places):
        submitted = _told(submit(home), "Created", is_last=False, as_json=as_json)
        return _show(home, submitted.experiment_id, as_json=as_json, interrupt=_pause)


def _pause(follower: Follower) -> int:
    from core_sdk._execution.steering import experiments

    experiment_id = follower.experiment.experiment_id
    say(f"pausing experiment {experiment_id}: its trials save their checkpoints")
    experiments.pause(follower.home, experiment_id, "Ctrl-C or SIGTERM")
    for _ in follower.follow():
        if follower.experiment.is_paused and not follower.experiment.num_running:
            break
    say(f"experiment {experiment_id} is paused. `core-sdk experiment activate {experiment_id}` lets it go on")
    return ExitCode.PAUSED
