"""What the server answers about the records of a home."""

from __future__ import annotations

import re
import stat
from typing import Any

import pytest
from home.journals import START, append, lines, new_trial, record, report, started
from interfaces.server.conftest import HOSTILE
from interfaces.server.visitor import Visitor, target_of

from core_sdk._ground.records import MAX_NAME_BYTES, Alert, Ended, SearcherMetric, TrialLabelsChanged
from core_sdk._home import Home, TrialFolder
from core_sdk._interfaces.server.routes.bounds import differing_values


def test_the_home_says_what_it_holds(visitor: Visitor, home: Home) -> None:
    """The home's answer has its location, its counts and the number of damaged lines."""
    append(home.folder(1), 1, b"a line that is none\n")

    answer = visitor.question("/home")

    assert answer["location"] == str(home.root)
    assert (answer["num_trials"], answer["num_experiments"], answer["num_damaged_lines"]) == (3, 2, 1)
    assert (answer["has_master"], answer["can_act"]) == (False, True)


def test_a_trial_is_known_as_soon_as_it_has_begun(visitor: Visitor, home: Home) -> None:
    """Whoever opens its link at once sees it, although the last look at the home is not old."""
    for question in ("", "/metrics", "/attempts"):
        visitor.question("/home")
        trial = new_trial(home, "begun just now")
        append(trial, 1, lines(started(trial), report(1, loss=2.0)))

        answer = visitor.get(target_of(f"/trials/{trial.trial_id}{question}"))

        assert answer.status == 200, answer.content


def test_runs_are_filtered_sorted_and_paged(visitor: Visitor) -> None:
    """Runs can be filtered, sorted and paged, with any hyperparameter or metric as a column."""
    first = visitor.question(
        "/runs", where="lr<0.5", sort="lr", columns=["id", "lr", "model.layers", "training.loss"], limit=2
    )
    second = visitor.question("/runs", where="lr<0.5", sort="lr", columns="id", limit=2, cursor=first["next"])

    assert first["columns"] == ["id", "lr", "model.layers", "training.loss"]
    assert first["rows"] == [[3, 0.001, None, 2.0], [2, 0.01, None, None]]
    assert (first["num_found"], first["num_trials"], first["next"]) == (3, 3, 2)
    assert (second["rows"], second["next"]) == ([[1]], None)


def test_extremes_are_columns_too(visitor: Visitor) -> None:
    """The minimum and maximum of a metric can be columns."""
    answer = visitor.question(
        "/runs", where="id=1", columns=["max.training.loss", "min.training.loss", "training.loss"]
    )

    assert answer["rows"] == [[1.0, 0.5 / 60, 0.5 / 60]]


def test_a_search_finds_text_anywhere(visitor: Visitor) -> None:
    """The search ignores case."""
    assert visitor.question("/runs", search="ONERROR")["ids"] == [2]
    assert visitor.question("/runs", search="no such text")["ids"] == []


def test_numbers_that_are_not_finite_have_names(visitor: Visitor) -> None:
    """NaN and infinities are strings in JSON."""
    answer = visitor.question("/runs", where="id=2", columns=["accuracy", "loss"])

    assert answer["rows"] == [["NaN", "Infinity"]]


@pytest.mark.parametrize(
    ("query", "kind", "place"),
    [
        ({"where": "lr>"}, "bad_condition", 3),
        ({"where": "state=COMPLETED and rl>1"}, "bad_condition", 20),
        ({"sort": "nonsense"}, "unknown_column", None),
        ({"columns": "nonsense"}, "unknown_column", None),
        ({"limit": "10001"}, "bad_parameter", None),
        ({"cursor": "-1"}, "bad_parameter", None),
        ({"nonsense": "1"}, "bad_parameter", None),
    ],
)
def test_a_mistake_is_named_with_its_place(
    visitor: Visitor, query: dict[str, str], kind: str, place: int | None
) -> None:
    """A mistake in a condition or sort key is answered with its kind and position."""
    answer = visitor.get(target_of("/runs", **query))

    assert answer.status == 400
    assert answer.problem == kind
    assert answer.json["error"]["place"] == place


def test_curves_have_true_extremes_in_few_buckets(visitor: Visitor, home: Home) -> None:
    """Curves of a few buckets keep the extremes of all points."""
    folder = new_trial(home)
    record(folder, *(report(step, loss=1e6 if step == 4321 else 1.0) for step in range(9_999)), report(9_999, loss=1.5))

    (curve,) = visitor.question(f"/trials/{folder.trial_id}/metrics", buckets=100)["curves"]

    assert len(curve["x"]) == 100
    assert sum(curve["count"]) == 10_000
    assert curve["maximum"][43] == 1e6
    assert max(curve["minimum"]) == 1.0
    assert curve["last"] == 1.5


def test_curves_zoom_by_steps(visitor: Visitor, home: Home) -> None:
    """A curve can be limited to a range of steps."""
    folder = new_trial(home)
    record(folder, *(report(step, loss=float(step)) for step in range(1000)))

    (curve,) = visitor.question(f"/trials/{folder.trial_id}/metrics", first=100, last=109, buckets=50)["curves"]

    assert curve["first_steps"] == curve["last_steps"] == list(range(100, 110))
    assert curve["mean"] == [float(step) for step in range(100, 110)]


def test_what_was_superseded_has_curves_of_its_own(visitor: Visitor) -> None:
    """Superseded points of an earlier attempt are a curve of their own."""
    answer = visitor.question("/trials/1/metrics", superseded="true")

    (curve,), (old,) = answer["curves"], answer["superseded"]
    assert curve["last_steps"][-1] == 59
    assert (old["attempt"], old["first_steps"][0], old["last_steps"][-1]) == (1, 41, 99)
    assert answer["resume_points"] == [40]


def test_what_an_attempt_has_reported_again_has_a_curve_of_its_own(visitor: Visitor, home: Home) -> None:
    """A point that its own attempt reported again is on the superseded curve."""
    folder = new_trial(home)
    record(folder, report(1, loss=0.5), report(2, loss=0.25), report(1, loss=4.0))

    answer = visitor.question(f"/trials/{folder.trial_id}/metrics", superseded="true")

    (curve,), (old,) = answer["curves"], answer["superseded"]
    assert curve["mean"] == [4.0, 0.25]
    assert (old["attempt"], old["mean"]) == (1, [0.5])


def test_curves_come_with_the_alerts_among_their_steps(visitor: Visitor, home: Home) -> None:
    """Curves come with the alerts in their range, without superseded ones."""
    folder = new_trial(home)
    alerts = [Alert(time=9.0, title=str(step), description="", level="warn") for step in (10, 20, 30)]
    reports = [report(step, loss=1.0) for step in (10, 20, 30)]
    record(folder, *(one for pair in zip(reports, alerts, strict=True) for one in pair))
    record(folder, report(21, loss=1.0), attempt=2, resumed_steps=20)
    question = f"/trials/{folder.trial_id}/metrics"

    whole, part = (visitor.question(question, **query)["alerts"] for query in ({}, {"first": 15}))

    assert [one["title"] for one in whole] == ["10", "20"]
    assert [one["title"] for one in part] == ["20"]


def test_each_rank_has_curves_of_its_own(visitor: Visitor, home: Home) -> None:
    """Curves can come from the lowest rank, one rank or all ranks."""
    folder = new_trial(home)
    record(folder, report(1, loss=0.5), report(3, loss=0.25))
    record(folder, report(2, loss=5.0), report(2, "validation", accuracy=0.75), rank=1)
    question = f"/trials/{folder.trial_id}/metrics"

    shown, of_1, of_all = (
        visitor.question(question, **query)["curves"] for query in ({}, {"rank": 1}, {"rank": "all"})
    )
    by_time = visitor.question(question, x="time", rank=1)["curves"]

    trial = visitor.question(f"/trials/{folder.trial_id}")
    assert trial["reporting_ranks"] == [0, 1]
    assert [(one["name"], one["ranks"]) for one in trial["series"]] == [("accuracy", [1]), ("loss", [0, 1])]
    assert [(one["name"], one["rank"], one["x"]) for one in shown] == [("accuracy", None, [2]), ("loss", None, [1, 3])]
    assert [(one["name"], one["rank"], one["x"]) for one in of_1] == [("accuracy", 1, [2]), ("loss", 1, [2])]
    assert [(one["name"], one["rank"]) for one in of_all] == [("accuracy", 1), ("loss", 0), ("loss", 1)]
    assert [len(one["x"]) for one in by_time] == [1, 1]
    assert visitor.get(target_of(question, rank="-1")).problem == "bad_parameter"
    assert visitor.get(target_of(question, rank="a b")).problem == "bad_parameter"
    assert visitor.get(target_of(question, rank=str(1 << 63))).problem == "bad_parameter"


def test_an_experiment_has_the_curves_of_a_rank(visitor: Visitor, home: Home) -> None:
    """The curves of an experiment can come from one rank."""
    both = new_trial(home, "ranks")
    record(both, report(1, "validation", loss=0.5))
    record(both, report(1, "validation", loss=5.0), rank=1)
    record(new_trial(home, "ranks"), report(1, "validation", loss=0.25))
    (found,) = visitor.question("/experiments", where="name=ranks")["experiments"]
    question = f"/experiments/{found['experiment_id']}/curves"

    shown, of_1, of_2 = (visitor.question(question, **query) for query in ({}, {"rank": 1}, {"rank": 2}))
    by_time = visitor.question(question, rank=1, x="time")["curves"]

    assert [one["reporting_ranks"] for one in (shown, of_1, of_2)] == [[0, 1]] * 3
    assert [one["mean"] for one in shown["curves"]] == [[0.25], [0.5]]
    assert [(one["trial_id"], one["mean"]) for one in of_1["curves"]] == [(both.trial_id, [5.0])]
    assert of_2["curves"] == []
    assert [len(one["x"]) for one in by_time] == [1]
    assert visitor.get(target_of(question, rank="all")).problem == "bad_parameter"


def test_several_trials_are_asked_at_once(visitor: Visitor) -> None:
    """A comparison's answers equal the single trials'."""
    found = visitor.question("/comparison", trials=[3, 1])["trials"]
    curves = visitor.question("/comparison/metrics", trials=[3, 1], buckets=10)["trials"]

    assert found == [visitor.question(f"/trials/{trial_id}") for trial_id in (3, 1)]
    assert curves == [visitor.question(f"/trials/{trial_id}/metrics", buckets=10) for trial_id in (3, 1)]


def test_names_may_hold_a_comma(visitor: Visitor, home: Home) -> None:
    """Metrics, hyperparameters and labels: in columns, conditions, orders and lists of names."""
    folder = new_trial(home, "commas", **{"a,b": 3, 'q"uote': 4})
    metrics: list[dict[str, Any]] = [{"loss": 1.0, "top,1": value} for value in (2.0, 3.0)]
    record(folder, report(1, **metrics[0]), report(2, **metrics[1]))
    trial = f"/trials/{folder.trial_id}"
    visitor.act(f"{trial}/actions/label", {"add": ["x, y"]})

    table = visitor.question("/runs", columns=["a,b", "training.top,1", "label"], sort="-a,b", where='"top,1" = 3')
    by_label = visitor.question("/runs", where='label = "x, y"')
    curves = visitor.question(f"{trial}/metrics", names=["top,1"])["curves"]
    compared = visitor.question("/comparison/metrics", trials=[folder.trial_id], names=["training.top,1"])["trials"]

    assert table["rows"] == [[3, 3.0, ["x, y"]]]
    assert by_label["ids"] == [folder.trial_id]
    assert [(curve["name"], curve["maximum"]) for curve in curves] == [("top,1", [2.0, 3.0])]
    assert [[curve["name"] for curve in one["curves"]] for one in compared] == [["top,1"]]


@pytest.mark.parametrize("trials", [[], [""], [1, "x"], ["1,2"], [0], [1.5], list(range(1, 102))])
def test_a_comparison_is_of_1_to_100_trials(visitor: Visitor, trials: list[object]) -> None:
    """A comparison accepts 1 to 100 trial ids and refuses anything else."""
    assert visitor.get(target_of("/comparison", trials=trials)).problem == "bad_parameter"


def test_time_and_epochs_are_axes(visitor: Visitor, home: Home) -> None:
    """Epochs come from the metric of this name, between two reports of it too."""
    folder = new_trial(home)
    reports = [
        report(step, loss=1.0, epochs=step / 10) if step % 10 == 0 else report(step, loss=1.0) for step in range(21)
    ]
    record(folder, *reports)

    by_time = visitor.question(f"/trials/{folder.trial_id}/metrics", x="time", names="loss")["curves"][0]
    by_epochs = visitor.question(f"/trials/{folder.trial_id}/metrics", x="epochs", names="loss")["curves"][0]

    assert by_time["x"] == pytest.approx([one.time for one in reports])
    assert by_epochs["x"] == pytest.approx([step / 10 for step in range(21)])


def test_any_metric_is_an_axis(visitor: Visitor, home: Home) -> None:
    """Any metric can be the x axis, and values between its reports are interpolated."""
    folder, other = new_trial(home), new_trial(home)
    validations = [report(1, "validation", error=9.0), report(5, "validation", error=1.0)]
    record(folder, *(report(step, loss=1.0) for step in range(1, 6)), *validations)
    record(other, report(1, loss=1.0))

    compared = visitor.question(
        "/comparison/metrics",
        trials=[folder.trial_id, other.trial_id],
        names="training.loss",
        x="validation.error",
    )["trials"]

    assert [one["curves"][0]["x"] for one in compared] == [[9.0, 7.0, 5.0, 3.0, 1.0], [None]]
    assert visitor.get(target_of(f"/trials/{other.trial_id}/metrics", x="years")).problem == "bad_parameter"


def test_a_formula_has_curves_in_the_place_of_its_metrics(visitor: Visitor, home: Home) -> None:
    """Also of parts with finer buckets; a trial without one of the metrics has none."""
    folder, other = new_trial(home), new_trial(home)
    record(folder, *(report(step, loss=step, lr=2.0) for step in range(1, 1001)))
    record(other, report(1, loss=1.0))

    def curves(**query: object) -> list[list[dict[str, Any]]]:
        trials = [folder.trial_id, other.trial_id]
        names = ["training.loss", "training.lr"]
        asked = visitor.question("/comparison/metrics", trials=trials, names=names, buckets=10, **query)
        return [one["curves"] for one in asked["trials"]]

    (whole,), nothing = curves(formula="loss / lr", x="training.loss")
    (finer,), _ = curves(formula="loss / lr", finer_from=500, finer_to=505)
    (loss, _), _ = curves(finer_from=500, finer_to=505)

    assert (whole["group"], whole["name"], nothing) == ("", "loss / lr", [])
    assert [2 * value for value in whole["mean"]] == pytest.approx(curves()[0][0]["mean"])
    assert whole["x"][-1] == pytest.approx(1000, rel=0.1)
    assert len(finer["x"]) > len(whole["x"])
    assert [2 * value for value in finer["mean"]] == pytest.approx(loss["mean"])


def test_a_wrong_formula_is_told_with_its_place(visitor: Visitor, home: Home) -> None:
    """While somebody writes it, and where its curves are asked for."""
    folder = new_trial(home)
    record(folder, report(1, loss=1.0))
    problem = {"kind": "bad_formula", "message": "There is no metric lr.", "hint": "", "place": 7, "present": None}

    wrong = visitor.question("/formula", formula="loss / lr", metrics=["training.loss"])
    right = visitor.question("/formula", formula="loss / lr", metrics=["training.loss", "training.lr"])
    refused = visitor.get(target_of(f"/trials/{folder.trial_id}/metrics", formula="loss / lr"))

    assert (wrong, right) == ({"problem": problem}, {"problem": None})
    assert (refused.status, refused.problem) == (400, "bad_formula")


def test_buckets_are_finer_between_two_places(visitor: Visitor, home: Home) -> None:
    """A range of a curve can be refined without losing or repeating points."""
    folder = new_trial(home)
    record(folder, *(report(step, loss=step, tokens=1000 * step) for step in range(1, 1001)))
    question = f"/trials/{folder.trial_id}/metrics"

    def curve(**query: object) -> dict[str, Any]:
        (found,) = visitor.question(question, names="loss", buckets=10, **query)["curves"]
        return dict(found)

    by_tokens = curve(x="training.tokens", finer_from=510_000, finer_to=515_000)
    first_time = report(510).time - START
    by_time = curve(x="time", finer_from=first_time, finer_to=first_time + 1)
    beyond = curve(x="training.tokens", finer_from=1e9, finer_to=2e9)

    assert (by_tokens["count"], by_tokens["first_steps"][0], by_tokens["last_steps"][-1]) == (
        [100] * 5 + [2] * 10 + [10] * 8 + [100] * 4, 1, 1000,
    )  # fmt: skip
    assert by_time["count"] == by_tokens["count"]
    assert beyond["count"] == [100] * 10
    assert sum(curve(finer_from=-4e18, finer_to=4e18)["count"]) == 1000


def test_chosen_trials_are_a_table_too(visitor: Visitor, home: Home) -> None:
    """A table of chosen trials has the columns of these trials, and an unknown trial gives 404."""
    folder = new_trial(home, lr=0.5)
    record(folder, report(1, "test", score=1.0))

    table = visitor.question("/runs", trials=[folder.trial_id, 1], sort="id", columns="id")
    columns = visitor.question("/columns", trials=folder.trial_id)["columns"]

    assert table["ids"] == [1, folder.trial_id]
    assert [one["name"] for one in columns if one["kind"] != "field"] == ["lr", "test.score"]
    assert visitor.get(target_of("/runs", trials=4711)).status == 404


def test_logs_are_read_by_line_rank_and_text(visitor: Visitor) -> None:
    """Logs can be read by line, rank and text, and a negative line counts from the end."""
    last = visitor.question("/trials/3/logs", first=-2)["page"]
    of_rank = visitor.question("/trials/3/logs", rank="1", limit=2)["page"]
    found = visitor.question("/trials/3/logs", search="LINE 77", limit=2)["page"]

    assert [line["text"] for line in last["lines"]] == ["INFO: line 998", "INFO: line 999"]
    assert [line["number"] for line in of_rank["lines"]] == [1, 3]
    assert [line["number"] for line in found["lines"]] == [77, 770]
    assert found["next_line"] == 771


def test_a_trial_that_was_deleted_meanwhile_is_named(visitor: Visitor, home: Home, trials: list[TrialFolder]) -> None:
    """A trial that was deleted meanwhile gives the same error in every route."""
    trials[0].clear()
    visitor.shared.forget()

    for path in ("", "/metrics", "/logs", "/attempts", "/configuration", "/system"):
        answer = visitor.get(f"/api/v1/trials/1{path}")
        assert (answer.status, answer.problem) == (404, "trial_not_found"), path
        assert "deleted" in answer.json["error"]["hint"]


def test_an_experiment_is_told_with_its_curves_and_what_mattered(visitor: Visitor, home: Home) -> None:
    """An experiment's answer has its curves and the importance of its hyperparameters."""
    for number in range(40):
        folder = new_trial(home, "search", lr=number / 40, noise=number * 7 % 40)
        record(folder, report(1, "validation", loss=(number / 40) ** 2))
    (found,) = visitor.question("/experiments", where="name=search")["experiments"]
    path = f"/experiments/{found['experiment_id']}"

    curves = visitor.question(f"{path}/curves", top=3)
    lr, noise = visitor.question(f"{path}/importance")["importances"]
    by_best = visitor.question(f"{path}/importance", metric="min.validation.loss")

    assert [curve["mean"] for curve in curves["curves"]] == [[0.0], [(1 / 40) ** 2], [(2 / 40) ** 2]]
    assert curves["num_trials"] == 40
    assert (lr["name"], lr["correlation"]) == ("lr", 1.0)
    assert lr["share"] > 0.9 > 0.3 > noise["share"]
    assert (by_best["metric"], by_best["importances"][0]) == ("min.validation.loss", lr)
    assert visitor.question(path)["states"] == {"ERROR": 40}


def test_trials_of_a_search_have_the_hyperparameters_in_which_they_differ() -> None:
    """Constants are left out, and so is what is beyond the largest number, which is told."""
    values, num_differing = differing_values([{"a": 1, "lr": 0.1, "b": 1}, {"lr": 0.2, "b": 1, "c": [1]}], 2)

    assert (values, num_differing) == ([{"a": 1, "lr": 0.1}, {"lr": 0.2}], 3)


def test_the_list_of_experiments_has_what_came_out(visitor: Visitor, home: Home) -> None:
    """The list of experiments has the best value and the duration of each."""
    for losses in ([0.5, 0.25, 0.75], [0.375]):
        folder = new_trial(home, "tuned")
        record(folder, *(report(step, "validation", loss=loss) for step, loss in enumerate(losses)))
        append(folder, 1, lines(Ended(time=started(folder).time + 90, outcome="completed")))
    with home.find_or_create_experiment("tuned").edit() as edited:
        edited.searcher_metric = SearcherMetric(name="loss")

    answer = visitor.question("/experiments")

    (index,) = [number for number, one in enumerate(answer["experiments"]) if one["name"] == "tuned"]
    figures = answer["figures"][index]
    assert (figures["metric"], figures["best"]) == ("loss", {"trial_id": 4, "value": 0.25})
    assert figures["duration"] >= 90
    assert len(answer["figures"]) == len(answer["experiments"])


def test_names_of_runs_are_data(visitor: Visitor) -> None:
    """Hostile names are passed on as JSON that no browser takes for a page."""
    answer = visitor.get("/api/v1/trials/2")

    assert answer.json["trial"]["experiment_name"] == HOSTILE
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_all_routes_are_described(visitor: Visitor) -> None:
    """The OpenAPI document describes all routes."""
    document = visitor.question("/openapi.json")

    assert document["openapi"].startswith("3.1")
    operation = document["paths"]["/api/v1/runs"]["get"]
    assert {parameter["name"] for parameter in operation["parameters"]} >= {"where", "sort", "limit"}
    assert "post" in document["paths"]["/api/v1/trials/{trial_id}/actions/kill"]


def test_an_experiment_has_columns_of_its_own(home: Home) -> None:
    """The columns of an experiment are its trials' columns, paged and searchable."""
    for number in range(2):
        record(new_trial(home, "wide", lr=number, **{f"h{index:04d}": index for index in range(1500)}))
    record(new_trial(home, "narrow", width=3), report(1, loss=0.5))
    visitor = Visitor(home)

    def hparams_of(target: dict[str, int]) -> dict[str, bool]:
        columns = visitor.question("/columns", limit=2000, **target)["columns"]
        return {one["name"]: one["is_constant"] for one in columns if one["kind"] == "hyperparameter"}

    everything, wide, narrow = map(hparams_of, ({}, {"experiment": 1}, {"experiment": 2}))
    first = visitor.question("/columns", limit=2, names=["h0007", "min.training.loss"])
    second = visitor.question("/columns", limit=2, cursor=first["next"])
    searched = visitor.question("/columns", search="H149")
    visitor.close()

    assert len(everything) == 1502
    assert list(narrow) == ["width"]
    assert [name for name, is_constant in wide.items() if not is_constant] == ["lr"]
    assert (first["num_found"], first["next"], second["next"]) == (1503, 2, 4)
    assert [one["name"] for one in first["columns"] if one["kind"] != "field"] == ["lr", "h0007", "training.loss"]
    assert [one["name"] for one in second["columns"] if one["kind"] != "field"] == ["h0000", "h0001"]
    assert [one["name"] for one in searched["columns"] if one["kind"] != "field"] == [f"h149{n}" for n in range(10)]


def test_the_home_remembers_how_it_is_looked_at(visitor: Visitor, home: Home) -> None:
    """Preferences are kept in the home, privately, and a damaged file counts as empty."""
    views = [{"name": name, "query": {"sort": name}} for name in ("loss", "lr", "id")]

    first = visitor.question("/preferences")
    for view in ({"name": "lr", "query": {}}, *views):  # as if each were saved in a tab that knows of no other
        visitor.act("/preferences/actions/keep", {"save_view": view})
    visitor.act("/preferences/actions/keep", {"forget_view": "id"})
    kept = visitor.act("/preferences/actions/keep", {"theme": "dark"})
    refused = visitor.act("/preferences/actions/keep", {"theme": "pink"})
    later = visitor.question("/preferences")
    mode = stat.S_IMODE(home.page.stat().st_mode)
    home.page.write_text("{")

    assert first == visitor.question("/preferences") == {"theme": "system", "views": []}
    assert (kept.status, refused.status) == (200, 400)
    assert later == {"theme": "dark", "views": [{**view, "author": "core-sdk ui"} for view in views[:2]]}
    assert mode & 0o077 == 0


def test_a_home_that_does_not_exist_remembers_nothing(home: Home) -> None:
    """Preferences are refused for a home that does not exist."""
    visitor = Visitor(home)

    answer = visitor.act("/preferences/actions/keep", {"theme": "dark"})
    visitor.close()

    assert (answer.status, answer.problem) == (409, "no_home")
    assert not home.root.exists()


def test_markdown_becomes_elements(visitor: Visitor) -> None:
    """Markdown becomes safe elements: HTML and pictures stay text, and links must be web or mail."""
    text = "# Done\n\n3. *one* <b>two</b>\n4. `x<y` ~~no~~\n\n[bad](javascript:alert(1)) ![p](http://a/p.png) https://a.org"

    content = visitor.act("/markdown", {"text": text}).json["content"]

    assert shown(content) == (
        "<h1>Done</h1><ol start=3><li><em>one</em> {<b>}two{</b>}</li><li><code>x{<}y</code> <s>no</s></li></ol>"
        "<p>[bad](javascript:alert(1)) ![p](http://a/p.png) <a href=https://a.org>https://a.org</a></p>"
    )


def shown(content: list[Any]) -> str:
    """Returns the elements as markup, in which the text's own angle brackets stand in braces."""
    return "".join(
        re.sub(r"(<[^>]*>|<)", r"{\1}", one)
        if isinstance(one, str)
        else f"<{' '.join([one['tag'], *(f'{name}={one[name]}' for name in ('href', 'start') if one[name])])}>"
        f"{shown(one['content'])}</{one['tag']}>"
        for one in content
    )


def test_a_very_wide_trial_is_answered_in_pages(visitor: Visitor, home: Home) -> None:
    """The metrics of a trial come in pages and are searched; of its labels and hyperparameters the first are given."""
    folder = new_trial(home, "wide", lr=0.1, model={"layers": {str(number): number for number in range(1500)}})
    metrics: dict[str, Any] = {f"m{number:04d}": float(number) for number in range(2500)}
    record(folder, report(1, **metrics))
    append(folder, 0, lines(TrialLabelsChanged(time=START, added=[f"label {number:04d}" for number in range(1200)])))
    target, trials = f"/trials/{folder.trial_id}", [folder.trial_id]

    first = visitor.question(target)
    last = visitor.question(target, cursor=2000)
    found = visitor.question(target, search="M12", names="training.m2400", limit=3)
    (compared,) = visitor.question("/comparison", trials=trials, limit=1)["trials"]
    table = visitor.question("/runs", trials=trials, columns=["label"])
    configuration = visitor.question(f"{target}/configuration")

    assert (len(first["series"]), first["num_found"], first["next"]) == (1000, 2500, 1000)
    assert (len(last["series"]), last["series"][-1]["last"], last["next"]) == (500, 2499.0, None)
    assert [one["name"] for one in found["series"]] == ["m1200", "m1201", "m1202", "m2400"]
    assert (found["num_found"], len(compared["series"]), compared["num_found"]) == (100, 1, 2500)
    assert (len(first["trial"]["labels"]), first["num_labels"]) == (1000, 1200)
    assert first["trial"]["hparams"] == {"lr": 0.1, "model": {"layers": {str(number): number for number in range(999)}}}
    assert (first["num_hparams"], compared["num_hparams"], first["num_metadata"]) == (1501, 1501, 0)
    assert (configuration["hparams"], configuration["num_hparams"]) == (first["trial"]["hparams"], 1501)
    assert len(table["rows"][0][0]) == 100


def test_the_longest_names_are_asked_for(home: Home) -> None:
    """What a script may report, the page may ask for: a group of 1 KB and a metric of 1 KB, as column, axis and all."""
    group, name = "g" * MAX_NAME_BYTES, "m" * MAX_NAME_BYTES
    metric = f"{group}.{name}"
    record(new_trial(home), report(1, group, 1, **{name: 1.5}), report(2, group, 1, **{name: 2.5}))
    visitor = Visitor(home)

    runs = visitor.question("/runs", columns=["id", f"max.{metric}"], sort=f"-min.{metric}")
    described = visitor.question("/trials/1", search=group)
    curves = visitor.question("/trials/1/metrics", group=group, names=name, x=metric)
    compared = visitor.question("/comparison/metrics", trials=[1], names=metric)
    groups = visitor.question("/groups", by=["label"], metrics=metric, x=metric)
    formula = visitor.question("/formula", formula=f"`{metric}` / `{metric}`", metrics=metric)
    visitor.close()

    assert runs["rows"] == [[1, 2.5]]
    assert curves["curves"][0]["name"] == name
    assert (described, compared, groups, formula) and "error" not in formula
