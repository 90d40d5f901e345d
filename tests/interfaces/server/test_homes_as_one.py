"""The page over the homes of several people."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from home.journals import new_trial, record, report
from interfaces.server.visitor import Visitor
from parts import needs
from processes import wait_for

from core_sdk._home import Home
from core_sdk._home.folders.gathering import gathered_home


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Home]:
    """Two homes, each with a trial of ten reports."""
    monkeypatch.setenv("CORE_SDK_HOME", str(tmp_path / "own"))
    made = [Home(tmp_path / "lab" / name) for name in ("ada", "bob")]
    for number, home in enumerate(made, start=1):
        record(new_trial(home, lr=0.1 * number), *(report(step, loss=number / step) for step in range(1, 11)))
    return made


@pytest.fixture
def visitor(homes: list[Home]) -> Iterator[Visitor]:
    opened = Visitor(gathered_home([str(homes[0].root.parent / "*")]))
    yield opened
    opened.close()


def test_owner_and_home_are_columns_and_filters(visitor: Visitor, homes: list[Home]) -> None:
    """The table has both columns, which the table of a home of one's own lacks, and finds trials by them."""
    owner = homes[0].root.owner()
    listed = visitor.get("/api/v1/runs?columns=owner&columns=home&sort=id")
    found = visitor.get(f"/api/v1/runs?where=home%20contains%20bob%20and%20owner%3D{owner}")
    named = {column["name"] for column in visitor.get("/api/v1/columns").json["columns"]}
    alone = Visitor(homes[0])
    named_alone = {column["name"] for column in alone.get("/api/v1/columns").json["columns"]}
    alone.close()

    assert listed.json["rows"] == [[owner, str(home.root)] for home in homes]
    assert found.json["ids"] == [2]
    assert named - named_alone == {"owner", "home"}


def test_a_chart_has_curves_of_several_homes(visitor: Visitor) -> None:
    """Trials of two homes are compared, each with its own curve."""
    first, second = (visitor.get(f"/api/v1/trials/{one}/metrics").json["curves"][0] for one in (1, 2))
    compared = visitor.get("/api/v1/comparison?trials=1&trials=2").json

    assert (first["mean"][0], second["mean"][0]) == (1.0, 2.0)
    assert len(compared["trials"]) == 2
    assert visitor.get("/api/v1/comparison/metrics?trials=1&trials=2").status == 200


def test_the_page_follows_a_home_that_comes_and_one_that_is_damaged(visitor: Visitor, homes: list[Home]) -> None:
    """A new home is there by itself, and a damaged one is named."""
    record(new_trial(Home(homes[0].root.parent / "eve")), report(1, loss=0.5))
    wait_for(lambda: visitor.get("/api/v1/runs").json["ids"] == [3, 2, 1])

    homes[0].record.write_text("{")
    wait_for(lambda: visitor.get("/api/v1/runs").json["ids"] == [3, 2])

    told = visitor.get("/api/v1/home").json
    assert [one.partition(":")[0] for one in told["left_out"]] == [str(homes[0].root)]
    assert told["location"] == str(homes[0].root.parent / "*")


def test_trials_of_ones_own_have_actions(visitor: Visitor, homes: list[Home]) -> None:
    """The page learns which homes are the user's own, and an action reaches the trial by its number there."""
    told = visitor.question("/home")
    done = visitor.act("/trials/2/actions/change", {"notes": "seen together"})

    assert told["can_act"] and sorted(told["own_homes"]) == [str(home.root) for home in homes]
    assert (done.status, done.json["message"]) == (200, "changed trial 2")
    assert visitor.question("/trials/2")["trial"]["notes"] == "seen together"
    alone = Visitor(homes[1])
    assert alone.question("/trials/1")["trial"]["notes"] == "seen together"
    assert alone.question("/home")["own_homes"] is None
    alone.close()


@needs("other users")
def test_trials_of_others_have_none(homes: list[Home]) -> None:
    """An action on a trial in somebody else's home is refused, and the home is not among the user's own."""
    os.chown(homes[1].root, 61002, -1)
    visitor = Visitor(gathered_home([str(homes[0].root.parent / "*")]))

    refused = visitor.act("/trials/2/actions/label", {"add": ["mine"]})

    assert visitor.question("/home")["own_homes"] == [str(homes[0].root)]
    assert (refused.status, refused.problem) == (403, "homes_only_read")
    assert not homes[1].folder(1).changes_path.exists()
    visitor.close()
