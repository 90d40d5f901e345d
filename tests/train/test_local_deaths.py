"""The processes of a training on this machine, killed in turn."""

from __future__ import annotations

import psutil
import pytest
from execution.workers.programs import Programs
from processes import wait_for

from core_sdk._home import Home

pytestmark = pytest.mark.parametrize("programs", ["local"], indirect=True)


@pytest.mark.parametrize("role", ["program", "worker", "spawner", "guardian"])
def test_no_process_is_left_of_a_training_of_which_one_is_killed(trainings: Programs, home: Home, role: str) -> None:
    """No process is left over when one of a training is killed, and a living program learns of its worker's death."""
    program = trainings.start("""
        import subprocess

        def function():
            subprocess.Popen(["sleep", "600"])
            print("worker", os.getpid(), flush=True)
            wait_for(lambda: is_marked("go on"))

        try:
            fit(function)
        except TrainingFailedError as error:
            print(error, flush=True)
    """)
    log = home.folder(1).log_path(1)
    wait_for(lambda: log.exists() and log.read_text().count("worker ") == 2)
    own = psutil.Process(program.process.pid)
    found = own.children(recursive=True)
    worker = psutil.Process(int(next(line for line in log.read_text().splitlines() if "worker" in line).split()[-1]))
    assert worker.parent() == own
    guardian = next(each for each in found if "_guardian" in " ".join(each.cmdline()))
    # Its workers look like it, and are younger.
    spawner = min((each for each in found if "_spawner" in " ".join(each.cmdline())), key=psutil.Process.create_time)
    killed = {"program": own, "spawner": spawner, "worker": worker, "guardian": guardian}[role]

    killed.kill()

    (trainings.directory / "go on").touch()
    code, output, errors = program.wait()
    if role != "program":
        assert code == 0, errors
        assert ("has failed" in output) == (role == "worker"), output
    wait_for(lambda: not any(map(_is_living, found)))


def _is_living(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
