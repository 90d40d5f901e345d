"""The actions: a route for each verb of the tracker. What a master decides goes through it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from core_sdk._execution.steering.experiments import Steered
from core_sdk._execution.steering.table import VERBS
from core_sdk._execution.steering.verb import Verb
from core_sdk._interfaces.server.errors import RequestError
from core_sdk._interfaces.server.route import Action, Id, Route
from core_sdk._interfaces.server.routes.checkpoints import StorageId
from core_sdk._interfaces.server.shared_view import SharedView
from core_sdk._workspace.actions.asker import present_asker
from core_sdk._workspace.actions.requesting import ask_home, newest_sent
from core_sdk.errors import AttemptError, ExperimentError, WorkspaceRequestError


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of an action."""


class Done(msgspec.Struct, frozen=True):
    message: str
    """A text that says what was done."""
    request_id: str = ""
    """The request to the home that has sent the trial, if a workspace was asked."""
    trial_id: int = 0
    """The trial whose requests it is among."""
    answer: Any = None
    """The answer of the verb, if that is known already."""


def arguments_of(verb: Verb[..., Any]) -> dict[str, inspect.Parameter]:
    """Returns the arguments of a verb besides the home, the ids in its path, and who has asked."""
    given = inspect.signature(verb.function, eval_str=True).parameters
    return {name: one for name, one in given.items() if name not in ("home", "by", *verb.ids)}


def _action(verb: Verb[..., Any]) -> Route:
    """Returns the route of a verb. Its body has the arguments of the verb; without any, it has no body."""
    names_asker = "by" in inspect.signature(verb.function).parameters

    def answer(shared: SharedView, *, body: Body | None = None, **ids: Any) -> Done:
        by = {"by": present_asker().name} if names_asker else {}
        arguments = {} if body is None else msgspec.structs.asdict(body)
        if verb.is_asked_of_home and not shared.reaches_outside:
            return _asked(shared, verb, arguments, **ids)
        given = {**ids, **by, **arguments}
        done = Done(verb.words.format(answer=verb(shared.home, **given), **given))
        if verb.is_told_home and not shared.reaches_outside:
            # Whoever may change the trial here may not change it at home: then it stays a change here.
            with contextlib.suppress(PermissionError, WorkspaceRequestError):
                ask_home(shared.home, verb=verb.asked_as, arguments=arguments, asker=present_asker(), **ids)
        return done

    answer.__doc__ = (verb.function.__doc__ or "").partition(" Raises ")[0]
    types: dict[str, Any] = {name: StorageId if name == "storage_id" else Id for name in verb.ids}
    if arguments := arguments_of(verb):
        types["body"] = _body(f"{verb.subject}_{verb.name}_body".title().replace("_", ""), arguments.values())
    answer.__annotations__ = {**types, "return": Done}
    return Route(verb.path, answer, "POST") if verb.only_reads else Action(verb.path, answer)


def _asked(shared: SharedView, verb: Verb[..., Any], arguments: Mapping[str, Any], **ids: int) -> Done:
    """Asks the home that has sent the trial, or the experiment, to a workspace."""
    ((_, subject_id),) = ids.items()
    trial_id = subject_id if verb.subject == "trial" else newest_sent(shared.home, subject_id)
    if trial_id is None:
        return _asked_of_trials(shared, verb, subject_id)
    try:
        request = ask_home(shared.home, trial_id, verb.asked_as, arguments, present_asker())
    except PermissionError as error:
        hint = "An owner of the workspace may ask, too."
        raise RequestError(403, "not_allowed", f"{error}, who may do that", hint) from error
    is_running = shared.home.trial(trial_id).running_attempt() is not None
    when = "in a moment" if is_running else "once that machine is heard again, within a day"
    asked = f"asked the machine that has sent {verb.subject} {subject_id} to {verb.name} it: it does {when}"
    return Done(asked, request.request_id, trial_id)


def _asked_of_trials(shared: SharedView, verb: Verb[..., Any], experiment_id: int) -> Done:
    """Asks the homes that have sent the running trials of an experiment that scripts have begun."""
    of_trials = next((one for one in VERBS if one.subject == "trial" and one.name == verb.name), None)
    if of_trials is None or shared.home.experiment(experiment_id).read().is_submitted:
        raise ExperimentError.of(experiment_id, "is no search of a home that sends it, and cannot do that")
    running = [row.trial_id for row in shared.ask(lambda view: view.trials(experiment_id)) if row.state == "ACTIVE"]
    if not running:
        raise AttemptError(f"cannot {verb.name} experiment {experiment_id}: none of its trials is running.")
    for trial_id in running:
        _asked(shared, of_trials, {}, trial_id=trial_id)
    state = shared.ask(lambda view: view.experiment(experiment_id)).state
    done = Steered(state, tuple(running), f"asked to {verb.name}")
    return Done(f"experiment {experiment_id}: {done.outcome}", answer=msgspec.to_builtins(done))


def _body(name: str, arguments: Iterable[inspect.Parameter]) -> type[msgspec.Struct]:
    fields = [
        (one.name, one.annotation) if one.default is one.empty else (one.name, one.annotation, one.default)
        for one in arguments
    ]
    return msgspec.defstruct(name, fields, bases=(Body,), frozen=True)


ACTIONS = tuple(map(_action, VERBS))
