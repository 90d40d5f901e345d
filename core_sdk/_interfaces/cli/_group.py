"""Sets up a group of commands."""

from __future__ import annotations

import difflib
import pkgutil
from typing import Any, ClassVar

import typer
import typer.main
from typer.core import TyperGroup

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


class Group(TyperGroup):
    """Shows the whole first paragraph of each command in its help; the library would cut it to a line.

    A command may also be called by its short or old name, which the help does not list.
    """

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


class LazyGroup(Group):
    """Imports the module of a subgroup when one of the subgroup's commands is asked for."""

    subgroups: ClassVar[dict[str, tuple[str, str]]] = {}
    """Name of a subgroup -> where its `typer.Typer` is, `module:name`, and what it is about."""
    short_forms: ClassVar[dict[str, str]] = {}
    """Another name of a subgroup -> its name."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(dict.fromkeys([*super().list_commands(ctx), *self.subgroups]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        cmd_name = self.short_forms.get(cmd_name, cmd_name)
        if cmd_name in self.subgroups and cmd_name not in self.commands:
            app, help_text = self.subgroups[cmd_name]
            group = typer.main.get_group(pkgutil.resolve_name(app))
            group.help = help_text
            self.commands[cmd_name] = group
        return super().get_command(ctx, cmd_name)

    def _first_paragraph(self, ctx: Any, name: str) -> str:
        return self.subgroups[name][1] if name in self.subgroups else super()._first_paragraph(ctx, name)


def command_group(help_text: str | None = None, *, epilog: str | None = None, cls: type[Group] = Group) -> typer.Typer:
    """Returns a group of commands with the settings that all groups share.

    The library reflows each paragraph of the `epilog`.
    """
    return typer.Typer(
        cls=cls,
        help=help_text,
        epilog=epilog and "\n\n".join(" ".join(each.split()) for each in epilog.split("\n\n")),
        no_args_is_help=True,
        # Help in rich's boxes takes a tenth of a second longer and says no more.
        rich_markup_mode=None,
        # Expected errors are shown without a traceback; others with Python's own.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
