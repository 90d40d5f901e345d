"""What is reported can be seen in TensorBoard, and reporting does not pay for it."""

from __future__ import annotations

import logging
import math
import os
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parts import needs
from processes import Script, wait_for
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event

from core_sdk.core import TensorboardMode
from core_sdk.errors import UnsafePathError
from core_sdk.journal import JournalWriter
from core_sdk.records import AttemptStarted, Profile, Report
from core_sdk.tensorboard import TensorboardMirror, copy_event_files, write_event_files
from core_sdk.tensorboard._encoding import file_version, scalar, session_start
from core_sdk.tensorboard._mirror import BUSY_SHARE, LOOK_INTERVAL_S, pause_after

START = 1_700_000_000.25

Curve = list[tuple[int, float]]


def open_journal(folder: Path, attempt: int = 1, latest_checkpoint: str | None = None, steps: int = 0) -> JournalWriter:
    folder.mkdir(exist_ok=True)
    journal = JournalWriter(folder / f"{attempt}.journal")
    journal.append(
        AttemptStarted(
            time=START + attempt,
            format=1,
            trial_id=7,
            attempt=attempt,
            host="node/../1",
            pid=42,
            sdk_version="0",
            latest_checkpoint=latest_checkpoint,
            resumed_steps=steps,
        )
    )
    return journal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "7"


@pytest.fixture
def journal(folder: Path) -> Iterator[JournalWriter]:
    journal = open_journal(folder)
    yield journal
    journal.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "tensorboard"


def report(steps_completed: int, group: str = "training", **metrics: float) -> Report:
    return Report(START + steps_completed, group, steps_completed, dict(metrics))


def mirror(journal: JournalWriter, directory: Path) -> None:
    """What the whole journal gives."""
    TensorboardMirror(journal, directory).close()


def curves(directory: Path) -> dict[str, Curve]:
    """As TensorBoard sees them."""
    accumulator = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {
        tag: [(point.step, point.value) for point in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]
    }


def test_modes_are_made_from_their_names() -> None:
    """Scripts may pass strings."""
    assert TensorboardMode("AUTO") is TensorboardMode.AUTO
    assert TensorboardMode("MANUAL") is TensorboardMode.MANUAL


@needs("many processes")
@given(
    wall_time=st.floats(allow_nan=False),
    step=st.integers(-(2**63), 2**63 - 1),
    tag=st.text(st.characters(codec="utf-8"), min_size=1, max_size=300),
    value=st.floats(allow_nan=False, width=32),
)
def test_a_scalar_is_the_event_that_tensorboard_defines(wall_time: float, step: int, tag: str, value: float) -> None:
    """Read by the message's own generated class."""
    event = Event.FromString(scalar(wall_time, step, tag, value)[12:-4])

    assert (event.wall_time, event.step) == (wall_time, step)
    assert [(point.tag, point.simple_value) for point in event.summary.value] == [(tag, value)]


def test_a_value_beyond_32_bits_becomes_an_infinity() -> None:
    """It is kept exactly in the journal; only the curve cannot show it."""
    events = [Event.FromString(scalar(0.0, 0, "tag", value)[12:-4]) for value in (1e300, -1e300)]

    assert [event.summary.value[0].simple_value for event in events] == [math.inf, -math.inf]


def test_checksums_are_those_that_tensorboard_verifies(tmp_path: Path) -> None:
    """Its loader refuses a record of which one bit is wrong."""
    events = [file_version(START), session_start(START, 5), scalar(START, 1_000, "curve", 0.5)]
    sound, damaged = tmp_path / "sound", tmp_path / "damaged"
    sound.write_bytes(b"".join(events))
    damaged.write_bytes(b"".join(events[:2]) + events[2][:-10] + bytes([events[2][-10] ^ 1]) + events[2][-9:])

    loaded = [len(list(RawEventFileLoader(str(path)).Load())) for path in (sound, damaged)]

    assert loaded == [3, 2]


def test_training_reports_become_curves(journal: JournalWriter, directory: Path) -> None:
    """One curve per metric, at the steps and times of the reports."""
    for steps in (10, 20):
        journal.append(report(steps, loss=1 / steps, epoch=steps // 10))

    mirror(journal, directory)

    assert curves(directory) == {
        "Determined/loss": [(10, pytest.approx(0.1)), (20, pytest.approx(0.05))],
        "Determined/epoch": [(10, 1.0), (20, 2.0)],
    }
    accumulator = EventAccumulator(str(directory))
    accumulator.Reload()
    assert [point.wall_time for point in accumulator.Scalars("Determined/loss")] == [START + 10, START + 20]


def test_validation_curves_are_told_from_training_curves(journal: JournalWriter, directory: Path) -> None:
    """By a prefix, unless the name has it."""
    journal.append(report(10, "validation", loss=0.5, val_accuracy=0.25, validation_error=1.0))

    mirror(journal, directory)

    assert curves(directory) == {
        "Determined/val_loss": [(10, 0.5)],
        "Determined/val_accuracy": [(10, 0.25)],
        "Determined/validation_error": [(10, 1.0)],
    }


def test_groups_of_the_users_own_become_curves_under_their_name(journal: JournalWriter, directory: Path) -> None:
    """The profiler's records, which belong to no step, do not."""
    journal.append(report(10, "inference", latency=0.5))
    journal.append(Profile(time=START, group="cpu", metrics={"cpu_util_simple": 50.0}))

    mirror(journal, directory)

    assert curves(directory) == {"inference/latency": [(10, 0.5)]}


def test_batches_stand_at_their_own_steps(journal: JournalWriter, directory: Path) -> None:
    """The report's mean is shown only for what the batches do not tell."""
    batches: list[dict[str, int | float | str]] = [{"loss": 4.0}, {"loss": 2.0}, {"loss": 0.0}]
    journal.append(Report(START, "training", 30, {"loss": 2.0, "lr": 0.5}, batches))

    mirror(journal, directory)

    assert curves(directory) == {
        "Determined/loss": [(27, 4.0), (28, 2.0), (29, 0.0)],
        "Determined/lr": [(30, 0.5)],
    }


def test_a_report_of_many_metrics_is_shown_whole(journal: JournalWriter, directory: Path) -> None:
    """Though the mirror takes it in portions."""
    journal.append(Report(START, "training", 1, {f"gradient_{index}": float(index) for index in range(1_000)}))

    mirror(journal, directory)

    assert curves(directory) == {f"Determined/gradient_{index}": [(1, float(index))] for index in range(1_000)}


def test_numbers_that_are_not_finite_are_shown(journal: JournalWriter, directory: Path) -> None:
    """A loss that goes to NaN is the very thing to look for."""
    journal.append(Report(START, "training", 1, {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 2**63}))

    mirror(journal, directory)

    values = {tag: points[0][1] for tag, points in curves(directory).items()}
    assert math.isnan(values.pop("Determined/a"))
    assert values == {"Determined/b": math.inf, "Determined/c": -math.inf, "Determined/d": 2.0**63}


def test_a_hostile_name_stays_a_name(journal: JournalWriter, directory: Path) -> None:
    """It is never a path."""
    group, name = "../../etc\n\x00", "ä/../" * 170
    journal.append(Report(START, group, 1, {name: 1.0}))

    mirror(journal, directory)

    assert curves(directory) == {f"{group}/{name}": [(1, 1.0)]}
    assert len(list(directory.iterdir())) == 1


def test_nothing_is_created_before_the_first_scalar(journal: JournalWriter, directory: Path) -> None:
    """A script that reports nothing leaves no empty folder."""
    journal.append(Profile(time=START, group="cpu", metrics={"cpu_util_simple": 50.0}))

    mirror(journal, directory)

    assert not directory.exists()
    assert write_event_files([journal.path], directory) == []
    assert not directory.exists()


def test_curves_follow_the_reports_while_the_attempt_runs(journal: JournalWriter, directory: Path) -> None:
    """And what is reported last is there when the attempt has ended."""
    running = TensorboardMirror(journal, directory)
    running.start()
    journal.append(report(1, loss=0.5))

    wait_for(lambda: directory.exists() and curves(directory) == {"Determined/loss": [(1, 0.5)]})

    journal.append(report(2, loss=0.25))
    running.close()
    assert curves(directory) == {"Determined/loss": [(1, 0.5), (2, 0.25)]}


def test_a_resumed_attempt_hides_what_it_supersedes(folder: Path, directory: Path) -> None:
    """Reports beyond the checkpoint that it goes on from, as everywhere else."""
    first = open_journal(folder)
    for steps in (10, 20, 30):
        first.append(report(steps, loss=steps / 4))
    second = open_journal(folder, attempt=2, latest_checkpoint="some-uuid", steps=20)
    second.append(report(30, loss=0.5))

    mirror(first, directory)
    mirror(second, directory)

    assert curves(directory) == {"Determined/loss": [(10, 2.5), (20, 5.0), (30, 0.5)]}
    first.close()
    second.close()


def test_an_attempt_without_a_checkpoint_begins_again(folder: Path, directory: Path) -> None:
    """All that earlier attempts reported is superseded."""
    first = open_journal(folder)
    first.append(report(0, loss=4.0))
    second = open_journal(folder, attempt=2)
    second.append(report(10, loss=0.5))

    mirror(first, directory)
    mirror(second, directory)

    assert curves(directory) == {"Determined/loss": [(10, 0.5)]}
    first.close()
    second.close()


def test_a_mirror_that_ends_in_a_hurry_says_how_much_is_missing(
    journal: JournalWriter, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And by which command it is written."""
    for steps in range(5_000):
        journal.append(report(steps, loss=1.0))

    with caplog.at_level(logging.INFO, "core_sdk.tensorboard"):
        TensorboardMirror(journal, directory, close_timeout_s=0).close()

    assert 0 < len(curves(directory)["Determined/loss"]) < 5_000
    assert "`core-sdk trial tensorboard 7` writes the rest" in caplog.text


def test_a_mirror_that_has_everything_says_nothing(
    journal: JournalWriter, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The usual end of an attempt."""
    journal.append(report(1, loss=1.0))

    with caplog.at_level(logging.INFO, "core_sdk.tensorboard"):
        mirror(journal, directory)

    assert caplog.text == ""


def test_what_a_mirror_left_out_is_written_later(journal: JournalWriter, directory: Path) -> None:
    """In place of its file, however often."""
    for steps in range(5_000):
        journal.append(report(steps, loss=1.0))
    TensorboardMirror(journal, directory, close_timeout_s=0).close()

    for _ in range(2):
        written = write_event_files([journal.path], directory)

        assert written == list(directory.iterdir())
        assert curves(directory) == {"Determined/loss": [(steps, 1.0) for steps in range(5_000)]}


def test_a_killed_process_loses_no_curve(start_script: Callable[..., Script], tmp_path: Path) -> None:
    """The journal has what its mirror did not come to write."""
    script = start_script(
        """
        import time
        from pathlib import Path
        from core_sdk.tensorboard import TensorboardMirror
        from core_sdk.journal import JournalWriter
        from core_sdk.records import Report
        journal = JournalWriter(Path("1.journal"))
        TensorboardMirror(journal, Path("tensorboard")).start()
        journal.append(Report(time.time(), "training", 0, {"loss": 0.0}))
        while not Path("tensorboard").exists():
            time.sleep(0.01)
        for steps in range(1, 1_000):
            journal.append(Report(time.time(), "training", steps, {"loss": 0.0}))
        print("reported")
        time.sleep(60)
        """
    )
    script.read_until("reported")
    script.process.send_signal(signal.SIGKILL)
    script.process.wait()

    write_event_files([tmp_path / "1.journal"], tmp_path / "tensorboard")

    assert curves(tmp_path / "tensorboard") == {"Determined/loss": [(steps, 0.0) for steps in range(1_000)]}


def test_the_file_of_a_running_mirror_is_left_to_it(journal: JournalWriter, directory: Path) -> None:
    """Replaced under its hands, it would lose what comes."""
    running = TensorboardMirror(journal, directory)
    running.start()
    journal.append(report(1, loss=0.5))
    wait_for(lambda: directory.exists() and curves(directory) != {})

    while_running = write_event_files([journal.path], directory)

    journal.append(report(2, loss=0.25))
    running.close()
    assert while_running == []
    assert curves(directory) == {"Determined/loss": [(1, 0.5), (2, 0.25)]}
    assert len(write_event_files([journal.path], directory)) == 1


def test_damaged_lines_cost_only_themselves(journal: JournalWriter, directory: Path) -> None:
    """Even where the line that says which attempt it is."""
    for steps in (1, 2, 3):
        journal.append(report(steps, loss=0.5))
    lines = journal.path.read_bytes().splitlines(keepends=True)
    journal.path.write_bytes(b"#" + lines[0][1:] + lines[1] + b"#" + lines[2][1:] + lines[3] + b"torn")

    write_event_files([journal.path], directory)

    assert curves(directory) == {"Determined/loss": [(1, 0.5), (3, 0.5)]}


def test_a_directory_that_cannot_be_written_costs_one_warning(
    journal: JournalWriter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Training goes on, and so does its end."""
    (tmp_path / "file").touch()
    running = TensorboardMirror(journal, tmp_path / "file" / "tensorboard")
    running.start()
    journal.append(report(1, loss=0.5))

    wait_for(lambda: caplog.text != "")

    journal.append(report(2, loss=0.5))
    running.close()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "not written any more" in caplog.text


def test_a_forked_child_does_not_write(journal: JournalWriter, directory: Path) -> None:
    """A data-loader worker that closes what it inherited doubles no point."""
    running = TensorboardMirror(journal, directory)
    running.start()
    journal.append(report(1, loss=0.5))
    wait_for(lambda: directory.exists() and curves(directory) != {})
    journal.append(report(2, loss=0.5))

    child = os.fork()
    if child == 0:
        running.close()
        os._exit(0)
    os.waitpid(child, 0)

    running.close()
    assert curves(directory) == {"Determined/loss": [(1, 0.5), (2, 0.5)]}


def test_the_mirror_pauses_by_what_it_has_taken() -> None:
    """Its share of the time is fixed while reports come, and larger once they pause."""
    assert pause_after(0.001, is_behind=True, is_quiet=False) == pytest.approx(0.001 / BUSY_SHARE - 0.001)
    assert pause_after(0.001, is_behind=True, is_quiet=True) == pytest.approx(0.009)
    assert pause_after(0.001, is_behind=False, is_quiet=True) == LOOK_INTERVAL_S
    assert pause_after(0.1, is_behind=False, is_quiet=False) == pytest.approx(0.1 / BUSY_SHARE - 0.1)


@needs("many processes")
def test_a_burst_of_reports_is_not_slowed_by_its_mirror(journal: JournalWriter, directory: Path) -> None:
    """The thread lags rather than compete for the interpreter."""
    running = TensorboardMirror(journal, directory, close_timeout_s=0)
    running.start()
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "core-sdk-tensorboard"]

    steps = 0
    burst_until = time.monotonic() + 3
    while time.monotonic() < burst_until:
        journal.append(report(steps, loss=1.0, accuracy=0.5, lr=0.1))
        steps += 1

    # Left to itself it would take half of the three seconds.
    assert 0 < processor_time_s(thread) < 0.15
    running.close()
    assert len(curves(directory)["Determined/loss"]) < steps


def processor_time_s(thread: threading.Thread) -> float:
    nanoseconds = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[0]
    return int(nanoseconds) / 1e9


def write(path: Path, content: str, *, time_ns: int = 1_000_000_000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    os.utime(path, ns=(time_ns, time_ns))
    return path


def everything(path: Path) -> bool:
    return True


def same_name(path: Path, rank: int) -> Path:
    return path


def test_selected_files_are_copied_under_the_names_asked_for(tmp_path: Path) -> None:
    """The selector sees absolute paths, the mangler relative ones and the rank."""
    source, destination = tmp_path / "source", tmp_path / "destination"
    chosen = write(source / "sub" / "chosen", "a")
    write(source / "other", "b")

    copied = copy_event_files(
        source, destination, lambda path: path == chosen, lambda path, rank: path.with_name(f"{path.name}.{rank}"), 3
    )

    assert copied == [destination / "sub" / "chosen.3"]
    assert [path.read_text() for path in destination.rglob("*") if path.is_file()] == ["a"]


def test_only_what_has_changed_is_copied_again_and_at_once(tmp_path: Path) -> None:
    """By size and time; no call is skipped for coming too soon."""
    source, destination = tmp_path / "source", tmp_path / "destination"
    names = ["grown", "rewritten", "unchanged"]
    for name in names:
        write(source / name, "a")
    first = copy_event_files(source, destination, everything, same_name, 0)

    write(source / "grown", "ab")
    write(source / "rewritten", "b", time_ns=2_000_000_000)
    second = copy_event_files(source, destination, everything, same_name, 0)

    assert [path.name for path in first] == names
    assert [path.name for path in second] == ["grown", "rewritten"]
    assert [(destination / name).read_text() for name in names] == ["ab", "b", "a"]


def test_a_reader_never_sees_half_a_copy(tmp_path: Path) -> None:
    """A copy takes the place of the one before; who has that open keeps it."""
    source, destination = tmp_path / "source", tmp_path / "destination"
    write(source / "file", "old")
    copy_event_files(source, destination, everything, same_name, 0)

    with (destination / "file").open() as reader:
        write(source / "file", "newer")
        copy_event_files(source, destination, everything, same_name, 0)

        assert reader.read() == "old"
    assert [(path.name, path.read_text()) for path in destination.iterdir()] == [("file", "newer")]


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside", "sub/../../outside", ".", "link/outside"])
def test_no_copy_leaves_the_destination(tmp_path: Path, name: str) -> None:
    """Neither by its name nor through a link, and then nothing is copied."""
    source, destination = tmp_path / "source", tmp_path / "destination"
    write(source / "a", "sound")
    write(source / "b", "hostile")
    destination.mkdir()
    (destination / "link").symlink_to(tmp_path)

    with pytest.raises(UnsafePathError, match="event file"):
        copy_event_files(
            source, destination, everything, lambda path, rank: Path(name) if path.name == "b" else path, 0
        )

    assert [path.name for path in destination.iterdir()] == ["link"]


def test_two_files_are_not_copied_to_one(tmp_path: Path) -> None:
    """One of them would be lost without a word."""
    source, destination = tmp_path / "source", tmp_path / "destination"
    write(source / "a", "1")
    write(source / "b", "2")

    with pytest.raises(ValueError, match="both be copied"):
        copy_event_files(source, destination, everything, lambda path, rank: Path("one"), 0)


def test_a_source_that_is_not_there_yet_has_nothing_to_copy(tmp_path: Path) -> None:
    """The script has not written its first event."""
    assert copy_event_files(tmp_path / "missing", tmp_path / "destination", everything, same_name, 0) == []


def test_frames_hold_their_size() -> None:
    """The loader skips from frame to frame by it."""
    frame = scalar(START, 1, "curve", 0.5)

    assert struct.unpack("<Q", frame[:8])[0] == len(frame) - 16
