"""A file system that takes no more files, although it has room: what is refused says that there are no inodes."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from core_sdk import core
from core_sdk._interfaces.cli import main
from core_sdk.errors import CheckpointNotStoredError, HomeNotWritableError, NotEnoughSpaceError, StorageError


@pytest.fixture
def few_files(tmp_path: Path) -> Iterator[Path]:
    """A file system of 20 MB and 60 inodes."""
    mount_point = tmp_path / "few"
    mount_point.mkdir()
    options = "size=20m,nr_inodes=60"
    try:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(mount_point)]
        mounted = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("NOT TESTED: file systems without inodes; there is no mount command here")
    if mounted.returncode != 0:
        pytest.skip(f"NOT TESTED: file systems without inodes; mounting is not permitted here: {mounted.stderr}")
    yield mount_point
    subprocess.run(["umount", "--lazy", str(mount_point)], check=True)


def fill(directory: Path) -> None:
    with contextlib.suppress(OSError):
        for number in range(1000):
            (directory / f"other-{number}").touch()


def test_no_inode_is_told_as_such(
    few_files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A home, a save, a storage and a command name the inodes, and neither the space nor the permissions."""
    monkeypatch.setenv("CORE_SDK_HOME", str(few_files / "home"))
    with core.init() as context:
        fill(few_files)
        with pytest.raises(CheckpointNotStoredError, match="no inode free"), context.checkpoint.store_path(STEPS):
            pass
        for number in range(4):
            (few_files / f"other-{number}").unlink()
        with (
            pytest.raises(NotEnoughSpaceError, match="no inode free"),
            context.checkpoint.store_path(STEPS) as (path, _),
        ):
            for number in range(10):
                (path / f"shard-{number}").touch()
        fill(few_files)

    monkeypatch.setattr("sys.argv", ["core-sdk", "trial", "label", "1", "good"])
    with pytest.raises(SystemExit):
        main()
    assert "no inode free" in capsys.readouterr().err
    with pytest.raises(StorageError, match="no inode free"), core.init():
        pass
    monkeypatch.setenv("CORE_SDK_HOME", str(few_files / "second"))
    with pytest.raises(HomeNotWritableError, match="no inode free"), core.init():
        pass


STEPS = {"steps_completed": 1}
