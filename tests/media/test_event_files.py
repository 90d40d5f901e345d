"""The media in event files that a script has written itself are found where they lie."""

from __future__ import annotations

import random
import struct
import sys
from pathlib import Path

import msgspec
import pytest
import torch
from interfaces.server.visitor import Visitor
from torch.utils.tensorboard import SummaryWriter

from core_sdk import client, core, media
from core_sdk._analysis.tensorboard._decoding import ScriptMedium, media_of_event
from core_sdk._analysis.tensorboard._frames import framed
from core_sdk._analysis.tensorboard.script_files import ScriptFiles, rows_of_attempts
from core_sdk._ground.records import MediaFile
from core_sdk._home import Home
from core_sdk._home.media import HomeMedia
from core_sdk.core import TensorboardMode
from core_sdk.errors import RecordDamagedError


def write_all(directory: Path, *, step: int = 7) -> None:
    """Writes an event of each kind that has a form as a file, among others that have none."""
    with SummaryWriter(str(directory)) as writer:
        writer.add_scalar("loss", 0.5, step)
        writer.add_image("samples/cat", torch.rand(3, 8, 16), step)
        writer.add_audio("sound", torch.rand(1, 800), step, sample_rate=800)
        writer.add_histogram("weights", torch.tensor([0.5] * 3 + [2.0]), step)
        writer.add_text("words", "a *text*", step)
        writer.add_hparams({"lr": 0.1}, {"best": 1.0}, run_name="hparams")


def found_in(directory: Path) -> list[tuple[str, str, int]]:
    files = ScriptFiles(directory)
    files.look()
    return [(each.name, each.file.kind, each.step) for each in files.media()]


def test_what_a_script_writes_with_its_own_writer_is_media(home: Home) -> None:
    """Media that a script writes with its own SummaryWriter are listed, and are read from its event file uncopied."""
    with core.init() as context:
        context.train.report_metrics("own", 1, {"note": media.Text("reported")})
        write_all(context.train.get_tensorboard_path())
        write_all(context.train.get_tensorboard_path() / "version_0", step=8)

    found = {one.name: one for one in client.get_trial(1).iter_media()}

    names = ["samples/cat", "sound", "weights", "words"]
    assert list(found) == ["note", *names, *(f"version_0/{name}" for name in names)]
    assert {(one.group, one.steps_completed) for name, one in found.items() if name in names} == {("tensorboard", 7)}
    assert {one.steps_completed for name, one in found.items() if name.startswith("version_0")} == {8}
    image, sound, weights, words = (found[name] for name in names)
    assert (image.file.media_type, image.file.width, image.file.height) == ("image/png", 16, 8)
    assert image.read().startswith(b"\x89PNG")
    assert (sound.file.media_type, sound.file.duration_s, sound.read()[:4]) == ("audio/wav", 1.0, b"RIFF")
    assert words.read() == b"a *text*"
    histogram = msgspec.json.decode(weights.read())
    assert (sum(histogram["counts"]), histogram["edges"][0], histogram["edges"][-1]) == (4, 0.5, 2.0)
    assert histogram["edges"] == sorted(histogram["edges"])
    assert len(histogram["edges"]) == len(histogram["counts"]) + 1
    assert len(list(home.folder(1).media_path.iterdir())) == 1


def test_the_page_and_its_files_follow_a_writer(home: Home) -> None:
    """The page of media shows what a writer adds later, even if nothing is reported in the meantime."""
    with core.init(tensorboard_mode=TensorboardMode.MANUAL) as context:
        context.train.report_metrics("own", 1, {"note": media.Text("reported")})
        writer = SummaryWriter(str(context.train.get_tensorboard_path()))
        visitor = Visitor(home)
        try:
            assert [one["group"] for one in visitor.question("/trials/1/media")["series"]] == ["own"]
            writer.add_text("words", "later", 2)
            writer.close()
            context.train.upload_tensorboard_files()
            (own, words) = visitor.question("/trials/1/media")["series"]
            name = words["items"][0]["file_name"]
            assert visitor.get(f"/api/v1/trials/1/media/{name}").content == b"later"
        finally:
            visitor.close()
    assert (own["group"], words["group"], words["name"]) == ("own", "tensorboard", "words")


def test_a_file_is_read_as_far_as_it_is_whole(tmp_path: Path) -> None:
    """An event file is read up to its last whole event, and read on as it grows; damaged events are left out."""
    write_all(tmp_path / "whole")
    (whole,) = (tmp_path / "whole").glob("*tfevents*")
    content, torn = whole.read_bytes(), tmp_path / "torn" / whole.name
    torn.parent.mkdir()
    files, versions = ScriptFiles(torn.parent), set()
    for end in range(0, len(content) + 1, 97):
        torn.write_bytes(content[:end])
        versions.add(files.look())
    torn.write_bytes(content)
    files.look()
    expected = found_in(whole.parent)

    assert [(each.name, each.file.kind, each.step) for each in files.media()] == expected
    assert 4 < len(versions) < 12
    (last,) = (each.file for each in files.media() if each.name == "words")
    assert files.content(last.name) == b"a *text*"
    damaged = bytearray(content)
    damaged[content.index(b"RIFF")] ^= 1
    torn.write_bytes(damaged)
    assert found_in(torn.parent) == [each for each in expected if each[0] != "sound"]
    torn.write_bytes(content + b"\xff" * 100)
    assert found_in(torn.parent) == expected
    endless = framed(struct.pack("<Q", 2**63))[12:]  # a size with its checksum
    torn.write_bytes(content + endless + b"?")
    assert found_in(torn.parent) == expected
    torn.unlink()
    torn.symlink_to(whole)
    assert found_in(torn.parent) == []


def test_a_medium_whose_file_is_gone_is_told(home: Home) -> None:
    with core.init() as context:
        write_all(context.train.get_tensorboard_path())
    trial = client.get_trial(1)
    (words,) = trial.iter_media(kind="text")

    for path in home.folder(1).tensorboard_path.rglob("*tfevents*"):
        path.unlink()

    with pytest.raises(RecordDamagedError):
        words.read()
    with pytest.raises(RecordDamagedError):
        HomeMedia(home).read(1, words.file.name)
    assert list(trial.iter_media()) == []


@pytest.mark.usefixtures("home")
def test_media_of_event_files_are_left_out_without_tensorboard(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the tensorboard package, media of event files are left out with a warning; reported ones are listed."""
    with core.init() as context:
        context.train.report_metrics("own", 1, {"note": media.Text("reported")})
        write_all(context.train.get_tensorboard_path())
    for name in [name for name in sys.modules if name.startswith("core_sdk._analysis.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)

    found = list(client.get_trial(1).iter_media())

    assert [one.name for one in found] == ["note"]
    assert 'pip install "tensorboard>=' in caplog.text


def test_damaged_events_are_refused_in_one_way(tmp_path: Path) -> None:
    """A damaged event is either decoded or refused with a ValueError, and never raises another error."""
    write_all(tmp_path)
    (path,) = tmp_path.glob("*tfevents*")
    content, events = path.read_bytes(), []
    while content:
        size = struct.unpack("<Q", content[:8])[0]
        events.append(content[12 : 12 + size])
        content = content[16 + size :]
    chance = random.Random(0)

    for event in events:
        for _ in range(200):
            changed = bytearray(event[: chance.randrange(len(event)) + 1])
            for _ in range(chance.randrange(4)):
                changed[chance.randrange(min(len(changed), 100))] = chance.randrange(256)
            try:
                found = media_of_event(bytes(changed))
            except ValueError:
                continue
            assert all(msgspec.json.encode(each.file) for each, _ in found)


def test_what_a_later_attempt_has_written_again_is_superseded() -> None:
    """Media of a tag that a later attempt has written again from an earlier step are superseded, for each tag alone."""
    file = MediaFile(kind="text", sha256="0" * 64, size_bytes=1, media_type="text/plain")
    written = [(10.0, 5, "a"), (11.0, 9, "a"), (12.0, 9, "b"), (20.0, 7, "a"), (30.0, 9, "a")]
    media_ = [ScriptMedium(time, step, name, file) for time, step, name in written]

    rows = rows_of_attempts(1, media_, [(1, 10.5), (2, 15.0), (3, 25.0)])

    assert [(row.attempt, row.is_superseded) for row in rows] == [
        (1, False),
        (1, True),
        (1, False),
        (2, False),
        (3, False),
    ]
