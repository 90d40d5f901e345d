"""The exit statuses of `core-sdk`."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    """A trial, an experiment or a checkpoint does not exist."""
    PAUSED = 75
    """The trial was stopped on request and can be resumed; EX_TEMPFAIL of sysexits.h."""
    NOT_EXECUTABLE = 126
    COMMAND_NOT_FOUND = 127
    CANCELED = 130
    """The trial was canceled by Ctrl-C; 128 + SIGINT, as in a shell."""
