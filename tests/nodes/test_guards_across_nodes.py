"""A training on two nodes goes back by a guard, as it does on one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from execution.agent.test_leaving_out import BACK, TRAINING, resumed_steps, train, weights
from hosts.hosts import host_group
from parts import needs

from core_sdk._home import Home
from nodes.launchers import NodeLaunch, fixed

pytestmark = [needs("hosts"), pytest.mark.timeout(900)]


def test_a_nan_on_two_nodes_is_left_out_once_and_the_rest_is_exact(folder: Path, tmp_path: Path) -> None:
    """All four ranks stop, the agent of the first node goes back, and the weights are those of four ranks on one."""
    (folder / "train.py").write_text(TRAINING)
    core_sdk = [sys.executable, "-m", "core_sdk._interfaces.cli", "run", "--"]
    script = [sys.executable, "train.py", json.dumps([17, "nan"]), "{}"]
    argvs = [
        [sys.executable, "-m", "launch.torch_distributed", "--nproc-per-node=2", *fixed(2, node), "--", *script]
        for node in range(2)
    ]
    with host_group(2) as hosts:
        first = NodeLaunch(hosts[0], folder, [*core_sdk, *argvs[0]], RULES=json.dumps([BACK]))
        second = NodeLaunch(hosts[1], folder, argvs[1], RULES=json.dumps([BACK]))
        assert second.wait() == 75, second.errors

        again = NodeLaunch(hosts[1], folder, argvs[1], RULES=json.dumps([BACK]))

        assert [first.wait(), again.wait()] == [0, 0], first.output + again.output + again.errors
    _, back_at = resumed_steps(Home(folder / "home"))
    trouble_at = int(first.output.partition("went back from step ")[2].split()[0])
    assert first.output.count("went back from step") == 1
    _, plain = train(
        tmp_path, [-1, "nan"], [], left_out={str(back_at): trouble_at - back_at}, num_ranks=4, timeout_s=600
    )
    assert weights(plain) == weights(first.output)
