"""What the exit status of `core-sdk` means to a program that started it."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    """A trial, experiment or checkpoint that the home does not hold."""
    PAUSED = 75
    """EX_TEMPFAIL of sysexits.h: stopped on request, to be continued."""
    NOT_EXECUTABLE = 126
    COMMAND_NOT_FOUND = 127
    CANCELED = 130
    """Ended by Ctrl-C; a shell's 128 + SIGINT."""


def of_child(returncode: int) -> int:
    """The status with which a shell would report a child's end: 128 + N for death by signal N."""
    return returncode if returncode >= 0 else 128 - returncode
