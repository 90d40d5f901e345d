"""How all groups of commands are set up."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup


def command_group(help_text: str, epilog: str | None = None) -> typer.Typer:
    """`epilog` is reflowed."""
    return typer.Typer(
        cls=_Group,
        help=help_text,
        epilog=epilog and " ".join(epilog.split()),
        no_args_is_help=True,
        # Help in rich's boxes takes a tenth of a second longer, and does not say more.
        rich_markup_mode=None,
        # Our errors are shown without a traceback; any other deserves the plain one.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


class _Group(TyperGroup):
    """Lists its commands with the whole first sentence of each, where the library would cut it to a line."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        rows = [(name, _first_paragraph(self.commands[name].help)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _first_paragraph(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split())
