"""A flipped bit in a journal costs the record in which it is: the index counts it and gives all others as they were."""

from __future__ import annotations

import random
import struct

import pytest
from home.journals import START, append, everything, lines, new_trial, record, report, stored
from msgspec import structs

from core_sdk._ground.records import (
    CheckpointDeleted,
    CheckpointPinned,
    Ended,
    MetadataSet,
    Profile,
    ProgressReported,
    Record,
    Report,
    StatusSet,
    number_to_json,
)
from core_sdk._home import Home
from core_sdk._home.index import Index

_NAN = number_to_json(struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0])


@pytest.fixture
def recorded(home: Home) -> Home:
    """Records two trials with journals of two attempts, of another rank and of changes."""
    for _ in range(2):
        folder = new_trial(home, lr=0.1)
        reports = [report(steps, loss=1 / steps, norm=_NAN, count=steps) for steps in range(1, 20)]
        validations = [report(steps, "validation", accuracy=steps / 20) for steps in range(5, 20, 5)]
        generic = Report(START, "J*", 3, {}, None, {"J*": ["J", {"*": None}], "text": "*} J"})
        batches = Report(START + 2000, "training", 20, {"loss": 0.5}, [{"loss": 1.0}, {"loss": _NAN}])
        told: list[Record] = [
            StatusSet(time=START, status="J* \n"),
            MetadataSet(time=START, metadata={"J": {"*": [1.5]}}),
        ]
        record(folder, *reports, *validations, generic, *told, stored("a", 5), stored("b", 15))
        record(folder, batches, stored("c", 20), Ended(time=START, outcome="completed"), attempt=2, resumed_steps=15)
        figures = Profile(time=START, group="cpu", metrics={"cpu_util": 0.5})
        record(folder, ProgressReported(time=START, progress=0.5), figures, attempt=2, rank=1)
        changes: list[Record] = [
            CheckpointPinned(time=START, storage_id="b"),
            CheckpointDeleted(time=START, storage_id="a"),
        ]
        append(folder, 0, lines(*changes))
    return home


def told_of(index: Index, trial_id: int) -> list[str]:
    """Returns the reports of a trial without their superseded flag, which depends on other records."""
    groups = [*index.reports(trial_id, superseded=True), *index.reports(trial_id, "cpu")]
    return sorted(repr(structs.replace(row, is_superseded=False)) for row in groups)


@pytest.mark.parametrize("num_flips", [30, pytest.param(2000, marks=pytest.mark.timeout(3600))])
def test_a_flipped_bit_in_a_journal_is_never_an_answer(recorded: Home, num_flips: int) -> None:
    """After a flipped bit in any journal, the index reports nothing that was not recorded."""
    chance = random.Random(5)
    journals = sorted(recorded.trial(1).path.glob("*.journal"))
    with Index(recorded) as index:
        index.refresh()
        before, other, all_told = told_of(index, 1), told_of(index, 2), everything(index)
    for number in range(num_flips):
        path = chance.choice(journals)
        content = path.read_bytes()
        newlines = [at for at, byte in enumerate(content) if byte == 0x0A]
        damaged = bytearray(content)
        damaged[chance.choice(newlines) if number % 4 == 0 else chance.randrange(len(content))] ^= (
            1 << chance.randrange(8)
        )
        path.write_bytes(damaged)

        Index.rebuild(recorded)
        with Index(recorded) as index:
            told = told_of(index, 1)
            trial, other_trial = index.trials()
            assert (trial.num_bad_lines, other_trial.num_bad_lines) == (1, 0), (path.name, number)
            assert set(told) <= set(before)
            assert len(told) >= len(before) - 1
            assert told_of(index, 2) == other
            assert {row.storage_id for row in index.checkpoints()} <= {"a", "b", "c"}
        path.write_bytes(content)
    Index.rebuild(recorded)
    with Index(recorded) as index:
        assert everything(index) == all_told
