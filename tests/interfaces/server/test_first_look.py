"""The first look at a home that nobody has read: the page has the newest trials at once, programs have all."""

from __future__ import annotations

from interfaces.server.first_look import slow_reading
from interfaces.server.visitor import Visitor
from processes import wait_for

from core_sdk._home import Home

PARTS = {"x_core_sdk_parts": "1"}


def test_the_newest_trials_are_answered_while_others_are_read(home: Home) -> None:
    """What was not read yet is said to be so, and comes later; the answers of a program wait for everything."""
    with slow_reading(home) as go_on:
        visitor = Visitor(home, waits=False)
        wait_for(lambda: visitor.shared.snapshot().trials.keys() == {3, 4})

        listed = visitor.get("/api/v1/runs", **PARTS)
        curve = visitor.get("/api/v1/trials/4/metrics", **PARTS)
        unread = [visitor.get(f"/api/v1/{path}", **PARTS) for path in ("trials/1", "runs?where=lr%3D0.1%20and%20a%3D1")]
        progress = visitor.get("/api/v1/home").json["reading"]
        go_on.set()
        whole = visitor.get("/api/v1/runs")
        visitor.close()

    assert listed.json["ids"] == [4, 3]
    assert curve.json["curves"][0]["mean"] == [0.4]
    assert [(answer.status, answer.problem) for answer in unread] == [(503, "reading")] * 2
    assert (progress["num_read"], progress["num_trials"], progress["num_points"]) == (2, 4, 2)
    assert whole.json["ids"] == [4, 3, 2, 1]
    assert visitor.shared.reading is None
