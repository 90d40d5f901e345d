"""A clock is never an order: whoever reads the records gives them in the order of the calls."""

from __future__ import annotations

from typing import Any

import pytest
from home.journals import START, append, lines, new_trial, started
from promises import promise

from core_sdk._ground.records import (
    Alert,
    CheckpointStored,
    Ended,
    MetadataSet,
    Profile,
    Record,
    Report,
    StatusSet,
    TrialDescribed,
)
from core_sdk._home import Home, open_view
from core_sdk._home.finding.facts import read_facts
from core_sdk._home.history import read_history
from core_sdk._home.index import Index
from core_sdk._home.rows import StreamPosition
from core_sdk._home.streams import read_news, read_reports

CLOCKS = {"stands still": 0.0, "runs backwards": -7.0, "jumps": 1e6}


@pytest.fixture(params=list(CLOCKS.values()), ids=list(CLOCKS))
def recorded(request: pytest.FixtureRequest, home: Home) -> list[Report]:
    """A trial of two attempts, each of whose records has the time of the one before it, plus a constant."""
    folder = new_trial(home)
    time = 2e9

    def tick() -> float:
        nonlocal time
        time += float(request.param)
        return time

    def medium(name: str) -> dict[str, Any]:
        return {
            f"note {name}": name,
            f"image {name}": {
                "$media": {"kind": "text", "sha256": name[0] * 64, "size_bytes": 1, "media_type": "text/plain"}
            },
        }

    reports = []
    for attempt, step in ((1, 5), (2, 9)):
        of_attempt = [
            Report(tick(), "training", step, {"a": 1}, [{"a": 1}], medium("a")),
            Report(tick(), "training", step, {"b": 2}, [{"a": 1}], medium("b")),
            Report(tick(), "validation", step, {"c": 3}),
            Report(tick(), "training", step, {}, [{"a": 1}]),
            Report(tick(), "training", step, {"d": 4}),
        ]
        others: list[Record] = [
            Alert(time=tick(), title=f"{attempt}, {number}", description="", level="info") for number in (1, 2)
        ]
        others += [StatusSet(time=tick(), status=f"{attempt}, {number}") for number in (1, 2)]
        others += [MetadataSet(time=tick(), metadata={"at": [attempt, number]}) for number in (1, 2)]
        others += [Profile(time=tick(), group="gpu", metrics={"load": number}) for number in (1, 2)]
        others += [
            CheckpointStored(
                time=tick(),
                storage_id=f"{attempt}-{number}",
                storage="s3://bucket",
                steps_completed=step,
                metadata={},
                resources={"weights": 7},
            )
            for number in (1, 2)
        ]
        append(folder, attempt, lines(started(folder, attempt, resumed_steps=5 * (attempt - 1))))
        for record in of_attempt + others:
            append(folder, attempt, lines(record))
        reports += of_attempt
    append(folder, 0, lines(*(TrialDescribed(time=tick(), name=name, notes=None) for name in ("first", "second"))))
    return reports


@promise("reports-ordered")
def test_every_answer_of_the_index_is_in_the_order_of_the_calls(home: Home, recorded: list[Report]) -> None:
    """All answers of the index are in the order of the calls, however the journals were read."""
    at_once, one_by_one = home, Home.create(home.root.parent / "slow")
    copied = new_trial(one_by_one)
    with Index(at_once) as index, Index(one_by_one) as slow:
        for attempt in (0, 1, 2):
            name = home.folder(1).journal_path(attempt).name if attempt else home.folder(1).changes_path.name
            for line in (home.runs / "1" / name).read_bytes().splitlines(keepends=True):
                append(copied, attempt, line)
                slow.refresh()
        index.refresh()
        for answering in (index, slow):
            rows = list(answering.reports(1))
            told = [(row.group, row.steps_completed, row.time, row.batch_metrics) for row in rows]
            assert told == [(one.group, one.steps_completed, one.time, one.batch_metrics) for one in recorded]
            names = [sorted(row.metrics) for row in rows]
            assert names == [["a", "image a", "note a"], ["b", "image b", "note b"], ["c"], [], ["d"]] * 2
            media = [(row.steps_completed, row.file.sha256[0]) for row in answering.media(1)]
            assert media == [(5, "a"), (5, "b"), (9, "a"), (9, "b")]
            assert [alert.title for alert in answering.alerts(1)] == ["1, 1", "1, 2", "2, 1", "2, 2"]
            trial = answering.trial(1)
            assert (trial.status, trial.metadata, trial.name) == ("2, 2", {"at": [2, 2]}, "second")
            profile = [row.metrics["load"] for row in answering.reports(1, "gpu", superseded=True)]
            assert sorted(profile) == [1, 1, 2, 2]
            stored = [row.storage_id for row in answering.checkpoints(trial_id=1)]
            assert stored == ["2-2", "2-1", "1-2", "1-1"]
            assert trial.latest_checkpoint == "2-2"
            (bucket,) = answering.buckets(1, "training", "d", 1)
            assert answering.bucket_times(1, "training", "d", [bucket]) == [recorded[-1].time]
            assert answering.figures()[1]["training"]["d"].last == 4


@promise("reports-ordered")
def test_who_reads_the_journals_has_the_order_of_the_calls(home: Home, recorded: list[Report]) -> None:
    """The history of checkpoints, the reports and a search's news keep the order of the calls."""
    history = [found.record.storage_id for found in read_history(home.folder(1)).checkpoints]
    streamed, position = list[float](), StreamPosition()
    while (stretch := read_reports(home.trial(1), position)).reports:
        streamed += [row.time for row in stretch.reports]
        position = stretch.end
    heard = [news.record for news in read_news(home.folder(1), StreamPosition()).news]

    assert history == ["1-1", "1-2", "2-1", "2-2"]
    assert streamed == [one.time for one in recorded]
    assert heard == [one for one in recorded if one.group == "validation"]


def test_a_trial_whose_clock_was_set_back_lasted_no_negative_time(home: Home) -> None:
    """Its end is before its beginning: the duration that can be asked for is 0."""
    folder = new_trial(home)
    append(folder, 1, lines(started(folder), Ended(time=START - 7199.0, outcome="completed")))

    with open_view(home) as view:
        (found,) = read_facts(view, view.trials())

    assert found.value("trial.duration") == found.value("duration") == 0.0
