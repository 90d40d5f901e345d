"""The command line `core-sdk`.

A command imports what it needs when it runs: `core-sdk --help` and shell completion must answer at once, and loading
the tracker, its database and tables of text takes longer than both.
"""

from __future__ import annotations

import io
import sys

__all__ = ["main"]


def main() -> None:
    """Runs the command of `sys.argv` and exits with its status."""
    from core_sdk.cli._app import app
    from core_sdk.cli._failures import FAILURES, exit_status_of

    if isinstance(sys.stdout, io.TextIOWrapper):  # it is None where the caller closed it
        # A name that the terminal's encoding lacks must not end a command.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="core-sdk")
    except FAILURES as error:
        sys.exit(exit_status_of(error))
