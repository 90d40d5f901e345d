"""What horovodrun's options mean to our launcher, and how nodes prepare the meeting of Horovod's ranks."""

from __future__ import annotations

import socket
import subprocess
import sys
from argparse import Namespace
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]

from launch._command_line import CommandLineError, UsageError
from launch._framework import Start
from launch._horovod._options import (
    NOT_GIVEN,
    HorovodOptions,
    check_number,
    filled,
    options_of,
    plan_of,
)
from launch._horovod._rendezvous import HorovodRendezvous, choose_interface, meet
from launch._network import interface_of
from launch._ssh._hostfile import Host, Ssh, SshLaunch

_UNSET = [
    "hosts",
    "hostfile",
    "ssh_port",
    "ssh_identity_file",
    "nics",
    "start_timeout",
    "use_mpi",
    "use_jsrun",
    "mpi_args",
    "binding_args",
    "host_discovery_script",
    "min_num_proc",
    "max_num_proc",
    "slots",
    "elastic_timeout",
    "reset_limit",
    "cooldown_range",
    "output_filename",
    "prefix_output_with_timestamp",
    "verbose",
]


def values(**given: object) -> Namespace:
    """Returns options as Horovod's parser gives them."""
    return Namespace(**{**dict.fromkeys(_UNSET), "command": [], "num_proc": NOT_GIVEN, **given})


def options(**given: object) -> HorovodOptions:
    return options_of(values(**given), {})


def torchrun(given: HorovodOptions, num_nodes: int, *, is_placed: bool = False) -> tuple[str, ...]:
    return plan_of(given, lambda: num_nodes, is_placed=is_placed).torchrun


def ssh_launch(given: HorovodOptions) -> SshLaunch | None:
    return plan_of(given, lambda: 1).ssh_launch


def test_all_slots_are_used_unless_a_number_is_given() -> None:
    """horovodrun asks for the number always; each of several nodes has its part of it."""
    assert torchrun(options(), 1) == ()
    assert torchrun(options(num_proc=3), 1) == ("--nproc-per-node=3",)
    assert torchrun(options(num_proc=6), 2) == ("--nproc-per-node=3",)


def test_a_number_that_the_nodes_do_not_divide_is_left_to_their_slots() -> None:
    """If the nodes do not divide the number of ranks, the nodes' slots decide."""
    assert torchrun(options(num_proc=3), 2) == ()


def test_the_time_to_start_is_that_of_the_meeting() -> None:
    """--start-timeout becomes the timeout of both kinds of torchrun's rendezvous."""
    assert torchrun(options(start_timeout=5), 1) == ("--rdzv-conf=timeout=5,join_timeout=5",)


def test_hosts_are_spread_over_with_the_slots_that_get_a_rank() -> None:
    """Ranks fill the hosts' slots in order, as with horovodrun."""
    named = options(hosts="h1:2,h2:2,h3:2", num_proc=3, ssh_port=2222, ssh_identity_file="key")

    plan = ssh_launch(named)

    assert plan is not None
    assert plan.hosts == (Host("h1", 2), Host("h2", 1))
    assert plan.ssh == Ssh(2222, Path("key"))
    assert torchrun(named, 2) == ()
    assert torchrun(options(hostfile="/nowhere"), 1, is_placed=True) == (), "it need not be there"


def test_one_host_gives_this_node_its_slots() -> None:
    """A single host gives this node its number of ranks."""
    assert torchrun(options(hosts="localhost:4"), 1) == ("--nproc-per-node=4",)
    assert torchrun(options(hosts="localhost:4", num_proc=2), 1) == ("--nproc-per-node=2",)


def test_without_hosts_nothing_is_spread() -> None:
    """Without hosts the launcher does not use ssh."""
    assert ssh_launch(options(num_proc=8)) is None


def test_a_hostfile_is_read(tmp_path: Path) -> None:
    """A hostfile in Horovod's form is read."""
    hostfile = tmp_path / "hosts"
    hostfile.write_text("h1 slots=2\nh2 slots=4\n")

    plan = ssh_launch(options(hostfile=str(hostfile)))

    assert plan is not None
    assert plan.hosts == (Host("h1", 2), Host("h2", 4))


def test_more_ranks_than_slots_are_refused() -> None:
    """More ranks than slots are refused with both numbers."""
    with pytest.raises(UsageError, match="-np 5 are more than the 4 slots of the hosts"):
        filled([Host("h1", 2), Host("h2", 2)], 5)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"use_mpi": True}, "--mpi is not for this launcher: .*mpirun"),
        ({"use_jsrun": True}, "--jsrun .*mpirun"),
        ({"min_num_proc": 1}, "--min-np .*PET_MAX_RESTARTS"),
        ({"max_num_proc": 0}, "--max-np .*PET_MAX_RESTARTS"),
        ({"host_discovery_script": "./hosts"}, "--host-discovery-script .*--nnodes=MIN:MAX"),
        ({"output_filename": "logs"}, "--output-filename .*PET_LOG_DIR"),
        ({"num_proc": 0}, "-np 0 would start nothing"),
        ({"command": ["python"]}, "followed by 'python' before `--`"),
    ],
)
def test_what_this_launcher_does_not_do_is_refused_with_what_does(given: dict[str, object], words: str) -> None:
    """Unsupported options are refused with an alternative."""
    with pytest.raises(UsageError, match=words):
        options(**given)


class ListeningServer:
    """A server in the place of Horovod's, which needs Horovod."""

    def __init__(self, address: str, rank_counts: Sequence[int]) -> None:
        self.rank_counts = tuple(rank_counts)
        self._listener = socket.create_server((address, 0))
        self.address, self.port = self._listener.getsockname()

    def close(self) -> None:
        self._listener.close()


def meetings_of(rank_counts: Sequence[int], store: HashStore | None) -> list[HorovodRendezvous]:
    """Runs the meeting on nodes that are threads of this process."""

    def node(node_rank: int) -> HorovodRendezvous:
        start = Start(node_rank, len(rank_counts), "127.0.0.1", 29500, store)
        meeting = meet(start, rank_counts, (), ListeningServer)
        if meeting.server is not None:
            meeting.server.close()
        return meeting

    with ThreadPoolExecutor(len(rank_counts)) as pool:
        return list(pool.map(node, range(len(rank_counts))))


def test_one_node_meets_on_its_loopback() -> None:
    """A single node's server is on the loopback interface."""
    (meeting,) = meetings_of([2], None)

    assert meeting.address == "127.0.0.1"
    assert meeting.interface == interface_of("127.0.0.1")


def test_all_nodes_learn_the_server() -> None:
    """All nodes learn the address of the server that the first one starts."""
    meetings = meetings_of([2, 1, 3], HashStore())

    assert len({(meeting.address, meeting.port) for meeting in meetings}) == 1


def test_a_number_of_ranks_that_the_nodes_do_not_have_is_refused() -> None:
    """A number of ranks that differs from the nodes' slots is refused."""
    check_number((2, 1), 3)
    with pytest.raises(CommandLineError, match=r"-np 5 cannot be had: the nodes have 2 \+ 1 slots"):
        check_number((2, 1), 5)


def test_an_interface_that_is_not_there_is_named_with_those_that_are() -> None:
    """An unknown interface is refused with the known ones; one of several is enough."""
    loopback = interface_of("127.0.0.1")
    assert loopback is not None

    assert choose_interface(["eth77", loopback], "192.0.2.1") == loopback
    with pytest.raises(CommandLineError, match=f"no interface eth77, .*{loopback}"):
        choose_interface(["eth77"], "127.0.0.1")


@pytest.mark.skipif(find_spec("horovod") is not None, reason="NOT TESTED: Horovod is missing; it is installed here")
def test_a_missing_horovod_is_told_with_how_to_get_it(tmp_path: Path) -> None:
    """If Horovod is missing, the launcher says how to install it before any rank starts."""
    (tmp_path / "train.py").write_text("print('started')")

    ended = subprocess.run(
        [sys.executable, "-m", "launch.horovod", "-np", "2", "--", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (ended.returncode, ended.stdout) == (1, "")
    assert 'pip install "horovod==' in ended.stderr
    assert "CMAKE_CXX_STANDARD 20" in ended.stderr
