"""Declares verbs: functions that change something, with what commands, client and routes need to know of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T_co = TypeVar("_T_co", covariant=True)

Subject = Literal["trial", "experiment", "checkpoint", "registry", "model", "version"]


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

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _T_co:
        return self.function(*args, **kwargs)


def verb(
    subject: Subject, name: str, words: str, *, only_reads: bool = False
) -> Callable[[Callable[_P, _T_co]], Verb[_P, _T_co]]:
    """Declares the function below it as a verb."""
    return lambda function: Verb(subject, name, words, function, only_reads)
