"""Declares verbs: functions that change something, with what commands, client and routes need to know of them."""

from __future__ import annotations

import functools
import inspect
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, ParamSpec, TypeVar, get_type_hints

from core_sdk._ground.decoding import convert
from core_sdk._home import Home, open_view
from core_sdk._home.opening import HomeElsewhere
from core_sdk.errors import CoreSDKError, WorkspaceError

_P = ParamSpec("_P")
_T_co = TypeVar("_T_co", covariant=True)

Subject = Literal["trial", "experiment", "checkpoint", "registry", "model", "version"]

_PATHS: Mapping[Subject, str] = {
    "trial": "/trials/{trial_id}",
    "experiment": "/experiments/{experiment_id}",
    "checkpoint": "/checkpoints/{storage_id}",
    "registry": "/models",
    "model": "/models/{model_id}",
    "version": "/models/{model_id}/versions/{version}",
}


@dataclass(frozen=True)
class Verb(Generic[_P, _T_co]):
    """A verb, which is called like its function.

    The function takes the home, the ids of its subject, `by` if it records who has asked, and then the arguments of
    the verb. A route is made of all that, and of the docstring's first paragraph before the errors.
    """

    subject: Subject
    name: str
    words: str
    """The message after success: a template of the function's parameters and of its `answer`."""
    function: Callable[_P, _T_co]
    only_reads: bool
    """Whether a server that only reads may do it too."""
    is_asked_of_home: bool
    """Whether a workspace asks the home that has sent the trial, or the experiment, to do it."""
    is_told_home: bool
    """Whether a workspace does it, and asks that home to do it, too."""

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _T_co:
        """Does it; in a workspace, by asking its server, which raises `WorkspaceError` or `WorkspaceRequestError`.

        In several homes that are read as one, it is done as `changing` says.
        """
        home = args[0] if args else kwargs.get("home")
        if isinstance(home, HomeElsewhere):
            answer: _T_co = self._asked(home, inspect.signature(self.function).bind(*args, **kwargs).arguments)
            return answer
        return self.function(*args, **kwargs)

    @property
    def path(self) -> str:
        """The address of the verb below `/api/v1` of a server, with the ids of its subject in braces."""
        return f"{_PATHS[self.subject]}/actions/{self.name}"

    @property
    def asked_as(self) -> str:
        """The name of the verb in a request to the home that has sent a trial."""
        return self.name if self.subject == "trial" else f"{self.subject} {self.name}"

    @property
    def ids(self) -> list[str]:
        """The names of the parameters that are the ids of its subject."""
        return re.findall(r"{(\w+)}", _PATHS[self.subject])

    def _asked(self, home: HomeElsewhere, given: Mapping[str, Any]) -> Any:
        from core_sdk._workspace.actions.calling import call_workspace  # requests, which other verbs do not need

        kind = get_type_hints(self.function)["return"]
        if kind is not type(None) and not self.is_asked_of_home:
            raise WorkspaceError(home.address, f"the {self.subject} lies on its server")
        ids = {name: given[name] for name in self.ids}
        body = {name: one for name, one in given.items() if name not in ("home", "by", *ids)}
        return convert(call_workspace(home.address, self.path, ids, body), kind)


def verb(
    subject: Subject,
    name: str,
    words: str,
    *,
    only_reads: bool = False,
    is_asked_of_home: bool = False,
    is_told_home: bool = False,
) -> Callable[[Callable[_P, _T_co]], Verb[_P, _T_co]]:
    """Declares the function below it as a verb."""

    def declare(function: Callable[_P, _T_co]) -> Verb[_P, _T_co]:
        done = function if only_reads else changing(subject)(function)
        return Verb(subject, name, words, done, only_reads, is_asked_of_home, is_told_home)

    return declare


def changing(subject: Subject) -> Callable[[Callable[_P, _T_co]], Callable[_P, _T_co]]:
    """Lets the function below it, which changes something, do so in the home that has its subject, by its number there.

    That matters for several homes that are read as one, of which only the user's own are changed. Raises
    `HomesOnlyReadError` for all others. An error of the function then says how the home numbers the subject.
    """

    def decorated(function: Callable[_P, _T_co]) -> Callable[_P, _T_co]:
        @functools.wraps(function)
        def change(*args: _P.args, **kwargs: _P.kwargs) -> _T_co:
            home = args[0] if args else kwargs.get("home")
            if not isinstance(home, Home) or not home.is_gathered:
                return function(*args, **kwargs)
            call = inspect.signature(function).bind(*args, **kwargs)
            there = _redirect(call.arguments, home, subject)
            try:
                return function(*call.args, **call.kwargs)
            except CoreSDKError as error:
                error.args = (f"{error}{there}",)
                raise

        return change

    return decorated


def _redirect(arguments: dict[str, Any], home: Home, subject: Subject) -> str:
    """Replaces the home and the subject's number among the arguments. Returns the words that say which they are now."""
    if subject == "trial" or subject == "experiment":
        number = arguments[f"{subject}_id"]
        arguments["home"], there = home.own(subject, number)
        arguments[f"{subject}_id"] = there
        command = f"CORE_SDK_HOME={shlex.quote(str(arguments['home'].root))} core-sdk {subject} describe {there}"
        return f" ({subject} {number} of all these homes is that of `{command}`)"
    if subject == "checkpoint":
        with open_view(home) as view:
            arguments["home"], _ = home.own("trial", view.checkpoint(arguments["storage_id"]).trial_id)
    else:
        home.check_changeable()
    return ""
