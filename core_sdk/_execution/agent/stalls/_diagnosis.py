"""Says who stands where and who waits for whom, from the Python stacks of all ranks. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from core_sdk._ground.signs import LastCollective

_FRAME = re.compile(r'^  File "(.*)", line (\d+) in (.*)$')
_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3", "<frozen", str(Path(__file__).parents[3]))
_COLLECTIVES = re.compile(
    r"all_reduce|all_gather|allgather|reduce_scatter|broadcast|barrier|gather|scatter|all_to_all|recv|reduce|wait|_sync"
)


class StackFrame(NamedTuple):
    file: str
    line: int
    function: str


@dataclass(frozen=True)
class ProcessState:
    """The place at which a process stands still, and why it cannot go on."""

    pid: int
    frames: Sequence[StackFrame] = ()
    """Its main thread, the innermost call first; empty if it does not answer."""
    state: str = ""
    """The reason why its main thread cannot go on, in words; empty if it only waits or works."""
    loops: bool = False
    """Whether it is at work all the time; `frames` then has the one function in which it always is."""


@dataclass(frozen=True)
class RankState:
    rank: int
    process: ProcessState
    silent_s: float = 0.0
    count: int = 0
    """The number of its signs."""
    workers: Sequence[ProcessState] = field(default=())
    """The workers of its loaders."""
    calls: Mapping[str, LastCollective] = field(default_factory=dict)
    """Its newest collective call in each process group, if torch records them."""


def main_thread(stacks: str) -> list[StackFrame]:
    """Returns the frames of the main thread in what `faulthandler` has written: its thread is the last one."""
    threads: list[list[StackFrame]] = []
    for line in stacks.splitlines():
        if "(most recent call first)" in line:
            threads.append([])
        elif (found := _FRAME.match(line)) is not None and threads:
            threads[-1].append(StackFrame(found[1], int(found[2]), found[3]))
    return threads[-1] if threads else []


def common_state(looks: Sequence[ProcessState]) -> ProcessState | None:
    """Returns where a process stands in all looks, or the innermost function in which it always is; None if neither."""
    if all(look == looks[0] for look in looks):
        return looks[0]
    shared: StackFrame | None = None
    for frames in zip(*(reversed(look.frames) for look in looks), strict=False):
        if len({(frame.file, frame.function) for frame in frames}) > 1:
            break
        if not _is_library(frames[0].file):
            shared = min(frames)  # the first of its lines
        if len({*frames}) > 1:
            break
    return None if shared is None else ProcessState(looks[0].pid, [shared], loops=True)


def told(ranks: Sequence[RankState]) -> str:
    """Returns a sentence about ranks that stand: which one does not go on, and who waits for it."""
    waiting = [each for each in ranks if waits_for_ranks(each.process)]
    standing = [each for each in ranks if each not in waiting]
    behind, calls = _compared_calls(ranks)
    if not standing:
        return _all_wait(waiting, calls)
    words = [_alone(each, is_named=len(ranks) > 1) for each in standing]
    if waiting:
        verb = "waits" if len(waiting) == 1 else "wait"
        them = "it" if len(standing) == 1 else "them"
        words.append(f"{_named(each.rank for each in waiting)} {verb} for {them} in {_operation(waiting[0].process)}")
    if calls and behind != [each.rank for each in standing]:
        words.append(calls)
    return "; ".join(words)


def _compared_calls(ranks: Sequence[RankState]) -> tuple[list[int], str]:
    """Returns the ranks that are least far in a process group of which not all are at the same call, and says so.

    Of several such groups it is one with the most ranks.
    """
    groups: dict[str, dict[LastCollective, list[int]]] = {}
    for each in ranks:
        for group, call in each.calls.items():
            groups.setdefault(group, {}).setdefault(call, []).append(each.rank)
    differing = [calls for _, calls in sorted(groups.items()) if len(calls) > 1]
    if not differing:
        return [], ""
    calls = max(differing, key=lambda calls: sum(map(len, calls.values())))
    told = [
        f"{_named(ranks)} {'is' if len(ranks) == 1 else 'are'} at collective call {call.number} ({call.name})"
        for call, ranks in sorted(calls.items())
    ]
    return calls[min(calls)], ", ".join(told)


def _all_wait(waiting: Sequence[RankState], calls: str) -> str:
    where = " and ".join(dict.fromkeys(_operation(each.process) for each in waiting))
    if len(waiting) == 1:
        return f"it waits for other ranks in {where}, called in {_place(waiting[0].process)}"
    told = f"{_named(each.rank for each in waiting)} wait for each other in {where}"
    least, most = min(each.count for each in waiting), max(each.count for each in waiting)
    if calls or least == most:
        return f"{told}; {calls}" if calls else told
    behind = [each.rank for each in waiting if each.count == least]
    return f"{told}; {_named(behind)} {'is' if len(behind) == 1 else 'are'} behind the others"


def _alone(each: RankState, *, is_named: bool) -> str:
    name, process = f"rank {each.rank}" if is_named else "it", each.process
    if process.state:
        where = f"stands in {_place(process)} and " if process.frames else ""
        return f"{name} (pid {process.pid}) {where}{process.state}"
    if process.loops:
        function = process.frames[0].function
        return f"{name} loops in {_place(process)}{'' if function.startswith('<') else f' {function}()'}"
    if not process.frames:
        return f"{name} (pid {process.pid}) does not answer"
    workers = [worker for worker in each.workers if worker.state or _place(worker) != "?"]
    why = _why(process)
    held = ""
    if why == "DataLoader" and workers:
        states = [f"pid {worker.pid} {worker.state or f'stands in {_place(worker)}'}" for worker in workers[:2]]
        held = f", whose worker {states[0]}"
    return f"{name} stands in {_place(process)}{f' ({why}{held})' if why else ''}"


def waits_for_ranks(process: ProcessState) -> bool:
    return not process.state and any(
        "/torch/distributed/" in file or "/core_sdk/_distributed/" in file for file, _, _ in process.frames[:12]
    )


def _operation(process: ProcessState) -> str:
    """Returns the name of the collective call, as the training's own code calls it."""
    inner = ""
    for frame in process.frames:
        if not _is_library(frame.file):
            break
        if _COLLECTIVES.search(frame.function) and not frame.function.startswith("_"):
            inner = frame.function
    return inner or (process.frames[0].function if process.frames else "a collective call")


def _why(process: ProcessState) -> str:
    files = [frame.file for frame in process.frames[:12]]
    functions = [frame.function for frame in process.frames[:3]]
    if any("/torch/utils/data/" in file for file in files):
        return "DataLoader"
    if any("/core_sdk/core/_checkpoint/" in file or "/core_sdk/_home/storage/" in file for file in files):
        return "saving or reading a checkpoint"
    if (files and files[0].endswith("/threading.py")) or {"acquire", "wait"} & {
        name.rpartition(".")[2] for name in functions
    }:
        return "a lock"
    return ""


def _place(process: ProcessState) -> str:
    """Returns the innermost line of the training's own code, with the function in which it is."""
    own = next((frame for frame in process.frames if not _is_library(frame.file)), None)
    frame = own or (process.frames[0] if process.frames else None)
    return "?" if frame is None else f"{frame.file.rpartition('/')[2]}:{frame.line}"


def _is_library(file: str) -> bool:
    return any(part in file for part in _LIBRARIES)


def _named(ranks: Iterable[int]) -> str:
    """Returns the ranks in words: "rank 3", "ranks 0 to 2 and 5"."""
    numbers = sorted(ranks)
    runs = [[rank for _, rank in run] for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])]
    parts = [f"{run[0]} to {run[-1]}" if len(run) > 2 else " and ".join(map(str, run)) for run in runs]
    return f"rank{'s' if len(numbers) > 1 else ''} {' and '.join(parts)}"
