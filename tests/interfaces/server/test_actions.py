"""What can be done through the server, with the records and the processes that it concerns."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from home.journals import new_trial
from interfaces.server.visitor import Visitor
from processes import Script

from core_sdk._execution.experiments.calling import await_end_of_master, call
from core_sdk._execution.experiments.protocol import Down
from core_sdk._execution.experiments.submission import submit
from core_sdk._execution.steering import trials
from core_sdk._ground.records import ModelVersionRecord
from core_sdk._home import Home
from core_sdk._home.attempts.running import await_end
from core_sdk._home.registry import Registry

TRAIN = """
    import time
    from core_sdk import core
    with core.init(name="page") as ctx:
        step = 0
        while not ctx.preempt.should_preempt():
            step += 1
            ctx.train.report_training_metrics(step, {"loss": 1 / step})
            print("running", flush=True) if step == 1 else None
            time.sleep(0.01)
"""


def test_labels_notes_and_archives_are_changed(visitor: Visitor, home: Home) -> None:
    """Labels, notes and archiving can be changed, and the next answer shows the change."""
    assert visitor.act("/trials/1/actions/label", {"add": ["best"]}).status == 200
    assert visitor.act("/experiments/1/actions/change", {"notes": "# Mine", "description": "d"}).status == 200
    assert visitor.act("/experiments/1/actions/label", {"add": ["paper"]}).status == 200

    assert visitor.get("/api/v1/trials/1").json["trial"]["labels"] == ["best"]
    told = visitor.get("/api/v1/experiments/1").json
    assert (told["notes"], told["experiment"]["description"], told["experiment"]["labels"]) == (
        "# Mine",
        "d",
        ["paper"],
    )
    assert visitor.act("/experiments/1/actions/archive").status == 200
    assert visitor.question("/experiments")["num_found"] == 1
    assert visitor.question("/runs")["num_found"] == 1
    assert visitor.question("/runs", archived="true")["num_found"] == 3


def test_a_checkpoint_is_pinned_and_then_not_deleted(visitor: Visitor) -> None:
    """A pinned checkpoint is not deleted, and the refusal has the reason."""
    assert visitor.act("/checkpoints/c1/actions/pin", {"note": "for the paper"}).status == 200

    refused = visitor.act("/checkpoints/c1/actions/delete")

    assert visitor.get("/api/v1/checkpoints/c1").json["is_pinned"]
    assert (refused.status, refused.problem) == (409, "checkpoint_protected")
    assert "for the paper" in refused.json["error"]["message"]


@pytest.mark.parametrize("subject", ["trial", "experiment", "model", "version"])
def test_a_text_that_two_change_is_not_overwritten_in_silence(visitor: Visitor, home: Home, subject: str) -> None:
    """Of two tabs the second is refused, and told what the first has saved; it may then replace that knowingly."""
    registry = Registry(home)
    model_id = registry.create("texts", "", {}, []).model_id
    with registry.edit(model_id) as record:
        record.versions.append(ModelVersionRecord(version=1, checkpoint="none", created=1.0))
    paths = {"trial": "/trials/1", "experiment": "/experiments/1", "model": f"/models/{model_id}"}
    path = f"{paths.get(subject, f'/models/{model_id}/versions/1')}/actions/change"
    name = "description" if subject == "model" else "notes"

    first = visitor.act(path, {name: "of the first tab", f"{name}_before": ""})
    second = visitor.act(path, {name: "of the second tab", f"{name}_before": ""})
    told = second.json["error"]["present"]
    third = visitor.act(path, {name: "of the second tab", f"{name}_before": told})
    careless = visitor.act(path, {name: "of a program"})

    assert [first.status, second.status, third.status, careless.status] == [200, 409, 200, 200]
    assert (second.problem, told) == ("text_changed", "of the first tab")


def test_a_trial_is_deleted(visitor: Visitor, home: Home) -> None:
    """A deleted trial is gone from the table."""
    assert visitor.act("/trials/3/actions/delete").status == 200

    assert home.trial_ids() == [1, 2]
    assert visitor.get("/api/v1/runs").json["num_trials"] == 2


def test_a_running_trial_is_asked_to_stop(home: Home, start_script: Callable[..., Script]) -> None:
    """A running trial can be paused once, with the state as after `core-sdk trial pause`."""
    script = start_script(TRAIN)
    assert script.process.stdout is not None
    script.process.stdout.readline()
    visitor = Visitor(home)

    asked = visitor.act("/trials/1/actions/pause")
    script.wait()
    again = visitor.act("/trials/1/actions/pause")
    state = visitor.question("/trials/1")["trial"]
    visitor.close()

    assert asked.status == 200
    assert (state["state"], state["reason"]) == ("PAUSED", "core-sdk ui")
    assert (again.status, again.problem) == (409, "trial_not_running")


def test_a_trial_is_resumed_and_outlives_the_server(home: Home, start_script: Callable[..., Script]) -> None:
    """A trial that the server resumes outlives it; resuming a running trial is refused."""
    script = start_script(TRAIN)
    assert script.process.stdout is not None
    script.process.stdout.readline()
    visitor = Visitor(home)
    early = visitor.act("/trials/1/actions/resume")
    visitor.act("/trials/1/actions/pause")
    script.wait()
    visitor.act("/trials/1/actions/archive")
    archived = visitor.question("/runs")["ids"]

    resumed = visitor.act("/trials/1/actions/resume")
    state = visitor.question("/trials/1")["trial"]
    listed = visitor.question("/runs")["ids"]
    refused = visitor.act("/trials/1/actions/archive")
    visitor.close()
    folder = home.trial(1)
    while b"running" not in home.trial(1).read_log(2, 0, 1000):
        pass
    trials.pause(home, 1, "a test")

    assert (early.status, early.problem) == (409, "trial_running")
    assert archived == []
    assert resumed.status == 200
    assert resumed.json["message"] == "resumed trial 1 from its beginning, as its attempt 2"
    assert (state["state"], state["num_attempts"]) == ("ACTIVE", 2)
    assert listed == [1]
    assert (refused.status, refused.problem) == (409, "trial_running")
    assert await_end(folder, 60)


def test_a_trial_that_cannot_be_resumed_says_why(visitor: Visitor) -> None:
    """A trial without a command or a reason to resume is refused with advice."""
    refused = [visitor.act(f"/trials/{trial_id}/actions/resume") for trial_id in (1, 3, 77)]

    assert [(one.status, one.problem) for one in refused] == [
        (409, "nothing_to_resume"),
        (409, "nothing_to_resume"),
        (404, "trial_not_found"),
    ]
    assert "Give it a command" in refused[0].json["error"]["message"]


def test_archived_trials_are_left_out_unless_they_are_asked_for(visitor: Visitor) -> None:
    """Archived trials are left out of the table unless asked for."""
    assert visitor.act("/trials/3/actions/archive").json["message"] == "archived trial 3"
    assert visitor.question("/runs")["ids"] == [2, 1]
    assert visitor.question("/runs", archived="true", columns="archived")["rows"] == [[True], [False], [False]]
    assert visitor.act("/trials/3/actions/unarchive").json["message"] == "trial 3 is in lists again"
    assert visitor.question("/runs")["ids"] == [3, 2, 1]

    visitor.act("/experiments/1/actions/archive")

    assert visitor.question("/runs")["ids"] == [2]
    assert visitor.question("/runs", experiment=1)["ids"] == [3, 1]


def test_an_action_starts_the_master_that_it_needs(home: Home) -> None:
    """An action starts the master that it needs, and passes on the master's refusal."""
    config = f"name: one\nentrypoint: [{sys.executable}, -c, pass]\nsearcher: {{name: single, metric: loss}}\n"
    submitted = submit(Home.create(home.root), config, source="config.yaml", is_paused=True).experiment_id
    call(home.root, Down())
    await_end_of_master(home.root)
    visitor = Visitor(home)

    answers = [visitor.act(f"/experiments/{submitted}/actions/{action}") for action in ("cancel", "activate")]

    visitor.close()
    call(home.root, Down())
    await_end_of_master(home.root)
    assert answers[0].json["message"] == f"experiment {submitted}: CANCELED"
    assert (answers[1].status, answers[1].problem) == (503, "master")


def test_a_home_that_cannot_be_written_says_so(visitor: Visitor, home: Home, small_disk: Path) -> None:
    """On a full disk actions are refused with the reason, and questions are answered."""
    full = Home.create(small_disk / "home")
    new_trial(full)
    full_visitor = Visitor(full)
    assert full_visitor.question("/runs")["num_trials"] == 1
    with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
        while filler.write(b"x" * 4096):
            pass

    refused = full_visitor.act("/trials/1/actions/label", {"add": ["x" * 100]})

    assert refused.status == 503
    assert "No space left" in refused.json["error"]["message"]
    assert full_visitor.question("/runs")["num_trials"] == 1
    full_visitor.close()
