"""What ranks agree on without doing anything: merged metadata, and who stores a directory that many of them pass."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from core_sdk.core._checkpoint._metadata import merge_metadata, plain_metadata
from core_sdk.core._checkpoint._sources import RankDirectory, contributors, describe_source


@pytest.mark.parametrize(
    ("parts", "merged"),
    [
        ([{"steps_completed": 3}], {"steps_completed": 3}),
        ([{"steps_completed": 3}, None], {"steps_completed": 3}),
        ([None, {"steps_completed": 3}, {}], {"steps_completed": 3}),
        ([{"a": 1}, {"b": 2}, {"a": 1}], {"a": 1, "b": 2}),
        ([{"o": {"lr": 1, "b": {"x": 1}}}, {"o": {"b": {"y": 2}}}], {"o": {"lr": 1, "b": {"x": 1, "y": 2}}}),
        ([{"o": {}}, {"o": {"lr": 1}}], {"o": {"lr": 1}}),
        ([{"shape": [1, {"a": 1, "b": 2}]}, {"shape": [1, {"b": 2, "a": 1}]}], {"shape": [1, {"a": 1, "b": 2}]}),
        ([{"loss": math.inf}, {"loss": math.inf}], {"loss": math.inf}),
        ([{"": None}, {"": None}], {"": None}),
        ([None, None], {}),
        ([], {}),
    ],
)
def test_metadata_is_merged_key_by_key(parts: list[dict[str, Any] | None], merged: dict[str, Any]) -> None:
    """Metadata is merged at every depth, and ranks may repeat equal values."""
    assert merge_metadata(parts) == (merged, {})


def test_not_a_number_equals_itself_here() -> None:
    """Ranks whose metadata contains NaN at the same key do not contradict each other."""
    merged, conflicts = merge_metadata([{"m": {"loss": [math.nan]}}, {"m": {"loss": [math.nan]}}])

    assert conflicts == {}
    assert math.isnan(merged["m"]["loss"][0])


@pytest.mark.parametrize(
    ("parts", "conflicts"),
    [
        ([{"a": 1}, {"a": 2}], {"/a": (0, 1)}),
        ([{"a": 1}, None, {"a": 2}], {"/a": (0, 2)}),
        ([{"a": 1}, {"a": 1}, {"a": 2}, {}], {"/a": (0, 1, 2)}),
        ([{"a": 1}, {"a": 1.0}], {"/a": (0, 1)}),
        ([{"a": 1}, {"a": True}], {"/a": (0, 1)}),
        ([{"a": 0}, {"a": False}, {"a": None}], {"/a": (0, 1, 2)}),
        ([{"a": [1, 2]}, {"a": [1]}], {"/a": (0, 1)}),
        ([{"a": [1]}, {"a": [True]}], {"/a": (0, 1)}),
        ([{"a": {"b": 1}}, {"a": 1}], {"/a": (0, 1)}),
        ([{"a": {}}, {"a": None}], {"/a": (0, 1)}),
        ([{"a": {"b": {"c": 1}}}, {"a": {"b": {"c": 2}}}], {"/a/b/c": (0, 1)}),
        ([{"a": math.nan, "b": math.inf}, {"a": math.inf, "b": -math.inf}], {"/a": (0, 1), "/b": (0, 1)}),
        ([{"a": math.nan}, {"a": {"b": 1}}], {"/a": (0, 1)}),
        ([{"_ranks_": 1, "a": 1}, {"_ranks_": 1, "a": "1"}], {"/a": (0, 1)}),
    ],
)
def test_contradictions_name_the_key_and_the_ranks(
    parts: list[dict[str, Any] | None], conflicts: dict[str, tuple[int, ...]]
) -> None:
    """All contradictions are listed at once, and 1, 1.0 and True count as different."""
    assert merge_metadata(parts)[1] == conflicts


def test_the_parts_are_left_as_they_are() -> None:
    """Merging does not change the ranks' own dicts."""
    parts: list[dict[str, Any] | None] = [{"o": {"lr": 1}}, {"o": {"b": 2}}]

    merged, _ = merge_metadata(parts)
    merged["o"]["c"] = 3

    assert parts == [{"o": {"lr": 1}}, {"o": {"b": 2}}]


def test_plain_metadata_is_what_will_be_read_back() -> None:
    """Tuples become lists, and values that JSON cannot keep are refused by name."""
    inner = {"shape": (1, 2)}

    plain = plain_metadata({"o": inner, "loss": math.inf})

    assert plain == {"o": {"shape": [1, 2]}, "loss": math.inf}
    assert plain_metadata(None) is None
    not_a_dict: Any = [1]
    with pytest.raises(TypeError, match="metadata is a list"):
        plain_metadata(not_a_dict)
    with pytest.raises(TypeError, match=r"metadata\['model'\]"):
        plain_metadata({"model": object()})


def source(host: str = "h", path: str = "/d", inode: int = 1, has_selector: bool = False) -> RankDirectory:
    return RankDirectory((host, path, 1, inode), has_selector)


@pytest.mark.parametrize(
    ("sources", "chosen"),
    [
        ([source()], {0}),
        ([source(), source(), source()], {0}),
        ([None, source(), source()], {1}),
        ([source(path="/a", inode=1), source(path="/b", inode=2)], {0, 1}),
        ([source(host="h"), source(host="i")], {0, 1}),
        ([source(path="/a"), source(path="/b")], {0, 1}),
        ([source(inode=1), source(inode=2)], {0, 1}),
        ([source(has_selector=True), source(has_selector=True)], {0, 1}),
        ([source(has_selector=True), source(), source(), source(has_selector=True)], {1}),
        ([None, None], set()),
    ],
    ids=[
        "alone", "the same", "one has none", "different", "two hosts", "equal inodes", "recreated", "selections",
        "a selection of what another stores whole", "none",
    ],
)  # fmt: skip
def test_a_directory_of_many_ranks_is_stored_by_the_lowest(
    sources: list[RankDirectory | None], chosen: set[int]
) -> None:
    """The lowest rank that stores the whole directory stores it; equal paths on two hosts are two directories."""
    assert contributors(sources) == chosen


def test_a_directory_is_the_same_under_another_name(tmp_path: Path) -> None:
    """A link or a path with dots names the same directory; a directory of equal content does not."""
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to("a")

    described = {
        describe_source(path, None, "h")
        for path in (
            tmp_path / "a",
            str(tmp_path / "link"),
            tmp_path / "a" / "b" / "..",
            bytes(tmp_path / "a").decode(),
        )
    }

    assert len(described) == 1
    assert describe_source(tmp_path / "a" / "b", None, "h") not in described
    with pytest.raises(FileNotFoundError):
        describe_source(tmp_path / "absent", None, "h")


def test_a_selector_without_a_directory_is_refused() -> None:
    """A selector that is given without a directory is refused."""
    assert describe_source(None, None, "h") is None
    with pytest.raises(RuntimeError, match="selector and no directory"):
        describe_source(None, lambda name: True, "h")
