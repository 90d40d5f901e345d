"""What the server answers about media, and that nothing of their content runs."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from home.journals import new_trial, record
from interfaces.server.conftest import HOSTILE
from interfaces.server.visitor import Answer, Visitor

from core_sdk import media
from core_sdk._ground.records import Media, Report
from core_sdk._home import Home

SVG = b"<svg xmlns='http://www.w3.org/2000/svg'><script>document.title='hacked'</script></svg>"


def html() -> Media:
    content = b"<script>document.title='hacked'</script>"
    file = msgspec.structs.replace(media.Text(content.decode()).file, kind="figure", media_type="text/html")
    return Media(file, content)


@pytest.fixture
def files(home: Home) -> dict[str, str]:
    """Records media and returns the names of their files."""
    kept: dict[str, Media] = {"svg": media.Image(SVG), "html": html(), "text": media.Text(HOSTILE, caption=HOSTILE)}
    folder = new_trial(home)
    named = {name: {"$media": msgspec.to_builtins(one.file)} for name, one in kept.items()}
    lost = msgspec.structs.replace(media.Text("lost").file, problem="No space left on device")
    reports = [
        Report(time=1e9 + step, group=HOSTILE, steps_completed=step, metrics={}, json_metrics={"all": named})
        for step in range(2)
    ]
    record(folder, *reports, Report(2e9, "own", 3, {}, None, {"lost": {"$media": msgspec.to_builtins(lost)}}))
    folder.media_path.mkdir()
    for one in kept.values():
        (folder.media_path / one.file.name).write_bytes(one.content)
    return {name: one.file.name for name, one in kept.items()}


@pytest.fixture
def visitor(home: Home, files: dict[str, str]) -> Iterator[Visitor]:
    opened = Visitor(home)
    yield opened
    opened.close()


def file_of(visitor: Visitor, name: str) -> Answer:
    return visitor.get(f"/api/v1/trials/1/media/{name}")


def test_media_are_listed_by_their_names(visitor: Visitor, files: dict[str, str]) -> None:
    """Media are listed by group and name with what the page needs."""
    answer = visitor.question("/trials/1/media")

    assert [(one["group"], one["name"], len(one["items"])) for one in answer["series"]] == [
        (HOSTILE, "all.svg", 2),
        (HOSTILE, "all.html", 2),
        (HOSTILE, "all.text", 2),
        ("own", "lost", 1),
    ]
    text = answer["series"][2]["items"][1]
    assert (text["steps_completed"], text["file_name"], text["caption"]) == (1, files["text"], HOSTILE)
    assert answer["series"][3]["items"][0]["problem"] == "No space left on device"
    assert answer["num_files"] == 3


def test_content_is_harmless_by_its_headers(visitor: Visitor, files: dict[str, str]) -> None:
    """A type that is meant, no guessing, and a policy under which nothing runs; HTML is text."""
    types = {name: file_of(visitor, file).headers["content-type"] for name, file in files.items()}

    assert types == {
        "svg": "image/svg+xml",
        "html": "text/plain; charset=utf-8",
        "text": "text/plain; charset=utf-8",
    }
    for name in files.values():
        headers = file_of(visitor, name).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"] == "default-src 'none'; style-src 'unsafe-inline'; sandbox"
        assert headers["content-disposition"] == "attachment"
    assert file_of(visitor, files["svg"]).content == SVG


def test_content_needs_the_token(visitor: Visitor, files: dict[str, str]) -> None:
    """Media content needs the token, and a ticket is refused."""
    target = f"/api/v1/trials/1/media/{files['svg']}"
    ticket = visitor.get("/api/v1/ticket").json["ticket"]

    assert visitor.send("GET", target, with_token=False).status == 401
    assert visitor.send("GET", f"{target}?ticket={ticket}", with_token=False).status == 401


@pytest.mark.parametrize("name", ["trial.json", "..%2Ftrial.json", "a.png", "%00", "A" * 64 + ".png"])
def test_other_files_of_the_trial_are_none_of_media(visitor: Visitor, name: str) -> None:
    """Only names of media files are served from the media route."""
    assert file_of(visitor, name).status == 404


def test_damaged_content_is_named(visitor: Visitor, home: Home, files: dict[str, str]) -> None:
    """Damaged or missing content is an error that names the file, and lists stay complete."""
    (home.folder(1).media_path / files["svg"]).write_bytes(b"other")
    (home.folder(1).media_path / files["text"]).unlink()

    damaged, missing = file_of(visitor, files["svg"]), file_of(visitor, files["text"])

    assert (damaged.status, damaged.problem) == (503, "record_damaged")
    assert files["svg"] in damaged.json["error"]["message"]
    assert (missing.status, missing.problem) == (503, "record_damaged")
    assert len(visitor.question("/trials/1/media")["series"]) == 4
