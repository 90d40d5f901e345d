"""A trial is stopped, goes on where it was, or becomes the beginning of another one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from interfaces.cli.commands import Cli, StartCli, WriteScript
from interfaces.cli.recorded import damage, new_attempt, new_trial, record_script, store
from processes import wait_for
from promises import promise

from core_sdk._ground.records import CommandRecord
from core_sdk._home import Home, TrialFolder

COUNTING = """
    import pathlib, sys, time
    import core_sdk as det

    with det.core.init(hparams={"step": 1}) as ctx:
        trial_id = ctx.info.trial.trial_id
        steps = weight = 0
        if ctx.info.latest_checkpoint is not None:
            with ctx.checkpoint.restore_path(ctx.info.latest_checkpoint) as path:
                stored_trial, stored_steps, weight = map(int, (path / "state").read_text().split())
            steps = stored_steps if stored_trial == trial_id else 0
        print("from", steps, weight)
        while steps < 4:
            steps += 1
            weight += 1
            ctx.train.report_training_metrics(steps_completed=steps, metrics={"weight": weight})
            with ctx.checkpoint.store_path({"steps_completed": steps}) as (path, storage_id):
                (path / "state").write_text(f"{trial_id} {steps} {weight}")
            print("step", steps)
            while steps == 2 and not pathlib.Path("go").exists() and not ctx.preempt.should_preempt():
                time.sleep(0.01)
            if ctx.preempt.should_preempt():
                break
    print("left", steps, weight)
"""

RESTORING = """
    import core_sdk
    with core_sdk.core.init() as ctx:
        print("checkpoint", ctx.info.latest_checkpoint, ctx.info.trial.steps_completed)
"""


def weights(cli: Cli, trial_id: int, *options: str) -> list[tuple[int, int, int]]:
    """Returns the attempt, step and weight of each report."""
    reports = json.loads(cli("trial", "metrics", str(trial_id), "--json", *options).output)
    return [(report["attempt"], report["steps_completed"], report["metrics"]["weight"]) for report in reports]


@promise("stop-pauses")
def test_a_trial_is_paused_resumed_and_continued(
    home: Home, cli: Cli, start_cli: StartCli, write_script: WriteScript, tmp_path: Path
) -> None:
    """A resumed trial counts on, and a continued one begins at step 0 with what was learned."""
    script = write_script(COUNTING)
    run = start_cli("run", "--", sys.executable, str(script))
    run.read_until("step 2")

    refused = cli("trial", "resume", "1")
    pause = cli("trial", "pause", "1", "--wait")
    status, output, errors = run.wait()
    (tmp_path / "go").touch()
    resumed = cli("trial", "resume", "1")
    continued = cli("trial", "continue", "1")

    assert refused.status == 1
    assert "attempt 1 is running" in refused.errors
    assert pause.status == 0
    # The script says that it is stopping, unless it has stopped before it could.
    assert (status, output.splitlines()[-1]) == (75, "left 2 2")
    assert "core-sdk trial resume 1" in errors
    assert resumed.status == continued.status == 0
    assert resumed.output.splitlines() == ["from 2 2", "step 3", "step 4", "left 4 4"]
    assert continued.output.splitlines() == ["from 0 4", "step 1", "step 2", "step 3", "step 4", "left 4 8"]
    assert weights(cli, 1) == [(1, 1, 1), (1, 2, 2), (2, 3, 3), (2, 4, 4)]
    assert weights(cli, 2) == [(1, 1, 5), (1, 2, 6), (1, 3, 7), (1, 4, 8)]
    new = home.trial(2).read_record()
    assert (new.experiment_id, new.hparams) == (1, {"step": 1})
    assert new.continued_from is not None


def test_a_trial_is_continued_with_other_hyperparameters(home: Home, cli: Cli, write_script: WriteScript) -> None:
    """`continue` can change hyperparameters, the checkpoint and the command."""
    script = write_script(
        """
        import sys
        from core_sdk import core
        with core.init() as context:
            print(context.info.latest_checkpoint, context.info.trial.hparams, sys.argv[1:])
            for step in (1, 2):
                with context.checkpoint.store_path({"steps_completed": step}) as (path, storage_id):
                    (path / "state").touch()
        """
    )
    cli("run", "--hparam", "lr=0.1", "--hparam", "layers=2", "--", sys.executable, str(script))
    first = json.loads(cli("checkpoint", "list", "--trial", "1", "--json").output)[-1]["storage_id"]

    continued = cli("trial", "continue", "1", "--hparam", "lr=0.01", "--checkpoint", first, "--", sys.executable,
                    str(script), "--fast")  # fmt: skip
    unknown = cli("trial", "continue", "1", "--checkpoint", "nothing")

    assert continued.output == f"{first} {{'lr': 0.01, 'layers': 2}} ['--fast']\n"
    new = home.trial(2).read_record()
    assert (new.continued_from, new.hparams) == (first, {"lr": 0.01, "layers": 2})
    assert home.trial(1).read_record().hparams == {"lr": 0.1, "layers": 2}
    assert unknown.status == 3
    assert "there is no checkpoint 'nothing'" in unknown.errors
    assert home.trial_ids() == [1, 2]


def test_sigterm_pauses_a_script_that_asks(start_cli: StartCli, write_script: WriteScript) -> None:
    """A batch system's notice to `core-sdk run` ends as a pause, with the status that says so."""
    run = start_cli("run", "--", sys.executable, str(write_script(COUNTING)))
    run.read_until("step 2")

    run.process.terminate()
    status, output, _ = run.wait()

    # The script says that it is stopping, unless it has stopped before it could.
    assert (status, output.splitlines()[-1]) == (75, "left 2 2")


@promise("damaged-checkpoint-skipped")
def test_a_resume_falls_back_to_the_newest_good_checkpoint(home: Home, cli: Cli, write_script: WriteScript) -> None:
    """The damaged one is named, with its bad file; the reports behind the good one are superseded."""
    folder = trial_with_checkpoints(home, write_script(RESTORING))
    damage(home, "b")

    resumed = cli("trial", "resume", "1")

    assert resumed.status == 0
    assert resumed.output == "checkpoint a 10\n"
    assert "skipped checkpoint b" in resumed.errors
    assert "weights.bin" in resumed.errors
    assert "continuing from checkpoint a" in resumed.errors
    assert folder.attempts() == [1, 2]


def test_the_first_resume_in_a_home_mentions_the_check(home: Home, cli: Cli, write_script: WriteScript) -> None:
    """Later ones do not."""
    trial_with_checkpoints(home, write_script(RESTORING))

    first, second = cli("trial", "resume", "1"), cli("trial", "resume", "1", "--again")

    assert first.errors.count("`core-sdk check-resume -- COMMAND` shows whether") == 1
    assert "check-resume" not in second.errors


def test_a_trial_none_of_whose_checkpoints_can_be_read_is_not_begun_anew(
    home: Home, cli: Cli, write_script: WriteScript
) -> None:
    """A trial with only unreadable checkpoints is not resumed until they are deleted; then it begins from nothing."""
    folder = trial_with_checkpoints(home, write_script(RESTORING))
    damage(home, "a")
    damage(home, "b")

    refused = cli("trial", "resume", "1")
    also_refused = cli("trial", "continue", "1")
    attempts_of_refused = folder.attempts()
    for storage_id in ("a", "b"):
        cli("checkpoint", "delete", storage_id, "--yes")
    resumed = cli("trial", "resume", "1")

    assert refused.status == also_refused.status == 1
    assert "core-sdk checkpoint delete" in refused.errors
    assert attempts_of_refused == [1]
    assert home.trial_ids() == [1]
    assert resumed.output == "checkpoint None 0\n"


def test_what_is_gone_is_named(home: Home, cli: Cli, write_script: WriteScript, tmp_path: Path) -> None:
    """A missing directory, interpreter, command or trial is named in the error."""
    script = write_script(RESTORING)
    folder = trial_with_checkpoints(home, script)

    folder.write_command(CommandRecord(argv=["/gone/python", str(script)], cwd=str(tmp_path), environment={}))
    without_interpreter = cli("trial", "resume", "1")
    folder.write_command(CommandRecord(argv=[sys.executable], cwd="/gone/directory", environment={}))
    without_directory = cli("trial", "continue", "1")
    (folder.path / "command.json").unlink()
    without_command = cli("trial", "resume", "1")
    without_trial = cli("trial", "resume", "99")

    assert "/gone/python" in without_interpreter.errors
    assert "/gone/directory" in without_directory.errors
    assert "was not recorded" in without_command.errors
    assert {ended.status for ended in (without_interpreter, without_directory, without_command)} == {1}
    assert without_trial.status == 3
    assert folder.attempts() == [1]


def test_a_script_that_was_started_by_itself_can_be_resumed(
    cli: Cli, run_script: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    """`python train.py` records how it was started; from the first resume on its output is kept."""
    (tmp_path / "go").touch()
    run_script(COUNTING)

    resumed = cli("trial", "resume", "1", "--again")

    assert resumed.output.splitlines() == ["from 4 4", "left 4 4"]
    assert cli("trial", "logs", "1").output == resumed.output


def test_a_resume_sets_the_variables_of_the_list_and_is_given_all_others_anew(cli: Cli) -> None:
    """A resume sets the recorded variables of the allow-list, and takes all others from its own environment."""
    shown = "import os; print(os.environ.get('OMP_NUM_THREADS'), os.environ.get('DATA'))"
    cli("run", "--", sys.executable, "-c", shown, OMP_NUM_THREADS="3", DATA="/data")

    without, with_data = (cli("trial", "resume", "1", "--again", **more).output for more in ({}, {"DATA": "/new"}))

    assert (without, with_data) == ("3 None\n", "3 /new\n")
    assert "DATA=/data core-sdk trial resume 7" in cli("trial", "resume", "--help").output


def test_of_two_resumes_one_is_refused(
    start_cli: StartCli, home: Home, write_script: WriteScript, tmp_path: Path
) -> None:
    """If a trial is resumed several times at once, only one resume begins an attempt."""
    script = write_script("import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)")
    folder = trial_with_checkpoints(home, script)
    resumes = [start_cli("trial", "resume", "1") for _ in range(3)]

    wait_for(lambda: sum(resume.process.poll() is not None for resume in resumes) == 2)
    (tmp_path / "go").touch()
    statuses = sorted(resume.wait()[0] for resume in resumes)

    assert statuses == [0, 1, 1]
    assert folder.attempts() == [1, 2]


def test_only_a_running_trial_can_be_paused(home: Home, cli: Cli, write_script: WriteScript) -> None:
    """Pausing an ended or unknown trial is an error."""
    trial_with_checkpoints(home, write_script(RESTORING))

    ended = cli("trial", "pause", "1")
    unknown = cli("trial", "pause", "2")

    assert (ended.status, unknown.status) == (1, 3)
    assert "is not running" in ended.errors


def test_a_completed_trial_is_resumed_only_if_that_is_meant(home: Home, cli: Cli, write_script: WriteScript) -> None:
    """Resuming a completed trial needs --again, and the refusal counts the reports it would hide."""
    script = write_script(
        """
        from core_sdk import core
        with core.init() as context:
            for step in range(1, 1001):
                context.train.report_training_metrics(steps_completed=step, metrics={"loss": 1.0})
        """
    )
    cli("run", "--", sys.executable, str(script))

    refused = cli("trial", "resume", "1")
    num_attempts_before = len(home.trial(1).attempts())
    meant = cli("trial", "resume", "1", "--again")

    assert refused.status == 1
    assert "hide 1,000 of its reports" in refused.errors
    assert "--again" in refused.errors
    assert num_attempts_before == 1
    assert meant.status == 0
    assert home.trial(1).attempts() == [1, 2]


def test_a_program_that_does_not_report_is_completed_too(home: Home, cli: Cli) -> None:
    """A program without Core SDK completes its trial with status 0, and a resume is refused."""
    cli("run", "--", "true")

    refused = cli("trial", "resume", "1")

    assert refused.status == 1
    assert "completed" in refused.errors
    assert home.trial(1).attempts() == [1]


def test_a_trial_is_resumed_with_another_command(
    home: Home, cli: Cli, start_cli: StartCli, write_script: WriteScript, tmp_path: Path
) -> None:
    """A resume may change the command, which later resumes then use."""
    script = write_script(RESTORING)
    trial_with_checkpoints(home, script)
    launched = [sys.executable, "-c", f"import runpy, sys; print(sys.argv[1:]); runpy.run_path({str(script)!r})", "4"]

    changed = cli("trial", "resume", "1", "--", *launched)
    again = cli("trial", "resume", "1", "--again")

    assert changed.output == again.output == "['4']\ncheckpoint b 20\n"
    command = home.trial(1).read_command()
    assert command is not None
    assert (command.argv, command.cwd) == (launched, str(tmp_path))


def test_a_command_that_cannot_be_started_replaces_none(home: Home, cli: Cli, write_script: WriteScript) -> None:
    """A second number is taken for no program, and a program that is not there is named."""
    folder = trial_with_checkpoints(home, write_script(RESTORING))
    before = folder.read_command()

    without_dashes = cli("trial", "resume", "1", "2")
    without_program = cli("trial", "resume", "1", "--", "no-such-program")

    assert (without_dashes.status, without_program.status) == (2, 127)
    assert "trial resume 1 -- 2" in without_dashes.errors
    assert "no-such-program" in without_program.errors
    assert folder.read_command() == before
    assert folder.attempts() == [1]


def test_a_resume_waits_for_the_pause_that_it_follows(
    home: Home, cli: Cli, start_cli: StartCli, write_script: WriteScript, tmp_path: Path
) -> None:
    """A resume right after a pause waits until the script has saved and ended."""
    script = write_script(
        COUNTING.replace('print("left"', 'while not pathlib.Path("saved").exists(): pass\n    print("left"')
    )
    run = start_cli("run", "--", sys.executable, str(script))
    run.read_until("step 2")

    cli("trial", "pause", "1")
    resume = start_cli("trial", "resume", "1")
    assert resume.process.stderr is not None
    said = resume.process.stderr.readline()
    (tmp_path / "saved").touch()
    (tmp_path / "go").touch()
    status, output, _ = resume.wait()

    assert "waiting for its end" in said
    assert run.wait()[0] == 75
    assert status == 0
    assert output.splitlines()[0] == "from 2 2"


def trial_with_checkpoints(home: Home, script: Path) -> TrialFolder:
    """Returns a trial of this script with the checkpoints a and b at steps 10 and 20."""
    folder = new_trial(home)
    record_script(folder, script)
    training = new_attempt(folder)
    store(training, "a", 10)
    store(training, "b", 20)
    training.die()
    return folder
