"""Sets up a group of commands."""

from __future__ import annotations

import difflib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import click

from core_sdk._interfaces.signatures import CONTEXT_SETTINGS, FunctionCommand, command_from, parameters_of

HOMES = "core_sdk.homes"
"""The patterns of --homes, in `click.Context.meta`."""

F = TypeVar("F", bound=Callable[..., Any])
# Short and old names, in every group that has such a command.
_OTHER_NAMES = {"ls": "list", "rm": "delete", "lt": "trials", "lc": "checkpoints", "list-trials": "trials",
                "list-checkpoints": "checkpoints", "download-model-def": "download-code"}  # fmt: skip
# What people say for a command that is called otherwise here; the first one that a group has is meant.
MEANT = {
    "show": ("describe",), "view": ("describe",), "info": ("describe",), "get": ("describe",), "remove": ("delete",),
    "stop": ("pause", "down"), "unpause": ("activate", "resume"), "restart": ("resume", "continue"),
    "start": ("resume", "activate", "up"), "submit": ("create",), "rename": ("set",), "ps": ("list",),
    "tag": ("label",),
}  # fmt: skip


class Group(click.Group):
    """Shows the whole first paragraph of each command in its help; the library would cut it to a line.

    A command may also be called by its short or old name, which the help does not list.
    """

    def command(  # type: ignore[override]
        self, name: str | None = None, *, reads_homes: bool = False, **settings: Any
    ) -> Callable[[F], F]:
        """Adds a function as a command, by default under its own name. The function stays one that others can call."""

        def add(function: F) -> F:
            named = name or function.__name__.strip("_").replace("_", "-")
            self.add_command(_command(function, named, reads_homes, **settings))
            return function

        return add

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)  # in their order, which click would make that of the alphabet

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return super().get_command(ctx, cmd_name) or super().get_command(ctx, _OTHER_NAMES.get(cmd_name, cmd_name))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Says for an unknown command which one was probably meant."""
        if self.get_command(ctx, args[0]) is None and (meant := self._meant(ctx, args[0])) is not None:
            ctx.fail(f"No such command {args[0]!r}. Did you mean `{ctx.command_path} {meant}`?")
        return super().resolve_command(ctx, args)

    def _meant(self, ctx: Any, typed: str) -> str | None:
        names = self.list_commands(ctx)
        others = [*MEANT.get(typed, ()), typed.removesuffix("s"), *difflib.get_close_matches(typed, names, 1)]
        return next((name for name in others if name in names), None)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [(name, self._first_paragraph(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def _first_paragraph(self, ctx: Any, name: str) -> str:
        command = self.get_command(ctx, name)
        return " ".join(((command and command.help) or "").partition("\n\n")[0].split())


@dataclass(frozen=True)
class Lazy:
    """Where a command or a group of commands is."""

    at: str
    """`module:name` of a function, or of a group."""
    help: str | None = None
    """The help of a group, or the first paragraph of a command's."""
    cls: type[FunctionCommand] = FunctionCommand
    is_hidden: bool = False
    reads_homes: bool = False
    """Whether it can read several homes as one, with --homes."""


class LazyGroup(Group):
    """Imports the module of a command or subgroup when it is asked for."""

    lazy: ClassVar[Mapping[str, Lazy]] = {}
    """The name of each command and subgroup -> where it is."""
    short_forms: ClassVar[Mapping[str, str]] = {}
    """Another name of a subgroup -> its name."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *(name for name in self.lazy if name not in self.commands)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        cmd_name = self.short_forms.get(cmd_name, cmd_name)
        for name in (cmd_name, _OTHER_NAMES.get(cmd_name, cmd_name)):
            if name in self.lazy and name not in self.commands:
                self.commands[name] = _load(name, self.lazy[name])
        return super().get_command(ctx, cmd_name)

    def _first_paragraph(self, ctx: Any, name: str) -> str:
        return (self.lazy[name].help if name in self.lazy else None) or super()._first_paragraph(ctx, name)


def _load(name: str, lazy: Lazy) -> Any:
    loaded = pkgutil.resolve_name(lazy.at)
    if isinstance(loaded, click.Group):
        loaded.help = lazy.help
        return loaded
    return _command(loaded, name, lazy.reads_homes, cls=lazy.cls, hidden=lazy.is_hidden)


def _command(function: Callable[..., Any], name: str, reads_homes: bool, **settings: Any) -> click.Command:
    command: click.Command = command_from(function, name, **settings)
    if reads_homes:
        command.params.append(_homes_option())
    return command


def _homes_option() -> click.Option:
    """Returns the option that `open_home` obeys. It is read before the others, of which some name trials."""

    def keep(ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> None:
        ctx.meta[HOMES] = value

    told = "Read all homes that you may read of those that match, as one: '/shared/*/core-sdk'. May be repeated."
    return click.Option(
        ["--homes"], multiple=True, is_eager=True, expose_value=False, callback=keep, metavar="PATTERN", help=told
    )


def command_group(
    help_text: str | None = None,
    *,
    epilog: str | None = None,
    cls: type[Group] = Group,
    options: Callable[..., None] | None = None,
) -> Group:
    """Returns a group of commands with the settings that all groups share.

    The parameters of `options`, a function, are those of the group.
    """
    return cls(
        help=help_text,
        epilog=epilog,
        params=parameters_of(options) if options else None,
        callback=options,
        no_args_is_help=True,
        context_settings=CONTEXT_SETTINGS,
    )
