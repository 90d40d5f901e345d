"""Lets a forked process become a Python program, as if a fresh Python had begun it.

A process shows other users the command line and the environment with which it was executed, from memory of its own.
This is where `ps`, and guardians that look for marks, read them. So the program's are written there.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import runpy
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import msgspec

from core_sdk._execution.agent.warm.programs import PythonProgram
from core_sdk._ground.environment import replace_variables
from core_sdk._ground.environment.names import OWN_PREFIX, ROOM_VARIABLE

_STAT = Path("/proc/self/stat")
# Their places in that file, after the name of the process.
_ARGUMENTS, _ENVIRONMENT = 45, 47


class Beginning(msgspec.Struct, frozen=True):
    """The program that a standby becomes, and its directory, environment and signals."""

    program: PythonProgram
    cwd: str
    variables: dict[str, str]
    mask: list[int]
    """The signals that are blocked in it."""


def become(beginning: Beginning, output: int) -> None:
    """Runs the program in this process, whose main thread calls it. Its output goes to the descriptor.

    Returns, or raises `SystemExit`, when the program's main thread has ended; this process then ends at once.
    """
    os.setsid()
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    os.chdir(beginning.cwd)
    _show(beginning.program.words, beginning.variables)
    replace_variables(beginning.variables)
    _renew_randomness()
    threading.main_thread()._native_id = threading.get_native_id()  # type: ignore[attr-defined]  # Python forgets it
    tempfile.tempdir = None  # a library may have asked for it
    signal.pthread_sigmask(signal.SIG_SETMASK, beginning.mask)
    program = beginning.program
    sys.orig_argv = program.words
    main = ModuleType("__main__")
    main.__builtins__ = sys.modules["builtins"]  # type: ignore[attr-defined]
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    sys.modules["__main__"] = main
    if program.is_module:
        sys.argv = ["-m", *program.arguments]
        _look_first_in(str(Path.cwd()))
        _run_module(program.name)
    else:
        sys.argv = [program.name, *program.arguments]
        _look_first_in(os.path.dirname(os.path.realpath(program.name)))  # noqa: PTH120 - as Python does
        _run_script(os.path.abspath(program.name), main)  # noqa: PTH100


def _run_script(path: str, main: ModuleType) -> None:
    """Runs a script by the function by which Python itself does. So a traceback has no frames of ours."""
    main.__loader__ = SourceFileLoader("__main__", path)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fopen.restype = ctypes.c_void_p
    file = libc.fopen(os.fsencode(path), b"rb")
    if not file:
        reason = os.strerror(ctypes.get_errno())
        print(f"{sys.executable}: can't open file {path!r}: {reason}", file=sys.stderr)
        raise SystemExit(2)
    run = ctypes.pythonapi.PyRun_SimpleFileExFlags
    run.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
    if run(file, os.fsencode(path), 1, None) != 0:
        _end_after_error()


def _run_module(name: str) -> None:
    try:
        runpy._run_module_as_main(name)  # type: ignore[attr-defined]  # as `python -m` does
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001
        # Without the frame of this function.
        error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
        sys.excepthook(type(error), error, error.__traceback__)
        if isinstance(error, KeyboardInterrupt):
            _note_interrupt()
        _end_after_error()


def _note_interrupt() -> None:
    """Lets Python notice a KeyboardInterrupt, with which it ends by SIGINT. It has been shown already."""
    hook, sys.excepthook = sys.excepthook, lambda *_: None
    ctypes.pythonapi.PyRun_SimpleStringFlags(b"raise KeyboardInterrupt", None)
    sys.excepthook = hook


def _end_after_error() -> None:
    """Ends as Python does after a traceback was written: with 1, or by SIGINT after a `KeyboardInterrupt`.

    Python ends by SIGINT itself if the last text that it has evaluated has raised that error. So nothing is evaluated.
    """
    if not issubclass(sys.last_type or Exception, KeyboardInterrupt):
        raise SystemExit(1)


def _look_first_in(directory: str) -> None:
    if not sys.flags.safe_path:
        sys.path.insert(0, directory)


def _renew_randomness() -> None:
    """Makes what a fresh Python draws at random differ from that of other processes with the same beginning.

    Python's own generator is seeded again by the fork.
    """
    if (random := sys.modules.get("numpy.random")) is not None:
        random.seed()
    if (process := sys.modules.get("multiprocessing.process")) is not None:
        process.current_process().authkey = os.urandom(32)


def _show(words: Sequence[str], variables: Mapping[str, str]) -> None:
    """Writes the command line, and our own variables, to where others read those of this process.

    The rest of the environment is as it was executed with, and stays: libraries may point into it.
    """
    ours = [f"{name}={value}" for name, value in variables.items() if name.startswith(OWN_PREFIX)]
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = _STAT.read_text().rpartition(")")[2].split()
        arguments, environment = int(fields[_ARGUMENTS]), int(fields[_ENVIRONMENT])
        shown = ctypes.string_at(environment, int(fields[_ENVIRONMENT + 1]) - environment)
        place = b"\0%s=" % ROOM_VARIABLE.encode()
        if (before := shown.find(place)) >= 0:
            size = shown.index(b"\0", before + 1) - before
            _overwrite(environment + before + 1, size, ours, filling=b"_")
        # The first argument stays, too: the C library points to it.
        first = len(ctypes.string_at(arguments)) + 1
        _overwrite(arguments + first, int(fields[_ARGUMENTS + 1]) - arguments - first, words[1:], filling=b"\0")


def _overwrite(start: int, size: int, texts: Sequence[str], *, filling: bytes) -> None:
    """Overwrites `size` bytes of this process's memory with texts, as far as they fit. The last byte is zero."""
    content = b""
    for text in texts:
        if len(content) + len(encoded := os.fsencode(text)) + 2 > size:
            break
        content += encoded + b"\0"
    content += filling * (size - len(content) - 1) + b"\0"
    ctypes.memmove(start, content, size)
