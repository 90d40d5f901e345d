"""The answers of the server about trials that vary others."""

from __future__ import annotations

from home.journals import START, new_trial, record, report, vary
from interfaces.server.visitor import Visitor

from core_sdk._execution.steering.trials import describe
from core_sdk._ground.records import CodeRecord, Settled, StudyRecord
from core_sdk._home import Home


def test_variations_are_a_tree_with_verdicts(visitor: Visitor, home: Home) -> None:
    """Each trial stands before those that vary it, with its hypothesis, its verdict and its best value."""
    for parent, loss in ((None, 0.5), (4, 0.25), (5, 0.75), (4, 0.125), (None, 1.0)):
        folder = new_trial(home, "idea")
        vary(folder, parent, f"below {parent}" if parent else "")
        record(folder, report(1, "validation", loss=loss), report(2, "validation", loss=1.0))
    describe(home, 5, verdict="keep", verdict_reason="half the loss")
    (found,) = visitor.question("/experiments", where="name=idea")["experiments"]
    path = f"/experiments/{found['experiment_id']}"

    answer = visitor.question(f"{path}/variations")

    assert visitor.question(path)["num_variations"] == 3
    assert (answer["metric"], answer["num_found"]) == ("validation.loss", 4)
    assert [(one["trial_id"], one["depth"], one["best"]) for one in answer["variations"]] == [
        (4, 0, 0.5),
        (5, 1, 0.25),
        (6, 2, 0.75),
        (7, 1, 0.125),
    ]
    kept = answer["variations"][1]
    assert (kept["hypothesis"], kept["verdict"], kept["verdict_reason"]) == ("below 4", "keep", "half the loss")


def test_a_try_is_one_line_with_its_mean(visitor: Visitor, home: Home) -> None:
    """The trials of a try, which differ in their seeds, stand together."""
    first = new_trial(home, "seeds")
    for folder, loss in ((first, 1.0), (new_trial(home, "seeds"), 2.0), (new_trial(home, "seeds"), 3.0)):
        vary(folder, None, "as it is")
        trial = folder.read_record()
        trial.try_id = first.trial_id
        folder.write_record(trial)
        record(folder, report(1, "validation", loss=loss))
    (found,) = visitor.question("/experiments", where="name=seeds")["experiments"]

    (line,) = visitor.question(f"/experiments/{found['experiment_id']}/variations")["variations"]

    assert (line["trial_id"], line["best"], line["spread"], line["num_seeds"]) == (first.trial_id, 2.0, 1.0, 3)


def test_a_study_is_a_board_with_the_tree_and_the_curve_of_the_best(visitor: Visitor, home: Home) -> None:
    """Each try stands before those that vary it, and the best rises when one has ended."""
    firsts = []
    for parent, values in ((None, (0.80, 0.81)), (0, (0.90, 0.91)), (0, (0.70, 0.71))):
        folders = [new_trial(home, "rates") for _ in values]
        firsts.append(folders[0].trial_id)
        for seed, (folder, value) in enumerate(zip(folders, values, strict=True)):
            trial = folder.read_record()
            trial.try_id, trial.seed, trial.code = firsts[-1], seed, CodeRecord(sha256="a" * 64)
            trial.parent = None if parent is None else firsts[parent]
            folder.write_record(trial)
            record(folder, report(1, "validation", accuracy=value))
            folder.append_change(Settled(time=START + firsts[-1], state="COMPLETED", reason="", attempt=1))
    with home.find_or_create_experiment("rates").edit() as experiment:
        experiment.study = StudyRecord(directory="/work", best_by="max.accuracy")
    path = f"/experiments/{experiment.experiment_id}"

    answer = visitor.question(f"{path}/study")

    assert visitor.question(path)["is_study"]
    assert [one["try_id"] for one in answer["board"]["tries"]] == firsts
    assert answer["depths"] == [0, 1, 1]
    assert answer["board"]["best_line"] == firsts[:2]
    assert [round(value, 3) for _, value in answer["best_curve"]] == [0.805, 0.805, 0.905, 0.905]
    assert visitor.send("GET", "/api/v1/experiments/1/study").status == 404
