"""What the fake keeps, in memory."""

from __future__ import annotations

import base64
import itertools
import threading
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import google_crc32c
from buckets.strict_gcs._answers import NO_BUCKET, NOT_MET, Answer, Refused, json_error


@dataclass(frozen=True)
class Stored:
    name: str
    content: bytes
    crc32c: str
    generation: int
    updated: str

    def resource(self, bucket: str) -> dict[str, Any]:
        return {
            "kind": "storage#object",
            "name": self.name,
            "bucket": bucket,
            "size": str(len(self.content)),
            "crc32c": self.crc32c,
            "generation": str(self.generation),
            "updated": self.updated,
        }


@dataclass
class PartedUpload:
    bucket: str
    key: str
    parts: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    """Number -> ETag, content."""


@dataclass
class Switches:
    """What a test may set."""

    answers: list[Answer | None] = field(default_factory=list)
    """Answered to the next requests, in this order, whatever they ask; None stands for the right answer."""
    damage_next: bool = False
    """The next small upload is stored with one bit turned, as by a store that checks nothing."""
    lose_answers_to: str | None = None
    """The answer to the next request whose line contains this is lost."""
    page_size: int = 1000
    requests: list[str] = field(default_factory=list)
    """The line of each request that came."""


class Store:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.buckets: dict[str, dict[str, Stored]] = {}
        self.uploads: dict[str, PartedUpload] = {}
        self._generations = itertools.count(1_700_000_000_000_000)

    def objects(self, bucket: str, missing: Answer = NO_BUCKET) -> dict[str, Stored]:
        if bucket not in self.buckets:
            raise Refused(missing)
        return self.buckets[bucket]

    def find(self, bucket: str, key: str, query: dict[str, str]) -> Stored:
        """Returns the object. Raises `Refused` without the wanted generation, or against the preconditions."""
        stored = self.objects(bucket).get(key)
        if stored is None or query.get("generation", str(stored.generation)) != str(stored.generation):
            raise Refused(json_error(404, "notFound", f"No such object: {bucket}/{key}"))
        self.check_conditions(bucket, key, query)
        return stored

    def check_conditions(self, bucket: str, key: str, query: dict[str, str]) -> None:
        stored = self.objects(bucket).get(key)
        live = "0" if stored is None else str(stored.generation)
        if query.get("ifGenerationMatch", live) != live:
            raise Refused(NOT_MET)

    def put(self, bucket: str, key: str, content: bytes, told_crc32c: str | None = None) -> Stored:
        found = crc32c_of(content)
        if told_crc32c not in (None, found):
            text = f'Provided CRC32C "{told_crc32c}" doesn\'t match calculated CRC32C "{found}".'
            raise Refused(json_error(400, "invalid", text))
        updated = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        stored = Stored(key, content, found, next(self._generations), updated)
        self.objects(bucket)[key] = stored
        return stored


def new_id() -> str:
    return uuid.uuid4().hex


def crc32c_of(content: bytes) -> str:
    return base64.b64encode(google_crc32c.value(content).to_bytes(4, "big")).decode()
