"""Each process of a tree is killed in turn: nothing is left of the tree, and its trial can be ended."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kills.process_trees import SCRIPT, SEARCH, TORCH, WORKERS, ProcessTree
from processes import wait_for
from promises import promise

from core_sdk._execution.experiments.submission import submit
from core_sdk._execution.steering import trials
from core_sdk._home import Home, open_view
from core_sdk.errors import CoreSDKError

_WITHIN_S = 30.0
# A launcher gives up another node after 40 s of silence.
_NODE_LOST_WITHIN_S = 75.0
_STAGES = ("start", "middle", "end")
_LAUNCH = ("--nproc-per-node=2", "--")
# Of these the training goes on, as the contract says of commands and masters, and the supervisors of guardians.
_OTHERS = ("command", "guardian", "agent's guardian", "master", "spawner", "child")


@pytest.fixture
def tree(home: Home, tmp_path: Path) -> Iterator[ProcessTree]:
    found = ProcessTree(home.root, tmp_path)
    yield found
    found.kill_all()


def _start_script(home: Home, tree: ProcessTree, stage: str) -> None:
    tree.run(SCRIPT, stage)


def _start_launch(home: Home, tree: ProcessTree, stage: str) -> None:
    tree.run(SCRIPT, stage, program=[*TORCH, *_LAUNCH])


def _start_workers(home: Home, tree: ProcessTree, stage: str) -> None:
    tree.run(WORKERS, stage)


def _start_nodes(home: Home, tree: ProcessTree, stage: str) -> None:
    """Starts two launchers under one agent, as two nodes that meet on this host."""
    (tree.directory / "train.py").write_text(SCRIPT)
    options = "--nnodes=2 --nproc-per-node=1 --master-addr=127.0.0.1 --master-port=$PORT"
    launch = f"{' '.join(TORCH)} {options} --node-rank=%d -- {tree.directory}/train.py {stage}"
    command = f"PORT=$((20000 + $$ % 10000)); {launch % 1} & {launch % 0}; wait"
    tree.start("run", "--", "sh", "-c", command)


def _start_search(home: Home, tree: ProcessTree, stage: str) -> None:
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    code = tree.directory / "code"
    code.mkdir()
    (code / "train.py").write_text(
        SCRIPT.replace("pathlib.Path(__file__).parent", f"pathlib.Path({str(tree.directory)!r})")
    )
    program = f"python, -m, launch.torch_distributed, {_LAUNCH[0]}, --, train.py, {stage}"
    submit(Home.create(home.root), SEARCH.format(program=program), source="search.yaml", model_dir=code)


_TREES = {
    "script": (_start_script, 1),
    "launch": (_start_launch, 2),
    "workers": (_start_workers, 2),
    "nodes": (_start_nodes, 2),
    "search": (_start_search, 2),
}
_ROLES = {
    "script": ("command", "agent", "agent's guardian", "script"),
    "launch": ("command", "agent", "agent's guardian", "launcher", "guardian", "rank0", "rank1"),
    "workers": ("command", "agent", "agent's guardian", "script", "guardian", "rank0", "rank1"),
    "nodes": ("command", "agent", "agent's guardian", "launcher", "launcher 1", "guardian", "guardian 1", "rank0"),
    "search": ("master", "spawner", "agent", "agent's guardian", "launcher", "guardian", "rank0", "rank1"),
}


def _reach(name: str, stage: str, home: Home, tree: ProcessTree) -> None:
    start, num_ranks = _TREES[name]
    start(home, tree, stage)
    wait_for(lambda: all((tree.directory / f"{stage}-{rank}").exists() for rank in range(num_ranks)))
    wait_for(lambda: set(_ROLES[name]) <= set(tree.roles()))


def _end_trial(home: Home) -> None:
    try:
        trials.kill(home, 1, "a test")
    except CoreSDKError:  # it has ended, or its experiment has
        assert home.folder(1).running_attempt() is None


def _state(home: Home) -> str:
    with open_view(home) as view:
        return str(view.trial(1).state)


_ALL = [(name, role, stage) for name, roles in _ROLES.items() for role in roles for stage in _STAGES]


@pytest.mark.parametrize(
    ("name", "role", "stage"),
    _ALL,
)
def test_nothing_is_left_of_a_tree_of_which_a_process_is_killed(
    name: str, role: str, stage: str, home: Home, tree: ProcessTree
) -> None:
    """When any process of a tree is killed, the rest ends by itself or can be ended, and no process is left."""
    _reach(name, stage, home, tree)

    tree.kill(role)
    if role.startswith(_OTHERS):
        _end_trial(home)

    within_s = _NODE_LOST_WITHIN_S if name == "nodes" and role.startswith("launcher") else _WITHIN_S
    tree.wait_until_gone(within_s, but=("master", "spawner"))
    _end_trial(home)
    assert _state(home) in ("COMPLETED", "ERROR", "CANCELED", "PAUSED")


@pytest.mark.parametrize(
    "roles",
    [
        ("agent", "agent's guardian"),
        ("agent", "guardian"),
        ("agent", "launcher"),
        ("launcher", "guardian"),
        ("agent", "agent's guardian", "launcher"),
        ("agent", "agent's guardian", "guardian"),
        ("agent", "launcher", "guardian"),
    ],
)
def test_nothing_is_left_of_a_launch_of_which_several_are_killed_at_once(
    roles: tuple[str, ...], home: Home, tree: ProcessTree
) -> None:
    """When several processes of a launch are killed at once, the remaining ones end all the others."""
    _reach("launch", "middle", home, tree)

    tree.kill(*roles)

    tree.wait_until_gone(_WITHIN_S, but=["child"] if {"agent", "agent's guardian"} <= set(roles) else ())
    _end_trial(home)
    assert _state(home) in ("ERROR", "CANCELED")


@promise("supervisor-killed")
@pytest.mark.parametrize("roles", [("command", "agent", "agent's guardian", "launcher", "guardian")])
def test_ranks_that_nobody_supervises_can_be_killed(roles: tuple[str, ...], home: Home, tree: ProcessTree) -> None:
    """Ranks whose supervisors were all killed end with `kill`, and until then their trial cannot be resumed."""
    _reach("launch", "start", home, tree)

    tree.kill(*roles)
    assert {"rank0", "rank1"} <= set(tree.roles())
    resumed = tree.start("trial", "resume", "1").wait()
    trials.kill(home, 1, "a test")

    assert resumed != 0
    assert "attempt 1 is running" in (tree.directory / "output").read_text()
    tree.wait_until_gone(_WITHIN_S)
    assert _state(home) == "CANCELED"


@promise("supervisor-killed")
def test_a_guardian_that_was_killed_is_replaced(home: Home, tree: ProcessTree) -> None:
    """A killed guardian is replaced, and the new one ends the processes when the agent and launcher are killed."""
    _reach("launch", "middle", home, tree)
    killed = {role: pid for role, pid in tree.roles().items() if role in ("guardian", "agent's guardian")}
    tree.kill(*killed)
    wait_for(lambda: tree.roles().keys() >= killed.keys())

    tree.kill("agent", "launcher")

    tree.wait_until_gone(_WITHIN_S)


@pytest.mark.parametrize(("name", "stage"), [("script", "end"), ("launch", "end"), ("launch", "middle")])
def test_the_command_says_what_the_record_says_after_all_supervisors_were_killed(
    name: str, stage: str, home: Home, tree: ProcessTree
) -> None:
    """After all supervisors are killed, the command ends the rest and exits with the status that is recorded."""
    _reach(name, stage, home, tree)
    supervisors = [role for role in tree.roles() if role.startswith(("agent", "guardian"))]

    tree.kill(*supervisors)

    tree.wait_until_gone(_WITHIN_S, but=["child"])
    assert (tree.started[0].wait(), _state(home)) == ((0, "COMPLETED") if stage == "end" else (137, "ERROR"))


def test_the_command_ends_an_attempt_whose_guardian_is_stopped(home: Home, tree: ProcessTree) -> None:
    """If an agent is killed and its guardian is stopped, the command ends the attempt."""
    _reach("script", "middle", home, tree)
    os.kill(tree.roles()["agent's guardian"], signal.SIGSTOP)

    tree.kill("agent")

    tree.wait_until_gone(_WITHIN_S)
    assert (tree.started[0].wait(), _state(home)) == (137, "ERROR")


@pytest.mark.parametrize("stage", ["middle", "end"])
def test_a_trial_whose_guardian_is_stopped_can_be_killed(stage: str, home: Home, tree: ProcessTree) -> None:
    """The guardian of a dead agent holds the attempt's lock: with its end the trial is free."""
    _reach("script", stage, home, tree)
    roles = tree.roles()
    os.kill(roles["agent's guardian"], signal.SIGSTOP)
    tree.kill("command", "agent")
    wait_for(lambda: "script" not in tree.roles())
    state = _state(home)

    _end_trial(home)

    tree.wait_until_gone(_WITHIN_S)
    assert home.folder(1).running_attempt() is None
    assert _state(home) == ("CANCELED" if stage == "middle" else state)
