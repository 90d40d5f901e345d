"""Writes docs/core-api.md and docs/loop.md, the references of `core_sdk.core` and `core_sdk.loop`, from docstrings.

python docs/core_api_page.py
"""

from __future__ import annotations

import ast
import enum
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import core_sdk
from core_sdk import core, errors, loop
from core_sdk._ground.config._kinds import describe, fields_of, meta_of
from core_sdk._ground.sections import Section

DOCS = Path(__file__).parent

INTRODUCTION = """\
# The Core API

<!-- Made by `python docs/core_api_page.py` from the docstrings of core_sdk.core. -->

This page has every public name of `core_sdk.core`, and what a script finds in `core_context.info`.
[Getting started](getting-started.md) shows how they are used, and [the contract](contract.md) says what they promise.

A call is *collective* if all ranks must make it, in the same order; the first ranks then wait for the last. A call that
does not say so concerns the rank that makes it. Times are in seconds. `steps_completed` counts whatever the script
counts, from the beginning of the trial, and not of the attempt.
"""

ERRORS = """\
## Errors

All errors of Core SDK itself are in `core_sdk.errors`. A name in brackets is an exception of Python's that the error
is, too.
"""

LOOP_INTRODUCTION = """\
# The loop

<!-- Made by `python docs/core_api_page.py` from the docstrings of core_sdk.loop. -->

This page has every public name of `core_sdk.loop`: `from core_sdk import loop`. [Exact resume](exact-resume.md) shows
how they are used in a training of your own, and [Trial and Trainer](pytorch.md) how the units say when to validate and
to save. A call is *collective* if all ranks must make it, in the same order.
"""

# What a script meets first comes first.
NAMES = [
    "init",
    "Context",
    "TrainContext",
    "CheckpointContext",
    "PreemptContext",
    "DistributedContext",
    "SearcherContext",
]
LOOP_NAMES = [
    "resumable",
    "ResumableLoader",
    "State",
    "ShardedDataset",
    "GroupedBatchSampler",
    "seed_all",
    "TrainUnit",
    "Batch",
    "Epoch",
    "Record",
]
CONSTRUCTED = (
    core.DistributedContext, core.Logger, loop.State, loop.ShardedDataset, loop.GroupedBatchSampler, loop.TrainUnit,
    loop.Seconds,
)  # fmt: skip
"""The classes whose objects a script makes itself."""


@dataclass(frozen=True)
class Page:
    """A reference page. `documented` has its names in their order."""

    file_name: str
    introduction: str
    documented: Mapping[str, Any]
    ending: tuple[str, ...] = ()

    def text(self) -> str:
        return "\n".join(
            [self.introduction, *(line for name in self.documented for line in self._section(name)), *self.ending]
        )

    def _section(self, name: str) -> Iterator[str]:
        described = self.documented[name]
        bases = [each for each in self.documented.values() if inspect.isclass(each) and each is not described]
        known = {
            each for base in bases if described in base.__subclasses__() for each in (*members(base), *attributes(base))
        }
        return _section(name, described, known)


def members(kind: type) -> dict[str, Any]:
    """Returns the public methods and properties of a class, in the order of its source, inherited ones last."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("core_sdk")]
    found = {name: value for base in reversed(ours) for name, value in vars(base).items() if _is_member(name, value)}
    return {name: found[name] for base in ours for name in vars(base) if name in found}


def attributes(kind: type) -> dict[str, tuple[str, str]]:
    """Returns the public attributes of a class that have a type: each with its type, and the text that follows it."""
    if issubclass(kind, Section):
        fields = [(field.name, field.type, meta_of(field.type).description) for field in fields_of(kind)]
        return {name: (describe(of_field), text or "") for name, of_field, text in fields}
    found = {}
    for base in reversed([base for base in kind.__mro__ if base.__module__.startswith("core_sdk")]):
        (body,) = (node.body for node in ast.parse(textwrap.dedent(inspect.getsource(base))).body)  # type: ignore[attr-defined]
        init = next((node.body for node in body if getattr(node, "name", "") == "__init__"), [])
        for statements in (body, init):
            for statement, following in zip_longest(statements, statements[1:]):
                is_local = statements is init and not isinstance(getattr(statement, "target", None), ast.Attribute)
                if not isinstance(statement, ast.AnnAssign) or is_local:
                    continue
                if not (name := _attribute_name(statement.target)).startswith("_"):
                    found[name] = (ast.unparse(statement.annotation), _text(following))
    return found


def _section(name: str, described: Any, known: set[str]) -> Iterator[str]:
    """Yields the section of a name. `known` are the members of a class that another section has described."""
    yield f"## `{name}`\n"
    if not inspect.isclass(described):
        yield from _call(name, described)
        return
    yield f"{inspect.getdoc(described)}\n"
    if issubclass(described, enum.Enum):
        yield f"Its values are {', '.join(f'`{name}.{member.name}`' for member in described)}.\n"
        return
    if found := {each: text for each, text in attributes(described).items() if each not in known}:
        yield from ("| attribute | type | |", "|---|---|---|")
        yield from (f"| `{each}` | {_cell(kind)} | {text} |" for each, (kind, text) in found.items())
        yield ""
    if described in CONSTRUCTED:
        yield from _call(name, described.__init__)
    for each, member in members(described).items():
        if each in known or issubclass(described, Section):
            continue
        yield f"### `{name}.{each}`\n"
        if isinstance(member, property):
            kind = _type(inspect.signature(_function(member)).return_annotation)
            yield f"A property, `{kind}`. {inspect.getdoc(member)}\n"
        else:
            yield from _call(each, _function(member))


def _call(name: str, function: Callable[..., Any]) -> Iterator[str]:
    """Yields the signature and the docstring of a function or class."""
    signature = inspect.signature(function)
    parameters = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    arguments = [_argument(each) for each in parameters]
    keyword_only = [n for n, each in enumerate(parameters) if each.kind is each.KEYWORD_ONLY]
    if keyword_only:
        arguments.insert(keyword_only[0], "*")
    returned = "" if function.__name__ == "__init__" else f" -> {_type(signature.return_annotation)}"
    line = f"{name}({', '.join(arguments)}){returned}"
    if len(line) > 100:
        line = "\n".join([f"{name}(", *(f"    {argument}," for argument in arguments), f"){returned}"])
    yield f"```\n{line}\n```\n\n{inspect.getdoc(function)}\n"


def _argument(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{stars}{parameter.name}: {_type(parameter.annotation)}"
    return text if parameter.default is parameter.empty else f"{text} = {_default(parameter.default)}"


def _default(value: object) -> str:
    if isinstance(value, enum.Enum):
        return str(value) if str(value).startswith(type(value).__name__) else f"{type(value).__name__}.{value.name}"
    return "…" if callable(value) else repr(value)


def _error_tree() -> str:
    tree = (inspect.getdoc(errors) or "").partition("\n\n")[2].partition("\n\n")[0]
    return f"```\n{textwrap.dedent(tree)}\n```"


def _is_member(name: str, value: object) -> bool:
    return not name.startswith("_") and isinstance(value, property | classmethod | staticmethod | type(_is_member))


def _function(member: Any) -> Callable[..., Any]:
    """Returns what is behind a property or a class method."""
    function: Callable[..., Any] = getattr(member, "fget", None) or getattr(member, "__func__", member)
    return function


def _attribute_name(target: ast.expr) -> str:
    return target.attr if isinstance(target, ast.Attribute) else target.id if isinstance(target, ast.Name) else "_"


def _text(statement: ast.stmt | None) -> str:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return " ".join(str(statement.value.value).split())
    return ""


def _type(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _cell(kind: str) -> str:
    return "`" + kind.replace("|", "\\|") + "`"


def _documented(module: Any, first: list[str]) -> dict[str, Any]:
    return {name: getattr(module, name) for name in [*first, *sorted(set(module.__all__) - set(first))]}


PAGES = (
    Page(
        "core-api.md",
        INTRODUCTION,
        _documented(core, NAMES)
        | {name: getattr(core_sdk, name) for name in ("ClusterInfo", "TrialInfo", "get_cluster_info")},
        (ERRORS, _error_tree(), ""),
    ),
    Page("loop.md", LOOP_INTRODUCTION, _documented(loop, LOOP_NAMES)),
)


if __name__ == "__main__":
    for page in PAGES:
        (Path(sys.argv[1] if len(sys.argv) > 1 else DOCS) / page.file_name).write_text(page.text())
