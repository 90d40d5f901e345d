"""Homes of released versions are read, verified and continued by this one. `write_home.py` says what is in them."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from core_sdk import client, core
from core_sdk._ground.records import FORMAT, HomeRecord, encode_file
from core_sdk._home import Home
from core_sdk.errors import HomeTooNewError

HERE = Path(__file__).parent
RELEASES = [file.name.removeprefix("home-").removesuffix(".tar.gz") for file in sorted(HERE.glob("home-*.tar.gz"))]


@pytest.fixture(params=RELEASES)
def old_home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home of a release, unpacked where it was not written: homes may be moved."""
    root = tmp_path / "old"
    with tarfile.open(HERE / f"home-{request.param}.tar.gz") as archive:
        archive.extractall(root, filter="data")
    monkeypatch.setenv("CORE_SDK_HOME", str(root))
    return Home(root)


def test_an_old_home_is_read(old_home: Home) -> None:
    """States, hyperparameters and all reports are those that the release recorded."""
    complete, failed, killed = map(client.get_trial, (1, 2, 3))

    assert [trial.state.value for trial in (complete, failed, killed)] == [
        "STATE_COMPLETED",
        "STATE_ERROR",
        "STATE_ERROR",
    ]
    assert complete.hparams == {"lr": 0.1, "layers": [64, 10]}
    assert [trial.summary_metrics["training"]["loss"]["count"] for trial in (complete, failed, killed)] == [100, 30, 25]
    validations = list(complete.iter_metrics("validation"))
    assert [report.steps_completed for report in validations] == list(range(10, 101, 10))
    assert [report.metrics["accuracy"] for report in validations] == [1 - 1 / step for step in range(10, 101, 10)]


def test_the_checkpoints_of_an_old_home_are_whole(old_home: Home, tmp_path: Path) -> None:
    """Each checkpoint is downloaded and verified, and has its metadata."""
    checkpoints = client.get_trial(1).list_checkpoints()

    assert sorted(checkpoint.metadata["steps_completed"] for checkpoint in checkpoints) == [50, 100]
    for checkpoint in checkpoints:
        step = checkpoint.metadata["steps_completed"]
        directory = checkpoint.download(tmp_path / checkpoint.uuid)
        assert (Path(directory) / "state.txt").read_text() == f"state at {step}"
        assert (Path(directory) / "parts" / "weights.bin").read_bytes() == bytes(range(256)) * step


def test_a_training_of_an_old_home_goes_on(old_home: Home) -> None:
    """A killed training continues its trial at its checkpoint; what it had reported beyond that is superseded."""
    with core.init(name="interrupted", job_id="job") as context:
        latest = context.info.latest_checkpoint
        assert latest is not None
        with context.checkpoint.restore_path(latest) as directory:
            assert (directory / "state.txt").read_text() == "state at 20"
        context.train.report_training_metrics(21, {"loss": 9.0})

    trial = client.get_trial(3)
    assert trial.state.value == "STATE_COMPLETED"
    assert trial.summary_metrics["training"]["loss"] == pytest.approx(
        {"count": 21, "last": 9.0, "max": 9.0, "min": 0.05, "mean": (sum(1 / step for step in range(1, 21)) + 9) / 21}
    )


def test_a_home_of_a_later_format_is_refused(old_home: Home) -> None:
    """A version that does not know a home's format says so, and which one it knows."""
    (old_home.root / "home.json").write_bytes(encode_file(HomeRecord(format=FORMAT + 1, sdk_version="9.0")))

    with pytest.raises(HomeTooNewError, match=rf"has format {FORMAT + 1}; .* up to {FORMAT}\. Install a newer"):
        client.get_trial(1)
