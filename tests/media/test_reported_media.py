"""Media of reports are stored once, survive what records survive, and are read back as they were."""

from __future__ import annotations

import random
import re
import shutil
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from processes import Script
from promises import promise
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from core_sdk import client, core, media
from core_sdk._analysis.tensorboard.showing import export
from core_sdk._ground.records import AttemptStarted, Report
from core_sdk._home import Home, TrialFolder
from core_sdk._home.journal import JournalWriter, RankJournal, encode_line, read_records
from core_sdk._home.media import HomeMedia
from core_sdk._home.spool.shipment import Shipment
from core_sdk.errors import InvalidMetricError, RecordDamagedError, ReportsDroppedError

StartScript = Callable[..., Script]


def image(seed: int = 0) -> media.Image:
    return media.Image(torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(seed)))


def files(home: Home, trial_id: int = 1) -> list[str]:
    return sorted(path.name for path in home.folder(trial_id).media_path.iterdir())


def reported(**filters: Any) -> list[tuple[str, str, int | None]]:
    return [(one.group, one.name, one.steps_completed) for one in client.get_trial(1).iter_media(**filters)]


def test_media_are_values_of_any_group_in_lists_and_mappings(home: Home) -> None:
    """Media in lists and mappings of any group are read back under their paths, with the numbers."""
    with core.init() as context:
        context.train.report_metrics("validation", 5, {"loss": 0.5, "samples": [image(1), image(2)]})
        context.train.report_metrics("own", 5, {"all": {"cat": image(3), "n": 3, "words": [media.Text("hi"), None]}})

    trial = client.get_trial(1)
    validation, own = trial.iter_metrics("validation"), trial.iter_metrics("own")
    found = list(trial.iter_media())
    assert (next(validation).metrics["loss"], next(own).metrics["all"]["n"]) == (0.5, 3)
    assert [(one.group, one.name, one.file.kind) for one in found] == [
        ("validation", "samples[0]", "image"),
        ("validation", "samples[1]", "image"),
        ("own", "all.cat", "image"),
        ("own", "all.words[0]", "text"),
    ]
    assert [one.read() for one in found] == [image(1).content, image(2).content, image(3).content, b"hi"]
    assert reported(group="own", kind="text") == [("own", "all.words[0]", 5)]


def test_training_and_validation_take_media_but_no_other_json(home: Home) -> None:
    """Training and validation reports accept numbers and media, and refuse other JSON values."""
    with core.init() as context:
        for value in ("text", [image(), 1], [], {"a": image(), "b": "text"}):
            with pytest.raises(InvalidMetricError):
                context.train.report_metrics("training", 1, {"x": value})
        with pytest.raises(TypeError, match="metadata"):
            context.train.set_metadata({"x": image()})
        with pytest.raises(InvalidMetricError, match="reserved"):
            context.train.report_metrics("own", 1, {"x": {"$media": 1}})

    assert not home.folder(1).media_path.exists()


@promise("media-survive")
def test_equal_content_is_stored_once(home: Home) -> None:
    """Media with equal content are stored once, in a file named by their SHA-256."""
    with core.init() as context:
        for step in range(3):
            context.train.report_metrics("own", step, {"same": image(), "other": image(step)})

    assert files(home) == sorted({image(step).file.name for step in range(3)})
    assert len(reported()) == 6


@promise("media-survive")
def test_media_survive_kill_nine(start_script: StartScript, home: Home) -> None:
    """After kill -9, every report whose call had returned is there with whole media files."""
    script = start_script("""
        import torch
        from core_sdk import core, media

        with core.init() as context:
            for step in range(10**9):
                context.train.report_metrics("own", step, {"image": media.Image(torch.rand(3, 64, 64))})
                print(step, flush=True)
    """)
    assert script.process.stdout is not None
    last = [int(script.process.stdout.readline()) for _ in range(10)][-1]

    script.process.send_signal(signal.SIGKILL)
    script.process.wait()

    found = list(client.get_trial(1).iter_media())
    assert [one.steps_completed for one in found][: last + 1] == list(range(last + 1))
    assert all(one.read().startswith(b"\x89PNG") for one in found)


def test_tensorboard_shows_media(home: Home, tmp_path: Path) -> None:
    """Images, sounds, texts and histograms come, also where nothing else was reported; a damaged file is left out."""
    sound = media.Audio(torch.zeros(1, 80), sample_rate=8000)
    with core.init() as context:
        values = {"words": media.Text("hi"), "sound": sound, "weights": media.Histogram(torch.tensor([1.0, 2.0, 2.0]))}
        context.train.report_metrics("own", 3, {"picture": image(1), "rows": media.Table([[1]], ["n"]), **values})
        context.train.report_metrics("own", 4, {"picture": image(2)})
    home.folder(1).media_path.joinpath(image(2).file.name).write_bytes(b"torn")

    export([home.folder(1)], tmp_path)

    shown = EventAccumulator(str(tmp_path / "trial-1"))
    shown.Reload()
    (picture,), (heard,) = shown.Images("own/picture"), shown.Audio("own/sound")
    (words,), (weights,) = shown.Tensors("own/words"), shown.Histograms("own/weights")
    assert (picture.step, picture.width, picture.encoded_image_string) == (3, 16, image(1).content)
    assert heard.encoded_audio_string == sound.content
    assert list(words.tensor_proto.string_val) == [b"hi"]
    bins = weights.histogram_value
    assert (bins.min, bins.max, bins.num, sum(bins.bucket), bins.bucket_limit[-1]) == (1, 2, 3, 3, 2)


def test_what_a_killed_writer_leaves_is_swept_by_the_next_attempt(start_script: StartScript, home: Home) -> None:
    """A temporary file that a killed attempt left is removed by the next attempt."""
    script = """
        import os, pathlib, signal
        from core_sdk import core, media

        with core.init(job_id="training") as context:
            context.train.report_metrics("own", 1, {"text": media.Text("whole")})
            if context.info.trial.attempt == 1:
                pathlib.Path.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL)
                context.train.report_metrics("own", 2, {"text": media.Text("torn")})
    """
    assert start_script(script).process.wait() == -signal.SIGKILL
    left = files(home)
    assert start_script(script).process.wait() == 0

    assert [name.endswith(".tmp") for name in left] == [True, False]
    assert files(home) == left[1:]
    assert [one.read() for one in client.get_trial(1).iter_media()] == [b"whole"]


@promise("media-refused")
def test_media_that_a_full_disk_refuses_are_counted(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of the report are kept, the training goes on, and later media are kept again."""
    monkeypatch.setenv("CORE_SDK_HOME", str(small_disk / "home"))
    large = media.Image(torch.rand(3, 512, 512))
    with warnings.catch_warnings(record=True) as caught, pytest.raises(ReportsDroppedError) as raised:
        warnings.simplefilter("always")
        with core.init() as context:
            (small_disk / "hog").write_bytes(bytes(500_000))
            context.train.report_metrics("own", 1, {"image": large, "loss": 0.5})
            (small_disk / "hog").unlink()
            context.train.report_metrics("own", 2, {"image": image(), "loss": 0.25})

    trial = client.get_trial(1)
    lost, kept = trial.iter_media()
    assert [report.metrics["loss"] for report in trial.iter_metrics("own")] == [0.5, 0.25]
    assert "No space left" in lost.file.problem
    assert (kept.file.problem, kept.read()) == ("", image().content)
    assert (raised.value.num_dropped, trial.num_dropped) == (1, 1)
    assert [warning.category for warning in caught if "dropped" in str(warning.message)] == [RuntimeWarning]
    assert files(Home(small_disk / "home")) == [image().file.name]


@promise("media-survive")
def test_damage_is_named_and_confined(home: Home) -> None:
    """A damaged or missing media file raises an error with its name, and everything else of the trial is read."""
    with core.init() as context:
        context.train.report_metrics("own", 1, {"a": image(1), "b": image(2), "c": image(3), "n": 1})
    directory = home.folder(1).media_path
    flipped = bytearray((directory / image(1).file.name).read_bytes())
    flipped[random.Random(0).randrange(len(flipped))] ^= 1
    (directory / image(1).file.name).write_bytes(flipped)
    (directory / image(2).file.name).unlink()

    first, second, third = client.get_trial(1).iter_media()

    with pytest.raises(RecordDamagedError, match=f"{image(1).file.name} .*SHA-256"):
        first.read()
    with pytest.raises(RecordDamagedError, match=f"{image(2).file.name} .*No such file"):
        second.read()
    assert third.read() == image(3).content
    assert next(client.get_trial(1).iter_metrics()).metrics["n"] == 1


def test_a_resume_supersedes_media(home: Home) -> None:
    """A resume supersedes media as it does reports."""
    with core.init() as context:
        context.train.report_metrics("own", 1, {"image": image(1)})
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
            (path / "state").write_text("x")
        context.train.report_metrics("own", 2, {"image": image(2)})
    folder = home.trial(1)
    started = AttemptStarted(
        time=2e9, format=1, trial_id=1, attempt=2, host="h", pid=1, sdk_version="0", resumed_steps=1
    )
    journal = JournalWriter(folder.journal_path(2))
    journal.append(started)
    journal.close()

    assert reported() == [("own", "image", 1)]
    assert reported(superseded=True) == [("own", "image", 1), ("own", "image", 2)]


def test_media_move_and_end_with_their_home(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Media are copied with their home, and deleted with their trial."""
    with core.init() as context:
        context.train.report_metrics("own", 1, {"image": image()})
    shutil.copytree(home.root, tmp_path / "copy")

    client.get_trial(1).delete()
    monkeypatch.setenv("CORE_SDK_HOME", str(tmp_path / "copy"))

    assert not home.folder(1).media_path.exists()
    assert [one.read() for one in client.get_trial(1).iter_media()] == [image().content]


def test_media_of_a_node_come_home_before_the_record_that_names_them(home: Home, tmp_path: Path) -> None:
    """A node's media arrive in the home before the record that names them, also after an interrupted transfer."""
    Home.create(home.root)
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
    folder = home.trial(1)

    def call(function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
        return function(*arguments, **keywords)

    shipment = Shipment(call, folder, 2)
    spooled = TrialFolder(shipment.root, 1)
    spooled.path.mkdir(parents=True)
    journal = JournalWriter(spooled.journal_path(2))
    for step in range(3):
        assert journal.keep_file(f"media/{image(step).file.name}", image(step).content) == ""
        named = {"image": {"$media": msgspec.to_builtins(image(step).file)}}
        journal.append(Report(2e9, "own", step, {}, None, named))
    journal.close()
    (spooled.media_path / image(1).file.name).unlink()

    assert shipment.follow(lambda: False)

    assert files(home) == sorted(image(step).file.name for step in (0, 2))
    assert folder.journal_path(2).read_bytes() == spooled.journal_path(2).read_bytes()


def test_a_reader_without_media_reads_the_record(home: Home) -> None:
    """In a record, a medium is a plain JSON mapping in `json_metrics`, which a reader without media can decode."""
    with core.init() as context:
        context.train.report_metrics("own", 1, {"image": image(), "loss": 0.5})

    (line,) = [line for line in home.folder(1).journal_path(1).read_bytes().splitlines() if b'"report"' in line]
    assert msgspec.json.decode(line.partition(b" ")[2])["json_metrics"] == {
        "image": {"$media": {name: value for name, value in msgspec.to_builtins(image().file).items() if value}}
    }


def test_a_mapping_that_only_looks_like_media_stays_what_it_is(home: Home) -> None:
    """A mapping that resembles media but is not valid is returned as it was reported, and is not listed as media."""
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
    strange: list[Any] = [{"$media": 1}, {"$media": {"kind": "image", "sha256": "../../x", "size_bytes": 1}}]
    with home.folder(1).journal_path(1).open("ab") as file:
        file.write(encode_line(Report(2e9, "own", 1, {}, None, {"x": strange})))

    assert next(client.get_trial(1).iter_metrics("own")).metrics["x"] == strange
    assert list(client.get_trial(1).iter_media()) == []


def test_no_name_reaches_outside_the_directory(home: Home) -> None:
    """Only a SHA-256 with a known extension is accepted as a media file's name, and no path."""
    with core.init() as context:
        context.train.report_metrics("own", 1, {"image": image()})

    for name in ("../trial.json", "x.png", image().file.sha256, f"{image().file.sha256}.exe", f"{'A' * 64}.png"):
        with pytest.raises(ValueError, match=re.escape(name)):
            HomeMedia(home).read(1, name)


def test_another_rank_keeps_media_with_its_journal(tmp_path: Path) -> None:
    """Another rank stores media with its journal, or neither if its journal is not kept."""
    start = AttemptStarted(time=0.0, format=1, trial_id=1, attempt=1, host="h", pid=1, sdk_version="0", rank=1)
    for name, is_kept in (("kept", True), ("not", False)):
        (tmp_path / name).mkdir()
        journal = RankJournal(tmp_path / name / "1.rank1.journal", start, is_kept=is_kept)
        assert journal.keep_file("media/a.png", b"a") == ""
        journal.close()

    assert (tmp_path / "kept" / "media" / "a.png").read_bytes() == b"a"
    assert next(read_records(tmp_path / "kept" / "1.rank1.journal")) == start
    assert list((tmp_path / "not").iterdir()) == []
