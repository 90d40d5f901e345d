"""The batch script has what was asked for, Slurm's answers are understood, and a job acts on its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from core_sdk._execution.slurm.commands import JobState, parse_has_gpus, parse_states
from core_sdk._execution.slurm.fate import fate_of, follows
from core_sdk._execution.slurm.job import clock_words
from core_sdk._execution.slurm.reasons import lasts, plain_reason
from core_sdk._execution.slurm.script import (
    JobPlace,
    JobRequest,
    arrays_of,
    experiment_script,
    step_command,
    time_limit_s,
    trial_script,
)
from core_sdk._execution.slurm.submission import versions
from core_sdk._home import Home

_DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "schedulers.md"


def script(request: JobRequest, home: Path = Path("/h")) -> list[str]:
    return trial_script(request, 1, JobPlace(home, "0", "3.11/2.6.0")).splitlines()


def test_a_batch_script_is_the_one_that_the_page_shows() -> None:
    """The script has our options, and then the user's lines as they are."""
    request = JobRequest(2, 16, True, ("--partition=gpu", "--time=4:00:00"))

    place = JobPlace(Path("/shared/core-sdk"), "8f14e45f-…", "3.11/2.6.0", "/shared/venv/bin/python")
    text = trial_script(request, 12, place)

    assert f"```\n{text}```" in _DOCUMENT.read_text()


def test_the_options_of_the_user_take_the_place_of_ours() -> None:
    """A grace of the user's own is the only one, and a home with a space is quoted."""
    lines = script(JobRequest(options=("--signal=B:USR1@600",)), home=Path("/my home"))

    assert [line for line in lines if "USR1" in line] == ["#SBATCH --signal=B:USR1@600"]
    assert "#SBATCH --output='/my home/runs/1/slurm-%j.out'" in lines and "export CORE_SDK_HOME='/my home'" in lines


def test_slots_are_gpus_or_cpus_unless_an_option_says_what_a_node_has() -> None:
    """Slots are divided over the nodes."""
    assert "#SBATCH --cpus-per-task=3" in script(JobRequest(2, 6))
    assert not any("per-node=8" in line for line in script(JobRequest(1, 8, True, ("--gres=gpu:a100:8",))))
    assert not any("cpus" in line for line in script(JobRequest(1, None)))


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (JobRequest(2, 3), "3 slots cannot be divided over 2 nodes: give a multiple"),
        (JobRequest(options=("-N4",)), "--nodes cannot be given to sbatch here: give `--nodes` to core-sdk itself"),
        (
            JobRequest(options=("--partition x --array 1-3",)),
            "--array cannot be given to sbatch here: a job runs one trial",
        ),
        (
            JobRequest(options=("--signal=USR1@60",)),
            "--signal cannot be given to sbatch here: write it as `--signal=B:",
        ),
        (JobRequest(options=("gpu",)), "'gpu' is no option of sbatch, such as --partition=gpu"),
        (JobRequest(options=("--comment='x",)), '"--comment=\'x" cannot be read: No closing quotation'),
        (JobRequest(options=("--comment=x\ny",)), "'--comment=x\\ny' has more than one line"),
        (JobRequest(2, 16, True, ("-p gpu -t 60", "--qos=high")), ""),
        (JobRequest(options=("--time=2",)), "with --time=2 each job would stop as it begins, since the training is"),
        (JobRequest(options=("-t 5:00",)), "with --time=5:00 each job would stop as it begins"),
        (JobRequest(options=("--time=0:10:00 --signal=B:USR1@900",)), "with --time=0:10:00 each job would stop as"),
        (JobRequest(options=("--time=2", "--signal=B:USR1@60")), ""),
    ],
)
def test_options_that_would_break_a_job_are_refused_with_words(request_: JobRequest, problem: str) -> None:
    """Each refusal says which option it is about, and what to write."""
    assert request_.problem().startswith(problem) and bool(request_.problem()) == bool(problem)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2", 120),
        ("2:30", 150),
        ("1:00:00", 3600),
        ("1-2", 26 * 3600),
        ("1-0:30", 24 * 3600 + 1800),
        ("1-0:0:1", 24 * 3600 + 1),
        ("0", None),
        ("UNLIMITED", None),
        ("", None),
    ],
)
def test_times_are_read_as_sbatch_reads_them(text: str, seconds: int | None) -> None:
    """A number is minutes, or after days hours."""
    assert time_limit_s(text) == seconds


def test_several_nodes_are_reached_by_one_step() -> None:
    """On one node the command is started as it is."""
    assert step_command(1, ["python", "a b.py"]) == ["python", "a b.py"]
    shell, _, step, *argv = step_command(2, ["python", "a b.py"])
    assert shell == "/bin/sh" and argv == ["srun", "python", "a b.py"]
    assert step.startswith("exec srun --nodes=2 --ntasks-per-node=1 ") and step.endswith('"$@"')


def test_slurms_answers_are_read_line_by_line() -> None:
    """States are read as squeue and sacct write them, and GPUs as sinfo does."""
    states = parse_states(
        "7|PENDING|PartitionConfig|\n7_12|PENDING|Resources|\n"
        "8|CANCELLED by 0|None|h[1-2]\n9|RUNNING|None|h1\n8.batch|X||\n"
    )

    assert states == {
        "7": JobState("PENDING", "PartitionConfig"),
        "7_12": JobState("PENDING", "Resources"),
        "8": JobState("CANCELLED", "", "h[1-2]"),
        "9": JobState("RUNNING", "", "h1"),
    }
    assert (states["7"].is_waiting, states["8"].is_over, states["9"].is_over) == (True, True, False)
    assert states["7"].words == "waits: its partition cannot give what it asks for (PartitionConfig)"
    assert (states["7"].cannot_start, states["7_12"].cannot_start) == (True, False)
    partitions = "cpu*|(null)\ngpu|gpu:a100:8(S:0-1)\n"
    assert [parse_has_gpus(partitions, name) for name in ("", "cpu", "gpu", "other")] == [False, False, True, False]


@pytest.mark.parametrize(
    ("reason", "words", "stays"),
    [
        ("Resources", "what it asks for is in use (Resources)", False),
        ("", "Slurm has not looked at it yet", False),
        (
            "ReqNodeNotAvail, UnavailableNodes:n3",
            "a node that it needs is down, reserved or in use (ReqNodeNotAvail, ",
            False,
        ),
        ("QOSMaxJobsPerUserLimit", "its QOS has reached a limit, max jobs per user (QOSMaxJobs", False),
        ("AssocGrpCPURunMinutesLimit", "its account has reached a limit, all together: cpu run minutes (Assoc", False),
        ("QOSMaxNodePerJobLimit", "its QOS has reached a limit, max node per job (", True),
        ("JobHeldUser", "it is held: `scontrol release` lets it go (JobHeldUser)", True),
        ("SomethingNew", "SomethingNew", False),
    ],
)
def test_reasons_are_told_in_plain_words(reason: str, words: str, stays: bool) -> None:
    """Slurm's reasons are told in words, with their names, and those that only a person can change are known."""
    assert plain_reason(reason).startswith(words) and lasts(reason) == stays


def test_an_experiment_has_one_script_for_arrays_of_its_trials() -> None:
    """A job of an array finds its trial by its place in the array, and its output lies with the trial."""
    lines = experiment_script(JobRequest(1, 2), 3, JobPlace(Path("/h"), "0", "3.11/2.6.0", "python")).splitlines()

    assert "#SBATCH --job-name=core-sdk-experiment-3" in lines
    assert lines[-3:] == [
        "trial=$(($1 + SLURM_ARRAY_TASK_ID))",
        'exec >>"$CORE_SDK_HOME/runs/$trial/slurm-${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID.out" 2>&1 || exit',
        "exec python -P -m core_sdk._execution.slurm --trial=$trial --home=0 --versions=3.11/2.6.0 --in-experiment",
    ]


def test_an_array_has_no_more_places_than_the_site_allows() -> None:
    """A trial's place is what its number leaves after division by the number of places; the rest is the base."""
    assert arrays_of([1, 19, 20, 25, 40, 7], 20) == [(0, [1, 7, 19]), (20, [20, 25]), (40, [40])]
    assert arrays_of([999, 1000], 1000) == [(0, [999]), (1000, [1000])]


def test_a_node_with_another_python_or_torch_is_told(home: Home) -> None:
    """A job on a node whose Python or torch differs from the submission's runs nothing, and says both."""
    made = Home.create(home.root)
    options = [f"--trial={made.create_trial().trial_id}", f"--home={made.identity()}", "--versions=3.9/1.13.1"]
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "CORE_SDK_HOME": str(home.root)}

    ended = subprocess.run(
        [sys.executable, "-m", "core_sdk._execution.slurm", *options],
        env=os.environ | job,
        capture_output=True,
        text=True,
    )

    assert ended.returncode == 1
    assert f"other versions of Python and torch, {versions()}, than where" in ended.stdout
    assert "submitted, 3.9/1.13.1. Give all nodes the same environment." in ended.stdout


def test_a_clock_that_is_wrong_is_told() -> None:
    """A node whose clock is some seconds from the file server's says how far, and what that means."""
    assert clock_words(3.0) == clock_words(-3.0) == ""
    assert "is 700 s ahead of the clock of the home's file server" in clock_words(700.2)
    assert "is 60 s behind the clock of" in clock_words(-60.0)


def test_the_end_of_a_job_is_told_from_its_fields() -> None:
    """A requeue counts first; an end before the planned one that was no preemption is somebody's scancel."""
    end, early = "2026-01-01T12:00:00", "2026-01-01T11:00:00"
    limited = {"Restarts": "0", "PreemptTime": "None", "EndTime": end}

    assert fate_of(limited, num_restarts=0, planned_end=end) == "limit"
    assert fate_of(limited | {"EndTime": early}, num_restarts=0, planned_end=end) == "canceled"
    assert fate_of(limited, num_restarts=0, planned_end="Unknown") == "canceled"
    assert fate_of(limited | {"PreemptTime": early}, num_restarts=0, planned_end=end) == "preempted"
    assert fate_of(limited | {"Restarts": "1", "PreemptTime": early}, num_restarts=0, planned_end=end) == "requeued"
    assert fate_of({}, num_restarts=0, planned_end=end) == "limit"
    assert fate_of(limited | {"JobState": "COMPLETING"}, num_restarts=0, planned_end=end) == "limit"


def test_a_signal_of_the_user_is_no_end_of_a_job() -> None:
    """A job that Slurm does not end still runs: `scancel --batch --signal=TERM` pauses its training."""
    end, early = "2026-01-01T12:00:00", "2026-01-01T11:00:00"
    running = {"JobState": "RUNNING", "Restarts": "0", "PreemptTime": "None", "EndTime": end}

    assert fate_of(running, num_restarts=0, planned_end=end) == "asked"
    assert fate_of(running | {"PreemptTime": early, "EndTime": early}, num_restarts=0, planned_end=end) == "preempted"
    assert not follows("asked", is_complete=False, has_progressed=True)


def test_a_chain_goes_on_only_while_it_leads_somewhere() -> None:
    """A job that has stored nothing within its time is not followed by another; one that was preempted is."""
    assert follows("limit", is_complete=False, has_progressed=True)
    assert not follows("limit", is_complete=False, has_progressed=False)
    assert follows("preempted", is_complete=False, has_progressed=False)
    assert not any(follows(fate, is_complete=True, has_progressed=True) for fate in ("limit", "preempted", "canceled"))
    assert not any(follows(fate, is_complete=False, has_progressed=True) for fate in (None, "canceled", "requeued"))
