"""The command line `core-sdk`.

A command imports what it needs when it runs: `core-sdk --help` and shell completion must answer at once, and loading
the tracker, its database and tables of text takes longer than both.
"""

from __future__ import annotations

import io
import os
import sys

__all__ = ["main"]

_STDOUT = 1
_STDERR = 2


def main() -> None:
    """Runs the command of `sys.argv` and exits with its status."""
    _open_missing_streams()
    from core_sdk.cli._app import app
    from core_sdk.cli._failures import FAILURES, exit_status_of

    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name that the terminal's encoding lacks must not end a command.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="core-sdk")
    except FAILURES as error:
        sys.exit(exit_status_of(error))


def _open_missing_streams() -> None:
    """Where the caller closed them: else the first files that we open would take their place, and our output."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or os.fdopen(_STDOUT, "w")
    sys.stderr = sys.stderr or os.fdopen(_STDERR, "w")
