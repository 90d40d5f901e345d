"""How all groups of commands are set up."""

from __future__ import annotations

import typer


def command_group(help_text: str, epilog: str | None = None) -> typer.Typer:
    """`epilog` is reflowed."""
    return typer.Typer(
        help=help_text,
        epilog=epilog and " ".join(epilog.split()),
        no_args_is_help=True,
        # Help in rich's boxes takes a tenth of a second longer, and does not say more.
        rich_markup_mode=None,
        # Our errors are shown without a traceback; any other deserves the plain one.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
