"""Attempts that a master starts: what their scripts are told, and how they are found again."""

from __future__ import annotations

import json
import math
import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import TIMEOUT_S

from core_sdk._execution.agent.starting import Agent
from core_sdk._ground.records import CommandRecord, to_json
from core_sdk._home import Home, TrialFolder
from core_sdk._home.attempts.running import attempt_rows
from core_sdk._home.attempts.starting import AttemptStart, begin, begin_in_experiment, requested_trials, resume
from core_sdk._machine.slots import Slots

Begin = Callable[..., AttemptStart]

TELL = """
    import json, os
    from core_sdk import core
    with core.init(name="elsewhere", hparams={"lr": 0.5, "momentum": 0.9}) as context:
        info = context.info
        told = [info.slot_ids, info.user_data, info.trial.config.get("name"), info.trial.hparams]
        names = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "GREETING")
        print(json.dumps([*told, {name: os.environ.get(name) for name in names}]))
"""


@pytest.fixture
def begin_trial(home: Home) -> Begin:
    """Begins a trial of the one experiment, whose script is given by its source."""
    Home.create(home.root)
    experiment_id = home.new_experiment("search").experiment_id

    def begin_trial(source: str, request_id: str = "a", **changes: Any) -> AttemptStart:
        def command(folder: TrialFolder) -> CommandRecord:
            code = folder.path / "code"
            code.mkdir()
            (code / "train.py").write_text(textwrap.dedent(source))
            return CommandRecord(argv=[sys.executable, "train.py"], cwd=str(code), environment={})

        given: dict[str, Any] = {
            "hparams": {"lr": 0.1},
            "seed": 7,
            "config": {},
            "slots": Slots((0,)),
            "command": command,
        }
        return begin_in_experiment(home.create_trial(), experiment_id, request_id=request_id, **(given | changes))

    return begin_trial


@pytest.fixture(autouse=True)
def no_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has chosen it, not even the suite."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def run(start: AttemptStart) -> Any:
    """Runs an attempt to its end, and returns what its script prints last, as JSON."""
    agent = Agent()
    agent.start(start)
    ended = agent.wait()
    agent.process.wait(TIMEOUT_S)
    agent.close()
    log = start.folder.log_path(start.number).read_text()
    assert ended.code == 0, log
    return json.loads(log.splitlines()[-1])


def test_numbers_that_are_not_finite_reach_the_script(begin_trial: Begin, home: Home, tmp_path: Path) -> None:
    """Infinite and NaN hyperparameters reach a script unchanged: in a search, when resumed, and by hand."""
    source = """
        import json, core_sdk
        trial = core_sdk.get_cluster_info().trial
        print(json.dumps([trial.hparams, trial.config.get("hyperparameters")]))
    """
    script = tmp_path / "by_hand.py"
    script.write_text(textwrap.dedent(source))
    hparams = {"clip": math.inf, "nested": {"limits": [-math.inf, math.nan]}}

    told = [
        run(begin_trial(source, hparams=hparams, config={"hyperparameters": to_json(hparams, "it")})),
        run(resume(home.trial(1), is_again=True)),
        run(begin(home.root, [sys.executable, str(script)], hparams=hparams)),
    ]

    assert repr(told) == repr([[hparams, hparams], [hparams, hparams], [hparams, None]])


def test_a_script_is_told_of_its_slots_and_its_experiment(begin_trial: Begin, home: Home) -> None:
    """A script gets its slots and the search's hyperparameters; its own init() arguments only add to them."""
    config = {"name": "search", "data": {"rows": 3}, "environment": {"environment_variables": ["GREETING=hello=you"]}}

    slots, data, name, hparams, variables = run(begin_trial(TELL, config=config, slots=Slots((2,))))

    assert (slots, data, name, hparams) == ([2], {"rows": 3}, "search", {"lr": 0.1, "momentum": 0.9})
    assert variables == {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "GREETING": "hello=you"}
    record = home.trial(1).read_record()
    assert (record.experiment_id, record.seed) == (1, 7)
    assert (record.given_hparams, record.hparams) == ({"lr": 0.1}, {"lr": 0.1, "momentum": 0.9})
    words = (
        "init(hparams=…) has other values than the search has chosen (lr: 0.5 in the script, 0.1 chosen by the search)"
    )
    assert words in home.trial(1).log_path(1).read_text()
    assert home.find_experiment("elsewhere") is None


def test_a_script_sees_only_its_own_gpus(begin_trial: Begin) -> None:
    """A script sees only its own GPUs, by the names that the master uses, and gets the variables for GPUs."""
    variables = {"cpu": ["GREETING=cpu"], "cuda": ["GREETING=cuda"], "rocm": []}
    config = {"environment": {"environment_variables": variables}}

    slots, *_, variables = run(begin_trial(TELL, config=config, slots=Slots((1,), gpus=("GPU-5",))))

    assert slots == [1]
    assert variables == {"CUDA_VISIBLE_DEVICES": "GPU-5", "OMP_NUM_THREADS": None, "GREETING": "cuda"}


@pytest.mark.parametrize("config", [{}, {"environment": {"environment_variables": ["OMP_NUM_THREADS=5"]}}])
def test_the_user_chooses_the_number_of_threads(begin_trial: Begin, config: dict[str, Any]) -> None:
    """The number of threads comes from the configuration, or else from the environment, not from the slots."""
    os.environ["OMP_NUM_THREADS"] = "3"

    *_, variables = run(begin_trial(TELL, config=config, slots=Slots((0,), num_threads=2)))

    assert variables["OMP_NUM_THREADS"] == ("5" if config else "3")


@pytest.mark.parametrize("has_place", [True, False])
def test_the_configuration_says_where_checkpoints_go_and_which_to_keep(
    begin_trial: Begin, home: Home, tmp_path: Path, has_place: bool
) -> None:
    """The configuration determines storage and retention of checkpoints, also in attempts started later by hand."""
    place = {"type": "directory", "container_path": str(tmp_path / "kept")} if has_place else {}
    config = {
        "checkpoint_storage": {**place, "save_trial_latest": 2},
        "searcher": {"metric": "loss", "smaller_is_better": False},
    }
    source = """
        import json
        from core_sdk import core
        with core.init() as context:
            steps = context.info.trial.steps_completed + 1
            with context.checkpoint.store_path({"steps_completed": steps}) as (path, storage_id):
                (path / "state").touch()
        print(json.dumps(storage_id))
    """

    first = run(begin_trial(source, config=config))
    second = run(resume(home.trial(1), is_again=True))

    directory = tmp_path / "kept" if has_place else home.checkpoints
    record = home.experiment(1).read()
    assert record.retention is not None
    assert record.retention.save_trial_latest == 2
    assert record.searcher_metric is not None
    assert (record.searcher_metric.name, record.searcher_metric.smaller_is_better) == ("loss", False)
    assert (directory / first / ".manifest.json").exists()
    assert (directory / second / ".manifest.json").exists()


def test_a_trial_is_found_again_by_its_request(begin_trial: Begin, home: Home) -> None:
    """Trials of an experiment are found by their request ids; damaged and unrelated trials are not listed."""
    for request_id in ("a", "b"):
        begin_trial("", request_id).lock.release()
    begin(home.root, ["true"]).lock.release()
    for request_id in ("c", "d"):
        begin_trial("", request_id).lock.release()
    (home.folder(4).path / "trial.json").unlink()
    (home.folder(5).path / "trial.json").write_text("damaged")

    assert requested_trials(home, 1) == {"a": 1, "b": 2}


def test_a_trial_that_cannot_be_filled_leaves_nothing(begin_trial: Begin, home: Home) -> None:
    """If preparing a new trial fails, for example unpacking its code, nothing of the trial is left."""

    def fail(folder: TrialFolder) -> CommandRecord:
        (folder.path / "code").mkdir()
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        begin_trial("", command=fail)

    assert home.trial_ids() == []
    assert list(home.folder(1).path.iterdir()) == []


def test_a_trial_that_is_taken_back_leaves_its_experiment(begin_trial: Begin, home: Home) -> None:
    """A trial that is withdrawn leaves no directory, and its experiment remains."""
    start = begin_trial("")

    start.withdraw()

    assert home.trial_ids() == []
    assert home.experiment(1).read().name == "search"


def test_the_next_attempt_gets_other_slots(begin_trial: Begin, home: Home) -> None:
    """The next attempt of a trial gets the slots that the master gives it then."""
    run(begin_trial(TELL, config={"name": "search"}, slots=Slots((0,))))

    slots, _, name, *_ = run(resume(home.trial(1), is_again=True, config={"name": "renamed"}, slots=Slots((4,))))

    assert (slots, name) == ([4], "renamed")
    assert [row.attempt for row in attempt_rows(home.trial(1))] == [1, 2]
