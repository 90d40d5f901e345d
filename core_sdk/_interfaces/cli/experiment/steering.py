"""`core-sdk experiment pause`, `activate`, `cancel`, `kill`, `wait`, `archive`, `unarchive` and `set`."""

from __future__ import annotations

import enum
import time
from collections.abc import Iterable
from functools import partial
from typing import Annotated

import click

from core_sdk._execution.experiments.reviving import keep_going
from core_sdk._execution.steering import experiments as verbs
from core_sdk._execution.steering.verb import Verb
from core_sdk._home import Home
from core_sdk._interfaces.cli._each import for_each
from core_sdk._interfaces.cli._failures import ExitCode
from core_sdk._interfaces.cli._group import Group
from core_sdk._interfaces.cli._home import open_home
from core_sdk._interfaces.cli._ids import Experiment, Experiments, SubmittedIds
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.render.form import AsJson, choose_form
from core_sdk._interfaces.render.output import print_list, print_one
from core_sdk._interfaces.signatures import Argument

_PAUSE_S = 0.2
_MASTER_S = 5.0


class Setting(enum.StrEnum):
    NAME = "name"
    DESCRIPTION = "description"
    NOTES = "notes"
    LABELS = "labels"
    PRIORITY = "priority"
    MAX_SLOTS = "max-slots"


def register(app: Group) -> None:
    for command in (pause, activate, cancel, kill, archive, unarchive):
        app.command(reads_homes=True)(command)
    app.command()(wait)
    app.command("set", reads_homes=True)(set_)


def pause(experiments: Experiments, as_json: AsJson = False) -> None:
    """Let the trials save their checkpoints and stop, until `activate`."""
    _steer(experiments, verbs.pause, as_json)


def activate(experiments: Experiments, as_json: AsJson = False) -> None:
    """Let experiments that are paused go on."""
    _steer(experiments, verbs.activate, as_json)


def cancel(experiments: Experiments, as_json: AsJson = False) -> None:
    """End experiments: their trials save their checkpoints and stop."""
    _steer(experiments, verbs.cancel, as_json)


def kill(experiments: Experiments, as_json: AsJson = False) -> None:
    """End experiments at once: their trials are killed."""
    _steer(experiments, verbs.kill, as_json)


def wait(experiments: SubmittedIds, as_json: AsJson = False) -> None:
    """Wait until experiments have ended; exit with 0 only if all are COMPLETED.

    An experiment that is paused is waited for too: it may be activated.
    """
    home = open_home()
    states: dict[int, str] = {}
    asked = time.monotonic()
    pending = experiments
    while pending := [experiment_id for experiment_id in pending if experiment_id not in states]:
        for experiment_id in pending:
            search = home.experiment(experiment_id).read().search
            if search is not None and search.has_ended:
                states[experiment_id] = search.state
                if not as_json:
                    click.echo(f"experiment {experiment_id}: {search.state}")
        if time.monotonic() - asked > _MASTER_S:
            asked = time.monotonic()
            for experiment_id in pending:
                keep_going(home, experiment_id)
        time.sleep(_PAUSE_S)
    if as_json:
        print_list({"experiment_id": experiment_id, "state": state} for experiment_id, state in states.items())
    if set(states.values()) != {"COMPLETED"}:
        raise click.exceptions.Exit(ExitCode.FAILURE)


def archive(experiments: Experiments, as_json: AsJson = False) -> None:
    """Hide experiments that have ended from lists; `list --all` shows them."""
    for_each("experiment", experiments, partial(verbs.archive, open_home()), as_json, done="archived")


def unarchive(experiments: Experiments, as_json: AsJson = False) -> None:
    """Show experiments in lists again."""
    for_each("experiment", experiments, partial(verbs.unarchive, open_home()), as_json, done="unarchived")


def set_(
    setting: Annotated[Setting, Argument(help="What to set.", show_default=False)],
    experiment: Experiment,
    values: Annotated[
        list[str], Argument(metavar="VALUE…", help="One value; of labels any number.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Change what an experiment is called, or how its trials get slots.

    The priority is from 1 to 99, and smaller numbers are served first. `max-slots none` takes the limit away.
    """
    if setting is not Setting.LABELS and len(values) > 1:
        raise click.BadParameter(f"give one value; put it in quotes if it has spaces: {' '.join(values)!r}")
    home = open_home()
    value = values[0]
    match setting:
        case Setting.PRIORITY:
            verbs.set_slots(home, experiment, priority=_number(value, 1, 99))
        case Setting.MAX_SLOTS:
            most = -1 if value == "none" else _number(value, 0, 1 << 20)
            verbs.set_slots(home, experiment, max_slots=most)
        case Setting.LABELS:
            verbs.set_labels(home, experiment, values)
        case Setting.NAME | Setting.DESCRIPTION | Setting.NOTES:
            verbs.describe(home, experiment, **{setting.value: value})
    changed = {"experiment": str(experiment), setting.value: values if setting is Setting.LABELS else value}
    print_one(changed, f"{setting.value} of experiment {experiment}: {', '.join(values)}", choose_form(as_json))


def _steer(experiments: Iterable[int], verb: Verb[[Home, int, str], verbs.Steered], as_json: bool) -> None:
    home = open_home()

    def steer(experiment_id: int) -> str:
        done = verb(home, experiment_id, f"core-sdk experiment {verb.name}")
        if done.trial_ids and verb is verbs.pause:
            say(f"asked {len(done.trial_ids)} trials to stop: each does when it next calls should_preempt()")
        return done.state

    for_each("experiment", experiments, steer, as_json)


def _number(text: str, smallest: int, greatest: int) -> int:
    if not text.isdecimal() or not smallest <= int(text) <= greatest:
        raise click.BadParameter(f"{text!r} is not a whole number from {smallest:,} to {greatest:,}")
    return int(text)
