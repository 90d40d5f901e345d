"""A workspace is a view like the index: each question has the same answer, and each error is the same one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from home.journals import START, append, lines, new_trial, record, report, stored
from workspace.workspaces import served, served_by_lab

from core_sdk import client
from core_sdk._ground.records import Alert, CheckpointPinned, Ended, MetadataSet, Profile, Settled, TrialArchivedSet
from core_sdk._home import Home, View, open_view
from core_sdk._home.rows import SeriesBucket
from core_sdk._workspace.asking import open_workspace
from core_sdk._workspace.questions import QUESTIONS, encode_answer
from core_sdk.errors import CheckpointNotFoundError, ExperimentNotFoundError, TrialNotFoundError, WorkspaceError

CALLS: dict[str, list[tuple[tuple[object, ...], dict[str, object]]]] = {
    "alerts": [((1,), {})],
    "best_values": [((1, "training", "loss"), {"smaller_is_better": True})],
    "bins": [((1, "training", "loss", 10), {}), ((1, "training", "loss", 10), {"within": (2, 40), "rank": 0})],
    "bucket_times": [((1, "training", "loss", [SeriesBucket(1, 1, 1, 1.0, 1.0, 1.0)]), {})],
    "buckets": [((1, "training", "loss"), {}), ((1, "training", "loss", 7), {"within": (2, 40), "rank": "eval"})],
    "checkpoint": [(("one",), {})],
    "checkpoints": [((), {}), ((), {"trial_id": 1}), ((), {"experiment_id": 1})],
    "experiment": [((1,), {}), (("digits",), {})],
    "experiments": [((), {}), (([1],), {})],
    "figures": [((), {}), (([1, 2],), {"rank": 0})],
    "left_out": [((), {})],
    "marks": [((), {})],
    "media": [((1,), {})],
    "metric_names": [((1,), {})],
    "outline": [((1,), {})],
    "profile_series": [((1,), {})],
    "report_page": [((1,), {}), ((1, "training"), {"rank": "all", "superseded": True, "after": 3})],
    "series": [((1,), {}), ((1,), {"rank": "eval"})],
    "step_range": [(([1, 2], "training", "loss"), {}), (([2], "training", "nothing"), {})],
    "summary": [((1,), {})],
    "times": [((), {}), ((), {"trial_ids": [1]})],
    "trial": [((1,), {}), (("calm",), {})],
    "trial_ids": [((), {}), ((1, "listed"), {}), ((), {"which": "listed"}), ((), {"which": "waiting"})],
    "trials": [((), {}), ((1,), {}), ((), {"trial_ids": [2]})],
}


@pytest.fixture
def home(home: Home) -> Home:
    """A home with reports of all kinds of numbers, of ranks and writers, superseded ones, and checkpoints."""
    folder = new_trial(home, lr=0.1, layers=[1, 2], name="x")
    trial = folder.read_record()
    trial.name = "calm"
    folder.write_record(trial)
    record(
        folder,
        *(report(step, loss=1 / step) for step in range(1, 50)),
        report(60, loss="Infinity"),
        report(61, "validation", accuracy=2**60),
        Alert(time=START, title="odd", description="loss", level="WARN"),
        Profile(time=START, group="cpu", metrics={"use": 0.5}),
        MetadataSet(time=START, metadata={"a": [1, None]}),
        stored("one", 10),
        stored("two", 60),
        CheckpointPinned(time=START, storage_id="one", note="keep"),
    )
    record(folder, report(12, loss=0.5), attempt=2, resumed_steps=10)
    record(folder, report(12, "training", score=1.0), attempt=2, resumed_steps=10, rank="eval")
    other = new_trial(home, "other")
    record(other, report(1, loss=3))
    append(other, 0, lines(TrialArchivedSet(time=START, attempt=1)))
    waiting = Settled(time=START, state="PAUSED", reason="waits in Slurm's queue: Priority", attempt=0)
    begun = new_trial(home, "other")
    append(begun, 0, lines(waiting))
    record(begun, Ended(time=START, outcome="completed"))
    return home


@pytest.fixture(params=["server", "lab"])
def views(
    home: Home, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[View, View]]:
    """The index of the home, and the same home behind the routes alone, or behind the door of a lab."""
    with contextlib.ExitStack() as stack:
        if request.param == "lab":
            url, token = stack.enter_context(served_by_lab(home, tmp_path / "lab"))
            monkeypatch.setenv("CORE_SDK_SERVER", url)
            monkeypatch.setenv("CORE_SDK_TOKEN", token)
        else:
            url = stack.enter_context(served(home))
        asked = stack.enter_context(open_workspace(url))
        yield stack.enter_context(open_view(home)), asked


def test_every_question_is_tried(views: tuple[View, View]) -> None:
    """A question that is added to the protocol is added to the calls below."""
    assert CALLS.keys() == QUESTIONS.keys()


@pytest.mark.parametrize("question", CALLS)
def test_a_workspace_answers_as_the_index_does(views: tuple[View, View], question: str) -> None:
    """The answers are equal."""
    index, asked = views
    for arguments, keywords in CALLS[question]:
        expected = getattr(index, question)(*arguments, **keywords)

        answer = getattr(asked, question)(*arguments, **keywords)

        assert answer == expected or _plain(answer) == _plain(expected)


def _plain(answer: object) -> object:
    """Returns the answer with lists for its arrays."""
    return msgspec.msgpack.decode(encode_answer(answer))


def test_reports_come_page_by_page(views: tuple[View, View]) -> None:
    """The rows are those of the index."""
    index, asked = views

    assert repr(list(asked.reports(1, rank="all"))) == repr(list(index.reports(1, rank="all")))


def test_errors_are_those_of_the_index(views: tuple[View, View]) -> None:
    """They have the same class, message and fields."""
    for view in views:
        with pytest.raises(TrialNotFoundError, match="trial 77") as of_trial:
            view.trial(77)
        assert of_trial.value.trial_id == 77
        with pytest.raises(ExperimentNotFoundError):
            view.experiment("nobody")
        with pytest.raises(CheckpointNotFoundError):
            view.checkpoint("nothing")


def test_the_client_reads_a_workspace(home: Home) -> None:
    """It has the objects of a home's tracker, and says what it cannot do."""
    with served(home) as url:
        tracker = client.connect(url)
        trials = tracker.list_trials()
        frame = tracker.get_trial(1).metrics_frame("training")

        assert [trial.id for trial in trials] == [trial.id for trial in client.Tracker(home.root).list_trials()]
        assert frame == client.Tracker(home.root).get_trial(1).metrics_frame("training")
        with pytest.raises(WorkspaceError, match="its files lie on its server"):
            tracker.list_models()
