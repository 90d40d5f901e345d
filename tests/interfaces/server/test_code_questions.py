"""The code of experiments, as the server answers questions about it: also of archives that somebody has made up."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from interfaces.server.visitor import Visitor, target_of

from core_sdk._ground.records import SubmissionRecord
from core_sdk._home import Home
from core_sdk._interfaces.server.routes import code

LIMIT = 1 << 20


def member(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.size, found.type, found.linkname = size, kind, target
    return found


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for one, text in members:
            archive.addfile(one, io.BytesIO(text))
    return content.getvalue()


def zeros() -> bytes:
    return packed((member("zeros", 2 * LIMIT), bytes(2 * LIMIT)))


def holes() -> bytes:
    """An old GNU sparse file, of which the archive has no content and says that it is long."""
    one = member("holes", 0, tarfile.GNUTYPE_SPARSE)
    header = bytearray(one.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = b"%011o\0" % (1 << 32)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return bytes(header) + bytes(1024)


def many() -> bytes:
    return packed(*((member(f"file{number}"), b"") for number in range(300)))


def long_name() -> bytes:
    return packed((member("x" * 2 * LIMIT), b""))


def submitted(home: Home, content: bytes) -> int:
    folder = home.new_experiment("submitted")
    with folder.edit() as experiment:
        experiment.is_submitted = True
    sha256 = hashlib.sha256(content).hexdigest()
    archive: Path = home.code_archive(sha256)
    archive.parent.mkdir(exist_ok=True)
    archive.write_bytes(gzip.compress(content))
    folder.write_submission(SubmissionRecord(code=sha256, cwd="/", environment={}))
    return folder.experiment_id


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(code, "_MAX_BYTES", LIMIT)
    monkeypatch.setattr(code, "_MAX_MEMBERS", 200)
    yield


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("bomb", [zeros, holes, many, long_name])
def test_an_archive_that_would_be_very_large_is_refused(
    visitor: Visitor, home: Home, bomb: Callable[[], bytes]
) -> None:
    """However it is made; the archive itself can still be saved."""
    first = submitted(home, bomb())
    other = submitted(home, packed((member("train.py", 5), b"a = 1")))

    answers = [
        visitor.get(target_of(f"/experiments/{first}/code")),
        visitor.get(target_of(f"/experiments/{first}/code/file", name="train.py")),
        visitor.get(target_of(f"/experiments/{first}/code/differences", other=other)),
        visitor.get(target_of(f"/experiments/{other}/code/differences", other=first)),
    ]

    assert [(answer.status, answer.problem) for answer in answers] == [(413, "too_large")] * 4
    assert "download-code" in answers[0].json["error"]["hint"]


def test_links_differ_by_where_they_lead(visitor: Visitor, home: Home) -> None:
    """Also to places outside of the archive; no link is followed."""
    experiments = [
        submitted(
            home,
            packed(
                (member("data", 0, tarfile.SYMTYPE, target), b""),
                (member("same", 0, tarfile.SYMTYPE, "/nowhere"), b""),
                (member("train.py", 5), b"a = 1"),
            ),
        )
        for target in ("/data/one", "/data/two")
    ]

    answer = visitor.question(f"/experiments/{experiments[0]}/code/differences", other=experiments[1])

    assert [one["name"] for one in answer["files"]] == ["data"]
