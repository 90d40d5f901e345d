"""How all groups of commands are set up."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

import typer
import typer.main
from typer.core import TyperGroup


class Group(TyperGroup):
    """Shows the whole first paragraph of each command in its help; the library would cut it to a line."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [(name, self._first_paragraph(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def _first_paragraph(self, ctx: Any, name: str) -> str:
        command = self.get_command(ctx, name)
        return " ".join(((command and command.help) or "").partition("\n\n")[0].split())


class LazyGroup(Group):
    """Imports the module of a subgroup when one of the subgroup's commands is asked for."""

    subgroups: ClassVar[dict[str, tuple[str, str]]] = {}
    """Name of a subgroup -> the module whose `app` it is, and what it is about."""
    short_forms: ClassVar[dict[str, str]] = {}
    """Another name of a subgroup -> its name."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(dict.fromkeys([*super().list_commands(ctx), *self.subgroups]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        cmd_name = self.short_forms.get(cmd_name, cmd_name)
        if cmd_name in self.subgroups and cmd_name not in self.commands:
            module, help_text = self.subgroups[cmd_name]
            group = typer.main.get_group(importlib.import_module(module).app)
            group.help = help_text
            self.commands[cmd_name] = group
        return super().get_command(ctx, cmd_name)

    def _first_paragraph(self, ctx: Any, name: str) -> str:
        return self.subgroups[name][1] if name in self.subgroups else super()._first_paragraph(ctx, name)


def command_group(help_text: str | None = None, *, epilog: str | None = None, cls: type[Group] = Group) -> typer.Typer:
    """A group in the manner of all of ours; the library reflows the `epilog`."""
    return typer.Typer(
        cls=cls,
        help=help_text,
        epilog=epilog and " ".join(epilog.split()),
        no_args_is_help=True,
        # Help in rich's boxes takes a tenth of a second longer and says no more.
        rich_markup_mode=None,
        # Expected errors are shown without a traceback; others with Python's own.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
