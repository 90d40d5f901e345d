"""Describes the failure of a rank in sentences. Pure functions of what was seen of it."""

from __future__ import annotations

import itertools
import re
import signal

from core_sdk._machine.processes._causes import STOPPED, TRACEBACK, FailureKind, RankSeen, kind_of

MAX_LINES = 40
_MAX_CHARACTERS = 100_000
# A longer line, such as a progress bar without line ends or a tensor, would bury the others.
_MAX_LINE_CHARACTERS = 2000

# torch writes `[rank0]: ` before each line of a traceback.
_TORCH_PREFIX = re.compile(r"^\[rank\d+\]: ")
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*)(: .*)?$", re.DOTALL)
_CRASH = "Fatal Python error: "
_STACK = "Current thread 0x"
_FRAME = re.compile(r'  File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.*)')
_LIBRARY = re.compile(r"/(site|dist)-packages/|/lib/python\d|^<frozen ")
_CANNOT_OPEN = re.compile(r"can't open file|can't find '__main__'|No module named")
_CONTROL = {code: "�" for code in [*range(0x20), 0x7F, *range(0x80, 0xA0)] if chr(code) not in "\t"}

_KILLED_BY_KERNEL = "perhaps by the kernel, for memory"
_FIRST_SIGNAL_STATUS = 128
# Written by the C++ library when Python ends while threads of torch run. The script's own exit status is lost then.
_JOINABLE_THREAD = b"terminate called without an active exception"


def exit_code(code: int) -> int:
    """Returns the status with which a shell would report this end: 128 + N for death by signal N."""
    return code if code >= 0 else _FIRST_SIGNAL_STATUS - code


def cause_of(seen: RankSeen) -> str:
    """Returns why a rank failed, in words that follow "rank 1"."""
    code = seen.code
    if code is None:
        return f"{_raised(seen.stderr) or 'failed'}, and did not end"
    if code < 0:
        death = f"was killed by {signal_text(-code)}"
        raised = _raised(seen.stderr) if _ended_under_threads(seen) else None
        return f"{raised}, and then {death}" if raised else death
    if code == 1:
        return _raised(seen.stderr) or "exited with status 1"
    if code == STOPPED:
        return f"exited with status {code}, which means that it was stopped, and nobody had asked for a stop"
    if code == 2 and (complaint := _interpreters_complaint(seen.stderr)):
        return f"could not be started: {complaint}"
    return f"exited with status {code}{_shells_meaning(code)}"


def _ended_under_threads(seen: RankSeen) -> bool:
    return seen.code == -signal.SIGABRT and _JOINABLE_THREAD in seen.stderr


def signal_text(number: int) -> str:
    """Returns the signal's name and meaning, such as `SIGSEGV (Segmentation fault)`."""
    name = signal_name(number)
    if number == signal.SIGKILL:
        return f"{name}: {_KILLED_BY_KERNEL}"
    return f"{name} ({signal.strsignal(number)})"


def signal_name(number: int) -> str:
    return signal.Signals(number).name if _is_known(number) else f"signal {number}"


def shortened(text: str, most: int = _MAX_CHARACTERS) -> str:
    """Shortens a text to about `most` characters: its beginning and end, and the number of characters left out."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]} ... ({len(text) - 2 * half} characters left out) ... {text[-half:]}"


def place_of_stack(stderr: bytes) -> str | None:
    """Returns the place at which a process stood whose stack Python's faulthandler has written last, or None.

    It is the innermost line that is not of a library, such as `save (train.py, line 12)`.
    """
    _, stack = _crash(_lines(stderr))
    frames = [frame for line in stack if (frame := _FRAME.fullmatch(line))]
    own = [frame for frame in frames if not _LIBRARY.search(frame["file"])]
    return next((f"{frame['name']} ({frame['file']}, line {frame['line']})" for frame in own or frames), None)


def failure_report(seen: RankSeen, num_ranks: int, host: str, code: int) -> list[str]:
    """Returns lines that say which rank failed first, why, and with which exit code, and the end of its stderr."""
    head = f"rank {seen.rank} of {num_ranks} failed first (host {host}, pid {seen.pid}): it "
    lines = [head + cause_of(seen)]
    if kind_of(seen) is FailureKind.CONSEQUENCE:
        lines.append("this looks like the consequence of another rank's end, of which nothing was seen on this node")
    if _ended_under_threads(seen):
        lines.append(
            "hint: Python ended under threads of torch's; call torch.distributed.destroy_process_group() before"
        )
    lines.append(f"exit code {code}; " + ("the end of its stderr:" if seen.stderr.strip() else "its stderr is empty"))
    return lines + [f"  {line}" for line in excerpt(seen.stderr)]


def excerpt(stderr: bytes) -> list[str]:
    """Returns the last lines, or the last traceback if many lines follow it; at most `MAX_LINES`.

    Of the stacks that Python writes when it crashes, it has only the stack of the thread that has crashed.
    """
    lines = [_shown(line) for line in _lines(stderr)]
    before, stack = _crash(lines)
    if stack:
        return [*before[-MAX_LINES // 2 :], *stack[: MAX_LINES // 2]]
    start = _last_traceback(lines)
    end = len(lines) if start is None else _end_of_traceback(lines, start)
    if start is None or start >= len(lines) - MAX_LINES or end > len(lines) - MAX_LINES // 2:
        return lines[-MAX_LINES:]
    return lines[max(start, end - MAX_LINES) : end]


def _crash(lines: list[str]) -> tuple[list[str], list[str]]:
    """Returns the lines to the one that says that Python has crashed, and the stack of the thread that has, if any."""
    index = next((index for index in range(len(lines) - 1, -1, -1) if lines[index].startswith(_CRASH)), len(lines))
    start = next((start for start in range(index, len(lines)) if lines[start].startswith(_STACK)), len(lines))
    return lines[: index + 1], list(itertools.takewhile(bool, lines[start:]))


def _raised(stderr: bytes) -> str | None:
    lines = [_TORCH_PREFIX.sub("", line) for line in _lines(stderr)]
    start = _last_traceback(lines)
    if start is None:
        # A syntax error in the script itself has no traceback.
        return next(
            (f"raised {line}" for line in lines[-1:] if re.match(r"(Syntax|Indentation|Tab)Error\b", line)), None
        )
    end = _end_of_traceback(lines, start)
    exception = lines[end - 1] if end > start + 1 else ""
    return f"raised {_shown(exception)}" if _EXCEPTION.match(exception) else None


def _last_traceback(lines: list[str]) -> int | None:
    title = TRACEBACK.decode()
    return next((index for index in range(len(lines) - 1, -1, -1) if title in lines[index]), None)


def _end_of_traceback(lines: list[str], start: int) -> int:
    """Returns the index after the traceback's last line: the exception, which is its first line without indent."""
    for index in range(start + 1, len(lines)):
        line = _TORCH_PREFIX.sub("", lines[index])
        if line and not line.startswith((" ", "\t")):
            return index + 1
    return len(lines)


def _interpreters_complaint(stderr: bytes) -> str | None:
    return next((_shown(line) for line in reversed(_lines(stderr)) if _CANNOT_OPEN.search(line)), None)


def _shells_meaning(code: int) -> str:
    number = code - _FIRST_SIGNAL_STATUS
    return f" (as a shell reports death by {signal_name(number)})" if _is_known(number) else ""


def _is_known(number: int) -> bool:
    return number in signal.valid_signals() and number in {known.value for known in signal.Signals}


def _lines(stderr: bytes) -> list[str]:
    # `splitlines` would also split at characters that only some programs take for the end of a line.
    text = stderr.decode("utf-8", errors="replace").replace("\r\n", "\n").rstrip()
    # Of a progress bar, only the last visible state counts.
    return [line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n")] if text else []


def _shown(line: str) -> str:
    """Removes control characters from a line, and the beginning of a long one, which says less than its end."""
    line = line.translate(_CONTROL)
    return line if len(line) <= _MAX_LINE_CHARACTERS else "…" + line[-_MAX_LINE_CHARACTERS:]
