"""The model registry through the server, and the way of checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from home.journals import append, lines, new_trial, report, started, stored
from interfaces.server.visitor import Visitor

from core_sdk._ground.records import AttemptStarted, EnvironmentRecord
from core_sdk._home import Home, TrialFolder
from core_sdk._home.registry import Registry


@pytest.fixture
def visitor(home: Home) -> Iterator[Visitor]:
    """Trial 2 began with checkpoint `first` of trial 1, was restarted from `second`, and has stored `third`."""
    source, trial = new_trial(home), new_trial(home)
    append(source, 1, lines(started(source), report(40, "validation", loss=0.5), stored("first", 40)))
    append(trial, 1, lines(_begun(trial, 1, "first", 0), stored("second", 10)))
    append(trial, 2, lines(_begun(trial, 2, "second", 10), stored("third", 20)))
    commit = "8c1f0e2d4b5a69788c1f0e2d4b5a69788c1f0e2d"
    environment = EnvironmentRecord(
        git_commit=commit, git_is_dirty=True, python="3.11", host="here", num_cpus=1, memory_bytes=1
    )
    trial.write_environment(2, environment)
    opened = Visitor(home)
    yield opened
    opened.close()


def _begun(folder: TrialFolder, attempt: int, checkpoint: str, steps: int) -> AttemptStarted:
    return msgspec.structs.replace(started(folder, attempt, steps), latest_checkpoint=checkpoint)


def test_a_checkpoint_tells_how_it_came_to_be(visitor: Visitor, home: Home) -> None:
    """Over restarts and over trials, and also when a trial on its way was deleted."""
    way = visitor.question("/checkpoints/third/lineage")["stretches"]

    assert [(one["storage_id"], one["trial_id"], one["attempt"], one["first_steps"]) for one in way] == [
        ("third", 2, 2, 10),
        ("second", 2, 1, 0),
        ("first", 1, 1, 0),
    ]
    assert (way[0]["git_commit"][:4], way[0]["git_is_dirty"], way[1]["git_commit"]) == ("8c1f", True, "")
    home.folder(1).clear()
    visitor.shared.forget()
    way = visitor.question("/checkpoints/third/lineage")["stretches"]
    assert [(one["storage_id"], one["trial_id"]) for one in way] == [("third", 2), ("second", 2), ("first", None)]
    assert visitor.get("/api/v1/checkpoints/first/lineage").status == 404


def test_the_registry_is_changed(visitor: Visitor, home: Home) -> None:
    """Models and versions can be changed like with `core-sdk model`, and bad requests change nothing."""
    assert visitor.act("/models/actions/create", {"name": "digits", "labels": ["vision"]}).status == 200
    assert visitor.act("/models/actions/create", {"name": "digits"}).problem == "name_taken"
    assert visitor.act("/checkpoints/first/actions/register", {"model": "digits", "notes": "the *first*"}).status == 200
    assert visitor.act("/checkpoints/third/actions/register", {"model": "other"}).status == 200
    assert visitor.act("/models/1/versions/1/actions/change", {"name": "old"}).status == 200
    assert visitor.act("/models/1/versions/2/actions/change", {"name": "none"}).status == 404
    assert visitor.act("/models/1/actions/label", {"add": ["good"], "remove": ["vision"]}).status == 200
    assert visitor.act("/models/2/actions/archive").status == 200

    (model,) = visitor.question("/models")["models"]
    (version,) = visitor.question("/models/1")["versions"]

    assert (model["name"], model["labels"], model["newest"]) == ("digits", ["good"], 1)
    assert (version["name"], version["notes"], version["checkpoint"]["metrics"]) == (
        "old",
        "the *first*",
        {"loss": 0.5},
    )
    assert visitor.question("/checkpoints/first/lineage")["registered"] == [
        {"model_id": 1, "model_name": "digits", "version": 1}
    ]
    assert visitor.act("/checkpoints/first/actions/delete", {"force": True}).status == 409
    assert len(visitor.question("/models", archived=True)["models"]) == 2
    assert visitor.act("/models/1/versions/1/actions/delete").status == 200
    assert visitor.act("/models/2/actions/delete").status == 200
    assert [model.name for model in Registry(home).models()] == ["digits"]
