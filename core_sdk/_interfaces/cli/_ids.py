"""Arguments and options that name a trial, an experiment, a checkpoint or a model: by its id, or else by its name.

Names are looked up before a command begins, so that a mistyped one changes nothing.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import click

from core_sdk._home import Home, View, open_view
from core_sdk._home.opening import HomeElsewhere
from core_sdk._interfaces.signatures import Argument, Option
from core_sdk.errors import AmbiguousNameError, CheckpointNotFoundError

_MAX_CANDIDATES = 5


def parse_trial(text: str) -> int:
    """Returns the trial's id. A number is not looked up, since one that is wrong need not stop the others.

    Raises `TrialNotFoundError` for an unknown name, or `click.BadParameter` for one that several trials have.
    """
    if _is_number(text):
        return int(text)
    with _view() as view:
        return view.trial(text).trial_id


def parse_own_or_fetched(text: str) -> int:
    """Returns the id of a trial of the home, or of WORKSPACE/NUMBER, which is fetched. Raises `WorkspaceError`, too."""
    workspace, slash, number = text.rpartition("/")
    if not slash or not _is_number(number):
        return parse_trial(text)
    from core_sdk._execution.steering.fetching import fetch  # requests, which other commands do not need
    from core_sdk._ground.environment import add_variables, workspace_variables
    from core_sdk._ground.masking import masked_arguments
    from core_sdk._home.pushes import find_login
    from core_sdk._interfaces.cli._home import make_home
    from core_sdk._interfaces.cli._messages import say
    from core_sdk._interfaces.render.text import printable

    folder = fetch(make_home(), workspace, int(number))
    say(f"trial {number} of {workspace} is trial {folder.trial_id} here")
    if (command := folder.read_command()) is not None:  # somebody else may have chosen it
        say(f"its command there, in {printable(command.cwd)}: {printable(shlex.join(masked_arguments(command.argv)))}")
    login = find_login(workspace)
    add_variables(workspace_variables(login.url, login.token))
    return folder.trial_id


def parse_experiment(text: str) -> int:
    """Returns the id. Raises `ExperimentNotFoundError`, or `click.BadParameter` for a name that several have."""
    if _is_number(text) and not isinstance(home := _home(), HomeElsewhere):
        return home.experiment(int(text)).experiment_id
    with _view() as view:
        return view.experiment(int(text) if _is_number(text) else text).experiment_id


def parse_submitted(text: str) -> int:
    """Returns the id of a submitted experiment. Raises the errors of `parse_experiment` and `check_submitted`."""
    check_submitted(experiment_id := parse_experiment(text))
    return experiment_id


def check_submitted(experiment_id: int) -> None:
    """Raises `ExperimentError` for an experiment that was begun by a script."""
    from core_sdk._execution.steering.experiments import check_submitted

    check_submitted(_home(), experiment_id, "what concerns its trials is under `core-sdk trial`")


def parse_checkpoint(text: str) -> str:
    """Returns the id that is `text`, or else the one that begins with it, in upper or lower case.

    Raises `CheckpointNotFoundError`, or `click.BadParameter` if several ids begin so.
    """
    with _view() as view:
        try:
            return view.checkpoint(text).storage_id
        except CheckpointNotFoundError:
            ids = {row.storage_id for row in view.checkpoints()}
            found = sorted(one for one in ids if text and one.casefold().startswith(text.casefold()))
            if not found:
                raise
    if len(found) > 1:
        named = ", ".join(found[:_MAX_CANDIDATES]) + (", …" if len(found) > _MAX_CANDIDATES else "")
        raise click.BadParameter(f"{len(found)} ids begin with {text!r}: {named}. Give more of the one that you mean")
    return found[0]


def parse_model(text: str) -> int:
    """Returns the model's id. Raises `ModelNotFoundError`."""
    from core_sdk._home.registry import Registry

    return Registry(_home()).model(int(text) if _is_number(text) else text).model_id


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _home() -> Home:
    from core_sdk._interfaces.cli._home import open_home  # slow to import

    return open_home()


@contextlib.contextmanager
def _view() -> Iterator[View]:
    try:
        with open_view(_home()) as view:
            yield view
    except AmbiguousNameError as error:
        raise click.BadParameter(str(error)) from None


def _argument(parser: Callable[[str], Any], metavar: str, help_text: str) -> Any:
    return Argument(metavar=metavar, parser=parser, help=help_text, show_default=False)


def trial_option(help_text: str, show_default: bool | str = True) -> Any:
    return Option(metavar="ID", parser=parse_trial, help=help_text, show_default=show_default)


def experiment_option(help_text: str) -> Any:
    return Option(metavar="EXPERIMENT", parser=parse_experiment, help=help_text)


TrialId = Annotated[int, _argument(parse_trial, "ID", "The trial's number or name.")]
OwnOrFetchedTrial = Annotated[
    int, _argument(parse_own_or_fetched, "ID", "The trial's number or name, or WORKSPACE/NUMBER of one elsewhere.")
]
TrialIds = Annotated[list[int], _argument(parse_trial, "ID…", "The trials' numbers or names.")]
MaybeTrialIds = Annotated[list[int] | None, _argument(parse_trial, "ID…", "The trials' numbers or names.")]
OfTrial = Annotated[int | None, trial_option("Show only this trial's, by number or name.")]
WrittenTrial = Annotated[
    int | None, Option("--trial", metavar="ID", parser=parse_trial, help="The trial that --writer reports about.")
]
Experiment = Annotated[int, _argument(parse_experiment, "EXPERIMENT", "Its number, or else its whole name.")]
Experiments = Annotated[list[int], _argument(parse_experiment, "EXPERIMENT…", "Their numbers or names.")]
SubmittedIds = Annotated[list[int], _argument(parse_submitted, "EXPERIMENT…", "Their numbers or names.")]
SubmittedId = Annotated[int, _argument(parse_submitted, "EXPERIMENT", "Its number, or else its whole name.")]
OfExperiment = Annotated[int | None, experiment_option("Show only this experiment's, by id or name.")]
StorageId = Annotated[str, _argument(parse_checkpoint, "ID", "The checkpoint's id, or its first letters.")]
StorageIds = Annotated[list[str], _argument(parse_checkpoint, "ID…", "The checkpoints' ids, or their first letters.")]
MaybeStorageIds = Annotated[
    list[str] | None, _argument(parse_checkpoint, "ID…", "The checkpoints' ids, or their first letters.")
]
Model = Annotated[int, _argument(parse_model, "MODEL", "Its number, or else its whole name.")]
