"""The actions: a route for each verb of the tracker. What a master decides goes through it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from core_sdk._execution.steering.table import VERBS
from core_sdk._execution.steering.verb import Verb
from core_sdk._home import Home
from core_sdk._interfaces.server.errors import RequestError
from core_sdk._interfaces.server.route import Action, Id, Route
from core_sdk._interfaces.server.routes.checkpoints import StorageId
from core_sdk._interfaces.server.shared_view import SharedView
from core_sdk._workspace.actions.asker import present_asker
from core_sdk._workspace.actions.requesting import ask_home
from core_sdk.errors import WorkspaceRequestError


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of an action."""


class Done(msgspec.Struct, frozen=True):
    message: str
    """A text that says what was done."""
    request_id: str = ""
    """The request to the home that has sent the trial, if a workspace was asked."""


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
            return _asked(shared.home, verb.name, arguments, **ids)
        given = {**ids, **by, **arguments}
        done = Done(verb.words.format(answer=verb(shared.home, **given), **given))
        if verb.is_told_home and not shared.reaches_outside:
            # Whoever may change the trial here may not change it at home: then it stays a change here.
            with contextlib.suppress(PermissionError, WorkspaceRequestError):
                ask_home(shared.home, verb=verb.name, arguments=arguments, asker=present_asker(), **ids)
        return done

    answer.__doc__ = (verb.function.__doc__ or "").partition(" Raises ")[0]
    types: dict[str, Any] = {name: StorageId if name == "storage_id" else Id for name in verb.ids}
    if arguments := arguments_of(verb):
        types["body"] = _body(f"{verb.subject}_{verb.name}_body".title().replace("_", ""), arguments.values())
    answer.__annotations__ = {**types, "return": Done}
    return Route(verb.path, answer, "POST") if verb.only_reads else Action(verb.path, answer)


def _asked(home: Home, verb: str, arguments: Mapping[str, Any], trial_id: int) -> Done:
    """Asks the home that has sent the trial to a workspace."""
    try:
        request = ask_home(home, trial_id, verb, arguments, present_asker())
    except PermissionError as error:
        hint = "An owner of the workspace may ask, too."
        raise RequestError(403, "not_allowed", f"{error}, who may {verb} it", hint) from error
    is_running = home.trial(trial_id).running_attempt() is not None
    when = "in a moment" if is_running else "once that machine is heard again, within a day"
    return Done(f"asked the machine that has sent trial {trial_id} to {verb} it: it does {when}", request.request_id)


def _body(name: str, arguments: Iterable[inspect.Parameter]) -> type[msgspec.Struct]:
    fields = [
        (one.name, one.annotation) if one.default is one.empty else (one.name, one.annotation, one.default)
        for one in arguments
    ]
    return msgspec.defstruct(name, fields, bases=(Body,), frozen=True)


ACTIONS = tuple(map(_action, VERBS))
