"""Writers: programs that report about a trial next to its own program."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import random
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec, TypeVar

import google_crc32c
import pytest
from home.journals import append, lines, new_trial, report, started, stored
from interfaces.cli.commands import WarmCli
from processes import Script, wait_for
from promises import promise

from core_sdk import client, core
from core_sdk._execution.steering import trials
from core_sdk._ground.environment import use_home
from core_sdk._ground.environment.names import SPOOLED_HOME_VARIABLE
from core_sdk._ground.records import CheckpointDeleted, Ended
from core_sdk._home import Home, TrialFolder, open_view
from core_sdk._home.deletion import delete_experiment
from core_sdk._home.history import read_history
from core_sdk._home.moving.merging import merge
from core_sdk._home.rows import ReportRow
from core_sdk._home.spool import node
from core_sdk._home.spool.receiver import Receiver
from core_sdk._home.spool.shipment import Shipment
from core_sdk.errors import (
    AttemptError,
    CheckpointNotFoundError,
    HomeTooNewError,
    ReportsDroppedError,
    TrialNotFoundError,
    WriterRefusedError,
)

P = ParamSpec("P")
T = TypeVar("T")


@pytest.fixture(autouse=True)
def quiet() -> None:
    os.environ["CORE_SDK_QUIET"] = "1"


@pytest.fixture
def folder(home: Home) -> TrialFolder:
    """A trial with checkpoints of steps 10 and 20, which is not running and has not recorded its end."""
    folder = new_trial(home)
    append(folder, 1, lines(started(folder), report(10, loss=0.5), stored("ten", 10), stored("twenty", 20)))
    return folder


def reports_of(home: Home, rank: int | str | None = None, *, superseded: bool = False) -> list[ReportRow]:
    with open_view(home) as view:
        return list(view.reports(1, rank=rank, superseded=superseded))


def steps_of(home: Home, rank: int | str | None = None) -> list[tuple[int | None, dict[str, float]]]:
    return [(row.steps_completed, row.metrics) for row in reports_of(home, rank)]


@dataclass
class Model:
    """The rule, as a model: which reports of writers are visible."""

    resumed: list[int] = field(default_factory=lambda: [0])
    """The step from which each attempt went on."""
    reports: list[tuple[str, int, int, float]] = field(default_factory=list)
    """Writer, attempt, step and value, in the order of the calls."""

    def is_kept(self, attempt: int, step: int) -> bool:
        return all(step <= resumed for resumed in self.resumed[attempt:])

    def visible(self, writer: str) -> dict[int, float]:
        """Returns the value at each step: the newest attempt's, and of its values the one that was reported last."""
        own = [
            (attempt, order, step, value)
            for order, (by, attempt, step, value) in enumerate(self.reports)
            if by == writer
        ]
        return {step: value for attempt, _, step, value in sorted(own) if self.is_kept(attempt, step)}


@promise("writers-report")
@pytest.mark.parametrize("seed", range(12))
def test_a_report_is_visible_as_long_as_the_step_of_its_checkpoint(home: Home, seed: int) -> None:
    """Whatever is resumed, evaluated again, or evaluated late: each writer's visible reports follow the rule."""
    chance, model, checkpoints = random.Random(seed), Model(), list[tuple[str, int, int]]()
    folder = new_trial(home)
    append(folder, 1, lines(started(folder)))
    step = 0
    with core.init(trial=1, writer="late") as late:
        for _ in range(14):
            match chance.choice(["train", "train", "resume", "evaluate", "late", "now"]):
                case "train":
                    step += 10
                    attempt = len(model.resumed)
                    checkpoints.append((f"c{len(checkpoints)}", attempt, step))
                    append(
                        folder,
                        attempt,
                        lines(report(step, attempt=attempt, loss=1.0), stored(checkpoints[-1][0], step)),
                    )
                case "resume":
                    step = chance.choice([0, *(of for _, number, of in checkpoints if model.is_kept(number, of))])
                    model.resumed.append(step)
                    append(folder, len(model.resumed), lines(started(folder, len(model.resumed), step)))
                case "evaluate" if checkpoints:
                    storage_id, attempt, of = chance.choice(checkpoints)
                    value = float(len(model.reports))
                    with core.init(trial=1, writer="evaluator") as writer:
                        writer.train.report_validation_metrics(of, {"accuracy": value}, checkpoint=storage_id)
                    model.reports.append(("evaluator", attempt, of, value))
                case "late" if checkpoints:
                    storage_id, attempt, of = chance.choice(checkpoints)
                    value = float(len(model.reports))
                    late.train.report_validation_metrics(of, {"accuracy": value}, checkpoint=storage_id)
                    model.reports.append(("late", attempt, of, value))
                case "now" if step:
                    attempt = len(model.resumed)
                    value = float(len(model.reports))
                    with core.init(trial=1, writer="watcher") as writer:
                        writer.train.report_validation_metrics(step, {"accuracy": value})
                    model.reports.append(("watcher", attempt, step, value))
            for name in ("evaluator", "late", "watcher"):
                assert steps_of(home, name) == [
                    (at, {"accuracy": value}) for at, value in sorted(model.visible(name).items())
                ]
    assert len(reports_of(home, "all", superseded=True)) == len(model.reports) + len(checkpoints), "all of it is kept"


@promise("writers-report")
def test_a_writer_reports_beside_a_trial_that_has_ended(home: Home, folder: TrialFolder) -> None:
    """It makes no attempt and changes nothing about the trial, and is named where the trial is described."""
    append(folder, 1, lines(Ended(time=1.0, outcome="completed")))

    with core.init(trial="1", writer="evaluator") as writer:
        assert writer.info.latest_checkpoint == "twenty"
        writer.train.report_validation_metrics(20, {"accuracy": 0.75}, checkpoint="twenty")
        writer.train.report_metrics("evaluation", 10, {"score": 3, "answers": ["a", None]}, checkpoint="ten")
        assert [row.name for row in client.get_trial(1).writers if row.state == "ACTIVE"] == ["evaluator"]
    with pytest.raises(ZeroDivisionError), core.init(trial=1, writer="failing"):
        _ = 1 / 0

    trial = client.get_trial(1)
    assert (trial.state.name, trial.num_attempts, trial.steps_completed) == ("COMPLETED", 1, 20)
    assert [(row.name, row.state) for row in trial.writers] == [("evaluator", "COMPLETED"), ("failing", "ERROR")]
    assert steps_of(home) == [(10, {"loss": 0.5}), (10, {"score": 3, "answers": ["a", None]}), (20, {"accuracy": 0.75})]
    best = {each.record.storage_id: each.validation for each in read_history(folder, with_validation=True).checkpoints}
    assert best == {"ten": {}, "twenty": {"accuracy": 0.75}}, "so that retention knows the best checkpoint"


def test_each_metric_is_that_of_the_trials_own_program_first(home: Home, folder: TrialFolder) -> None:
    """Who asks for no rank sees a writer's metric only if no rank has reported it, and of two writers the first."""
    for name, loss in (("second", 2.0), ("first", 1.0)):
        with core.init(trial=1, writer=name) as writer:
            writer.train.report_training_metrics(10, {"loss": loss, "norm": loss})

    assert steps_of(home) == [(10, {"loss": 0.5}), (10, {"norm": 1.0})]
    assert steps_of(home, "second") == [(10, {"loss": 2.0, "norm": 2.0})]
    with open_view(home) as view:
        assert view.outline(1).ranks["training", "loss"] == [0, "first", "second"]
        assert [row.count for row in view.series(1, rank="second")] == [1, 1]
        assert view.figures([1], rank="first")[1]["training"]["norm"].last == 1.0


@promise("one-writer-per-name")
def test_one_process_writes_under_a_name(folder: TrialFolder, start_script: Callable[..., Script], home: Home) -> None:
    """A name that a living process has is refused with who has it. After its death the next one goes on with it."""
    source = """
        import signal
        from core_sdk import core
        with core.init(trial=1, writer="evaluator") as context:
            context.train.report_validation_metrics(10, {"accuracy": 0.5})
            print("reported")
            signal.pause()
        """
    script = start_script(source)
    script.read_until("reported")

    with pytest.raises(WriterRefusedError, match=f"process {script.process.pid} on .* writes under this name"):
        core.init(trial=1, writer="evaluator")
    core.init(trial=1, writer="other").close()
    script.process.kill()
    script.process.wait()
    with open_view(home) as view:
        (dead, _) = view.trial(1).writers
        assert (dead.state, dead.reason) == ("ERROR", "its process ended without a word")
    with core.init(trial=1, writer="evaluator") as writer:
        writer.train.report_validation_metrics(10, {"accuracy": 0.75})
        writer.train.report_validation_metrics(20, {"accuracy": 1.0})
        writer.train.report_validation_metrics(20, {"accuracy": 2.0})

    assert steps_of(home, "evaluator") == [(10, {"accuracy": 0.75}), (20, {"accuracy": 2.0})]


def test_only_signals_stop_a_writer(folder: TrialFolder, start_script: Callable[..., Script], home: Home) -> None:
    """A pause of the trial is not meant for its writers; SIGTERM is, and the writer is then shown as paused."""
    script = start_script(
        """
        import time
        from core_sdk import core
        with core.init(writer="evaluator", trial=1) as context:
            context.preempt.should_preempt()
            print("ready")
            while not context.preempt.should_preempt():
                time.sleep(0.01)
        """
    )
    script.read_until("ready")
    folder.request_stop(1, "a test")
    with core.init(trial=1, writer="other") as other:
        other.train.report_training_metrics(1, {"loss": 1.0})
        assert not other.preempt.should_preempt()

    script.process.send_signal(signal.SIGTERM)

    assert script.wait() == (0, "", "")
    with open_view(home) as view:
        assert [(row.name, row.state) for row in view.trial(1).writers] == [
            ("evaluator", "PAUSED"),
            ("other", "COMPLETED"),
        ]


def test_what_only_the_trials_own_program_may_tell_is_left_out(
    home: Home, folder: TrialFolder, caplog: pytest.LogCaptureFixture
) -> None:
    """Progress, status and metadata of a writer are not recorded, which one warning says; an alert is."""
    with core.init(trial=1, writer="evaluator") as writer:
        writer.train.report_progress(0.5)
        writer.train.set_status("evaluating")
        writer.train.set_metadata({"a": 1})
        writer.alert("no answers", level="warn")
        for call in (
            lambda: writer.checkpoint.store_path({"steps_completed": 1}),
            lambda: writer.checkpoint.upload(home.root, {"steps_completed": 1}),
            lambda: writer.checkpoint.dcp_writer({"steps_completed": 1}),
            lambda: writer.checkpoint.delete("ten"),
            lambda: writer.checkpoint.release("ten"),
        ):
            with pytest.raises(RuntimeError, match="by a writer, which only reads the checkpoints"):
                call()

    with open_view(home) as view:
        trial = view.trial(1)
        assert (trial.progress, trial.status, trial.metadata) == (None, "", None)
        assert [alert.title for alert in view.alerts(1)] == ["no answers"]
    assert [record.message for record in caplog.records if "told what is not recorded" in record.message] == [
        "writer 'evaluator' told what is not recorded: only the trial's own program records status, "
        "progress, metadata and an early exit (said once)"
    ]


@pytest.mark.parametrize("name", ["", "all", "7", "a b", "a/b", "..", "x" * 65, "é", 3])
def test_a_name_that_no_file_could_have_is_refused(folder: TrialFolder, name: object) -> None:
    """The names of writers are names of files, and no numbers, which are ranks."""
    if name == "":
        with pytest.raises(ValueError, match=r"give it a name with init\(writer=…\)"):
            core.init(trial=1, writer="")
    else:
        with pytest.raises(ValueError, match="it must be a name of at most 64 letters"):
            core.init(trial=1, writer=name)  # type: ignore[arg-type]


def test_a_trial_or_a_checkpoint_that_cannot_be_meant_is_refused(home: Home, folder: TrialFolder) -> None:
    """The words say what is wrong, and nothing is recorded."""
    new_trial(home)  # it has not begun
    with pytest.raises(TrialNotFoundError):
        core.init(trial=7, writer="evaluator")
    with pytest.raises(TrialNotFoundError):
        core.init(trial="calm-otter", writer="evaluator")
    with pytest.raises(
        WriterRefusedError, match="'evaluator' cannot write to trial 2: the trial's script has not begun"
    ):
        core.init(trial=2, writer="evaluator")
    with pytest.raises(ValueError, match="does not say which trial to write to"):
        core.init(writer="evaluator")
    with pytest.raises(ValueError, match=r"takes no name, hparams: a writer does not describe the trial"):
        core.init(trial=1, writer="evaluator", name="digits", hparams={"lr": 1})
    with core.init(trial=1, writer="evaluator") as writer:
        with pytest.raises(CheckpointNotFoundError, match="trial 1"):
            writer.train.report_validation_metrics(10, {"accuracy": 1.0}, checkpoint="elsewhere")
        with pytest.raises(ValueError, match="steps_completed is 11, and checkpoint ten is one of step 10"):
            writer.train.report_validation_metrics(11, {"accuracy": 1.0}, checkpoint="ten")
        with pytest.raises(ValueError, match="steps_completed is -1"):
            writer.train.report_validation_metrics(-1, {"accuracy": 1.0})

    assert steps_of(home, "evaluator") == []


def test_a_checkpoint_that_is_gone_or_superseded_was_evaluated_all_the_same(
    home: Home, folder: TrialFolder, caplog: pytest.LogCaptureFixture
) -> None:
    """Reports about a deleted checkpoint count as long as its step does; about a superseded one they are hidden."""
    append(folder, 0, lines(CheckpointDeleted(time=2.0, storage_id="ten")))
    append(folder, 2, lines(started(folder, 2, 10), report(15, attempt=2, loss=0.25)))

    with core.init(trial=1, writer="evaluator") as writer, caplog.at_level(logging.WARNING):
        writer.train.report_validation_metrics(20, {"accuracy": 0.9}, checkpoint="twenty")
        writer.train.report_validation_metrics(10, {"accuracy": 0.5}, checkpoint="ten")

    assert steps_of(home, "evaluator") == [(10, {"accuracy": 0.5})]
    hidden = [row for row in reports_of(home, "evaluator", superseded=True) if row.is_superseded]
    assert [(row.steps_completed, row.attempt) for row in hidden] == [(20, 1)]
    assert "checkpoint twenty of step 20 is superseded" in caplog.text


def call_here(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    return function(*args, **kwargs)


@pytest.fixture
def shipment(home: Home, folder: TrialFolder, tmp_path: Path) -> Shipment:
    """The way home from a node on which the trial's second attempt runs, and which is where this process is now."""
    with core.init(trial=1, writer="evaluator") as writer:
        writer.train.report_validation_metrics(10, {"accuracy": 0.25}, checkpoint="ten")
    append(folder, 2, lines(started(folder, 2, 20)))
    os.environ["CORE_SDK_HOME"] = str(tmp_path / "node")
    shipment = Shipment(call_here, folder, 2)
    shipment.fit_out()
    use_home(home.root, shipment.root)
    return shipment


def test_a_writer_whose_node_does_not_see_the_home_is_never_shown_as_dead(
    home: Home, shipment: Shipment, tmp_path: Path, warm_cli: WarmCli
) -> None:
    """Its lock is on its node: until its end has come, the home says since when nothing was seen of it."""

    def state_at(home: Home) -> tuple[str, str]:
        with open_view(home) as view:
            (row,) = view.trial(1).writers
        return row.state, row.reason

    with core.init(trial=1, writer="evaluator") as writer:
        writer.train.report_validation_metrics(20, {"accuracy": 0.5}, checkpoint="twenty")
        shipment.follow(lambda: False)
        assert state_at(home) == ("UNKNOWN", "its node does not see this home")
        assert state_at(Home(shipment.root)) == ("ACTIVE", "")
        at_home = {"CORE_SDK_HOME": str(home.root), SPOOLED_HOME_VARIABLE: ""}
        described = warm_cli.run(tmp_path, "trial", "describe", "1", **at_home)
    shipment.follow(lambda: False)

    assert "UNKNOWN: its node does not see this home; not seen since 20" in " ".join(described.output.split())
    assert state_at(home) == ("COMPLETED", "")
    assert steps_of(home, "evaluator") == [(10, {"accuracy": 0.25}), (20, {"accuracy": 0.5})], "also of attempt 1"


def test_a_name_that_writers_have_on_two_nodes_keeps_nothing_else_from_home(
    home: Home, shipment: Shipment, tmp_path: Path
) -> None:
    """The reports of the namesake stay on its node, and an error names its journal; all else comes home."""
    for name in ("evaluator", "other"):
        with core.init(trial=1, writer=name) as writer:
            for _ in range(10):
                writer.train.report_validation_metrics(20, {"accuracy": 0.5}, checkpoint="twenty")
    use_home(home.root, None)
    with core.init(trial=1, writer="evaluator") as writer:
        writer.train.report_validation_metrics(20, {"accuracy": 1.0}, checkpoint="twenty")
    receiver = Receiver(home.root, 1, 2)

    while news := {each.name: each for each in node.read_news(shipment.root, 1, 2, receiver.known(), 0)}:
        for piece in news.values():
            receiver.receive(piece)
        if "runs/1/1.writer.other.journal" in news:
            break
    with pytest.raises(OSError, match=r"another file of this name.*1\.writer\.evaluator\.journal"):
        node.read_news(shipment.root, 1, 2, receiver.known(), 0)

    assert steps_of(home, "other") == [(20, {"accuracy": 0.5})]
    assert steps_of(home, "evaluator") == [(10, {"accuracy": 0.25}), (20, {"accuracy": 1.0})]


def test_a_writer_of_a_newer_version_is_read_as_far_as_it_is_known(
    home: Home, folder: TrialFolder, caplog: pytest.LogCaptureFixture
) -> None:
    """Unknown fields are skipped, an unknown record is counted and named; a home of a newer format is refused."""

    def line(**fields: object) -> bytes:
        body = json.dumps({**fields, "time": 1.0, "novel": [1]}, separators=(",", ":")).encode()
        return b"%08x %s\n" % (google_crc32c.value(body), body)

    begun = {"format": 1, "trial_id": 1, "attempt": 1, "host": "h", "pid": 1, "sdk_version": "99", "writer": "newer"}
    told = {"group": "validation", "steps_completed": 20, "metrics": {"accuracy": 0.5}}
    folder.journal_path(1, "newer").write_bytes(
        line(type="attempt", **begun) + line(type="novelty") + line(type="report", **told)
    )

    assert steps_of(home, "newer") == [(20, {"accuracy": 0.5})]
    with open_view(home) as view:
        assert view.trial(1).num_bad_lines == 1
    assert "is of a kind that this version does not know" in caplog.text
    with core.init(trial=1, writer="newer") as writer:
        writer.train.report_validation_metrics(10, {"accuracy": 0.25})
    assert steps_of(home, "newer") == [(10, {"accuracy": 0.25}), (20, {"accuracy": 0.5})]
    (home.root / "home.json").write_text('{"format": 2, "sdk_version": "99"}')
    with pytest.raises(HomeTooNewError, match="Install a newer"):
        core.init(trial=1, writer="newer")


def test_reports_about_a_trial_that_is_deleted_meanwhile_are_counted(home: Home, folder: TrialFolder) -> None:
    """The evaluation goes on, and leaving the Context says how many reports are lost."""
    context = core.init(trial=1, writer="evaluator").__enter__()
    folder.clear()

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        steps = itertools.count(1)

        def is_dropped() -> bool:
            context.train.report_training_metrics(next(steps), {"loss": 1.0})
            return any("records are being dropped" in str(each.message) for each in said)

        wait_for(is_dropped)
    with pytest.raises(ReportsDroppedError):
        context.close()


def test_a_trial_is_not_deleted_while_a_writer_reports_about_it(home: Home, folder: TrialFolder) -> None:
    """The deletion names the writer; forced, it deletes the trial, and the writer hears that its reports are lost."""
    append(folder, 1, lines(Ended(time=1.0, outcome="completed")))
    context = core.init(trial=1, writer="evaluator").__enter__()

    with pytest.raises(AttemptError, match="cannot delete trial 1: 'evaluator' still reports about it"):
        trials.delete(home, 1)
    with pytest.raises(AttemptError, match="'evaluator' still reports about it"):
        delete_experiment(home, 1)
    assert [row.name for row in client.get_trial(1).writers] == ["evaluator"]
    trials.delete(home, 1, force=True)
    with pytest.raises(ReportsDroppedError), pytest.warns(RuntimeWarning, match="dropped"):
        context.close()


def test_a_writer_that_could_record_nothing_is_not_listed(small_disk: Path) -> None:
    """It began on a full disk, and ended there: it says so itself, and the trial has no writer that died."""
    os.environ["CORE_SDK_HOME"] = str(small_disk / "home")
    with core.init() as context:
        context.train.report_training_metrics(1, {"loss": 1.0})
    with contextlib.suppress(OSError), (small_disk / "hog").open("ab", buffering=0) as hog:
        while True:
            hog.write(bytes(100))

    with pytest.raises(ReportsDroppedError), pytest.warns(RuntimeWarning, match="are not kept"):
        core.init(trial=1, writer="evaluator").close()
    (small_disk / "hog").unlink()

    assert client.get_trial(1).writers == ()
    with core.init(trial=1, writer="evaluator") as writer:
        writer.train.report_validation_metrics(1, {"accuracy": 0.5})
    assert [(row.name, row.state) for row in client.get_trial(1).writers] == [("evaluator", "COMPLETED")]


def test_a_script_becomes_a_writer_by_the_environment(home: Home, folder: TrialFolder, tmp_path: Path) -> None:
    """`core-sdk run --writer` starts a script whose init() describes a trial as it always does, and makes none."""
    script = tmp_path / "evaluate.py"
    script.write_text(
        "import sys\nfrom core_sdk import core\n"
        "with core.init(name='digits', hparams={'lr': 1}) as context:\n"
        "    context.train.report_validation_metrics(10, {'accuracy': 0.5})\n"
        "sys.exit(3)\n"
    )
    command = [sys.executable, "-m", "core_sdk._interfaces.cli", "run", "--trial", "1", "--writer", "evaluator", "--"]

    ended = subprocess.run([*command, sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path)

    assert (ended.returncode, ended.stderr) == (3, "")
    assert Home(home.root).trial_ids() == [1]
    assert steps_of(home, "evaluator") == [(10, {"accuracy": 0.5})]


def test_a_process_of_the_trials_own_program_writes_to_it(
    home: Home, run_script: Callable[..., tuple[int, str, str]]
) -> None:
    """A program that the training has started, with its run info, names no trial."""
    run = subprocess.run(
        [sys.executable, "-m", "core_sdk._interfaces.cli", "run", "--", sys.executable, "-c", _TRAINER],
        capture_output=True,
        text=True,
    )

    assert run.returncode == 0, run.stderr
    assert steps_of(home, "child") == [(1, {"accuracy": 0.5})]
    with open_view(home) as view:
        assert [(row.trial_id, row.state, row.num_attempts) for row in view.trials()] == [(1, "COMPLETED", 1)]


_TRAINER = """
import subprocess, sys
from core_sdk import core
CHILD = '''
from core_sdk import core
with core.init(writer="child") as context:
    context.train.report_validation_metrics(1, {"accuracy": 0.5})
'''
with core.init() as context:
    context.train.report_training_metrics(1, {"loss": 0.5})
    subprocess.run([sys.executable, "-c", CHILD], check=True)
"""


def test_the_client_writes_to_its_own_home(home: Home, folder: TrialFolder, tmp_path: Path) -> None:
    """A notebook's cell that is executed again goes on under the name."""
    os.environ["CORE_SDK_HOME"] = str(tmp_path / "elsewhere")
    trial = client.Tracker(home.root).get_trial(1)

    for value in (0.5, 0.75):
        writer = trial.writer("notebook")
        writer.train.report_validation_metrics(20, {"accuracy": value}, checkpoint="twenty")
    writer.close()

    assert steps_of(home, "notebook") == [(20, {"accuracy": 0.75})]
    assert [row.rank for row in trial.iter_metrics(rank="notebook")] == ["notebook"]
    assert not (tmp_path / "elsewhere").exists()


def test_a_merge_brings_a_writers_reports_from_a_copy(home: Home, folder: TrialFolder, tmp_path: Path) -> None:
    """A machine that does not see the home evaluates in a copy; what writers of both have reported is named."""
    copy = Home(tmp_path / "copy")
    merge(Home.create(copy.root), home)
    os.environ["CORE_SDK_HOME"] = str(copy.root)
    with core.init(trial=1, writer="remote") as writer:
        writer.train.report_validation_metrics(20, {"accuracy": 0.75}, checkpoint="twenty")

    first, second = merge(home, copy), merge(home, copy)
    with core.init(trial=1, writer="remote") as writer:
        writer.train.report_validation_metrics(10, {"accuracy": 0.5}, checkpoint="ten")
    third = merge(home, copy)
    for root, value in ((home.root, 0.25), (copy.root, 0.125)):
        os.environ["CORE_SDK_HOME"] = str(root)
        with core.init(trial=1, writer="remote") as writer:
            writer.train.report_validation_metrics(20, {"accuracy": value}, checkpoint="twenty")
    fourth = merge(home, copy)

    assert (first.left, second.left, third.left) == ([], [], [])
    assert steps_of(home, "remote") == [(10, {"accuracy": 0.5}), (20, {"accuracy": 0.25})]
    assert fourth.left == [
        "trial 1: writer remote has reported there, and about trial 1 here, too. Give writers of two homes different "
        "names"
    ]
