"""The actions: a route for each verb of the tracker. What a master decides goes through it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from core_sdk._execution.steering.table import VERBS
from core_sdk._execution.steering.verb import Subject, Verb
from core_sdk._interfaces.server.asker import present_asker
from core_sdk._interfaces.server.route import Action, Id, Route
from core_sdk._interfaces.server.routes.checkpoints import StorageId
from core_sdk._interfaces.server.shared_view import SharedView

_PATHS: Mapping[Subject, str] = {
    "trial": "/trials/{trial_id}",
    "experiment": "/experiments/{experiment_id}",
    "checkpoint": "/checkpoints/{storage_id}",
    "registry": "/models",
    "model": "/models/{model_id}",
    "version": "/models/{model_id}/versions/{version}",
}


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of an action."""


class Done(msgspec.Struct, frozen=True):
    message: str
    """A text that says what was done."""


def path_of(verb: Verb[..., Any]) -> str:
    return f"{_PATHS[verb.subject]}/actions/{verb.name}"


def arguments_of(verb: Verb[..., Any]) -> dict[str, inspect.Parameter]:
    """Returns the arguments of a verb besides the home, the ids in its path, and who has asked."""
    given = inspect.signature(verb.function, eval_str=True).parameters
    return {name: one for name, one in given.items() if name not in ("home", "by", *_ids(verb))}


def _ids(verb: Verb[..., Any]) -> list[str]:
    return re.findall(r"{(\w+)}", _PATHS[verb.subject])


def _action(verb: Verb[..., Any]) -> Route:
    """Returns the route of a verb. Its body has the arguments of the verb; without any, it has no body."""
    names_asker = "by" in inspect.signature(verb.function).parameters

    def answer(shared: SharedView, *, body: Body | None = None, **ids: Any) -> Done:
        by = {"by": present_asker().name} if names_asker else {}
        given = {**ids, **by, **({} if body is None else msgspec.structs.asdict(body))}
        return Done(verb.words.format(answer=verb(shared.home, **given), **given))

    answer.__doc__ = (verb.function.__doc__ or "").partition(" Raises ")[0]
    types: dict[str, Any] = {name: StorageId if name == "storage_id" else Id for name in _ids(verb)}
    if arguments := arguments_of(verb):
        types["body"] = _body(f"{verb.subject}_{verb.name}_body".title().replace("_", ""), arguments.values())
    answer.__annotations__ = {**types, "return": Done}
    return Route(path_of(verb), answer, "POST") if verb.only_reads else Action(path_of(verb), answer)


def _body(name: str, arguments: Iterable[inspect.Parameter]) -> type[msgspec.Struct]:
    fields = [
        (one.name, one.annotation) if one.default is one.empty else (one.name, one.annotation, one.default)
        for one in arguments
    ]
    return msgspec.defstruct(name, fields, bases=(Body,), frozen=True)


ACTIONS = tuple(map(_action, VERBS))
