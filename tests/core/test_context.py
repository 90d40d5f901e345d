"""An attempt begins with init() and ends with what became of the script."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import itertools
import math
import os
import shutil
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import msgspec
import pydantic
import pytest
import torch
from parts import needs, strace
from processes import Script
from promises import promise

import core_sdk
from core_sdk import core
from core_sdk._execution.steering import trials
from core_sdk._ground.records import Alert, AttemptStarted, ClusterInfo, EarlyExit, Ended, Record, Report, TrialInfo
from core_sdk._home import Home, open_view
from core_sdk._home.journal import read_records
from core_sdk.core import Context
from core_sdk.errors import AttemptError, HomeNotWritableError, HomeTooNewError, JournalError

RunScript = Callable[..., tuple[int, str, str]]


def records(home: Home, trial_id: int = 1, attempt: int = 1) -> list[Record]:
    return list(read_records(home.trial(trial_id).journal_path(attempt)))


def ending(home: Home) -> Ended:
    last = records(home)[-1]
    assert isinstance(last, Ended)
    return last


def test_hyperparameters_that_are_too_long_are_told_and_not_recorded(caplog: pytest.LogCaptureFixture) -> None:
    """A text says how long a value is; too many names are refused."""
    hparams = {"lr": 0.1, "files": ["a"] * 75_000, "model": {"text": "x" * 15_000_000, "classes": list(range(1000))}}

    with core.init(hparams=hparams) as context:
        recorded = context.info.trial.hparams

    assert recorded == {
        "lr": 0.1,
        "files": "a list of 75,000 items",
        "model": {"text": "a str of 15,000,000 characters", "classes": list(range(1000))},
    }
    assert "hparams['files'], a list of 75,000 items; hparams['model']['text'], a str of 15,000,000" in caplog.text
    with pytest.raises(ValueError, match="hparams has 20,001 names; at most 20,000 are recorded"):
        core.init(hparams=dict.fromkeys(map(str, range(20_001)), 1.0))


def test_data_that_are_too_long_are_told_and_not_recorded(caplog: pytest.LogCaptureFixture) -> None:
    """As hyperparameters are; what JSON cannot keep is still refused."""
    with core.init(data={"fold": 3, "files": ["a"] * 75_000, "text": "x" * 15_000_000}) as context:
        recorded = context.info.user_data

    assert recorded == {"fold": 3, "files": "a list of 75,000 items", "text": "a str of 15,000,000 characters"}
    assert "data['files'], a list of 75,000 items; data['text'], a str of 15,000,000" in caplog.text
    with pytest.raises(ValueError, match="data has 20,001 names; at most 20,000 are recorded"):
        core.init(data=dict.fromkeys(map(str, range(20_001)), 1.0))
    with pytest.raises(TypeError, match="JSON cannot keep"):
        core.init(data={"fold": object()})


def test_a_first_start_is_a_new_trial(home: Home) -> None:
    """A first start records the experiment, hyperparameters and data, and info shows no cluster."""
    with core.init(name="digits", hparams={"lr": 0.1}, labels=["a"], description="d", data={"path": "x"}) as context:
        info = context.info

        assert core_sdk.get_cluster_info() is None
        assert (info.trial.trial_id, info.trial.experiment_id) == (1, 1)
        assert info.trial.hparams == {"lr": 0.1}
        assert info.user_data == {"path": "x"}
        assert info.latest_checkpoint is None
    experiment = home.experiment(1).read()
    assert (experiment.name, experiment.labels, experiment.description) == ("digits", ["a"], "d")


def test_a_script_names_and_notes_its_trial(home: Home) -> None:
    """A name that is changed later is kept by later attempts."""
    described: dict[str, Any] = {"trial_name": "wide", "labels": ["wide", "new"], "notes": "Twice as *wide*."}
    with core.init(job_id="digits", **described) as context:
        assert context.info.trial.trial_id == 1
    with open_view(home) as view:
        first = view.trial(1)
    trials.describe(home, 1, name="renamed")
    with core.init(job_id="digits", **described):
        pass

    assert (first.name, first.labels, first.notes) == ("wide", ("wide", "new"), "Twice as *wide*.")
    with open_view(home) as view:
        again = view.trial(1)
    assert (again.name, again.num_attempts, again.labels, again.notes) == ("renamed", 2, first.labels, first.notes)
    with pytest.raises(TypeError, match="notes must be a string"):
        core.init(notes=3)  # type: ignore[arg-type]


def test_the_scripts_name_is_the_experiments(home: Home, run_script: RunScript) -> None:
    """Two starts of one script are two trials of one experiment."""
    script = "from core_sdk import core\nwith core.init(): pass\n"
    run_script(script, name="mnist.py")
    run_script(script, name="mnist.py")

    assert home.trial_ids() == [1, 2]
    assert home.experiment_ids() == [1]
    assert home.experiment(1).read().name == "mnist.py"


def test_the_command_is_recorded_without_secrets(home: Home, run_script: RunScript) -> None:
    """The arguments, directory and an allow-list of variables are recorded."""
    script = "from core_sdk import core\nwith core.init(): pass\n"
    run_script(script, "--lr", "0.1", OMP_NUM_THREADS="1", WANDB_API_KEY="planted", NCCL_DEBUG="INFO")

    command = home.trial(1).read_command()
    assert command is not None
    assert command.argv[-3:] == [str(home.root.parent / "train.py"), "--lr", "0.1"]
    assert command.cwd == str(home.root.parent)
    assert command.environment["OMP_NUM_THREADS"] == "1"
    assert command.environment["NCCL_DEBUG"] == "INFO"
    assert "planted" not in "".join(path.read_text() for path in home.trial(1).path.glob("*.json"))


REPORT = "context.train.report_training_metrics(1, {'loss': 0.5})"
CLOSED = f"with core.init() as context:\n    {REPORT}\n    "
FORGOTTEN = f"context = core.init()\ncontext.start()\n{REPORT}\n"


@promise("reports-survive")
@pytest.mark.parametrize(
    ("opening", "last_line", "status", "outcome", "error"),
    [
        (CLOSED, "pass", 0, "completed", None),
        (CLOSED, "raise SystemExit(0)", 0, "completed", None),
        (CLOSED, "raise SystemExit(3)", 3, "error", "SystemExit: 3"),
        (CLOSED, "raise RuntimeError('boom')", 1, "error", "RuntimeError: boom"),
        (CLOSED, "raise KeyboardInterrupt", -signal.SIGINT, "canceled", None),
        (CLOSED, "raise core_sdk.InvalidHP('too large')", 0, "invalid_hp", "too large"),
        (FORGOTTEN, "pass", 0, "exited", None),
        (FORGOTTEN, "raise RuntimeError('boom')", 1, "error", "RuntimeError: boom"),
        (FORGOTTEN, "raise KeyboardInterrupt", -signal.SIGINT, "canceled", None),
    ],
)
def test_the_end_of_the_script_is_the_end_of_the_attempt(
    home: Home, run_script: RunScript, opening: str, last_line: str, status: int, outcome: str, error: str | None
) -> None:
    """The outcome, and what was reported, is recorded however the script ends, whether or not it closes its Context."""
    run_status, _, _ = run_script(f"import core_sdk\nfrom core_sdk import core\n{opening}{last_line}\n")

    assert run_status == status
    assert ending(home).outcome == outcome
    assert (ending(home).error or "").strip().endswith(error or "")
    assert any(isinstance(record, Report) for record in read_records(home.trial(1).journal_path(1)))


def test_invalid_hyperparameters_are_said_once_and_before_the_end(home: Home) -> None:
    """InvalidHP ends the script with status 0, and its reason is recorded once, before the end."""
    with pytest.raises(SystemExit) as raised, core.init():
        raise core_sdk.InvalidHP("too large")

    assert raised.value.code == 0
    assert [type(record) for record in records(home)[-2:]] == [EarlyExit, Ended]


def test_a_killed_script_leaves_no_ending(home: Home, start_script: Callable[..., object]) -> None:
    """A killed script has no record of its end, and its trial does not count as running."""
    script = start_script(
        "import os, signal\nfrom core_sdk import core\nwith core.init():\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    script.wait()  # type: ignore[attr-defined]

    assert [type(record) for record in records(home)] == [AttemptStarted]
    assert home.trial(1).running_attempt() is None


def test_a_running_script_is_seen_to_run(home: Home) -> None:
    """A trial counts as running from the start of its Context to the end."""
    with core.init():
        assert home.trial(1).running_attempt() == 1

    assert home.trial(1).running_attempt() is None


def test_closing_twice_is_harmless_and_reporting_afterwards_is_not(home: Home) -> None:
    """A second close() does nothing, and a report after the close is refused."""
    context = core.init()
    context.start()
    context.close()
    context.close()

    with pytest.raises(JournalError, match="is closed"):
        context.train.report_training_metrics(1, {"loss": 1.0})
    assert len([record for record in records(home) if isinstance(record, Ended)]) == 1


def test_starting_twice_is_refused() -> None:
    """Entering a Context twice is refused."""
    with core.init() as context, pytest.raises(RuntimeError):
        context.start()


def test_a_context_without_a_name_is_closed_and_says_so() -> None:
    """Using a Context that no variable holds raises an error that says so."""
    with pytest.raises(JournalError, match="no variable held it"):
        core.init().train.report_training_metrics(1, {"loss": 0.5})
    with pytest.raises(RuntimeError, match=r"core_context\.start\(\)"):
        core.init().preempt.should_preempt()
    with pytest.raises(JournalError, match="is closed"), core.init().checkpoint.store_path({"steps_completed": 1}):
        pass


def test_a_forgotten_context_ends_when_it_is_collected(home: Home) -> None:
    """A Context that is garbage collected, as in a notebook cell that is run again, ends its attempt."""
    core.init().start()

    assert ending(home).outcome == "exited"


def test_a_session_of_typed_lines_is_judged_by_what_follows_the_start(home: Home) -> None:
    """In a session of typed lines, an error before `init()` does not count, and no resume command is recorded."""
    lines = b"1 / 0\nfrom core_sdk import core\ncontext = core.init()\ncontext.start()\n"
    subprocess.run([sys.executable, "-i"], input=lines, capture_output=True, check=True)
    subprocess.run([sys.executable, "-i"], input=lines + b"[][0]\n", capture_output=True, check=True)

    outcomes = [
        record.outcome for trial_id in (1, 2) for record in records(home, trial_id) if isinstance(record, Ended)
    ]
    assert outcomes == ["exited", "error"]
    assert home.trial(1).read_command() is None


def test_a_forked_child_does_not_end_the_attempt(home: Home) -> None:
    """Closing the Context in a forked child leaves the parent's attempt running."""
    with core.init() as context:
        child = os.fork()
        if child == 0:
            try:
                context.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)

        assert not any(isinstance(record, Ended) for record in records(home))
        context.train.report_training_metrics(1, {"loss": 1.0})
        assert home.trial(1).running_attempt() == 1


@promise("attempt-claimed-once")
def test_two_processes_cannot_claim_one_attempt(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_script: Callable[..., Script]
) -> None:
    """A second process is refused with the attempt's number; the same process begins a new trial."""
    with core.init():
        pass
    info = ClusterInfo(trial_or_none=TrialInfo(trial_id=1, experiment_id=1, trial_seed=0, attempt=2))
    path = home.trial(1).run_info_path(2)
    path.write_bytes(msgspec.json.encode(info))
    monkeypatch.setenv("CORE_SDK_RUN_INFO", str(path))

    with core.init() as context:
        _, _, errors = start_script("from core_sdk import core\ncore.init()").wait()
        with core.init() as further:
            assert (context.info.trial.trial_id, further.info.trial.trial_id) == (1, 2)
    assert "AttemptClaimedError: attempt 2 of trial 1 has been claimed already, by another process" in errors
    assert home.trial(2).read_record().started_by == 1


def test_many_first_starts_at_once_get_ids_of_their_own(home: Home, start_script: Callable[..., object]) -> None:
    """Scripts that start at once get trials of their own in the same experiment."""
    script = "from core_sdk import core\nwith core.init(name='one'): pass\n"
    scripts = [start_script(script, name=f"{index}.py") for index in range(12)]

    assert [script.wait()[0] for script in scripts] == [0] * 12  # type: ignore[attr-defined]
    assert home.trial_ids() == list(range(1, 13))
    assert len(home.experiment_ids()) == 1


@promise("home-writable")
def test_a_home_that_cannot_be_written_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home that cannot be written is refused before any training."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("CORE_SDK_HOME", str(tmp_path / "file" / "home"))

    with pytest.raises(HomeNotWritableError, match="CORE_SDK_HOME"):
        core.init()


def test_a_home_of_a_newer_version_is_refused(home: Home) -> None:
    """A home of a newer version is refused and left unchanged."""
    home.root.mkdir()
    (home.root / "home.json").write_text('{"format": 999, "sdk_version": "99"}')

    with pytest.raises(HomeTooNewError, match="Install a newer"):
        core.init()


@pytest.mark.parametrize("content", [None, "{", '{"trial": 3}'])
def test_a_run_info_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    """A bad run info is an error; the script does not begin another trial instead."""
    path = tmp_path / "run.json"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv("CORE_SDK_RUN_INFO", str(path))

    with pytest.raises(AttemptError, match=str(path)):
        core.init()


def test_the_scripts_own_error_is_the_one_that_is_seen(home: Home) -> None:
    """The script's own error is raised and recorded, not one of the closing."""
    with pytest.raises(KeyError), core.init():
        raise KeyError("mine")

    assert "KeyError: 'mine'" in (ending(home).error or "")


@pytest.mark.parametrize("level", ["info", "INFO", "error", None])
def test_alerts_are_recorded(home: Home, level: core._context.AlertLevel | None) -> None:
    """The level of an alert may be given in upper or lower case, and defaults to info."""
    with core.init() as context:
        context.alert("title", "text", level)

    alert = next(record for record in records(home) if isinstance(record, Alert))
    assert (alert.title, alert.description, alert.level) == ("title", "text", (level or "info").lower())


def test_an_alert_of_anything_is_its_text(home: Home) -> None:
    """An alert's title and description may be any object; its text is recorded."""
    with core.init() as context:
        context.alert(ValueError("boom"), 3)  # type: ignore[arg-type]

    alert = next(record for record in records(home) if isinstance(record, Alert))
    assert (alert.title, alert.description) == ("boom", "3")


def test_an_unknown_alert_level_is_refused() -> None:
    """An unknown alert level is refused instead of being replaced."""
    with core.init() as context, pytest.raises(ValueError, match="loud"):
        context.alert("title", level="loud")  # type: ignore[arg-type]


def test_arguments_are_checked_before_a_trial_is_made(home: Home) -> None:
    """Bad arguments are refused before a trial is recorded."""
    with pytest.raises(ValueError):
        core.init(preempt_mode="nonsense")  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        core.init(max_length={"furlongs": 3})
    with pytest.raises(ValueError):
        core.init(name="")
    with pytest.raises(TypeError, match="hparams"):
        core.init(hparams={"bad": 2**70})

    assert not home.runs.exists() or home.trial_ids() == []


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("hparams", [1, 2]),
        ("hparams", {"name": "\ud800"}),
        ("data", "text"),
        ("labels", "text"),
        ("description", 3),
        ("description", "\ud800"),
    ],
)
def test_what_the_records_cannot_hold_is_refused_by_name(home: Home, argument: str, value: Any) -> None:
    """Values that the records cannot hold are refused, since they would make the records unreadable."""
    with pytest.raises(TypeError, match=argument):
        core.init(**{argument: value})

    assert not home.runs.exists()
    assert not home.experiments.exists()


def test_hyperparameters_of_an_enum_are_kept_by_value() -> None:
    """Hyperparameters that are members of a string enum are kept by value, as in json.dumps."""

    class Optimizer(str, enum.Enum):  # scripts have them; a StrEnum is no trouble
        ADAM = "adam"

    with core.init(hparams={"optimizer": Optimizer.ADAM}) as context:
        assert context.info.trial.hparams == {"optimizer": "adam"}


def test_hyperparameters_that_json_cannot_keep_are_kept_as_text(caplog: pytest.LogCaptureFixture) -> None:
    """Hyperparameters of any type are kept, and one warning names those that became text."""

    class Color(enum.Enum):
        RED = 1

    values = {
        "out": Path("/data"),
        "dtype": torch.float32,
        "nested": {"color": Color.RED, "tags": {"b", "a"}},
        "lr": 0.1,
    }

    with core.init(hparams=values) as context:
        recorded = context.info.trial.hparams

    assert recorded == {
        "out": "/data", "dtype": "torch.float32", "nested": {"color": "Color.RED", "tags": "{a, b}"}, "lr": 0.1,
    }  # fmt: skip
    (warning,) = [record.getMessage() for record in caplog.records if "JSON" in record.getMessage()]
    assert "hparams['out'], a PosixPath; hparams['dtype'], a dtype; hparams['nested']['color'], a Color" in warning


@attrs.frozen
class Schedule:
    warmup: int = 10


@dataclasses.dataclass
class Model:
    depth: int = 2
    sizes: Sequence[int] = (8, 16)


class Data(pydantic.BaseModel):
    path: str = "x"
    limit: float = math.inf


def test_objects_that_hold_fields_are_hyperparameters(caplog: pytest.LogCaptureFixture) -> None:
    """Dataclasses and namespaces are accepted as hyperparameters; a warning names keys that became text."""
    nested = types.SimpleNamespace(model=Model(), data=Data(), layers={1: "a"}, steps=range(3))
    values = argparse.Namespace(lr=0.1, nested=nested, schedule=Schedule())

    with core.init(hparams=values) as context:
        recorded = context.info.trial.hparams

    assert recorded == {
        "lr": 0.1,
        "nested": {
            "model": {"depth": 2, "sizes": [8, 16]},
            "data": {"path": "x", "limit": math.inf},
            "layers": {"1": "a"},
            "steps": [0, 1, 2],
        },
        "schedule": {"warmup": 10},
    }
    (warning,) = [record.getMessage() for record in caplog.records if "JSON" in record.getMessage()]
    assert "hparams['nested']['layers']'s key 1, a int" in warning


def test_the_context_is_typed_for_its_users() -> None:
    """`Context` annotates every one of its parts."""
    assert set(Context.__annotations__) >= {
        "checkpoint",
        "distributed",
        "preempt",
        "profiler",
        "searcher",
        "train",
        "info",
    }


@pytest.mark.parametrize("home_variable", ["~nobody-has-this-name/home", "relative"])
def test_a_home_that_leads_nowhere_is_named(run_script: RunScript, tmp_path: Path, home_variable: str) -> None:
    """A home of an unknown user, or one relative to a removed directory, is named in the error."""
    status, _, errors = run_script(
        """
        import os
        gone = os.path.abspath("gone")
        os.mkdir(gone)
        os.chdir(gone)
        os.rmdir(gone)
        from core_sdk import core
        core.init()
        """,
        CORE_SDK_HOME=home_variable,
    )

    assert status == 1
    assert f"HomeNotWritableError: cannot write to the home {home_variable}" in errors


@pytest.mark.parametrize("argument", ["", "\udcff"])
def test_a_command_that_cannot_be_kept_does_not_keep_the_script_from_training(
    home: Home, run_script: RunScript, argument: str
) -> None:
    """If the directory is gone or an argument is not UTF-8, training runs, with a warning that it cannot be resumed."""
    status, _, errors = run_script(
        """
        import os, sys
        if not sys.argv[1]:
            os.mkdir("gone")
            os.chdir("gone")
            os.rmdir(os.getcwd())
        from core_sdk import core
        with core.init() as context:
            context.train.report_training_metrics(1, {"loss": 1.0})
        """,
        argument,
    )

    assert status == 0, errors
    assert "cannot be resumed" in errors
    assert home.trial(1).read_command() is None
    assert ending(home).outcome == "completed"


START = """
import sys
from core_sdk import core
from core_sdk.errors import HomeNotWritableError
try:
    core.init(name="digits", labels=["a"])
except HomeNotWritableError:
    sys.exit(3)
"""


def start_on_failing_disk(home: Path, *strace_options: str) -> int:
    command = [*strace(*strace_options), sys.executable, "-c", START]
    return subprocess.run(command, capture_output=True, env=os.environ | {"CORE_SDK_HOME": str(home)}).returncode


@needs("strace")
def test_a_start_that_the_disk_refuses_leaves_nothing_half_made(tmp_path: Path) -> None:
    """Whichever fsync of the start fails, no trial and no nameless experiment is listed."""
    for when in itertools.count(1):
        home = Home(tmp_path / str(when))
        status = start_on_failing_disk(home.root, "-e", "trace=fsync", "-e", f"inject=fsync:error=EIO:when={when}")
        if status == 0:
            break  # only the journal's last fsync, or none, was left to fail

        home.experiments.joinpath("names").mkdir(parents=True, exist_ok=True)
        experiment = home.find_or_create_experiment("digits")
        assert status == 3
        assert home.trial_ids() == []
        assert home.experiment_ids() == [experiment.experiment_id]

    assert when > 10


@needs("strace")
def test_a_start_whose_first_record_is_refused_is_no_start(tmp_path: Path) -> None:
    """A start whose first record cannot be written raises and leaves no files in the trial's folder."""
    home = Home(tmp_path / "home")

    status = start_on_failing_disk(
        home.root, "-P", str(home.runs / "1" / "1.journal"), "-e", "trace=write", "-e", "inject=write:error=ENOSPC"
    )

    assert status == 3
    assert list((home.runs / "1").iterdir()) == []


def test_a_context_says_whose_it_is() -> None:
    """The repr of a Context names its trial and attempt."""
    with core.init() as context:
        assert repr(context) == "<Context of trial 1, attempt 1>"


def test_a_forgotten_storage_id_is_said() -> None:
    """Using the pair from store_path() as a path raises an error that shows how to unpack it."""
    with core.init() as context:
        uses: list[Callable[[Any], object]] = [lambda pair: pair / "weights", lambda pair: shutil.copy(__file__, pair)]
        for use in uses:
            save = context.checkpoint.store_path({"steps_completed": 1})
            with pytest.raises(TypeError, match=r"as \(path, storage_id\)"), save as pair:
                use(pair)
