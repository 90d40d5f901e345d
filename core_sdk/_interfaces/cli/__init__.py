"""The command line `core-sdk`.

`core-sdk --help` and completion in the shell must answer at once. So a group of commands is imported when one of them
is asked for, and a command imports what is slow to import when it runs.
"""

from __future__ import annotations

import io
import os
import sys

_STDOUT = 1
_STDERR = 2


def main() -> None:
    """Runs the command of `sys.argv` and exits with its status."""
    _open_missing_streams()
    from core_sdk._interfaces.cli._app import app
    from core_sdk._interfaces.cli._failures import FAILURES, exit_status_of

    if isinstance(sys.stdout, io.TextIOWrapper):
        # A character that the terminal cannot show must not end a command.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="core-sdk")
    except FAILURES as error:
        sys.exit(exit_status_of(error))


def _open_missing_streams() -> None:
    """Opens streams that the caller has closed. Otherwise the next files that we open would receive our output."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(descriptor)
    sys.stdout = sys.stdout or os.fdopen(_STDOUT, "w")
    sys.stderr = sys.stderr or os.fdopen(_STDERR, "w")
