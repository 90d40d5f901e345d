"""What can be done through the server, with the records and the processes that it concerns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from processes import Script
from server.browser import Browser
from tracking.journals import new_trial

from core_sdk.tracking import Home

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


def test_labels_notes_and_archives_are_changed(browser: Browser, home: Home) -> None:
    """The next answer shows it."""
    assert browser.act("/trials/1/actions/label", {"add": ["best"]}).status == 200
    assert browser.act("/experiments/1/actions/change", {"notes": "# Mine", "description": "d"}).status == 200
    assert browser.act("/experiments/1/actions/label", {"add": ["paper"]}).status == 200

    assert browser.get("/api/v1/trials/1").json["trial"]["labels"] == ["best"]
    told = browser.get("/api/v1/experiments/1").json
    assert (told["notes"], told["experiment"]["description"], told["experiment"]["labels"]) == (
        "# Mine",
        "d",
        ["paper"],
    )
    assert browser.act("/experiments/1/actions/archive").status == 200
    assert browser.question("/experiments")["num_found"] == 1
    assert browser.question("/runs")["num_found"] == 1
    assert browser.question("/runs", archived="true")["num_found"] == 3


def test_a_checkpoint_is_pinned_and_then_not_deleted(browser: Browser) -> None:
    """The refusal says why."""
    assert browser.act("/checkpoints/c1/actions/pin", {"note": "for the paper"}).status == 200

    refused = browser.act("/checkpoints/c1/actions/delete")

    assert browser.get("/api/v1/checkpoints/c1").json["is_pinned"]
    assert (refused.status, refused.problem) == (409, "checkpoint_protected")
    assert "for the paper" in refused.json["error"]["message"]


def test_a_trial_is_deleted(browser: Browser, home: Home) -> None:
    """And is gone from the table."""
    assert browser.act("/trials/3/actions/delete").status == 200

    assert home.trial_ids() == [1, 2]
    assert browser.get("/api/v1/runs").json["num_trials"] == 2


def test_a_running_trial_is_asked_to_stop(home: Home, start_script: Callable[..., Script]) -> None:
    """It does, as after `core-sdk trial pause`; a second time there is nothing to stop."""
    script = start_script(TRAIN)
    assert script.process.stdout is not None
    script.process.stdout.readline()
    browser = Browser(home)

    asked = browser.act("/trials/1/actions/pause")
    script.wait()
    again = browser.act("/trials/1/actions/pause")
    state = browser.question("/trials/1")["trial"]
    browser.close()

    assert asked.status == 200
    assert (state["state"], state["reason"]) == ("PAUSED", "core-sdk ui")
    assert (again.status, again.problem) == (409, "trial_not_running")


def test_without_a_master_a_submitted_experiment_is_only_read(browser: Browser, home: Home) -> None:
    """No master is started behind the user's back; the refusal says how to start one."""
    folder = home.new_experiment("submitted")
    with folder.edit() as record:
        record.is_submitted = True

    for action in ("pause", "activate", "cancel", "kill"):
        refused = browser.act(f"/experiments/{folder.experiment_id}/actions/{action}")
        assert (refused.status, refused.problem) == (409, "no_master")
        assert "core-sdk master up" in refused.json["error"]["hint"]
    assert not Path(home.root, "master.sock").exists()


def test_a_home_that_cannot_be_written_says_so(browser: Browser, home: Home, small_disk: Path) -> None:
    """A full disk refuses the change; questions are answered all the same."""
    full = Home.create(small_disk / "home")
    new_trial(full)
    full_browser = Browser(full)
    assert full_browser.question("/runs")["num_trials"] == 1
    with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
        while filler.write(b"x" * 4096):
            pass

    refused = full_browser.act("/trials/1/actions/label", {"add": ["x" * 100]})

    assert refused.status == 503
    assert "No space left" in refused.json["error"]["message"]
    assert full_browser.question("/runs")["num_trials"] == 1
    full_browser.close()
