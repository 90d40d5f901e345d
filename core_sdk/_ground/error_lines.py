"""The line of an error that lists show: its type, and the first line of its message."""

from __future__ import annotations

import traceback

_TITLE = "Traceback (most recent call last)"


def error_line(text: str) -> str:
    """Returns the line that names the error, of a traceback or of an error's own text; empty if there is none.

    Further lines of a message, and notes, often say less. Of several tracebacks the last one counts, also one that is
    quoted in a message: a data loader quotes its worker's so.
    """
    lines = text.rstrip().split("\n")
    start = next((index + 1 for index in reversed(range(len(lines))) if _TITLE in lines[index]), 0)
    named = next((index for index in range(start, len(lines)) if lines[index][:1].strip()), None)
    if named is None:
        return ""
    line = lines[named].rstrip()
    # A message may begin with an empty line.
    following = next(filter(None, map(str.strip, lines[named + 1 :])), "") if line.endswith(":") else ""
    return f"{line} {following}".rstrip()


def ending_in_error_line(text: str) -> str:
    """Returns the text of an error, with the line that names it as its last one."""
    line = error_line(text)
    return text if text.rstrip().rpartition("\n")[2] == line or not line else f"{text.rstrip()}\n\n{line}\n"


def described(error: BaseException) -> str:
    """Returns the error's traceback, with the line that names it as its last one.

    If the error is an exit in the handler of another error, the line names that one, which is the cause of the exit.
    """
    text = "".join(traceback.format_exception(error))
    cause = error.__context__ if isinstance(error, SystemExit) and not error.__suppress_context__ else None
    named = error if cause is None else cause
    line = error_line("".join(traceback.format_exception(named)))
    # A group of errors is indented as a whole.
    line = line or error_line("".join(traceback.format_exception_only(named)))
    return text if text.rstrip().rpartition("\n")[2] == line else f"{text.rstrip()}\n\n{line}\n"
