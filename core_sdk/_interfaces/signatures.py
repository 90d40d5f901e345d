"""Makes commands of click from the signatures of functions.

    def rename(trial_id: Annotated[int, Argument(help="Its number.")], notes: Annotated[str, Option()] = "") -> None:

is the command `rename TRIAL_ID --notes TEXT`; its docstring is the help. A parameter without a default is required, a
`bool` is a flag (`--notes/--no-notes`, if it has no name of its own), a list takes several arguments, or an option
several times, and an enumeration one of its values. click itself reads no signatures; typer, which does, imports
pydantic at the first argument, which takes longer than all that a command does.
"""

from __future__ import annotations

import enum
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"]}
_SIMPLE: Mapping[type, click.ParamType[Any]] = {str: click.STRING, int: click.INT, float: click.FLOAT, bool: click.BOOL}


@dataclass(frozen=True, eq=False)
class _Parameter:
    """What stands in an annotation beside the type."""

    names: tuple[str, ...] = ()
    help: str | None = None
    metavar: str | None = None
    show_default: bool | str = True
    parser: Callable[[str], Any] | None = None
    """Makes the value from the text; raises `click.BadParameter`, or ValueError."""
    callback: Callable[[Any], Any] | None = None
    """Checks the value, or prints and exits; returns the value."""
    min: float | None = None
    max: float | None = None
    exists: bool = False
    file_okay: bool = True
    dir_okay: bool = True
    others: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_range(self) -> bool:
        return self.min is not None or self.max is not None

    def type_of(self, annotation: Any) -> click.ParamType[Any]:
        """Returns the type that makes a value of this annotation, in which neither None nor a list is left."""
        if self.parser is not None:
            return click.types.FuncParamType(self.parser)
        if self.has_range:
            return (click.IntRange if annotation is int else click.FloatRange)(self.min, self.max)  # type: ignore[arg-type]
        if annotation is Path:
            return click.Path(self.exists, self.file_okay, self.dir_okay, path_type=Path)
        if issubclass(annotation, enum.Enum):
            return click.Choice([each.value for each in annotation])
        return _SIMPLE[annotation]


def Option(*names: str, **settings: Any) -> Any:
    """An option of a command. Its name is `--` and the parameter's, unless `names` are given.

    `settings` are the fields above, and `hidden` and `is_eager` of `click.Option`.
    """
    others: Mapping[str, Any] = {name: settings.pop(name) for name in ("hidden", "is_eager") if name in settings}
    return _Option(names, others=others, **settings)


def Argument(**settings: Any) -> Any:
    """An argument of a command, which stands at its place."""
    return _Argument(**settings)


class _Option(_Parameter):
    pass


class _Argument(_Parameter):
    pass


class _ClickArgument(click.Argument):
    """An argument that is explained in the help."""

    def __init__(self, *args: Any, told: str, default_told: bool | str, **attrs: Any) -> None:
        super().__init__(*args, **attrs)
        self._told = told
        self._default_told = default_told

    def make_metavar(self, ctx: click.Context | None = None) -> str:
        dots = "..." if self.nargs == -1 and not self.human_readable_name.endswith(("…", "...")) else ""
        shown = f"{self.human_readable_name}{dots}"
        return shown if self.required else f"[{shown}]"

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        extra = "required" if self.required else ""
        if isinstance(self._default_told, str):
            extra = f"default: ({self._default_told})"
        return (self.human_readable_name, f"{self._told}  [{extra}]" if extra else self._told)


class FunctionCommand(click.Command):
    """A command whose help explains its arguments, too."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        of_kind: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                of_kind["Arguments" if isinstance(parameter, click.Argument) else "Options"].append(record)
        for title, records in of_kind.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def command_from(
    function: Callable[..., Any], name: str, *, cls: type[FunctionCommand] = FunctionCommand, hidden: bool = False
) -> Any:
    """Returns the command that calls a function."""
    return cls(
        name,
        params=parameters_of(function),
        callback=function,
        help=_with_lines_kept(inspect.getdoc(function) or ""),
        hidden=hidden,
        context_settings=CONTEXT_SETTINGS,
    )


def parameters_of(function: Callable[..., Any]) -> list[click.Parameter]:
    """Returns the parameters of a function as those of a command."""
    hints = typing.get_type_hints(function, include_extras=True)
    return [
        _parameter(each.name, hints[each.name], each.default)
        for each in inspect.signature(function).parameters.values()
    ]


def _parameter(name: str, hint: Any, default: Any) -> click.Parameter:
    annotation, told = typing.get_args(hint)
    if typing.get_origin(annotation) is types.UnionType:
        (annotation,) = (each for each in typing.get_args(annotation) if each is not types.NoneType)
    is_list = typing.get_origin(annotation) is list
    if is_list:
        (annotation,) = typing.get_args(annotation)
    is_required = default is inspect.Parameter.empty
    attrs: dict[str, Any] = {
        "type": told.type_of(annotation),
        "required": is_required,
        "metavar": told.metavar or ({int: "INTEGER", float: "NUMBER"}.get(annotation) if told.has_range else None),
        "callback": _finishing(annotation, told.callback, default, is_list=is_list),
    }
    if not is_required and not is_list:
        attrs["default"] = default.value if isinstance(default, enum.Enum) else default
    if isinstance(told, _Argument):
        return _ClickArgument(
            [name], nargs=-1 if is_list else 1, told=told.help or "", default_told=told.show_default, **attrs
        )
    dashed = f"--{name.replace('_', '-')}"
    if annotation is bool:
        attrs |= {"is_flag": True, "type": None}
        dashed = f"{dashed}/--no-{dashed.removeprefix('--')}"
    return click.Option(
        [name, *(told.names or [dashed])],
        multiple=is_list,
        help=told.help,
        show_default=told.show_default,
        **attrs,
        **told.others,
    )


def _finishing(
    annotation: Any, callback: Callable[[Any], Any] | None, default: Any, *, is_list: bool
) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Returns what makes the function's value of click's."""

    def finish(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        if is_list:
            value = [*value] if value else default
        elif value is not None and issubclass(annotation, enum.Enum):
            value = annotation(value)
        return value if callback is None else callback(value)

    return finish


def _with_lines_kept(text: str) -> str:
    """Marks paragraphs of command lines, whose lines click would join."""
    return "\n\n".join("\b\n" + each if each.startswith("core-sdk ") else each for each in text.split("\n\n"))
