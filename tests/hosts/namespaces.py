"""Namespaces of this kernel, entered or made by one thread for the children that it starts."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

_WHERE_ONE_IS = {"net": CLONE_NEWNET, "uts": CLONE_NEWUTS, "mnt": CLONE_NEWNS}


@contextlib.contextmanager
def new_process_ids_for_children() -> Iterator[None]:
    """Makes the next child process 1 of a new PID namespace: when it dies, all processes in it die."""
    with _process_ids_given_back():
        _check(ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWPID))
        yield


@contextlib.contextmanager
def process_ids_of(pid: int) -> Iterator[None]:
    """Puts children that are started inside into this process's PID namespace. They stay our children.

    `nsenter --pid` would stand between them and us: no signal, and no exit by a signal, passes through it.
    """
    with _process_ids_given_back():
        enter(f"/proc/{pid}/ns/pid", CLONE_NEWPID)
        yield


def process_ids(pid: int) -> str:
    """Returns the name of its PID namespace."""
    return str(Path(f"/proc/{pid}/ns/pid").readlink())


def processes_in(namespace: str) -> list[int]:
    """Returns the processes of this PID namespace that have not ended."""
    everybody = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in everybody if _lives_in(pid, namespace)]


def _lives_in(pid: int, namespace: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return process_ids(pid) == namespace and state not in "ZX"
    except OSError:  # it is gone, or is none of ours
        return False


def enter_host_of(pid: int) -> None:
    """Moves this process, of one thread, into another one's network, name and mounts, but not its PID namespace."""
    folder = Path.cwd()
    descriptors = {kind: os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name, kind in _WHERE_ONE_IS.items()}
    for kind, descriptor in descriptors.items():
        _set(descriptor, kind)
    os.chdir(folder)


@contextlib.contextmanager
def _process_ids_given_back() -> Iterator[None]:
    try:
        yield
    finally:
        enter("/proc/thread-self/ns/pid", CLONE_NEWPID)


def enter(path: str, kind: int) -> None:
    """Makes this namespace the thread's own (Python has `os.setns` from 3.12 on)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    _set(descriptor, kind)


def _set(descriptor: int, kind: int) -> None:
    try:
        _check(ctypes.CDLL(None, use_errno=True).setns(descriptor, kind))
    finally:
        os.close(descriptor)


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
