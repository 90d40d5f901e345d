"""The messages between a pusher and a workspace: JSON, and pieces of files behind a line of JSON each."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from core_sdk._ground.records import SearcherMetric, StudyRecord, TrialRecord
from core_sdk._ground.typed_lines import from_line, to_line
from core_sdk._home.pushes import ActionOutcome

VERSION = 1
PIECE_BYTES = 4 << 20
REQUEST_BYTES = 8 << 20
"""The size from which on no further piece is put into a request."""
MOST_BYTES = REQUEST_BYTES + 2 * PIECE_BYTES
"""The size of a request that is refused."""
MOST_PIECES = 256
MOST_TRIALS = 100
ASKED_WRONGLY = 422
"""The status of an answer that is the error of a view."""

_LONGEST_HEAD = 8192


class Extent(msgspec.Struct, frozen=True):
    """How much of a file there is."""

    size_bytes: int
    checksum: int
    """The fingerprint of a file that grows; the CRC-32 of one that is replaced as a whole."""


class TrialKey(msgspec.Struct, frozen=True):
    """What a trial keeps in whatever home it is."""

    first_id: int
    created: float
    seed: int

    @classmethod
    def of(cls, record: TrialRecord) -> TrialKey:
        return cls(record.first_id or record.trial_id, record.created, record.seed)


class AnnouncedExperiment(msgspec.Struct, frozen=True):
    experiment_id: int
    name: str
    created: float
    is_submitted: bool
    """Whether it is one of its own, whatever others have its name."""
    labels: list[str] = []
    description: str = ""
    notes: str = ""
    searcher_metric: SearcherMetric | None = None
    study: StudyRecord | None = None


class AnnouncedTrial(msgspec.Struct, frozen=True):
    record: TrialRecord
    """As it is in the home that sends it."""
    experiment: AnnouncedExperiment
    grown: dict[str, Extent]
    """The files that grow, by their names."""
    relatives: dict[str, TrialKey] = {}
    """The keys of the trials that the record names, by their ids."""
    instead_of: int | None = None
    """The number that the trial cannot have, since the workspace has another trial there."""


class Announcement(msgspec.Struct, frozen=True):
    """Asks which trials of the workspace these trials of a home are, and what has arrived of them."""

    version: int
    home: str
    """The identity of the home."""
    adopted: list[str]
    """The identities that belong to the home, too, since it was moved."""
    trials: list[AnnouncedTrial]


class Allotted(msgspec.Struct, frozen=True):
    """The trial of the workspace that a trial of the home is."""

    number: int
    arrived: dict[str, Extent] = {}
    """What has arrived of each file."""
    differing: list[str] = []
    """The files that grow of which another content is there, as far as that can be told there."""
    is_of_copy: bool = False
    """Whether another home has sent all of it, of which this home is a copy, or which is a copy of this one."""
    is_deleted: bool = False
    """Whether somebody has deleted it there. Nothing more is taken of it."""
    problem: str = ""
    """The reason why it is not taken; empty if it is."""


class ToldOutcome(msgspec.Struct, frozen=True):
    """What came of a request."""

    request_id: str
    outcome: ActionOutcome
    message: str
    answer: Any = None


class SignOfLife(msgspec.Struct, frozen=True):
    """Says which trials of a pusher run, by their numbers in the workspace, and what came of requests."""

    running: dict[int, int] = {}
    """The attempts that run."""
    ended: list[int] = []
    """Trials that were running when the last sign was given, and are not any more."""
    home: str = ""
    """The identity of the home, if it carries out requests."""
    adopted: list[str] = []
    outcomes: list[ToldOutcome] = []


class HandedRequest(msgspec.Struct, frozen=True):
    """A verb that somebody wants to be done to a trial of the home."""

    request_id: str
    trial: TrialKey
    verb: str
    by: str
    arguments: dict[str, Any] = {}


class Heard(msgspec.Struct, frozen=True):
    """The answer to a sign of life."""

    requests: list[HandedRequest] = []
    """All of which the workspace does not know the outcome."""


class AskedArchive(msgspec.Struct, frozen=True):
    """Asks for the archive of a trial, by its number in the workspace."""

    trial_id: int


class PieceHead(msgspec.Struct, frozen=True):
    """The line before a piece of a file."""

    trial: int
    """Its number in the workspace."""
    name: str
    offset: int
    size_bytes: int
    checksum: int
    """The CRC-32 of the piece."""
    whole: Extent | None = None
    """The complete file, unless it is one that grows."""


class Answer(msgspec.Struct, frozen=True):
    """The fate of a piece."""

    outcome: Literal["taken", "differs", "deleted", "refused"]
    size_bytes: int
    """The part of the file that is there, durably: the offset of the next piece."""
    problem: str = ""


class PieceAnswers(msgspec.Struct, frozen=True):
    answers: list[Answer]
    """The fates of the first pieces, in order. The others were not looked at if there is a problem."""
    problem: str = ""
    """The reason why nothing more can be written; empty if all was looked at."""


class AskedCheckpoint(msgspec.Struct, frozen=True):
    """Asks what has arrived of a checkpoint, or has it stored."""

    trial: int
    """The number of its trial in the workspace."""
    storage_id: str
    is_complete: bool = False
    """Whether all of its files have been sent."""


class CheckpointArrival(msgspec.Struct, frozen=True):
    """What a workspace has of a checkpoint."""

    files: dict[str, int] = {}
    """The sizes of the files that have arrived, in whole or in part."""
    is_stored: bool = False
    problem: str = ""


class DamagedRequestError(ValueError):
    """A request whose bytes are not those that were sent."""


def piece_of(
    trial: int, name: str, offset: int, content: bytes, whole: Extent | None = None
) -> tuple[PieceHead, bytes]:
    return PieceHead(trial, name, offset, len(content), zlib.crc32(content), whole), content


def framed(pieces: Iterable[tuple[PieceHead, bytes]]) -> bytes:
    """Returns the body of a request with these pieces."""
    return b"".join(part for head, content in pieces for part in (to_line(head), content))


def unframed(body: bytes) -> Iterator[tuple[PieceHead, bytes]]:
    """Yields the pieces of a body. Raises `DamagedRequestError`."""
    position = 0
    while position < len(body):
        end = body.find(b"\n", position, position + _LONGEST_HEAD)
        try:
            head = from_line(body[position : end + 1], PieceHead)
        except ValueError as error:
            raise DamagedRequestError(f"a piece has no head: {error}") from error
        content = body[end + 1 : end + 1 + head.size_bytes]
        if head.offset < 0 or len(content) != head.size_bytes or zlib.crc32(content) != head.checksum:
            raise DamagedRequestError(f"a piece of {head.name} has another content than its head says")
        yield head, content
        position = end + 1 + head.size_bytes
