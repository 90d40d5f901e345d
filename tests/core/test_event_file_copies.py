"""Event files that a script writes itself are copied, as `upload_tensorboard_files` asks for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from core_sdk.core import TensorboardMode
from core_sdk.core._train._event_files import copy_event_files
from core_sdk.errors import UnsafePathError


def test_modes_are_made_from_their_names() -> None:
    """TensorBoard modes may be given as strings."""
    assert TensorboardMode("AUTO") is TensorboardMode.AUTO
    assert TensorboardMode("MANUAL") is TensorboardMode.MANUAL


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
    """A file is copied again only if its size or time has changed, however soon the next call comes."""
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
    """A copy replaces the previous one as a whole, and an open reader keeps the old one."""
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
    """A name or link that leads outside the destination is refused before anything is copied."""
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
    """Two files that would get the same name are refused, since one would be lost."""
    source, destination = tmp_path / "source", tmp_path / "destination"
    write(source / "a", "1")
    write(source / "b", "2")

    with pytest.raises(ValueError, match="both be copied"):
        copy_event_files(source, destination, everything, lambda path, rank: Path("one"), 0)


def test_a_source_that_is_not_there_yet_has_nothing_to_copy(tmp_path: Path) -> None:
    """A missing source directory is no error, since the script may not have written events yet."""
    assert copy_event_files(tmp_path / "missing", tmp_path / "destination", everything, same_name, 0) == []
