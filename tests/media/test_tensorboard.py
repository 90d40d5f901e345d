"""What is reported can be seen in TensorBoard, while a trial trains and afterwards."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader

from core_sdk._analysis.tensorboard._reported import ReportedEvents
from core_sdk._ground.records import AttemptStarted, Profile, Report
from core_sdk._home import TrialFolder
from core_sdk._home.journal import JournalWriter

START = 1_700_000_000.25

Curve = list[tuple[int, float]]


def open_journal(folder: Path, attempt: int = 1, latest_checkpoint: str | None = None, steps: int = 0) -> JournalWriter:
    folder.mkdir(parents=True, exist_ok=True)
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
    return tmp_path / "runs" / "7"


@pytest.fixture
def journal(folder: Path) -> Iterator[JournalWriter]:
    journal = open_journal(folder)
    yield journal
    journal.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "shown"
    directory.mkdir()
    return directory


def report(steps_completed: int, group: str = "training", **metrics: float) -> Report:
    return Report(START + steps_completed, group, steps_completed, dict(metrics))


def write(journal: JournalWriter, directory: Path) -> None:
    """Writes the event files of the trial to which the journal belongs."""
    ReportedEvents(TrialFolder(journal.path.parents[2], 7), directory).write_new()


def curves(directory: Path) -> dict[str, Curve]:
    """Returns the curves as TensorBoard sees them."""
    accumulator = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    accumulator.Reload()
    return {
        tag: [(point.step, point.value) for point in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]
    }


def test_training_reports_become_curves(journal: JournalWriter, directory: Path) -> None:
    """Training reports become one curve per metric, at the steps and times of the reports."""
    for steps in (10, 20):
        journal.append(report(steps, loss=1 / steps, epoch=steps // 10))

    write(journal, directory)

    assert curves(directory) == {
        "Determined/loss": [(10, pytest.approx(0.1)), (20, pytest.approx(0.05))],
        "Determined/epoch": [(10, 1.0), (20, 2.0)],
    }
    accumulator = EventAccumulator(str(directory))
    accumulator.Reload()
    assert [point.wall_time for point in accumulator.Scalars("Determined/loss")] == [START + 10, START + 20]


def test_validation_curves_are_told_from_training_curves(journal: JournalWriter, directory: Path) -> None:
    """The names of validation curves get the prefix val_, unless they already have one."""
    journal.append(report(10, "validation", loss=0.5, val_accuracy=0.25, validation_error=1.0))

    write(journal, directory)

    assert curves(directory) == {
        "Determined/val_loss": [(10, 0.5)],
        "Determined/val_accuracy": [(10, 0.25)],
        "Determined/validation_error": [(10, 1.0)],
    }


def test_groups_of_the_users_own_become_curves_under_their_name(journal: JournalWriter, directory: Path) -> None:
    """Custom groups become curves with the group as prefix; profiler records, which have no step, do not."""
    journal.append(report(10, "inference", latency=0.5))
    journal.append(Profile(time=START, group="cpu", metrics={"cpu_util_simple": 50.0}))

    write(journal, directory)

    assert curves(directory) == {"inference/latency": [(10, 0.5)]}


def test_batches_stand_at_their_own_steps(journal: JournalWriter, directory: Path) -> None:
    """Metrics of batches are placed at their own steps; the report's mean is shown only for other metrics."""
    batches: list[dict[str, int | float | str]] = [{"loss": 4.0}, {"loss": 2.0}, {"loss": 0.0}]
    journal.append(Report(START, "training", 30, {"loss": 2.0, "lr": 0.5}, batches))

    write(journal, directory)

    assert curves(directory) == {
        "Determined/loss": [(27, 4.0), (28, 2.0), (29, 0.0)],
        "Determined/lr": [(30, 0.5)],
    }


def test_numbers_that_are_not_finite_are_shown(journal: JournalWriter, directory: Path) -> None:
    """Values that are NaN or infinite are shown, since a diverging loss must be seen."""
    journal.append(Report(START, "training", 1, {"a": "NaN", "b": "Infinity", "c": "-Infinity", "d": 2**63}))

    write(journal, directory)

    values = {tag: points[0][1] for tag, points in curves(directory).items()}
    assert math.isnan(values.pop("Determined/a"))
    assert values == {"Determined/b": math.inf, "Determined/c": -math.inf, "Determined/d": 2.0**63}


def test_a_hostile_name_stays_a_name(journal: JournalWriter, directory: Path) -> None:
    """Names with slashes, dots or control characters never become paths."""
    group, name = "../../etc\n\x00", "ä/../" * 170
    journal.append(Report(START, group, 1, {name: 1.0}))

    write(journal, directory)

    assert curves(directory) == {f"{group}/{name}": [(1, 1.0)]}
    assert len(list(directory.iterdir())) == 1


def test_a_resumed_attempt_hides_what_it_supersedes(folder: Path, directory: Path) -> None:
    """Reports beyond the checkpoint that it goes on from, as everywhere else."""
    first = open_journal(folder)
    for steps in (10, 20, 30):
        first.append(report(steps, loss=steps / 4))
    second = open_journal(folder, attempt=2, latest_checkpoint="some-uuid", steps=20)
    second.append(report(30, loss=0.5))

    write(second, directory)

    assert curves(directory) == {"Determined/loss": [(10, 2.5), (20, 5.0), (30, 0.5)]}
    first.close()
    second.close()


def test_an_attempt_without_a_checkpoint_begins_again(folder: Path, directory: Path) -> None:
    """If an attempt begins without a checkpoint, all reports of earlier attempts are left out as superseded."""
    first = open_journal(folder)
    first.append(report(0, loss=4.0))
    second = open_journal(folder, attempt=2)
    second.append(report(10, loss=0.5))

    write(second, directory)

    assert curves(directory) == {"Determined/loss": [(10, 0.5)]}
    first.close()
    second.close()


def test_damaged_lines_cost_only_themselves(journal: JournalWriter, directory: Path) -> None:
    """A damaged line loses only itself, even the line that begins an attempt."""
    for steps in (1, 2, 3):
        journal.append(report(steps, loss=0.5))
    lines = journal.path.read_bytes().splitlines(keepends=True)
    journal.path.write_bytes(b"#" + lines[0][1:] + lines[1] + b"#" + lines[2][1:] + lines[3] + b"torn")

    write(journal, directory)

    assert curves(directory) == {"Determined/loss": [(1, 0.5), (3, 0.5)]}


def test_event_files_follow_the_journals(folder: Path, directory: Path) -> None:
    """Event files are extended with new reports and attempts, and begin again with another command."""
    first = open_journal(folder)
    followed = ReportedEvents(TrialFolder(folder.parents[1], 7), directory)
    seen = []
    for steps in (10, 20):
        first.append(report(steps, loss=steps / 4))
        followed.write_new()
        seen.append(curves(directory)["Determined/loss"])
    second = open_journal(folder, attempt=2, latest_checkpoint="some-uuid", steps=10)
    followed.write_new()
    seen.append(curves(directory)["Determined/loss"])
    second.append(report(30, loss=0.5))
    followed.write_new()
    write(second, directory)

    assert seen == [[(10, 2.5)], [(10, 2.5), (20, 5.0)], [(10, 2.5)]]
    assert curves(directory) == {"Determined/loss": [(10, 2.5), (30, 0.5)]}
    first.close()
    second.close()


def test_checksums_are_those_that_tensorboard_verifies(journal: JournalWriter, directory: Path) -> None:
    """Events have checksums that TensorBoard verifies: its loader refuses an event with a flipped bit."""
    journal.append(report(1, loss=0.5))
    write(journal, directory)
    (path,) = directory.iterdir()
    content = bytearray(path.read_bytes())
    content[-10] ^= 1
    (directory / "damaged").write_bytes(content)

    loaded = [len(list(RawEventFileLoader(str(directory / name)).Load())) for name in (path.name, "damaged")]

    assert loaded == [2, 1]
