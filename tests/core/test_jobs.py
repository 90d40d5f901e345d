"""A scheduler that starts a job again goes on with its trial; the scheduler here is a shell that sets its variables."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from core.counting import counting_script

from core_sdk._ground.alive import AliveLock
from core_sdk._ground.placement import Job, named_job, scheduled_job
from core_sdk._ground.records import JobRecord
from core_sdk._home import Home, TrialFolder
from core_sdk._home.attempts.jobs import note_trial_of_job, trial_of_job
from core_sdk.client import Tracker
from core_sdk.errors import AttemptError

Start = Callable[..., str]

# It is killed at step 6 of its trial's first attempt.
SCRIPT = counting_script("if context.info.trial.attempt == 1: os.kill(os.getpid(), signal.SIGKILL)")
BATCH = {"SLURM_JOB_ID": "17", "SLURM_CLUSTER_NAME": "tests"}
REQUEUED = BATCH | {"SLURM_RESTART_COUNT": "1"}
STEP = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}
NEXT_STEP = STEP | {"SLURM_STEP_ID": "1"}
# What torchrun tells the ranks of its second start.
RESTARTED = {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": "1"}
# Its last part is of the SHA-256 of "train.py".
FIRST_JOB = Job("slurm/tests/17/ed183d67207df065", 0)


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Runs a script with these variables and returns its output, which must not be empty."""

    def run(*arguments: str, source: str = SCRIPT, name: str = "train.py", **variables: str) -> str:
        (tmp_path / name).write_text(textwrap.dedent(source))
        settings = [f"{variable}={value}" for variable, value in variables.items()]
        argv = ["env", *settings, sys.executable, name, *arguments]
        finished = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, timeout=60)
        assert finished.stdout, finished.stderr
        return finished.stdout

    return run


@pytest.mark.parametrize("place", [{}, STEP], ids=["batch script", "step"])
def test_a_requeued_job_goes_on_with_its_trial(start: Start, place: dict[str, str]) -> None:
    """A requeued job continues its trial as the next attempt, and each step is reported once."""
    outputs = [start(**BATCH, **place), start(**REQUEUED, **place)]

    trial = Tracker().get_trial(1)
    assert outputs == ["1.1.0\n", "1.2.4\n"]
    assert (trial.state.name, trial.num_attempts, trial.steps_completed) == ("COMPLETED", 2, 10)
    assert [report.steps_completed for report in trial.iter_metrics()] == list(range(1, 11))


def test_a_start_that_came_to_nothing_is_passed_over(start: Start) -> None:
    """A requeue that died before its script began does not prevent the next one from continuing."""
    start(**BATCH)

    assert start(**BATCH, SLURM_RESTART_COUNT="2") == "1.2.4\n"


def test_each_start_of_a_named_job_goes_on(start: Start) -> None:
    """A named job continues its trial at every start, without a scheduler that counts the starts."""
    assert [start(CORE_SDK_JOB_ID="a/b"), start(CORE_SDK_JOB_ID="a/b")] == ["1.1.0\n", "1.2.4\n"]
    assert start(CORE_SDK_JOB_ID="another") == "2.1.0\n"


@pytest.mark.parametrize(
    "variables",
    [{}, BATCH, REQUEUED | {"SLURM_JOB_ID": "18"}, REQUEUED | {"CORE_SDK_JOB_ID": ""}],
    ids=["no job", "not requeued", "another job", "named as none"],
)
def test_what_is_another_training_begins_its_own_trial(start: Start, variables: dict[str, str]) -> None:
    """A start without the same job and a requeue begins a trial of its own."""
    start(**BATCH)

    assert start(**variables) == "2.1.0\n"


def test_trainings_of_one_job_are_told_apart(start: Start) -> None:
    """Trainings of one job are told apart by their commands, whatever the order of the steps."""
    begun = [start("--lr=1", **BATCH, **STEP), start("--lr=2", **BATCH, **NEXT_STEP)]

    resumed = [start("--lr=2", **REQUEUED, **STEP), start("--lr=1", **REQUEUED, **NEXT_STEP)]

    assert begun == ["1.1.0\n", "2.1.0\n"]
    assert resumed == ["2.2.4\n", "1.2.4\n"]


def test_trainings_that_cannot_be_told_apart_begin_anew(start: Start) -> None:
    """Equal commands of one job begin new trials, rather than continue another's checkpoint."""
    start(**BATCH, **STEP)
    start(**BATCH, **NEXT_STEP)

    assert start(**REQUEUED, **STEP) == "3.1.0\n"


def test_of_equal_commands_that_begin_at_once_none_is_forgotten(home: Home) -> None:
    """A job's record is correct even if several equal commands write it at once."""
    Home.create(home.root)
    context = multiprocessing.get_context("fork")
    all_there = context.Barrier(4)

    def begin(folder: TrialFolder) -> None:
        all_there.wait(30)
        note_trial_of_job(folder, FIRST_JOB)

    processes = [context.Process(target=begin, args=[home.create_trial()]) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)

    record = home.read_job(FIRST_JOB.name)
    assert record is not None
    assert record.trial_id is None


def test_of_equal_commands_one_goes_on(start: Start, home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """Of two equal commands after a requeue, the slower one waits for the lock and then begins a new trial."""
    start(**BATCH)
    lock = AliveLock(home.trial(1).alive_path(1))
    requeued = Job(FIRST_JOB.name, 1)

    with ThreadPoolExecutor(1) as slower, caplog.at_level("DEBUG", "core_sdk.core"):
        begun = slower.submit(trial_of_job, home, requeued, "train.py")
        _wait_for("waiting for the end of attempt 1", caplog)
        note_trial_of_job(home.trial(1), requeued)
        lock.release()

    assert begun.result() is None


def test_another_script_of_the_same_name_begins_anew(start: Start) -> None:
    """A script in another file begins its own trial, as it cannot read the other's checkpoints."""
    start(CORE_SDK_JOB_ID="a")

    assert start(name="other.py", CORE_SDK_JOB_ID="a") == "2.1.0\n"


def test_a_script_names_its_job_itself(start: Start) -> None:
    """`job_id` overrides the script's file name and the scheduler's job."""
    source = SCRIPT.replace("core.init()", "core.init(job_id=sys.argv[1])")

    assert start("a", source=source) == "1.1.0\n"
    assert start("a", source=source, name="renamed.py", **BATCH) == "1.2.4\n"
    assert start("b", source=source) == "2.1.0\n"


def test_a_job_that_goes_on_with_a_completed_trial_says_so(
    home: Home, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Continuing a completed trial warns that reports after its newest checkpoint are superseded."""
    named = named_job("a")
    start(CORE_SDK_JOB_ID="a")
    with caplog.at_level("WARNING", "core_sdk.core"):
        assert trial_of_job(home, named, None) == 1
    assert caplog.text == ""
    start(CORE_SDK_JOB_ID="a")

    with caplog.at_level("WARNING", "core_sdk.core"):
        assert trial_of_job(home, named, None) == 1

    assert "trial 1 is COMPLETED, and the job 'a' goes on with it" in caplog.text
    assert "superseded" in caplog.text


def test_processes_of_multiprocessing_are_known_again(tmp_path: Path, start: Start) -> None:
    """A process of multiprocessing continues its trial, although its own command line may differ."""
    (tmp_path / "training.py").write_text(f"def train():\n{textwrap.indent(SCRIPT, '    ')}")
    source = """
        import multiprocessing, os, sys
        from training import train

        if __name__ == "__main__":
            for _ in range(int(os.environ.get("SLURM_RESTART_COUNT", 0))):
                os.pipe2(0)
            process = multiprocessing.get_context("spawn").Process(target=train)
            process.start()
            process.join()
    """

    assert [start(source=source, **BATCH), start(source=source, **REQUEUED)] == ["1.1.0\n", "1.2.4\n"]


@pytest.mark.parametrize(("log_dir", "expected"), [("first", "1.2.4\n"), ("second", "2.1.0\n")])
def test_torchruns_restarts_go_on_with_their_own_launch(start: Start, log_dir: str, expected: str) -> None:
    """A restart by torchrun continues the trial of its own launch, not of an earlier launch."""
    start(**BATCH, TORCHELASTIC_ERROR_FILE="/logs/first/attempt_0/0/error.json")

    error_file = f"/logs/{log_dir}/attempt_1/0/error.json"
    assert start(**BATCH, **RESTARTED, TORCHELASTIC_ERROR_FILE=error_file) == expected


def test_torchrun_itself_tells_its_launches_apart(start: Start, tmp_path: Path) -> None:
    """A restart by torchrun continues the trial of its own launch, and a launch without a trial begins one."""
    pytest.importorskip("torch", reason="NOT TESTED: restarts under torchrun itself. Install torch to test them")
    die_once = (
        "import os\nif os.environ.get('DIES') and not os.path.exists('died'):\n    os.mkdir('died')\n    os._exit(3)"
    )
    (tmp_path / "training.py").write_text(f"{die_once}\n{SCRIPT}")
    torchrun = """
        from torch.distributed.run import main

        main(["--max-restarts=1", "--nproc-per-node=1", "--master-port=0", "training.py"])
    """

    first = start(source=torchrun, name="torchrun.py", **BATCH)
    second = start(source=torchrun, name="torchrun.py", DIES="1", **BATCH)

    assert first == "1.1.0\n1.2.4\n"
    assert second == "2.1.0\n"


def test_our_launchers_restarts_go_on_by_their_launch_alone(start: Start, tmp_path: Path) -> None:
    """A restart by our launcher has no trial to continue if its launch began none."""
    start(**BATCH)
    (tmp_path / "launch").mkdir()

    assert start(**BATCH, **RESTARTED, CORE_SDK_LAUNCH_DIR=str(tmp_path / "launch")) == "2.1.0\n"


def test_a_process_of_several_trials_begins_new_ones(start: Start) -> None:
    """A process that began several trials begins new ones after a requeue."""
    source = """
        from core_sdk import core

        for _ in range(3):
            with core.init() as context:
                print(context.info.trial.trial_id)
    """

    assert [start(source=source, **BATCH), start(source=source, **REQUEUED)] == ["1\n2\n3\n", "4\n5\n6\n"]


def test_a_process_killed_in_its_first_trial_goes_on_with_it(start: Start) -> None:
    """A process that was killed in its first trial continues that trial."""
    start(**BATCH)

    source = f"{SCRIPT}with core.init() as context:\n    print(context.info.trial.trial_id)"
    (resumed, second, begun_anew) = "".join([start(source=source, **REQUEUED), start(**REQUEUED)]).split()
    assert (resumed, second, begun_anew) == ("1.2.4", "2", "3.1.0")


def test_processes_that_a_training_starts_leave_its_job_alone(start: Start) -> None:
    """Child processes have trials of their own, and the job still continues the first trial."""
    child = f"subprocess.run([sys.executable, '-c', {textwrap.dedent(SCRIPT)!r}])"
    source = SCRIPT.replace("    while step < 10:", f"    {child}\n    while step < 10:")

    assert start(source=source, CORE_SDK_JOB_ID="a") == "1.1.0\n2.1.0\n"
    assert start(source=source, CORE_SDK_JOB_ID="a").startswith("1.2.4\n")


def test_a_job_that_a_training_submits_is_a_job_of_its_own(start: Start) -> None:
    """A job that a training submits is not mistaken for the training's own job."""
    source = f"""
        import os, subprocess, sys
        from core_sdk import core

        with core.init() as context:
            print(context.info.trial.trial_id, flush=True)
            for count in ("", "1"):
                variables = os.environ | {{"SLURM_JOB_ID": "18", "SLURM_RESTART_COUNT": count}}
                subprocess.run([sys.executable, "-c", {SCRIPT!r}], env=variables)
    """

    assert start(source=source, **BATCH) == "1\n2.1.0\n2.2.4\n"


def test_a_deleted_trial_is_not_gone_on_with(start: Start) -> None:
    """If the job's trial was deleted, a new one begins."""
    start(**BATCH)
    Tracker().get_trial(1).delete()

    assert start(**REQUEUED) == "2.1.0\n"


def test_a_predecessors_end_is_waited_for(start: Start, home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """A start waits a limited time for the lock of the previous attempt, then names its process."""
    start(CORE_SDK_JOB_ID="a")
    folder = home.trial(1)
    lock = AliveLock(folder.alive_path(1))

    with pytest.raises(AttemptError, match="job/a goes on with trial 1, whose attempt 1 has not ended"):
        _begun_by(home, Job("job/a", None))
    assert "waiting up to 0.2 s for the end of attempt 1 of trial 1, which process" in caplog.text

    lock.release()
    assert _begun_by(home, Job("job/a", None)) == 1


def test_a_lock_that_a_dead_host_left_does_not_hold_a_requeue_up(start: Start, home: Home) -> None:
    """After a requeue, the lock of a dead host is ignored, since the scheduler knows that the job ended."""
    start(**BATCH)
    lock = AliveLock(home.trial(1).alive_path(1))

    assert _begun_by(home, Job(FIRST_JOB.name, 1)) == 1
    lock.release()


def test_words_of_jobs_are_private_and_not_in_the_way(start: Start, home: Home) -> None:
    """Job records are private files and are not listed as trials or experiments."""
    start(**BATCH)

    assert {word.stat().st_mode & 0o777 for word in home.jobs.iterdir()} == {0o600}
    assert (home.trial_ids(), len(Tracker().list_experiments())) == ([1], 1)


def test_a_word_that_cannot_be_left_costs_no_training(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """If the job record cannot be written, a warning says so and the training goes on."""
    Home.create(home.root)
    home.jobs.symlink_to("nowhere")

    note_trial_of_job(home.create_trial(), FIRST_JOB)

    assert "that begins a new trial" in caplog.text


@pytest.mark.parametrize("damage", ["file for a folder", "folder for a file", "no JSON"])
def test_a_word_that_cannot_be_read_costs_no_training(
    home: Home, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """If the job record cannot be read, one warning is given and a new trial begins."""
    Home.create(home.root)
    home.write_job(JobRecord(job=FIRST_JOB.name, trial_id=1, script="train.py", num_restarts=0))
    (word,) = home.jobs.iterdir()
    word.unlink()
    match damage:
        case "file for a folder":
            home.jobs.rmdir()
            home.jobs.write_text("in the way")
        case "folder for a file":
            word.mkdir()
        case _:
            word.write_text("{")

    begun = trial_of_job(home, Job(FIRST_JOB.name, 1), "train.py")
    note_trial_of_job(home.create_trial(), Job(FIRST_JOB.name, 1))

    assert begun is None
    (record,) = caplog.records
    assert "a new one begins" in record.message


@pytest.mark.parametrize(
    ("variables", "job"),
    [
        ({}, None),
        (BATCH | STEP, FIRST_JOB),
        (REQUEUED | NEXT_STEP, Job(FIRST_JOB.name, 1)),
        (
            BATCH | STEP | {"SLURM_ARRAY_JOB_ID": "16", "SLURM_ARRAY_TASK_ID": "3"},
            Job("slurm/tests/16_3/ed183d67207df065", 0),
        ),
        (REQUEUED | {"CORE_SDK_JOB_ID": "mine"}, Job("job/mine", None)),
    ],
)
def test_jobs_are_named_alike_after_a_requeue(variables: dict[str, str], job: Job | None) -> None:
    """A job's name depends on the cluster, the job or array task, and the command, which Slurm keeps."""
    assert scheduled_job(variables, ["train.py"]) == job


def _wait_for(text: str, caplog: pytest.LogCaptureFixture) -> None:
    deadline = time.monotonic() + 30
    while text not in caplog.text:
        assert time.monotonic() < deadline, caplog.text
        time.sleep(0.01)


def _begun_by(home: Home, job: Job) -> int | None:
    """Returns the trial that the script of this job's record would continue."""
    record = home.read_job(job.name)
    assert record is not None
    return trial_of_job(home, job, record.script, lease_s=0.2)
