"""Asks a rank at which collective call it is: torch's flight recorder knows, also while the rank hangs in one."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from core_sdk._ground.decoding import json_decoder
from core_sdk._ground.files import write_atomically

_QUESTION_SUFFIX = ".question"
_ANSWER_SUFFIX = ".answer"
_POLL_S = 0.01


class LastCollective(msgspec.Struct, frozen=True, order=True):
    """The newest collective call of a rank in a process group: its number among the calls of the group."""

    number: int
    name: str


class _Entry(msgspec.Struct):
    process_group: tuple[str, str]
    collective_seq_id: int
    profiling_name: str
    is_p2p: bool = False


class _Trace(msgspec.Struct):
    entries: list[_Entry] = []


def answer_questions(signs: Path, is_closed: Callable[[], bool]) -> None:
    """Answers the questions about this rank until it is closed and asked once more. To be run in a thread."""
    question = signs.with_suffix(_QUESTION_SUFFIX)
    with contextlib.suppress(OSError):  # the agent has ended
        with contextlib.suppress(FileExistsError):
            os.mkfifo(question, 0o600)
        while not is_closed():
            os.close(os.open(question, os.O_RDONLY))  # blocks until somebody asks
            answer = msgspec.json.encode(_newest_calls())
            write_atomically(signs.with_suffix(_ANSWER_SUFFIX), answer, is_durable=False)


def ask(signs: Path) -> None:
    """Asks a rank without waiting. Does nothing if it cannot hear."""
    with contextlib.suppress(OSError):
        signs.with_suffix(_ANSWER_SUFFIX).unlink(missing_ok=True)
        os.close(os.open(signs.with_suffix(_QUESTION_SUFFIX), os.O_WRONLY | os.O_NONBLOCK))


def collective_calls(ranks: Iterable[Path], timeout_s: float) -> list[Mapping[str, LastCollective]]:
    """Returns the newest call of each rank in each of its groups; none for ranks that do not answer in time."""
    ranks = [*ranks]
    for each in ranks:
        ask(each)
    deadline, read = time.monotonic() + timeout_s, json_decoder(dict[str, LastCollective])
    answers = {each: each.with_suffix(_ANSWER_SUFFIX) for each in ranks if each.with_suffix(_QUESTION_SUFFIX).exists()}
    while time.monotonic() < deadline and not all(each.exists() for each in answers.values()):
        time.sleep(_POLL_S)
    return [read(answers[each].read_bytes()) if each in answers and answers[each].exists() else {} for each in ranks]


def _newest_calls() -> dict[str, LastCollective]:
    """Returns the calls of this process by back end and group; none if torch records none."""
    newest: dict[str, LastCollective] = {}
    torch: Any = sys.modules.get("torch._C._distributed_c10d")
    # NCCL has a recorder of its own, which only builds with it have.
    dumps = getattr(torch, "_dump_nccl_trace_json", None), getattr(torch, "_dump_fr_trace_json", None)
    for dump in filter(None, dumps):
        with contextlib.suppress(msgspec.MsgspecError, RuntimeError):
            for each in json_decoder(_Trace)(dump(True, False)).entries:
                back_end, _, name = each.profiling_name.partition(":")
                group, call = f"{back_end} {each.process_group[0]}", LastCollective(each.collective_seq_id, name)
                if not each.is_p2p:
                    newest[group] = max(newest.get(group, call), call)
    return newest
