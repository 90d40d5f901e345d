"""Everybody who asks which trial is the best gets the same answer."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from home.journals import record, report, vary
from interfaces.cli.commands import Cli, WriteScript
from interfaces.cli.recorded import new_attempt, new_trial, store
from interfaces.server.visitor import Visitor
from promises import promise

from core_sdk import client, core
from core_sdk._analysis.evidence import read_evidence
from core_sdk._ground.records import Report, RetentionPolicy, SearcherMetric, TrialRecord, nonfinite_to_text
from core_sdk._home import Home, View, open_view
from core_sdk._home.attempts.definition import Definition, define
from core_sdk._home.deletion.collection import Collector, Request
from core_sdk._home.finding.best import best_trial
from core_sdk._home.finding.facts import Facts, read_facts
from core_sdk._home.finding.groups import best_of, default_metric
from core_sdk.client import OrderBy, TrialSortBy

NAN, INF = math.nan, math.inf

Best = tuple[int, int | None, float | None] | None
"""The best trial, its step and its value."""

Curves = list[list[float]]
"""The losses of each trial at the steps 1, 2, …"""

BEST_OF: dict[str, tuple[Curves, tuple[int, int] | None]] = {
    "plain": ([[3, 2, 5], [4, 1, 6], [2, 2, 2]], (2, 2)),
    "ties": ([[3, 1, 1], [1, 5, 1], [2, 2, 2]], (1, 2)),
    "nan": ([[NAN, 4, NAN], [NAN, NAN, NAN], [5, 6, 7]], (1, 2)),
    "infinity": ([[9, 7, 5], [10, 4, 10], [6, -INF, 6]], (2, 2)),
    "mixed": ([[INF, 3, -INF], [4, 4, 4], [NAN, -INF, 3]], (1, 2)),
    "no value": ([[NAN, INF, -INF], [NAN, NAN, NAN], []], None),
}
"""Curves of which smaller values are better, and the best trial with its step."""


def told(step: int, loss: float) -> Report:
    return report(step, "validation", loss=nonfinite_to_text(loss))


def train(home: Home, name: str, curves: Curves, sign: int, writer: str | None) -> int:
    """Records an experiment. If a writer decides, its trainings report others: of them the last one is the best."""
    for number, curve in enumerate(curves, start=1):
        folder = new_trial(home, experiment=name)
        training = new_attempt(folder)
        values = [told(step, sign * loss) for step, loss in enumerate(curve, start=1)]
        for step, value in enumerate(values, start=1):
            training.report(step, loss=-sign * 100.0 * number)
            training.append(told(step, sign * (100.0 - number)) if writer else value)
            store(training, f"{name.replace(' ', '-')}-{number}-{step}", step)
        training.end()
        if writer:
            record(folder, *values, rank=writer)
    experiment = home.find_or_create_experiment(name)
    with experiment.edit() as edited:
        edited.searcher_metric = SearcherMetric(
            name="loss", smaller_is_better=sign == 1, group="validation", writer=writer
        )
        edited.retention = RetentionPolicy(save_experiment_best=1, save_trial_best=0, save_trial_latest=0)
    return experiment.experiment_id


@dataclass(frozen=True)
class Asked:
    """An experiment of which somebody wants to know the best."""

    home: Home
    view: View
    visitor: Visitor
    cli: Cli
    experiment_id: int

    def command(self, *arguments: str) -> Any:
        finished = self.cli(*arguments, "--json")
        return json.loads(finished.output) if finished.status == 0 else None

    def page(self, path: str = "") -> Any:
        return self.visitor.get(f"/api/v1/experiments/{self.experiment_id}{path}").json

    @property
    def metric(self) -> SearcherMetric | None:
        return self.home.experiment(self.experiment_id).read().searcher_metric

    @property
    def facts(self) -> list[Facts]:
        return read_facts(self.view, self.view.trials(self.experiment_id))

    @property
    def client(self) -> client.Experiment:
        return client.Tracker(self.home.root).get_experiment(self.experiment_id)

    def best_of_all(self) -> Iterator[tuple[str, Best]]:
        """Yields who says what is the best trial, its step and its value, as far as they say it."""
        best = best_trial(self.home, self.view, self.experiment_id)
        yield "home", (best.trial_id, best.steps_completed, best.value) if best else None
        checkpoint = best.checkpoint if best else None
        told = (checkpoint.trial_id, checkpoint.steps_completed, checkpoint.value) if checkpoint else None
        yield "its checkpoint", told
        described = self.command("experiment", "describe", str(self.experiment_id))["best"]
        yield "describe", described and (described["trial_id"], described["steps_completed"], described["value"])
        shown = (self.command("experiment", "best", str(self.experiment_id)) or {}).get("best")
        yield "best", shown and (shown["trial_id"], shown["steps_completed"], shown["value"])
        listed = self.command("checkpoint", "list", "--experiment", str(self.experiment_id), "--best", "1")
        yield "checkpoint list", (listed[0]["trial_id"], listed[0]["steps_completed"], None) if listed else None
        with Collector(self.home, Request(experiment_id=self.experiment_id)) as collector:
            kept = [one for one in collector.plan().verdicts if "best 1 of the experiment" in one.reasons]
        yield "retention", (kept[0].trial_id, kept[0].steps_completed, None) if kept else None
        try:
            found = [self.client.top_checkpoint(), *self.client.top_n_checkpoints(1)]
        except ValueError:
            yield "client", None
        else:
            yield from (("client", (one.trial_id, one.metadata["steps_completed"], None)) for one in found)
        group = best_of(self.facts, default_metric(self.facts, [self.metric]))
        yield "group", (group.trial_id, None, group.value) if group else None
        of_page = self.page()["best"]
        yield "page", of_page and (of_page["trial_id"], None, of_page["value"])
        (figures,) = [
            figures["best"]
            for row, figures in zip(
                *map(self.visitor.get("/api/v1/experiments").json.get, ("experiments", "figures")), strict=True
            )
            if row["experiment_id"] == self.experiment_id
        ]
        yield "page's list", figures and (figures["trial_id"], None, figures["value"])

    def first_of_all(self) -> Iterator[tuple[str, int]]:
        """Yields who puts which trial first, if there is a best one."""
        yield "trials", self.command("experiment", "trials", str(self.experiment_id))[0]["trial_id"]
        yield "curves", self.page("/curves")["curves"][0]["trial_id"]
        assert self.metric is not None
        order = OrderBy.ASC if self.metric.smaller_is_better else OrderBy.DESC
        yield "client", self.client.list_trials(TrialSortBy.BEST_VALIDATION_METRIC, order)[0].trial_id
        yield "checkpoints", self.client.list_checkpoints()[0].trial_id


@promise("one-best")
@pytest.mark.parametrize("writer", [None, "evaluator"])
@pytest.mark.parametrize("sign", [1, -1])
def test_everybody_knows_the_same_best_trial(home: Home, cli: Cli, sign: int, writer: str | None) -> None:
    """Whoever decides, in both directions: NaN and infinities never win, and of equal values the earlier does."""
    experiments = {case: train(home, case, curves, sign, writer) for case, (curves, _) in BEST_OF.items()}
    first = 1
    with contextlib.closing(Visitor(home)) as visitor, open_view(home) as view:
        for case, (curves, best) in BEST_OF.items():
            asked = Asked(home, view, visitor, cli, experiments[case])
            for who, found in asked.best_of_all():
                if best is None or found is None:
                    assert (best, found) == (None, None), (case, who)
                    continue
                known = (first + best[0] - 1, best[1], sign * curves[best[0] - 1][best[1] - 1])
                assert all(one in (None, value) for one, value in zip(found, known, strict=True)), (case, who, found)
            if best is not None:
                told = dict(asked.first_of_all())
                assert set(told.values()) == {first + best[0] - 1}, (case, told)
            first += len(curves)


@pytest.mark.parametrize("writer", [None, "evaluator"])
@pytest.mark.parametrize("sign", [1, -1])
def test_everybody_knows_the_same_best_value_of_a_trial(
    home: Home, cli: Cli, tmp_path: Path, sign: int, writer: str | None
) -> None:
    """The evidence, the tree, the client and a download agree, too, on the best of one trial."""
    train(home, "mixed", [[INF, 3, 3, -INF, NAN]], sign, writer)

    with open_view(home) as view:
        curve = read_evidence(home, view, 1).curve
        vary(home.trial(1), None, "why")
    top = client.Tracker(home.root).get_trial(1).top_checkpoint()
    tree = cli("trial", "tree").output
    directory = Path(cli("trial", "download", "1", "--best", "-o", str(tmp_path / "best")).output.strip())

    assert curve is not None
    assert [curve.best] == [(2, sign * 3)]
    assert top.metadata["steps_completed"] == 2
    assert f"{'min' if sign == 1 else 'max'}.loss {sign * 3}" in tree
    assert '"steps_completed":2' in (directory / "metadata.json").read_text().replace(" ", "")


def test_a_context_knows_the_best_validation_of_its_experiment(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """`get_experiment_best_validation()` goes by the same rule, with the writer's values if there is one."""
    monkeypatch.setenv("CORE_SDK_HOME", str(home.root))
    train(home, "mixed", BEST_OF["mixed"][0], 1, "evaluator")
    train(home, "no value", BEST_OF["no value"][0], 1, None)

    found = []
    for name in ("mixed", "no value"):
        with core.init(name=name) as context:
            found.append(context.train.get_experiment_best_validation())

    assert found == [3, None]


SCRIPT = """
import sys
from core_sdk import core
with core.init(name="digits", **eval(sys.argv[1])) as context:
    for step, accuracy in enumerate([0.5, 0.9, 0.6], start=1):
        context.train.report_validation_metrics(step, {"accuracy": accuracy})
"""
BY_ACCURACY = "{'metric': 'accuracy', 'larger_is_better': True}"


@pytest.mark.parametrize(
    ("options", "arguments", "best_by"),
    [
        ([], BY_ACCURACY, "max.accuracy"),
        (["--metric", "accuracy", "--larger-is-better"], "{}", "max.accuracy"),
        (["--metric", "validation.accuracy"], BY_ACCURACY, "min.validation.accuracy"),
    ],
)
def test_a_plain_script_says_by_what_it_is_best(
    home: Home, cli: Cli, write_script: WriteScript, options: list[str], arguments: str, best_by: str
) -> None:
    """The metric of `init()`, or that of `core-sdk run`, is recorded once, and then decides wherever none is given."""
    script = write_script(SCRIPT)
    assert cli("run", "--hypothesis", "why", *options, "--", sys.executable, str(script), arguments).status == 0
    assert cli("run", "--", sys.executable, str(script), "{}").status == 0

    value = 0.9 if best_by == "max.accuracy" else 0.5
    best = json.loads(cli("experiment", "best", "digits", "--json").output)["best"]
    listed = json.loads(cli("trial", "list", "--where", f"best_by = {best_by}", "--json").output)
    assert (best["trial_id"], best["value"]) == (1, value)
    assert [one["trial_id"] for one in listed] == [1]
    assert f"{best_by} {value}" in cli("trial", "tree").output
    for trial_id in ("1", "2"):
        assert f"is better): best {2 if value == 0.9 else 1}:{value}" in cli("trial", "evidence", trial_id).output


@pytest.mark.parametrize("metric", ["loss", "training.loss"])
def test_a_metric_of_the_training_can_decide(home: Home, cli: Cli, metric: str) -> None:
    """If no trial has validated it, a metric of the training decides for trials, and no checkpoint is the best."""
    for losses in ([5, 3], [4, 1]):
        training = new_attempt(new_trial(home))
        for step, loss in enumerate(losses, start=1):
            training.report(step, loss=loss)
            store(training, f"{losses[0]}-{step}", step)
        training.end()
    with home.experiment(1).edit() as edited:
        edited.searcher_metric = SearcherMetric(name=metric)

    with contextlib.closing(Visitor(home)) as visitor:
        page = visitor.get("/api/v1/experiments/1").json
    best = json.loads(cli("experiment", "best", "1", "--json").output)["best"]
    listed = json.loads(cli("experiment", "trials", "1", "--json").output)

    assert (page["best_by"], page["best"]) == ("min.training.loss", {"trial_id": 2, "value": 1})
    assert best == {
        "trial_id": 2, "metric": "training.loss", "value": 1, "steps_completed": 2, "checkpoint": None
    }  # fmt: skip
    assert [one["trial_id"] for one in listed] == [2, 1]
    assert "no validation metric is called" in cli("experiment", "download", "1").errors


def test_a_direction_without_a_metric_is_refused(home: Home, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """`larger_is_better` and `--larger-is-better` say how to read a metric that must be named, too."""
    monkeypatch.setenv("CORE_SDK_HOME", str(home.root))

    refused = cli("run", "--larger-is-better", "--", "python", "train.py")
    with pytest.raises(ValueError, match="give metric"):
        core.init(larger_is_better=True)

    assert (refused.status, "--metric" in refused.errors) == (2, True)


def test_a_search_decides_by_its_own_metric() -> None:
    """The metric that a script gives to `init()` does not change that of the search whose trial it trains."""
    record = TrialRecord(trial_id=1, experiment_id=1, created=0, seed=0, request_id="of a search")

    define(record, Definition(metric="accuracy", larger_is_better=True))

    assert record.best_by == ""
