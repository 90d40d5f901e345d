"""A launcher whose nodes do not meet says for whom it waits."""

from __future__ import annotations

import signal

from launches import Launch, StartLaunch
from ports import reserved_port
from processes import wait_for


def test_a_launcher_says_for_whom_it_waits(start_launch: StartLaunch) -> None:
    """After ten seconds it names an address that does not exist, a first node that is silent, and nodes that lack."""
    with reserved_port() as silent, reserved_port() as own:
        expected = {
            "--node-rank=1 --master-addr=nohost.invalid": "the first node: there is no host 'nohost.invalid' (",
            f"--node-rank=1 --master-addr=127.0.0.1 --master-port={silent}": (
                f"the first node: nothing answers at 127.0.0.1:{silent} (Connection refused)"
            ),
            f"--node-rank=0 --master-addr=127.0.0.1 --master-port={own}": (
                f"the other nodes: 2 are to meet at 127.0.0.1:{own}"
            ),
            f"--rdzv-backend=c10d --rdzv-endpoint=nohost.invalid:{silent}": (
                "the first node: there is no host 'nohost.invalid' ("
            ),
        }

        launches = {
            options: start_launch("pass", num_ranks=1, overrides=["--nnodes=2", *options.split()])
            for options in expected
        }

        for options, launch in launches.items():
            await_words(launch)
            assert f"s for {expected[options]}" in launch.errors
            launch.send(signal.SIGTERM)
            assert launch.wait_for_code() == 128 + signal.SIGTERM


def await_words(launch: Launch) -> None:
    wait_for(lambda: "[core-sdk] waiting for" in launch.errors)
