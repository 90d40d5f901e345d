"""Says which argument was meant by a name that a function does not know."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

STEPS = {"step": "steps_completed", "steps": "steps_completed", "global_step": "steps_completed"}
"""The names by which others know `steps_completed`."""


def says_what_is_meant(words: Mapping[str, str]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Makes a function say in its `TypeError` which argument was meant. `words` has names that others have for its own.

    A function without positional arguments also says that it takes all by name.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        parameters = inspect.signature(function).parameters
        known = frozenset(parameters)
        shown = [name for name in parameters if name != "self"]
        is_by_name = all(each.kind is each.KEYWORD_ONLY for each in parameters.values())

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            if kwargs and not known.issuperset(kwargs):
                name = next(name for name in kwargs if name not in known)
                raise TypeError(f"{function.__name__}() has no argument {name!r}; {_hint(name, shown, words)}")
            if is_by_name and args:
                raise TypeError(f"{function.__name__}() takes its arguments by name: {', '.join(shown)}")
            return function(*args, **kwargs)

        return checked

    return decorate


def add_what_was_meant(error: TypeError, owner: type, words: Mapping[str, str]) -> None:
    """Adds to Python's error about an argument that a method of `owner` does not know which one was meant.

    It is for methods that are called too often for `says_what_is_meant`, and changes no other error.
    """
    unknown = re.fullmatch(rf"{owner.__name__}\.(\w+)\(\) got an unexpected keyword argument '(\w+)'", str(error))
    if unknown is not None:
        method, name = unknown.groups()
        shown = [name for name in inspect.signature(getattr(owner, method)).parameters if name != "self"]
        error.args = (f"{error}; {_hint(name, shown, words)}",)


def _hint(name: str, known: Sequence[str], words: Mapping[str, str]) -> str:
    import difflib  # only for an error

    meant = words.get(name) or next(iter(difflib.get_close_matches(name, known)), None)
    return f"did you mean {meant}?" if meant else f"there are {', '.join(known)}"
