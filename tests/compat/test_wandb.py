"""`core_sdk.compat.wandb` records what scripts log by wandb's names, by wandb's rules."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from interfaces.cli.commands import run_cli
from processes import Script

import core_sdk.compat.wandb as wandb
from core_sdk import core, media
from core_sdk.client import Tracker, Trial, TrialState


@pytest.fixture(autouse=True)
def no_run_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    yield
    wandb.finish()


def points(trial_id: int = 1) -> dict[str, list[tuple[int | None, Any]]]:
    """Returns the visible steps and values of each metric of a trial, by group and name."""
    found: dict[str, list[tuple[int | None, Any]]] = {}
    for report in Tracker().get_trial(trial_id).iter_metrics():
        for name, value in report.metrics.items():
            found.setdefault(f"{report.group}.{name}", []).append((report.steps_completed, value))
    return found


def active_run() -> wandb.Run | None:
    return wandb.run


def the_trial() -> Trial:
    return Tracker().get_trial(1)


def test_a_script_is_a_trial() -> None:
    """The arguments of init() describe the trial, and the end of the run ends it."""
    run = wandb.init(
        project="gpt", name="first", notes="why", tags=["a"], group="g", job_type="train", config={"lr": 0.1}
    )
    assert active_run() is run and wandb.init() is run
    wandb.log({"train/loss": 1.0, "val/loss": 2.0, "lr": torch.tensor(0.5), "opt": {"beta": {"1": 0.9}}, "ok": True})
    wandb.log({"train/loss": np.float32(0.5)})
    wandb.finish()

    trial = the_trial()
    assert active_run() is None
    assert (trial.experiment_name, trial.name, trial.notes, trial.hparams) == ("gpt", "first", "why", {"lr": 0.1})
    assert trial.labels == {"a", "group:g", "job_type:train"}
    assert trial.state == TrialState.COMPLETED
    assert points() == {
        "training.loss": [(0, 1.0), (1, 0.5)],
        "training.lr": [(0, 0.5)],
        "opt.beta/1": [(0, 0.9)],
        "training.ok": [(0, 1)],
        "validation.loss": [(0, 2.0)],
    }


def test_steps_are_rows(caplog: pytest.LogCaptureFixture) -> None:
    """A row is filled until it is committed or a later step comes. Its later values count, and steps never go back."""
    run = wandb.init()

    run.log({"a": 1}, commit=False)
    run.log({"a": 2, "b": 1})
    run.log({"a": 3}, step=5)
    run.log({"b": 3}, step=5)
    assert run.step == 5
    run.log({"a": 4}, step=4)
    run.log({"a": 5}, step=5, commit=True)
    run.log({"a": 6})
    run.log({"a": 7}, step=2)
    wandb.finish()

    assert points() == {"training.a": [(0, 2), (5, 5), (6, 6)], "training.b": [(0, 1), (5, 3)]}
    assert [each.message.partition(",")[0] for each in caplog.records if each.name == "core_sdk.compat"] == [
        "log(step=4) is not recorded",
        "2 calls of log() were not recorded",
    ]


def test_a_metric_has_an_axis_of_its_own() -> None:
    """The newest value of the step metric is recorded with each value, and the figures of the summary at the end."""
    run = wandb.init()
    wandb.define_metric("epoch")
    wandb.define_metric("val/*", step_metric="epoch", summary="max,mean")
    wandb.define_metric("val/time", step_sync=False)
    wandb.define_metric("opt.*", summary="min")  # as wandb names nested values

    for epoch in range(3):
        run.log({"epoch": epoch, "loss": 1.0})
        run.log({"val/acc": [0.5, 1.0, 0.0][epoch]})
    run.log({"val/time": 3.0, "opt": {"lr": 0.5}})
    run.summary["best"] = {"epoch": 1}
    wandb.summary.update({"best_acc": 1.0})
    assert (run.summary["loss"], run.summary.best_acc, wandb.summary["val/acc"]) == (1.0, 1.0, 0.0)
    wandb.finish()

    found = points()
    assert found["validation.acc"] == [(1, 0.5), (3, 1.0), (5, 0.0)]
    assert found["training.epoch"] == [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2)]
    assert found["summary.val/acc.max"] == [(6, 1.0)] and found["summary.val/acc.mean"] == [(6, 0.5)]
    assert found["summary.opt/lr.min"] == [(6, 0.5)]
    assert found["summary.best"] == [(6, {"epoch": 1})] and found["summary.best_acc"] == [(6, 1.0)]
    with pytest.raises(ValueError, match="'worst' is none of min"):
        wandb.init().define_metric("a", summary="worst")


def test_values_of_any_kind_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    """Media, arrays, texts and names that would be one metric are recorded, and what cannot be is refused by name."""
    run = wandb.init()
    table = wandb.Table(columns=["text", "image"])
    table.add_data("cat", wandb.Image(np.zeros((4, 4, 3), np.uint8)))
    matrix = wandb.plot.confusion_matrix(y_true=[0, 1], preds=[1, 1], class_names=["a", "b"])

    run.log({"train/loss": 1.0, "loss": 2.0, "text": "hi", "few": np.arange(3), "many": torch.zeros(50)})
    run.log({"image": wandb.Image(torch.rand(3, 4, 4) * 2 - 1, caption="x"), "images": [wandb.Image(torch.ones(4, 4))]})
    run.log({"histogram": wandb.Histogram([1, 2, 3]), "table": table, "matrix": matrix})
    with pytest.raises(ValueError, match="'bad' of group 'training'"):
        run.log({"bad": object()})
    with pytest.raises(TypeError, match=r"wandb.log\(\) takes a dict, not list"):
        run.log([("a", 1)])  # type: ignore[arg-type]

    found = points()
    assert found["training.loss"] == [(0, 1.0)] and found["other.loss"] == [(0, 2.0)]
    assert found["text.text"] == [(0, "hi")] and found["text.few"] == [(0, [0, 1, 2])]
    kinds = {name: value.kind for name, [(_, value)] in found.items() if isinstance(value, media.MediaFile)}
    assert kinds == {
        "training.many": "histogram",
        "training.image": "image",
        "training.histogram": "histogram",
        "training.table": "table",
        "training.matrix": "confusion_matrix",
    }
    assert [file.kind for file in found["training.table.image"][0][1]] == ["image"]


def test_the_config_is_the_hyperparameters(tmp_path: Path) -> None:
    """Values of any change are recorded, and a value changes only if that is allowed."""
    (tmp_path / "config.yaml").write_text("lr: {desc: rate, value: 0.1}\nlayers: 2\n")
    run = wandb.init(config="config.yaml", config_exclude_keys=["layers"])

    run.config.update(argparse.Namespace(seed=1))
    wandb.config.width = 3
    wandb.config["net"] = {"depth": 4}
    wandb.config.setdefaults({"lr": 5, "more": 6})
    with pytest.raises(wandb.Error, match=r"config\.lr is 0\.1, and cannot become 0\.2"):
        wandb.config.lr = 0.2
    wandb.config.update({"lr": 0.2}, allow_val_change=True)

    expected = {"lr": 0.2, "seed": 1, "width": 3, "net": {"depth": 4}, "more": 6}
    assert dict(wandb.config) == expected and wandb.config.lr == 0.2 and wandb.config.get("none", 1) == 1
    assert the_trial().hparams == expected


def test_a_disabled_run_records_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the mode "disabled", by argument or variable, all calls work and nothing is recorded."""
    for arguments, variables in [({"mode": "disabled"}, {}), ({}, {"WANDB_MODE": "disabled"})]:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with wandb.init(config={"lr": 1}, **arguments) as run:  # type: ignore[arg-type]
            run.log({"a": 1})
            run.summary["b"] = 2
            run.config.lr = 2
            wandb.watch(torch.nn.Linear(1, 1))
            wandb.alert("title", "text")
            wandb.log_artifact(wandb.Artifact("model", "model"))
        assert run.disabled and run.config.lr == 2 and run.summary["b"] == 2

    assert Tracker().list_trials() == []


def test_variables_of_wandb_are_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments have precedence over settings, and these over variables."""
    for name, value in {"WANDB_PROJECT": "p", "WANDB_NAME": "n", "WANDB_TAGS": "a,b", "WANDB_NOTES": "x"}.items():
        monkeypatch.setenv(name, value)

    with wandb.init(name="given", settings=wandb.Settings(run_name="settings", run_notes="y")):
        pass

    trial = the_trial()
    assert (trial.experiment_name, trial.name, trial.notes, trial.labels) == ("p", "given", "y", {"a", "b"})


def test_several_runs_follow_each_other() -> None:
    """finish(), the end of a block or reinit=True makes room for another run, and after the end nothing is logged."""
    first = wandb.init(project="sweep", config={"lr": 1})
    first.log({"a": 1})
    second = wandb.init(project="sweep", config={"lr": 2}, reinit=True)
    with pytest.raises(wandb.Error, match=r"log\(\) of run .* was called after finish\(\)"):
        first.log({"a": 2})
    second.finish(exit_code=1)
    with pytest.raises(ZeroDivisionError), wandb.init(project="sweep"):
        _ = 1 / 0

    states = [trial.state for trial in Tracker().list_trials()]
    assert states == [TrialState.COMPLETED, TrialState.ERROR, TrialState.ERROR]
    with pytest.raises(wandb.Error, match=r"wandb.log belongs to a run: call wandb.init\(\) first"):
        wandb.log({"a": 1})


def test_a_run_goes_on_after_its_last_step() -> None:
    """`resume` keeps what the id has reported, `resume_from` a part of it, and without them it begins from nothing."""
    for resume, num_rows in [("allow", 3), ("must", 2)]:
        with wandb.init(project="p", id="x", resume=resume, config={resume: num_rows}) as run:
            for _ in range(num_rows):
                run.log({"a": num_rows})
    assert points() == {"training.a": [(0, 3), (1, 3), (2, 3), (3, 2), (4, 2)]}
    assert run.resumed and run.starting_step == 3 and the_trial().hparams == {"allow": 3, "must": 2}

    with wandb.init(project="p", resume_from="x?_step=1") as run:
        run.log({"a": 7})
    assert points() == {"training.a": [(0, 3), (1, 3), (2, 7)]}
    with pytest.raises(wandb.Error, match="trial 1 is the run 'x' of the project 'p'"):
        wandb.init(project="p", id="x", resume="never")
    with pytest.raises(wandb.Error, match="the project 'p' has no run with the id 'y'"):
        wandb.init(project="p", id="y", resume="must")

    with wandb.init(project="p", id="x") as run:
        run.log({"a": 9})
    assert points() == {"training.a": [(0, 9)]}


def test_a_context_of_the_script_is_used() -> None:
    """A run reports to the Context that is open, and does not close it."""
    with core.init(name="mine", hparams={"a": 1}) as context:
        with wandb.init(config={"b": 2}) as run:
            run.log({"loss": 1.0})
        context.train.report_training_metrics(5, {"loss": 2.0})

    assert points() == {"training.loss": [(0, 1.0), (5, 2.0)]}
    assert the_trial().hparams == {"a": 1, "b": 2}


def test_what_is_missing_says_what_to_use() -> None:
    """A name that is not there raises an error with this name and what to do."""
    for name, words in [
        ("sweep", "docs/search.md"),
        ("Api", "core_sdk.client"),
        ("Object3D", "docs/moving-from-wandb.md"),
    ]:
        with pytest.raises(AttributeError, match=f"has no wandb.{name}: .*{words}"):
            getattr(wandb, name)
    run = wandb.init()
    for call in (
        lambda: run.to_html(),
        lambda: wandb.plot.heatmap,
        lambda: wandb.Image(np.zeros((2, 2)), masks={"a": {}}),
        lambda: wandb.Artifact("a", "b").add_reference("s3://bucket"),
        lambda: wandb.init(fork_from="a?_step=1"),
    ):
        with pytest.raises((AttributeError, TypeError, wandb.Error), match=r"core_sdk.compat.wandb has no wandb\."):
            call()


ENDS = """
    import sys, time
    import core_sdk.compat.wandb as wandb

    wandb.init(config={"lr": 0.1})
    wandb.define_metric("loss", summary="min")
    for step in range(3):
        wandb.log({"loss": 1.0 - step}, step=step)
    if "raise" in sys.argv:
        raise ValueError("the script has failed")
    if "wait" in sys.argv:
        print("logged")
        time.sleep(600)
"""


def test_a_script_need_not_finish(
    run_script: Callable[..., tuple[int, str, str]], start_script: Callable[..., Script]
) -> None:
    """At the end of the process the run is ended as it deserves, and a kill loses nothing that was logged."""
    run_script(ENDS)
    run_script(ENDS, "raise")
    script = start_script(ENDS, "wait")
    script.read_until("logged")
    script.process.kill()
    script.wait()

    states = [trial.state for trial in Tracker().list_trials()]
    assert states == [TrialState.COMPLETED, TrialState.ERROR, TrialState.ERROR]
    expected = {"training.loss": [(0, 1.0), (1, 0.0), (2, -1.0)]}
    assert [points(number) for number in (1, 2)] == [expected | {"summary.loss.min": [(2, -1.0)]}] * 2
    assert points(3) == expected


def test_gradients_are_watched() -> None:
    """watch() reports histograms of gradients and parameters, in the row of the next log(), at the frequency asked."""
    model = torch.nn.Linear(2, 1)
    run = wandb.init()
    run.watch(model, log="all", log_freq=2)

    for step in range(4):
        model(torch.ones(1, 2)).sum().backward()
        run.log({"loss": float(step)})
    run.unwatch(model)
    model(torch.ones(1, 2)).sum().backward()
    run.log({"loss": 4.0})

    found = points()
    assert {name: [step for step, _ in values] for name, values in found.items()} == {
        "training.loss": [0, 1, 2, 3, 4],
        "gradients.weight": [1, 3],
        "gradients.bias": [1, 3],
        "parameters.weight": [1, 3],
        "parameters.bias": [1, 3],
    }


def test_files_are_checkpoints(tmp_path: Path) -> None:
    """An artifact is a version of a model; what save() names and the directory of the run are stored as they end."""
    file = tmp_path / "model.pt"
    file.write_text("first")
    run = wandb.init(project="p")
    run.log({"loss": 1.0}, step=3)

    run.save("model.pt")
    artifact = wandb.Artifact("weights", type="model", metadata={"epoch": 1})
    artifact.add_file("model.pt")
    with artifact.new_file("notes/readme.txt") as notes:
        notes.write("hello")
    assert run.log_artifact(artifact, aliases=["best"]).wait().version == "v0"
    file.write_text("second, and longer")
    run.log_artifact("model.pt", name="weights", type="model")
    Path(run.dir, "config.txt").write_text("kept")
    found = wandb.use_artifact("me/p/weights:best")
    assert found.metadata == {"epoch": 1} and Path(found.download("copy"), "notes/readme.txt").read_text() == "hello"
    assert Path(wandb.use_artifact("weights").file("newest")).read_text() == "second, and longer"
    with pytest.raises(wandb.Error, match=r"the artifact 'weights' has no version 'v7'\. Its versions: v1, v0"):
        wandb.use_artifact("weights:v7")
    wandb.finish()

    stored = the_trial().list_checkpoints()
    assert {each.metadata["steps_completed"] for each in stored} == {3}
    saved = {str(each.metadata.get("saved")): each for each in stored if "saved" in each.metadata}
    assert Path(saved["model.pt"].download(), "model.pt").read_text() == "second, and longer"
    (own,) = [each for pattern, each in saved.items() if pattern != "model.pt"]
    assert Path(own.download(), "config.txt").read_text() == "kept"


def test_a_run_is_described_anew_while_it_runs() -> None:
    """A name, notes and tags that are set on a run replace its trial's."""
    run = wandb.init(name="first", notes="why", tags=["a", "b"])

    run.name, run.notes, run.tags = "second", "*because*", ("b", "c")
    wandb.finish()

    assert (run.name, run.notes, run.tags) == ("second", "*because*", ("b", "c"))
    assert (the_trial().name, the_trial().notes, the_trial().labels) == ("second", "*because*", {"b", "c"})


def test_a_table_grows_by_columns() -> None:
    """A column has a value for each row, and makes the rows of a table that has none."""
    table = wandb.Table(columns=[])
    table.add_column("id", [1, 2])
    table.add_column("word", np.array(["a", "b"]))

    assert list(table.iterrows()) == [(0, [1, "a"]), (1, [2, "b"])]
    with pytest.raises(ValueError, match="the column 'late' has 1 values, and the table 2 rows"):
        table.add_column("late", [0])


def test_an_artifact_has_directories_media_and_tables(tmp_path: Path) -> None:
    """A directory keeps its tree, media and tables become files, and a model of one file is that file."""
    (tmp_path / "weights" / "deep").mkdir(parents=True)
    (tmp_path / "weights" / "deep" / "a.bin").write_bytes(b"a")
    artifact = wandb.Artifact("parts", "dataset")
    artifact.add_dir(tmp_path / "weights")
    artifact.add_dir(tmp_path / "weights", "copy")
    artifact.add(wandb.Table(columns=["id"], data=[[1]]), "ids")
    artifact.add(media.Text("words"), "said")
    with pytest.raises(TypeError, match="not a int"):
        artifact.add(1, "one")
    with pytest.raises(ValueError, match="which is no directory"):
        artifact.add_dir("none")
    run = wandb.init()
    run.log_artifact(artifact)
    run.log_model(tmp_path / "weights" / "deep" / "a.bin", "net")

    found = Path(run.use_artifact("parts").download())
    assert {str(path.relative_to(found)) for path in found.rglob("*") if path.is_file()} >= {
        "deep/a.bin",
        "copy/deep/a.bin",
    }
    assert {path.stem for path in found.iterdir()} >= {"ids", "said"}
    assert Path(run.use_model("net")).read_bytes() == b"a"


def test_event_writers_report_too(tmp_path: Path) -> None:
    """With sync_tensorboard, what SummaryWriters write is reported at the steps of the script, until the run ends."""
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    run = wandb.init(sync_tensorboard=True)
    writer = tensorboard.SummaryWriter(str(tmp_path / "events"))

    writer.add_scalar("charts/return", 1.0, 10)
    writer.add_scalar("charts/return", torch.tensor(2.0), global_step=20)
    writer.add_histogram("weights", torch.ones(3), 20)
    writer.add_text("hyperparameters", "lr = 1")
    run.log({"loss": 1.0})
    wandb.finish()
    writer.add_scalar("charts/return", 3.0, 30)
    writer.close()

    found = points()
    assert found["charts.return"] == [(10, 1.0), (20, 2.0)] and found["training.loss"] == [(20, 1.0)]
    assert found["training.weights"][0][1].kind == "histogram"
    assert found["training.hyperparameters"][0][1].kind == "text"


CHOSEN = """
    import core_sdk.compat.wandb as wandb

    run = wandb.init(project="ignored", config={"lr": 0.1, "layers": 2})
    run.config.update({"lr": 0.3, "seed": 1})
    run.log({"lr": run.config.lr})
"""


def test_what_the_command_line_has_chosen_comes_first(tmp_path: Path) -> None:
    """Hyperparameters of `core-sdk run`, and so a search's, are the config, whatever the script says."""
    (tmp_path / "train.py").write_text(textwrap.dedent(CHOSEN))

    ended = run_cli(tmp_path, "run", "--name", "p", "--hparam", "lr=0.5", "--", sys.executable, "train.py")

    assert ended.status == 0, ended.errors
    assert the_trial().hparams == {"lr": 0.5, "layers": 2, "seed": 1} and points() == {"training.lr": [(0, 0.5)]}


def test_only_rank_0_records(run_script: Callable[..., tuple[int, str, str]]) -> None:
    """The run of another rank is disabled, which a warning says."""
    status, _, errors = run_script(ENDS, RANK="1", WORLD_SIZE="2", LOCAL_RANK="1", LOCAL_WORLD_SIZE="2")

    assert (status, Tracker().list_trials()) == (0, [])
    assert "this rank records nothing: rank 0 does, for all" in errors
