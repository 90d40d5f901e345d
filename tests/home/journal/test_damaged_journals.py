"""A damaged record costs itself, is counted once, and no other record suffers."""

from __future__ import annotations

import random
import typing
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import msgspec
import pytest
from promises import promise

from core_sdk._ground.records import (
    AttemptStarted,
    CheckpointBegun,
    CheckpointStored,
    Dropped,
    Ended,
    MetadataSet,
    Profile,
    ProgressReported,
    Record,
    Report,
    StatusSet,
)
from core_sdk._home.journal import JournalWriter, encode_line, find_records, read_journal

WANTED = ('"attempt"', '"checkpoint', '"dropped"', '"validation"')

# One flipped bit makes a newline of "J" and of "*"; and a text may look like the beginning of a record.
STATUS = 'Jupiter * JJ*} 0ba7ff09 {"type":"ended","time":1.0} \u010a\n'


def records_of_a_training() -> Iterator[Record]:
    yield AttemptStarted(time=1.0, format=1, trial_id=1, attempt=1, host="J*", pid=7, sdk_version="0.1.0")
    for step in range(1, 40):
        yield Report(step * 1.1, "training", step, {"loss": 1 / step, "J*": step, "norm": "NaN"})
        if step % 5 == 0:
            yield Report(step * 1.1, "validation", step, {"loss": 1 / step}, [{"J": 1.0}, {"*": 2}])
            yield ProgressReported(time=step * 1.1, progress=step / 40)
            yield StatusSet(time=step * 1.1, status=STATUS)
            yield MetadataSet(time=step * 1.1, metadata={"nested": {STATUS: [step, None]}})
            yield Profile(time=step * 1.1, group="cpu", metrics={"cpu_util": 0.5})
            yield Report(step * 1.1, "my group", step, {"loss": 1 / step})
            yield CheckpointBegun(time=step * 1.1, storage_id=f"c{step}", storage="file:///J*")
            yield CheckpointStored(
                time=step * 1.1,
                storage_id=f"c{step}",
                storage="file:///J*",
                steps_completed=step,
                metadata={"steps_completed": step},
                resources={"state.pt": step},
            )
    yield Dropped(time=50.0, count=3, reason="the disk is full")
    yield Ended(time=51.0, outcome="completed")


RECORDS = list(records_of_a_training())
LINES = [encode_line(record) for record in RECORDS]
ENDS = list(accumulate(map(len, LINES)))


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    journal = JournalWriter(tmp_path_factory.mktemp("journal") / "1.journal")
    for record in RECORDS:
        journal.append(record)
    journal.close()
    return journal.path.read_bytes()


def others(damaged_byte: int) -> list[Record]:
    return [record for record, end, line in zip(RECORDS, ENDS, LINES, strict=True)
            if not end - len(line) <= damaged_byte < end]  # fmt: skip


def is_wanted(record: Record) -> bool:
    return any(text.encode() in encode_line(record) for text in WANTED)


def bits_of_newlines() -> list[int]:
    return [(end - 1) * 8 + bit for end in ENDS for bit in range(8)]


def bits_that_become_newlines() -> list[int]:
    content = b"".join(LINES)
    return [index * 8 + bit for index, byte in enumerate(content) for bit in range(8) if byte ^ 1 << bit == 0x0A]


def random_bits() -> list[int]:
    return random.Random(0).sample(range(sum(map(len, LINES)) * 8), 500)


@promise("damaged-records-skipped")
@pytest.mark.parametrize("flips", [random_bits, bits_of_newlines, bits_that_become_newlines])
def test_a_flipped_bit_costs_one_record_which_is_counted(
    tmp_path: Path, content: bytes, flips: typing.Callable[[], list[int]]
) -> None:
    """Wherever it flips: in a text, in a number, in the checksum, in a newline, or so that there is a newline more."""
    path = tmp_path / "1.journal"

    for bit in flips():
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        chunks = list(read_journal(path))
        found = list(find_records(path, WANTED))

        assert [record for chunk in chunks for record in chunk.records] == others(bit // 8), f"bit {bit}"
        assert sum(len(chunk.bad_lines) for chunk in chunks) == 1, f"bit {bit}"
        assert chunks[-1].end_offset == len(content)
        kept = [record for record in found if not isinstance(record, ValueError) and is_wanted(record)]
        assert kept == list(filter(is_wanted, others(bit // 8))), f"bit {bit}"
        is_lost = len(kept) < sum(map(is_wanted, RECORDS))
        assert any(isinstance(record, ValueError) for record in found) or not is_lost, f"bit {bit}"


def test_damage_of_neighbours_is_counted_for_each(tmp_path: Path, content: bytes) -> None:
    """Adjacent damaged lines, three with lost newlines and the one after them, are counted one by one."""
    damaged = bytearray(content)
    for end in ENDS[3:6]:
        damaged[end - 1] ^= 0x40
    damaged[ENDS[6] - 5] ^= 1
    (tmp_path / "1.journal").write_bytes(damaged)

    (chunk,) = read_journal(tmp_path / "1.journal")

    assert chunk.records == RECORDS[:3] + RECORDS[7:]
    assert [line.offset for line in chunk.bad_lines] == ENDS[2:6]


@pytest.mark.parametrize("num_damaged", [1, 2])
def test_lost_newlines_at_the_end_are_told_from_a_line_on_its_way(
    tmp_path: Path, content: bytes, num_damaged: int
) -> None:
    """Lines with lost newlines count as bad, and an unfinished last line is left for the next read."""
    path = tmp_path / "1.journal"
    damaged = bytearray(content)
    for end in ENDS[-1 - num_damaged : -1]:
        damaged[end - 1] ^= 0x40
    path.write_bytes(damaged[:-5])

    chunks = list(read_journal(path))
    path.write_bytes(damaged)
    (rest,) = read_journal(path, chunks[-1].end_offset)

    assert sum(len(chunk.bad_lines) for chunk in chunks) == num_damaged
    assert chunks[-1].end_offset == ENDS[-2]
    assert rest.records == RECORDS[-1:]


def test_no_beginning_of_a_journal_counts_as_damage(tmp_path: Path, content: bytes) -> None:
    """A journal cut off at any byte has no bad lines, since a line may still be on its way."""
    path = tmp_path / "1.journal"

    for size_bytes in range(ENDS[-9], len(content)):
        path.write_bytes(content[:size_bytes])
        chunks = list(read_journal(path))

        assert [record for chunk in chunks for record in chunk.records] == [
            record for record, end in zip(RECORDS, ENDS, strict=True) if end <= size_bytes
        ]
        assert not any(chunk.bad_lines for chunk in chunks)
        assert not any(isinstance(found, ValueError) for found in find_records(path, WANTED))


def test_the_beginning_of_a_line_is_no_empty_record(tmp_path: Path) -> None:
    """The beginning of a line is not taken for an empty record, even if its checksum is 0, as for no content."""
    path = tmp_path / "1.journal"
    path.write_bytes(b"00000000 {")

    assert list(read_journal(path)) == []


def test_the_kind_of_a_record_is_its_first_field() -> None:
    """Each record begins with its kind, by which a reader finds a record behind a lost newline."""
    for record in RECORDS:
        assert msgspec.json.encode(record).startswith(b'{"type":"')
