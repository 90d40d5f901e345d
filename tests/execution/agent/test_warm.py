"""A program that starts warm finds itself as a fresh Python would have begun it."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from processes import TIMEOUT_S, wait_for

from core_sdk._execution.agent._messages import CommandEnded
from core_sdk._execution.agent.starting import Agent, AgentSpawner
from core_sdk._execution.agent.warm.agents import WarmAgents, WarmSpawner
from core_sdk._execution.agent.warm.programs import PythonProgram, differing, program_of
from core_sdk._ground.environment import agent_variables
from core_sdk._ground.importing import preloadable
from core_sdk._home import Home
from core_sdk._home.attempts.killing import kill
from core_sdk._home.attempts.running import await_end
from core_sdk._home.attempts.starting import AttemptStart, begin

CURRENT_TEST = "PYTEST_CURRENT_TEST"
LIBRARIES = ["numpy", "numpy.random", "numpy.linalg"]

PROBE = Path(__file__).with_name("warm_probe.py")

Run = Callable[..., tuple[AttemptStart, Agent]]


@pytest.fixture(scope="module")
def cold() -> Iterator[AgentSpawner]:
    spawner = AgentSpawner()
    yield spawner
    spawner.close()


@pytest.fixture
def run(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cold: AgentSpawner) -> Iterator[Run]:
    """Starts a command as a trial, under an agent of a spawner."""
    monkeypatch.chdir(tmp_path)
    started: list[tuple[AttemptStart, Agent]] = []

    def run(spawner: Any, *command: str) -> tuple[AttemptStart, Agent]:
        os.environ[CURRENT_TEST] = "all"  # another variable would be another environment
        start = begin(home.root, [sys.executable, *command])
        agent = Agent(spawner)
        agent.start(start)
        started.append((start, agent))
        return start, agent

    yield run
    for start, agent in started:
        agent.close()
        assert await_end(start.folder, TIMEOUT_S)


@pytest.fixture(scope="module")
def warm() -> Iterator[WarmSpawner]:
    """A warm process with the environment of a command, which has imported numpy."""
    os.environ[CURRENT_TEST] = "all"
    spawner = WarmSpawner({**agent_variables(), "PYTHONUNBUFFERED": "1"}, LIBRARIES)
    yield spawner
    spawner.close()


def output(start: AttemptStart) -> str:
    return start.folder.log_path(start.number).read_text()


def outputs(run: Run, cold: AgentSpawner, warm: WarmSpawner, *command: str) -> tuple[str, str]:
    """Runs a command in both ways. Returns the outputs, with the exit status."""
    texts = []
    for spawner in (cold, warm):
        start, agent = run(spawner, *command)
        code = agent.wait().code
        texts.append(f"{output(start)}{code}")
    return texts[0], texts[1]


@pytest.mark.parametrize("command", [("probe.py", "--lr", "0.1", ""), ("-u", "probe.py"), ("-m", "probe", "x")])
def test_a_warm_program_finds_what_a_fresh_one_finds(
    run: Run, cold: AgentSpawner, warm: WarmSpawner, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Some eighty properties of the process are those of a fresh Python; what is random in one is so in the other."""
    (tmp_path / "probe.py").write_text(PROBE.read_text())

    found = [json.loads(text.partition("\n")[0]) for text in outputs(run, cold, warm, *command)]
    again = json.loads(outputs(run, cold, warm, *command)[1].partition("\n")[0])

    differences = {name: (found[0]["same"][name], found[1]["same"][name]) for name in found[0]["same"]}
    assert {name: pair for name, pair in differences.items() if pair[0] != pair[1]} == {}
    assert all(found[1]["own"][name] != again["own"][name] for name in ("random", "numpy", "key"))
    assert found[1]["own"]["num_imported"] > found[0]["own"]["num_imported"]


ENDS = {
    "well": "print('done')",
    "with a status": "import sys; sys.exit(7)",
    "with words": "raise SystemExit('no data')",
    "with an error": "def f():\n    raise ValueError('no')\nf()",
    "with a syntax error": "x = = 1",
    "with a KeyboardInterrupt": "def f():\n    raise KeyboardInterrupt\nf()",
    "by a signal": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "by SIGTERM": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "with its thread": "import threading, time\ndef f():\n    time.sleep(0.1)\n    print('thread')\n"
    "threading.Thread(target=f).start()",
    "with what is left": "class A:\n    def __del__(self):\n        print('deleted')\na = A()\n"
    "import atexit; atexit.register(print, 'exit')",
    "with its own hook": "import sys\nsys.excepthook = lambda *error: print('hook', error[0])\nraise ValueError",
    "with a process": "import multiprocessing as m\ndef f(): print('child')\nif __name__ == '__main__':\n"
    "    p = m.get_context('spawn').Process(target=f); p.start(); p.join(); print(p.exitcode)",
    "with a pickle": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))).__module__)",
}


@pytest.mark.parametrize("is_module", [False, True])
@pytest.mark.parametrize("end", ENDS)
def test_a_warm_program_ends_as_a_fresh_one(
    run: Run, cold: AgentSpawner, warm: WarmSpawner, tmp_path: Path, end: str, is_module: bool
) -> None:
    """Output, traceback and exit status are those of a fresh Python."""
    (tmp_path / "script.py").write_text(ENDS[end])

    fresh, of_warm = outputs(run, cold, warm, *(["-m", "script"] if is_module else ["script.py"]))

    assert of_warm == fresh
    assert warm.is_usable


def test_a_change_of_the_environment_starts_a_fresh_python(
    run: Run, warm: WarmSpawner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command whose environment differs, which a library may have read, is begun by a fresh Python."""
    (tmp_path / "script.py").write_text(
        "import os, sys; print(os.environ.get('OMP_NUM_THREADS'), 'numpy' in sys.modules)"
    )
    monkeypatch.setenv("OMP_NUM_THREADS", "3")

    start, agent = run(warm, "script.py")

    assert agent.wait() == CommandEnded(0)
    assert output(start) == "3 False\n"


@pytest.mark.parametrize(
    "command", [("-c", "import sys; print('numpy' in sys.modules)"), ("-B", "script.py"), ("-m", "nothing")]
)
def test_other_commands_start_afresh(run: Run, warm: WarmSpawner, tmp_path: Path, command: tuple[str, ...]) -> None:
    """A command that is no plain Python program is begun by a fresh Python."""
    (tmp_path / "script.py").write_text("import sys; print('numpy' in sys.modules)")

    start, agent = run(warm, *command)

    assert agent.wait().code == (1 if command[-1] == "nothing" else 0)
    assert output(start) == "False\n" or "No module named nothing" in output(start)


WAITING = """
import pathlib, subprocess, sys, time
subprocess.Popen(["sleep", "600"], start_new_session=True)
pathlib.Path("began").touch()
time.sleep(600)
"""


@pytest.mark.parametrize("killed", ["the agent", "agent and guardian", "the command", "by its trial's id"])
def test_nothing_is_left_of_a_warm_program(run: Run, warm: WarmSpawner, tmp_path: Path, killed: str) -> None:
    """Whatever is killed, the program and what it has started end, as their marks are seen from outside."""
    (tmp_path / "script.py").write_text(WAITING)
    start, agent = run(warm, "script.py")
    wait_for((tmp_path / "began").exists)
    of_agent = psutil.Process(int(start.folder.supervised_path(1).read_bytes()))
    guardian, command = sorted(of_agent.children(), key=lambda process: "script.py" in process.cmdline())
    left = [command, *command.children()]
    assert [process.name() for process in left[1:]] == ["sleep"]

    match killed:
        case "the agent":
            of_agent.kill()
        case "agent and guardian":
            guardian.suspend()
            of_agent.kill()
            guardian.kill()
            wait_for(lambda: not command.is_running())
            kill(start.folder, 1)
        case "the command":
            agent.signal(signal.SIGKILL)
        case _:
            kill(start.folder, 1)

    wait_for(lambda: not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in left))


def test_a_standby_that_is_killed_or_stopped_is_not_waited_for(run: Run, warm: WarmSpawner, tmp_path: Path) -> None:
    """If the standby is gone, a fresh Python begins the command."""
    (tmp_path / "script.py").write_text("print('done')")
    start = begin(Home.create(tmp_path / "other").root, [sys.executable, "script.py"])
    agent = Agent(warm)
    standby = None

    def found() -> bool:
        nonlocal standby
        agents = [each for each in psutil.process_iter(["ppid"]) if each.info["ppid"] in _forked_by(warm)]
        standby = next(iter(agents), None)
        return standby is not None

    wait_for(found)
    assert standby is not None
    standby.kill()

    agent.start(start)

    assert agent.wait() == CommandEnded(0)
    assert output(start) == "done\n"
    agent.close()


def _forked_by(warm: WarmSpawner) -> set[int]:
    """Returns the pids of the agents that the warm process has forked."""
    return {child.pid for child in psutil.Process(warm.process.pid).children()}


def test_a_warm_process_that_is_killed_costs_only_its_warmth(cold: AgentSpawner, tmp_path: Path) -> None:
    """After its death, agents come from the other spawner, and the next trial is asked again what it imports."""
    agents = WarmAgents(AgentSpawner())
    variables = {**agent_variables(), "PYTHONUNBUFFERED": "1"}
    told = Path(agents.variables(7)["CORE_SDK_IMPORTS"])
    told.write_text(json.dumps(LIBRARIES))
    agents.learn(7, variables)
    assert agents.variables(7) == {}

    psutil.Process(agents._warm[7].process.pid).kill()
    agents._warm[7].process.wait(TIMEOUT_S)
    agent = agents.agent(7)

    assert agents.variables(7) == {"CORE_SDK_IMPORTS": str(told)}
    agent.close()
    agents.close()
    assert not told.parent.exists()


def test_programs_are_recognized() -> None:
    """A Python script or module is a program, also by a shell; launchers and options of Python's are not."""
    script = PythonProgram("python3", "train.py", ("--lr", "0.1"))

    assert program_of(["python3", "train.py", "--lr", "0.1"]) == script
    assert program_of(["/bin/sh", "-c", "python3 train.py  --lr 0.1"]) == script
    assert program_of(["/bin/sh", "-c", "python3 train.py && echo"]) is None
    assert program_of(["/bin/sh", "-c", "A=1 python3 train.py"]) is None
    assert program_of(["/bin/sh", "-c", "python3 train.py $HOME"]) is None
    assert program_of(["python3", "-m", "core_sdk.pytorch", "m:T"]) == PythonProgram(
        "python3", "core_sdk.pytorch", ("m:T",), True
    )
    assert program_of(["python3", "-m", "launch.torch_distributed", "train.py"]) is None
    assert program_of(["python3", "-m", "torch.distributed.run", "train.py"]) is None
    assert program_of(["python3", "-X", "dev", "train.py"]) is None
    assert program_of(["python3", "-"]) is None
    assert program_of(["bash", "train.sh"]) is None
    assert program_of(["python3"]) is None
    assert program_of([]) is None


def test_environments_differ_in_what_a_library_may_have_read() -> None:
    """Variables of ours and the visible GPUs are each trial's own."""
    one = {"CORE_SDK_RUN_INFO": "1", "CUDA_VISIBLE_DEVICES": "0", "OMP_NUM_THREADS": "1", "A": "b"}

    assert differing(one, {"OMP_NUM_THREADS": "1", "A": "b"}) == set()
    assert differing(one, {"OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "0"}) == {"OMP_NUM_THREADS", "PYTHONHASHSEED", "A"}


def test_only_installed_libraries_are_imported_ahead(tmp_path: Path) -> None:
    """What stands in a directory of the user's is left to the trial, whatever its name, as are private modules."""
    import numpy.linalg
    import pytest as other

    modules = {"numpy": numpy, "numpy.linalg": numpy.linalg, "numpy._core": sys.modules["numpy._core"], "pytest": other}
    own = type(sys)("torch")
    own.__file__ = str(tmp_path / "torch.py")

    assert preloadable({**modules, "torch": own}) == ["numpy", "numpy.linalg"]


def test_what_torch_imports_at_the_first_step_is_imported_ahead() -> None:
    """An optimizer's first step imports a private module of torch's, which takes longer than `import torch`."""
    found = {"torch._dynamo": type(sys)("torch._dynamo"), "torch._guards": type(sys)("torch._guards")}
    for module in found.values():
        module.__file__ = pytest.__file__

    assert preloadable(found) == ["torch._dynamo"]


def test_libraries_that_change_the_environment_are_found_imported(run: Run, tmp_path: Path) -> None:
    """A library may set a variable when it is imported: programs start warm all the same, and have the variable."""
    script = "import os, sys; print('torch._dynamo' in sys.modules, 'TORCHINDUCTOR_CACHE_DIR' in os.environ)"
    (tmp_path / "script.py").write_text(script)
    os.environ[CURRENT_TEST] = "all"
    changing = WarmSpawner({**agent_variables(), "PYTHONUNBUFFERED": "1"}, ["torch", "torch._dynamo"])

    start, agent = run(changing, "script.py")

    assert agent.wait() == CommandEnded(0)
    assert output(start) == "True True\n"
    changing.close()
