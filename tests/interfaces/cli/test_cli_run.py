"""`core-sdk run` starts a script as a trial, keeps its output, and ends as it does."""

from __future__ import annotations

import ast
import json
import os
import signal
import stat
import sys
from pathlib import Path

import msgspec
import pytest
from interfaces.cli.commands import Cli, StartCli, WriteScript
from processes import wait_for

from core_sdk import client
from core_sdk._ground.records import ClusterInfo
from core_sdk._home import Home

STOP = "context.preempt.should_preempt(); signal.raise_signal(signal.SIGTERM); assert context.preempt.should_preempt()"


def test_a_run_is_a_trial_named_after_its_script(home: Home, cli: Cli, write_script: WriteScript) -> None:
    """A run records its command, attempt and exit, and prints the trial's number."""
    script = write_script("import sys; print('hello'); print('oops', file=sys.stderr)")

    run = cli("run", "--label", "fast", "--", sys.executable, str(script), "--lr", "0.1")

    folder = home.trial(1)
    command = folder.read_command()
    exit_record = folder.read_exit(1)
    experiment = home.experiment(folder.read_record().experiment_id).read()
    assert run.status == 0
    assert run.output == "hello\noops\n"
    assert "trial 1" in run.errors
    assert (experiment.name, experiment.labels) == ("train.py", ["fast"])
    assert command is not None
    assert command.argv == [sys.executable, str(script), "--lr", "0.1"]
    assert command.cwd == str(script.parent)
    assert exit_record is not None
    assert exit_record.code == 0


def test_the_script_is_told_what_it_runs_for(home: Home, cli: Cli, write_script: WriteScript) -> None:
    """The run info is passed in a file that only the user can read."""
    script = write_script("import os; print(os.environ['CORE_SDK_RUN_INFO']); print(os.environ['CORE_SDK_HOME'])")

    run = cli("run", "--name", "digits", "--", sys.executable, str(script))

    run_info, home_of_script = run.output.splitlines()
    info = msgspec.json.decode(Path(run_info).read_bytes(), type=ClusterInfo)
    assert stat.S_IMODE(Path(run_info).stat().st_mode) == 0o600
    assert (info.trial.trial_id, info.trial.attempt, info.latest_checkpoint) == (1, 1, None)
    assert home_of_script == str(home.root)


def test_the_output_is_kept_byte_by_byte(home: Home, cli: Cli, write_script: WriteScript) -> None:
    """The log has every byte of the output, even if it is not text."""
    output = bytes(range(256)) * 1000 + b"no newline"
    script = write_script(
        """
        import sys
        sys.stdout.buffer.write(bytes(range(256)) * 1000 + b"no newline")
        """
    )

    run = cli("run", "--", sys.executable, str(script))

    assert home.trial(1).log_path(1).read_bytes() == output
    # The pipe to this test was read as text, which makes one of all line ends.
    assert run.output.encode(errors="surrogateescape") == output.replace(b"\r", b"\n")


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("raise SystemExit(3)", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
        ("1 / 0", 1),
    ],
)
def test_a_run_ends_as_its_script(cli: Cli, write_script: WriteScript, source: str, status: int) -> None:
    """The exit status is the script's, or 128 + N after signal N."""
    assert cli("run", "--", sys.executable, str(write_script(source))).status == status


@pytest.mark.parametrize(
    ("in_context", "after", "status", "state", "words"),
    [
        ("pass", "raise SystemExit(7)", 7, "ERROR", "exited with status 7, after it had left its Context"),
        ("pass", "os.kill(os.getpid(), signal.SIGTERM)", 0, "COMPLETED", "trial 1 completed"),
        (STOP, "raise SystemExit(1)", 75, "PAUSED", "exited with status 1, after it had left its Context"),
        (STOP, "os.kill(os.getpid(), signal.SIGTERM)", 75, "PAUSED", "is paused (SIGTERM)"),
        ("raise KeyboardInterrupt", "pass", 130, "CANCELED", "trial 1 was canceled"),
        ("raise ValueError('bad')", "pass", 1, "ERROR", "failed (ValueError: bad)"),
    ],
)
def test_the_state_the_last_line_and_the_exit_status_agree(
    cli: Cli, write_script: WriteScript, in_context: str, after: str, status: int, state: str, words: str
) -> None:
    """State, last line and status agree: any failure counts, except after a stop; otherwise the Context decides."""
    script = write_script(
        f"""
        import contextlib, os, signal
        from core_sdk import core
        with contextlib.suppress(ValueError, KeyboardInterrupt), core.init() as context:
            {in_context}
        {after}
        """
    )

    run = cli("run", "--", sys.executable, str(script))

    (listed,) = json.loads(cli("trial", "list", "--json").output)
    assert (run.status, listed["state"]) == (status, state)
    assert words in run.errors.splitlines()[-1]
    assert state in cli("trial", "describe", "1").output


def test_ctrl_c_cancels_a_trial_that_can_be_resumed(cli: Cli, start_cli: StartCli, write_script: WriteScript) -> None:
    """Ctrl-C cancels the trial, and a resume continues from its last checkpoint."""
    script = write_script(
        """
        import time
        from core_sdk import core
        with core.init() as context:
            print("checkpoint", context.info.latest_checkpoint is not None)
            with context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
                (path / "state").touch()
            print("stored")
            while context.info.latest_checkpoint is None:
                time.sleep(0.01)
        """
    )
    run = start_cli("run", "--", sys.executable, str(script))
    run.read_until("stored")

    os.killpg(run.process.pid, signal.SIGINT)
    status, _, errors = run.wait()
    (canceled,) = json.loads(cli("trial", "list", "--json").output)
    resumed = cli("trial", "resume", "1")

    assert (status, canceled["state"]) == (130, "CANCELED")
    assert "core-sdk trial resume 1" in errors
    assert resumed.output.splitlines()[0] == "checkpoint True"
    assert client.get_trial(1).state is client.TrialState.COMPLETED


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["--", "no-such-program"], 127, "no-such-program"),
        (["--", "./train.py"], 126, "core-sdk run -- python"),
        (["python", "train.py"], 2, "core-sdk run -- python train.py"),
        ([], 2, "core-sdk run -- python train.py"),
        (["--name", "", "--", "true"], 2, "is empty"),
    ],
)
def test_what_cannot_be_started_leaves_no_trial(
    home: Home, cli: Cli, write_script: WriteScript, arguments: list[str], status: int, message: str
) -> None:
    """A program that cannot be started leaves no trial, and the message says what to do."""
    write_script("")

    run = cli("run", *arguments)

    assert run.status == status
    assert message in run.errors
    assert "Traceback" not in run.errors
    assert home.trial_ids() == []


def test_a_program_of_another_machine_leaves_no_trial(home: Home, cli: Cli, tmp_path: Path) -> None:
    """A program that the kernel refuses to execute leaves no trial."""
    program = tmp_path / "train"
    program.write_bytes(b"\x7fELF of another world")
    program.chmod(0o700)

    run = cli("run", "--", "./train")

    assert run.status == 126
    assert "train" in run.errors
    assert home.trial_ids() == []


def test_a_killed_run_leaves_its_script_running(home: Home, start_cli: StartCli, write_script: WriteScript) -> None:
    """After a kill -9 of `core-sdk run`, the script goes on and its whole output is logged."""
    script = write_script(
        """
        import pathlib, time
        print("started")
        while not pathlib.Path("go").exists():
            time.sleep(0.01)
        for line in range(10000):
            print("line", line)
        print("done")
        """
    )
    run = start_cli("run", "--", sys.executable, str(script))
    run.read_until("started")
    log = home.trial(1).log_path(1)

    run.process.kill()
    run.process.wait()
    (script.parent / "go").touch()
    wait_for(lambda: log.read_text().endswith("done\n"))

    assert log.read_text().splitlines() == ["started", *(f"line {line}" for line in range(10000)), "done"]


def test_sigterm_reaches_the_script(home: Home, start_cli: StartCli, write_script: WriteScript) -> None:
    """SIGTERM is passed on and ends a script that never calls should_preempt()."""
    script = write_script("import time; print('started'); time.sleep(600)")
    run = start_cli("run", "--", sys.executable, str(script))
    run.read_until("started")

    run.process.terminate()
    status, _, errors = run.wait()

    assert status == 128 + signal.SIGTERM
    assert "killed by SIGTERM" in errors


def test_sigusr1_pauses_under_slurm(
    start_cli: StartCli, write_script: WriteScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm sends it to all processes of a step, and we must not die of it before the script has saved."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    script = write_script(
        """
        from core_sdk import core
        with core.init() as context:
            context.preempt.should_preempt()
            print("started")
            while not context.preempt.should_preempt(): pass
        """
    )
    run = start_cli("run", "--", sys.executable, str(script))
    run.read_until("started")

    run.process.send_signal(signal.SIGUSR1)

    assert run.wait()[0] == 75


def test_ctrl_c_waits_for_what_the_script_makes_of_it(start_cli: StartCli, write_script: WriteScript) -> None:
    """The terminal sends it to both; the script may clean up in peace, and its status is ours."""
    script = write_script(
        """
        import sys, time
        try:
            print("started")
            while True:
                time.sleep(0.01)  # Python may miss a signal at the very beginning of a sleep
        except KeyboardInterrupt:
            print("cleaned up")
            sys.exit(5)
        """
    )
    run = start_cli("run", "--", sys.executable, str(script))
    run.read_until("started")

    os.killpg(run.process.pid, signal.SIGINT)
    status, output, _ = run.wait()

    assert status == 5
    assert output == "cleaned up\n"


def test_a_reader_that_leaves_does_not_end_the_training(
    home: Home, start_cli: StartCli, write_script: WriteScript
) -> None:
    """If a reader such as `head -1` leaves, the training goes on and its output is logged."""
    script = write_script(
        """
        import pathlib, time
        print("started")
        while not pathlib.Path("go").exists():
            time.sleep(0.01)
        print("x" * 100_000)
        print("y" * 100_000)
        """
    )
    run = start_cli("run", "--", sys.executable, str(script))
    run.read_until("started")
    assert run.process.stdout is not None

    run.process.stdout.close()
    (script.parent / "go").touch()

    assert run.process.wait(60) == 0
    assert home.trial(1).log_path(1).read_text() == f"started\n{'x' * 100_000}\n{'y' * 100_000}\n"


def test_the_script_reads_our_input(cli: Cli, write_script: WriteScript) -> None:
    """The script reads the standard input of the command."""
    script = write_script("print('read', input())")

    assert cli("run", "--", sys.executable, str(script), stdin="hello\n").output == "read hello\n"


NAMING = "from core_sdk import core\nwith core.init(name='digits'): pass\n"


@pytest.mark.parametrize("num_runs", [1, 3])
def test_a_script_that_names_its_experiment_leaves_no_other_behind(
    home: Home, cli: Cli, write_script: WriteScript, num_runs: int
) -> None:
    """A trial moves from the experiment of the script's name to the one that the script names."""
    script = write_script(NAMING)

    for number in range(num_runs):
        cli("run", "--label", f"run {number}", "--", sys.executable, str(script))

    [experiment] = json.loads(cli("experiment", "list", "--json").output)
    assert (experiment["experiment_id"], experiment["name"], experiment["num_trials"]) == (1, "digits", num_runs)
    assert experiment["labels"] == [f"run {number}" for number in range(num_runs)]
    assert home.experiment_ids() == [1]
    assert sorted(entry.name for entry in home.experiments.iterdir()) == ["1", "names"]
    assert cli("experiment", "describe", "train.py").status == 3


def test_scripts_that_name_nothing_share_an_experiment(
    home: Home, cli: Cli, start_cli: StartCli, tmp_path: Path
) -> None:
    """Runs of one script share an experiment, even at the same time and without Core SDK."""
    script = tmp_path / "train.sh"
    script.write_text("#!/bin/sh\necho started\nwhile [ ! -e go ]; do sleep 0.01; done\n")
    script.chmod(0o700)
    runs = [start_cli("run", "--label", "a", "--", "./train.sh"), start_cli("run", "--label", "b", "--", "./train.sh")]
    for run in runs:
        run.read_until("started")

    (tmp_path / "go").touch()
    statuses = [run.wait()[0] for run in runs]
    cli("run", "--", "./train.sh")

    [experiment] = json.loads(cli("experiment", "list", "--json").output)
    assert statuses == [0, 0]
    assert (experiment["name"], experiment["num_trials"], sorted(experiment["labels"])) == ("train.sh", 3, ["a", "b"])
    assert home.experiment_ids() == [experiment["experiment_id"]]


def test_what_cannot_be_started_leaves_no_experiment(home: Home, cli: Cli, tmp_path: Path) -> None:
    """A program that the kernel refuses to execute leaves no experiment."""
    program = tmp_path / "train"
    program.write_bytes(b"\x7fELF of another world")
    program.chmod(0o700)

    cli("run", "--label", "a", "--", "./train")

    assert home.experiment_ids() == []


def test_nobody_else_may_read_what_is_recorded(home: Home, cli: Cli, write_script: WriteScript) -> None:
    """All files of the home are readable by the user only, whatever the umask."""
    script = write_script("from core_sdk import core\nwith core.init(labels=['a']) as c: c.train.report_progress(1)\n")
    umask = os.umask(0)
    try:
        cli("run", "--", sys.executable, str(script))
        cli("trial", "list")
    finally:
        os.umask(umask)

    open_to_others = [path for path in home.root.rglob("*") if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert open_to_others == []
    assert stat.S_IMODE(home.root.stat().st_mode) == 0o700


def test_hyperparameters_are_given_on_the_command_line(cli: Cli, write_script: WriteScript) -> None:
    """Hyperparameters of the command line reach the script before and after init(), and again when it is resumed."""
    script = write_script(
        """
        import core_sdk as det
        print(det.get_cluster_info().trial.hparams)
        with det.core.init(hparams={"layers": 2}) as context:
            print(context.info.trial.hparams)
        """
    )
    given = ["--hparam", "lr=1e-3", "--hparam", "sizes=[8, 16]", "--hparam", "optimizer=adam", "--hparam", "bias=true"]
    given += ["--hparam", "day=2026-11-22", "--hparam", "answer=yes", "--hparam", "seed=010"]

    run = cli("run", *given, "--", sys.executable, str(script))
    resumed = cli("trial", "resume", "1", "--again")

    hparams = {"lr": 0.001, "sizes": [8, 16], "optimizer": "adam", "bias": True}
    hparams |= {"day": "2026-11-22", "answer": "yes", "seed": 10}  # by the rules of YAML 1.2, as in a configuration
    before, after = map(ast.literal_eval, run.output.splitlines())
    assert before == hparams
    assert after == {"layers": 2} | hparams
    assert [ast.literal_eval(line) for line in resumed.output.splitlines()] == [after, after]


def test_arguments_are_filled_with_hyperparameters(home: Home, cli: Cli, write_script: WriteScript) -> None:
    """${hparams.NAME} in arguments is replaced at a start, a resume and a continuation."""
    script = write_script(
        """
        import argparse, sys
        from core_sdk import core

        parser = argparse.ArgumentParser()
        parser.add_argument("--lr", type=float)
        parser.add_argument("--layers", type=int, nargs="*")
        parser.add_argument("--amp", action="store_true")
        arguments = parser.parse_args()
        with core.init(hparams={**vars(arguments), "output": "x"}) as context:
            print(arguments.lr, arguments.layers, arguments.amp, context.info.trial.hparams["lr"])
            with context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
                (path / "a").touch()
        sys.exit(context.info.latest_checkpoint is None)
        """
    )
    given = ("--hparam", "lr=1e-5", "--hparam", "layers=[8, 4]", "--hparam", "amp=true")

    runs = [cli("run", *given, "--", sys.executable, str(script), "${args}"), cli("trial", "resume", "1")]
    runs.append(cli("trial", "continue", "1", "--hparam", "lr=0.5"))
    refused = cli("run", *given, "--", sys.executable, str(script), "--lr", "${hparams.rate}")

    assert [run.output.splitlines()[0] for run in runs] == [*["1e-05 [8, 4] True 1e-05"] * 2, "0.5 [8, 4] True 0.5"]
    assert refused.status == 1
    assert "names ${hparams.rate}, but the trial has no hyperparameter rate. It has lr, layers, amp." in refused.errors
    assert home.trial_ids() == [1, 2]


def test_a_script_that_contradicts_the_command_line_is_believed(
    home: Home, cli: Cli, write_script: WriteScript
) -> None:
    """A script's own hyperparameters are recorded with a warning, and it is given the same values again."""
    script = write_script(
        """
        import argparse
        import core_sdk as det
        args = argparse.Namespace(lr=0.1, layers=2, seed=3)
        with det.core.init(hparams=vars(args)) as context:
            print(sorted(context.info.trial.hparams.items()))
            with context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
                (path / "state").touch()
            raise OSError
        """
    )

    run = cli("run", "--hparam", "lr=0.5", "--hparam", "seed=3", "--", sys.executable, str(script))
    again = [cli("trial", "resume", "1"), cli("trial", "continue", "1")]

    assert home.trial(1).read_record().hparams == {"lr": 0.1, "layers": 2, "seed": 3}
    assert home.trial(2).read_record().hparams == {"lr": 0.1, "layers": 2, "seed": 3}
    assert "(lr: 0.1 in the script, 0.5 given)" in run.output
    for ended in (run, *again):
        assert str([("layers", 2), ("lr", 0.5), ("seed", 3)]) in ended.output


def test_a_script_adds_to_a_group_of_which_a_part_was_given(home: Home, cli: Cli, write_script: WriteScript) -> None:
    """A script may add to a group of hyperparameters; only different values cause a warning."""
    script = write_script(
        """
        from core_sdk import core
        with core.init(hparams={"optimizer": {"lr": 0.1, "name": "sgd", "decay": 0}}) as context:
            print(context.info.trial.hparams)
        """
    )

    run = cli("run", "--hparam", "optimizer={lr: 0.5, decay: 0}", "--", sys.executable, str(script))

    assert home.trial(1).read_record().hparams == {"optimizer": {"lr": 0.1, "name": "sgd", "decay": 0}}
    assert "(optimizer.lr: 0.1 in the script, 0.5 given)" in run.output
    assert str({"optimizer": {"lr": 0.5, "decay": 0, "name": "sgd"}}) in run.output


def test_a_resumed_script_that_changed_its_mind_is_told(home: Home, cli: Cli, write_script: WriteScript) -> None:
    """If a resumed script gives another value, the recorded one stays and a warning names both."""
    script = write_script("from core_sdk import core\nwith core.init(hparams={'lr': 0.1}) as context: raise OSError\n")
    cli("run", "--", sys.executable, str(script))
    script.write_text(script.read_text().replace("0.1", "0.2"))

    resumed = cli("trial", "resume", "1", "--again")

    assert "(lr: 0.2 in the script, 0.1 recorded)" in resumed.output
    assert home.trial(1).read_record().hparams == {"lr": 0.1}


@pytest.mark.parametrize(("options", "slot_ids"), [([], [0]), (["--slots", "3"], [0, 1, 2])])
def test_a_script_finds_its_slots(cli: Cli, write_script: WriteScript, options: list[str], slot_ids: list[int]) -> None:
    """A script finds its slots, at least one, at a start and at a resume."""
    script = write_script(
        """
        import core_sdk as det
        info = det.get_cluster_info()
        print(info.slot_ids, info.container_slot_counts)
        raise SystemExit(1)
        """
    )

    run = cli("run", *options, "--", sys.executable, str(script))
    resumed = cli("trial", "resume", "1")

    assert run.output == resumed.output == f"{slot_ids} {[len(slot_ids)]}\n"


def test_a_script_with_several_slots_needs_a_distributed_context(cli: Cli, write_script: WriteScript) -> None:
    """One process on several slots is told which command takes them all, or how it says that it does."""
    script = write_script("from core_sdk import core\nwith core.init() as context: print(context.info.slot_ids)\n")
    alone = script.read_text().replace("init()", "init(distributed=core.DistributedContext())")

    one, two = (cli("run", "--slots", slots, "--", sys.executable, str(script)) for slots in ("1", "2"))

    assert (one.status, one.output) == (0, "[0]\n")
    assert two.status == 1
    assert "the trial has 2 slots, and its command has started one process" in two.output
    assert "`python -m launch.torch_distributed train.py`" in two.output
    assert cli("run", "--slots", "2", "--", sys.executable, "-c", alone).output == "[0, 1]\n"


@pytest.mark.parametrize("hparam", ["lr", "=1", "lr=[1", "size=99999999999999999999", "when=!!timestamp 2020-01-01"])
def test_a_hyperparameter_that_cannot_be_kept_is_refused(home: Home, cli: Cli, hparam: str) -> None:
    """A bad hyperparameter is refused before anything is recorded."""
    run = cli("run", "--hparam", hparam, "--", sys.executable, "-c", "pass")

    assert run.status == 2
    assert "--hparam" in run.errors
    assert not home.root.exists()
