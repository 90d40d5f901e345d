"""The code of experiments, as the server answers questions about it: also of archives that somebody has made up."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from home.journals import new_trial, record, report
from interfaces.server.visitor import Visitor, target_of

from core_sdk._analysis.evidence import keep_sources
from core_sdk._ground.records import SubmissionRecord
from core_sdk._home import Home, TrialFolder
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


def sources(folder: TrialFolder, directory: Path, **files: str) -> None:
    """Keeps files as the sources of a trial, as `core-sdk run` does."""
    directory.mkdir()
    for name, text in files.items():
        (directory / f"{name}.py").write_text(text)
    keep_sources(folder, directory)


def test_the_sources_of_two_trials_differ_in_lines(visitor: Visitor, home: Home, tmp_path: Path) -> None:
    """From the other trial to this one; passwords in addresses are masked."""
    folders = [new_trial(home) for _ in range(3)]
    url = "u = 'https://me:hunter2@host/'\n"
    sources(folders[0], tmp_path / "0", train="a = 1\n-- b\n", same="s = 1\n")
    sources(folders[1], tmp_path / "1", train="a = 2\n" + url, same="s = 1\n", new="n = 1\n")
    first, other, without = [folder.trial_id for folder in folders]
    for folder in folders:
        record(folder, report(1, loss=0.5))

    found = visitor.question(f"/trials/{other}/code/differences", other=first)
    unknown = visitor.question(f"/trials/{without}/code/differences", other=first)

    assert {one["name"]: one["lines"] for one in found["files"]} == {
        "train.py": ["@@ -1,2 +1,2 @@", "-a = 1", "--- b", "+a = 2", "+u = 'https://********@host/'"],
        "new.py": ["@@ -0,0 +1 @@", "+n = 1"],
    }
    assert (found["notes"], found["num_left_out"]) == ([], 0)
    assert unknown["files"] is None
    assert f"no sources of trial {without}" in unknown["notes"][0]
    assert visitor.get(target_of(f"/trials/{first}/code/differences", other=4711)).status == 404


def test_sources_that_differ_in_very_much_are_cut(
    visitor: Visitor, home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of lines that are left out is told, and an archive made as a bomb is none."""
    monkeypatch.setattr(code, "_MAX_SHOWN_BYTES", 100)
    folders = [new_trial(home) for _ in range(3)]
    for folder in folders:
        record(folder, report(1, loss=0.5))
    first, other, bomb = [folder.trial_id for folder in folders]
    sources(folders[0], tmp_path / "0", train="", more="")
    sources(folders[1], tmp_path / "1", train="x = 1\n" * 50, more="y = 1\n" * 50)
    folders[2].sources_path.write_bytes(gzip.compress(packed((member("train.py", 1 << 26), bytes(1 << 26)))))

    found = visitor.question(f"/trials/{other}/code/differences", other=first)
    refused = visitor.question(f"/trials/{bomb}/code/differences", other=first)

    lengths = [len("".join(one["lines"])) for one in found["files"]]
    assert 0 < sum(lengths) <= 100
    assert found["num_left_out"] + sum(len(one["lines"]) for one in found["files"]) == 2 * 51
    assert refused["files"] is None
