"""Contexts made from what a launcher has told the ranks: torchrun, DeepSpeed's, Horovod's."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from distributed.conftest import StartRanks
from processes import TIMEOUT_S, Script

from core_sdk._distributed.joining._horovod import nodes_of
from core_sdk._distributed.joining._join import _chief_hosts
from core_sdk._distributed.joining._options import JoinOptions
from core_sdk._ground.environment import MeetingPlace
from core_sdk.core import DistributedContext
from core_sdk.errors import ContradictoryRanksError, JoinError

TORCHRUN = str(Path(sys.executable).with_name("torchrun"))

SAY = """
import os, pathlib
def say(*words):
    pathlib.Path("said." + os.environ["RANK"]).write_text(repr(words))
"""
StartTorchrun = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start_torchrun(tmp_path: Path) -> Iterator[StartTorchrun]:
    """Starts a script under the real torchrun; each rank leaves what it prints with `say` in a file of its own."""
    started = []

    def start(source: str, *options: str) -> subprocess.Popen[str]:
        script = tmp_path / "script.py"
        prelude = (
            "import os, pathlib\ndef say(*words): pathlib.Path('said.' + os.environ['RANK']).write_text(repr(words))\n"
        )
        script.write_text(prelude + textwrap.dedent(source))
        variables = os.environ | {"OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [TORCHRUN, *options, str(script)], cwd=tmp_path, env=variables, text=True, stderr=subprocess.PIPE
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def said(folder: Path, num_ranks: int) -> list[object]:
    return [eval((folder / f"said.{rank}").read_text()) for rank in range(num_ranks)]  # noqa: S307


def succeed(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        _, errors = process.communicate(timeout=2 * TIMEOUT_S)
        assert process.returncode == 0, errors


def test_ranks_under_torchrun_meet_before_during_and_after_a_process_group(
    start_torchrun: StartTorchrun, tmp_path: Path
) -> None:
    """Torchrun's own store is enough; it does not matter whether the script has made a process group."""
    torchrun = start_torchrun(
        """
        import torch.distributed
        from core_sdk.core import DistributedContext

        gathered = []
        before = DistributedContext.from_torch_distributed()
        gathered.append(before.allgather(("before", before.rank)))
        torch.distributed.init_process_group("gloo")
        with DistributedContext.from_torch_distributed() as during:
            gathered.append(during.allgather(("during", during.rank)))
        torch.distributed.destroy_process_group()
        with DistributedContext.from_torch_distributed() as after:
            gathered.append(after.allgather(("after", after.rank)))
        gathered.append(before.allgather(("still before", before.rank)))
        say(*gathered, before.local_size, before.get_num_agents())
        """,
        "--standalone",
        "--nproc-per-node=2",
    )

    succeed(torchrun)

    words = ["before", "during", "after", "still before"]
    assert said(tmp_path, 2) == [(*([(word, 0), (word, 1)] for word in words), 2, 1)] * 2


def test_two_torchruns_are_two_nodes(start_torchrun: StartTorchrun, tmp_path: Path, free_port: int) -> None:
    """The ranks of both are one group; local calls stay with the ranks of each."""
    source = """
        from core_sdk.core import DistributedContext

        with DistributedContext.from_torch_distributed() as distributed:
            rank = distributed.rank
            everyone, node = distributed.allgather(rank), distributed.allgather_local(rank)
            say(everyone, node, distributed.broadcast_local(rank), distributed.cross_rank, distributed.local_rank)
        """
    nodes = [
        start_torchrun(
            source,
            "--nnodes=2",
            f"--node-rank={number}",
            "--master-addr=127.0.0.1",
            f"--master-port={free_port}",
            "--nproc-per-node=2",
        )
        for number in range(2)
    ]

    succeed(*nodes)

    everyone = [0, 1, 2, 3]
    assert said(tmp_path, 4) == [
        (everyone, [0, 1], 0, 0, 0),
        (everyone, [0, 1], 0, 0, 1),
        (everyone, [2, 3], 2, 1, 0),
        (everyone, [2, 3], 2, 1, 1),
    ]


def test_ranks_that_torchrun_starts_again_form_a_new_group(start_torchrun: StartTorchrun, tmp_path: Path) -> None:
    """Ranks that torchrun restarts form a new group, even if the first chief was killed while it waited."""
    torchrun = start_torchrun(
        """
        import os, pathlib, signal, time
        from core_sdk.core import DistributedContext

        restarts = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        if restarts == 0 and os.environ["RANK"] == "1":
            time.sleep(TIMEOUT)
        if restarts == 0:
            # Killed when its address is published, long before the rank that sleeps could come.
            from core_sdk._distributed.joining._torch import TorchStoreRendezvous
            publish = TorchStoreRendezvous.publish
            def publish_and_die(self, address):
                publish(self, address)
                os.kill(os.getpid(), signal.SIGKILL)
            TorchStoreRendezvous.publish = publish_and_die
        with DistributedContext.from_torch_distributed() as distributed:
            say(restarts, distributed.allgather(distributed.rank))
        """.replace("TIMEOUT", str(TIMEOUT_S)),
        "--standalone",
        "--nproc-per-node=2",
        "--max-restarts=1",
    )

    succeed(torchrun)

    assert said(tmp_path, 2) == [(1, [0, 1])] * 2


DEEPSPEED = """
    import os
    from core_sdk.core import DistributedContext
    from rank_script import arguments, rank, tell

    os.environ |= {
        "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_SIZE": "2",
        "CROSS_RANK": "0", "CROSS_SIZE": "1",
    }
    if arguments.get("port"):
        import torch.distributed
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(arguments["port"])}
        torch.distributed.init_process_group("gloo")
    with DistributedContext.from_deepspeed() as distributed:
        tell(distributed.allgather(rank))
"""


@pytest.mark.parametrize(
    "has_store",
    [pytest.param(True, id="init_distributed"), pytest.param(False, id="its parent alone")],
)
def test_ranks_under_deepspeed_meet(start_ranks: StartRanks, free_port: int, has_store: bool) -> None:
    """Under DeepSpeed, ranks meet through the process group's store or, on one node, without it."""
    ranks = start_ranks(DEEPSPEED, 2, arguments={"port": free_port if has_store else None})

    outcomes = ranks.outcomes()

    assert [outcomes[rank].values for rank in range(2)] == [[[0, 1]]] * 2, outcomes


@pytest.mark.parametrize("num_nodes", [1, 2])
def test_ranks_under_horovod_meet_through_its_broadcast(start_ranks: StartRanks, num_nodes: int) -> None:
    """Ranks under Horovod meet by one broadcast of Horovod, here of a module that carries objects in files."""
    ranks = start_ranks(
        """
        import pathlib, pickle, types
        from core_sdk.core import DistributedContext
        from rank_script import arguments, await_mark, join, mark, rank, tell

        folder, per_node = pathlib.Path(__file__).parent, 4 // arguments["num_nodes"]
        num_broadcasts = num_gathers = 0

        def put(obj, key):
            (folder / f"object {key}").write_bytes(pickle.dumps(obj))
            mark(key)

        def take(key):
            await_mark(key)
            return pickle.loads((folder / f"object {key}").read_bytes())

        def broadcast_object(obj, root_rank=0, name=None):
            global num_broadcasts
            num_broadcasts += 1
            key = f"{name or type(obj).__name__} {num_broadcasts}"
            if rank == root_rank:
                put(obj, key)
            return take(key)

        def allgather_object(obj, name=None):
            global num_gathers
            num_gathers += 1
            key = f"{name or type(obj).__name__} {num_gathers}"
            put(obj, f"{key} of {rank}")
            return [take(f"{key} of {each}") for each in range(4)]

        hvd = types.SimpleNamespace(
            is_initialized=lambda: True,
            rank=lambda: rank, size=lambda: 4,
            local_rank=lambda: rank % per_node, local_size=lambda: per_node,
            allgather_object=allgather_object, broadcast_object=broadcast_object,
        )
        for _ in range(2):
            with DistributedContext.from_horovod(hvd) as distributed:
                tell([distributed.allgather(rank), distributed.allgather_local(rank)])
        tell(num_broadcasts)
        """,
        4,
        arguments={"num_nodes": num_nodes},
    )

    outcomes = ranks.outcomes()

    for rank in range(4):
        node = [0, 1, 2, 3] if num_nodes == 1 else [[0, 1], [2, 3]][rank // 2]
        assert outcomes[rank].values == [[[0, 1, 2, 3], node]] * 2 + [2], outcomes[rank]


@pytest.mark.parametrize(
    ("ranks", "nodes"),
    [
        ([(0, "a"), (1, "a"), (0, "b"), (1, "b")], [0, 0, 1, 1]),
        ([(0, "a"), (0, "b"), (1, "a"), (1, "b"), (2, "a")], [0, 1, 0, 1, 0]),
        ([(0, "a"), (1, "a"), (0, "b")], [0, 0, 1]),
        ([(0, "a"), (1, "a"), (0, "a")], [0, 0, 1]),
        ([(0, "a"), (1, "b"), (0, "c"), (1, "d")], [0, 0, 1, 1]),
    ],
    ids=["in rows", "alternating", "of different sizes", "on one host", "in a container each"],
)
def test_nodes_are_told_from_the_local_ranks(ranks: list[tuple[int, str]], nodes: list[int]) -> None:
    """Ranks are grouped into nodes by their local ranks, also where nodes have different numbers of ranks."""
    assert nodes_of(ranks) == nodes


def test_what_is_not_horovod_is_refused() -> None:
    """A module other than horovod.torch and its siblings is refused."""
    with pytest.raises(TypeError, match=r"the module horovod\.torch"):
        DistributedContext.from_horovod(os)  # type: ignore[arg-type]


PLACE = {
    "RANK": "0",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "0",
    "GROUP_WORLD_SIZE": "1",
}


@pytest.fixture
def as_under_torchrun(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in PLACE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    for name in ("MASTER_PORT", "CORE_SDK_RENDEZVOUS"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize("name", PLACE)
def test_a_process_that_torchrun_did_not_start_is_told_so(as_under_torchrun: pytest.MonkeyPatch, name: str) -> None:
    """Without torchrun's variables, a KeyError names the missing one."""
    as_under_torchrun.delenv(name)

    with pytest.raises(KeyError, match=f"{name} is not set: .*torchrun"):
        DistributedContext.from_torch_distributed()


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("RANK", "first", "RANK is 'first'; torchrun gives it a number"),
        ("RANK", "2", "rank is 2; it must be between 0 and 1, below size"),
        ("LOCAL_WORLD_SIZE", "0", "local_size is 0; it must be at least 1"),
        ("GROUP_WORLD_SIZE", "2", "size is 2, too few for 2 nodes of which one has 2 ranks"),
        ("MASTER_PORT", "the usual", "MASTER_PORT is 'the usual'; torchrun gives it a number"),
        ("MASTER_PORT", "70000", "MASTER_PORT is 70000; a port is between 1 and 65535"),
    ],
)
def test_variables_that_cannot_be_are_refused(
    as_under_torchrun: pytest.MonkeyPatch, name: str, value: str, problem: str
) -> None:
    """A variable of torchrun with an invalid value is refused by name."""
    as_under_torchrun.setenv(name, value)

    with pytest.raises(ValueError) as caught:
        DistributedContext.from_torch_distributed()

    assert problem in str(caught.value)


def test_a_store_that_does_not_answer_is_named(as_under_torchrun: pytest.MonkeyPatch, free_port: int) -> None:
    """A store that does not answer is named in the error."""
    as_under_torchrun.setenv("MASTER_PORT", str(free_port))

    with pytest.raises(JoinError) as caught:
        DistributedContext.from_torch_distributed(join_timeout_s=1.0)

    assert f"the store of torch.distributed at 127.0.0.1:{free_port} does not answer" in str(caught.value)
    assert not isinstance(caught.value, ContradictoryRanksError)


def test_ranks_that_a_framework_started_meet_through_their_process_group(
    start_script: Callable[..., Script], free_port: int
) -> None:
    """Ranks that a framework started, as Lightning does, meet through torch's process group once that exists."""
    source = """
        import sys
        import torch.distributed
        from core_sdk.core import DistributedContext

        rank = int(sys.argv[1])
        try:
            DistributedContext.from_torch_distributed()
        except KeyError:
            print("too early")
        address = f"tcp://127.0.0.1:{sys.argv[2]}"
        torch.distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
        with DistributedContext.from_torch_distributed() as distributed:
            print(distributed.allgather(rank), distributed.local_rank, distributed.local_size, distributed.cross_size)
        with DistributedContext.from_torch_distributed() as distributed:
            print(distributed.broadcast("again"))
        """
    variables = {"NODE_RANK": "0", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port)}

    scripts = [start_script(source, "0", str(free_port)), start_script(source, "1", str(free_port), **variables)]

    for rank, script in enumerate(scripts):
        status, output, errors = script.wait()
        assert (status, output) == (0, f"too early\n[0, 1] {rank} 2 1\nagain\n"), errors


def test_a_launcher_may_tell_the_chiefs_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """DET_CHIEF_IP is tried first, and the script's own address overrides it."""
    monkeypatch.setenv("DET_CHIEF_IP", "10.0.0.1")
    meeting = MeetingPlace.read({"MASTER_ADDR": "10.0.0.3", "MASTER_PORT": "1"})

    assert _chief_hosts(JoinOptions(), meeting)[:2] == ["10.0.0.1", "10.0.0.3"]
    assert _chief_hosts(JoinOptions("10.0.0.2"), meeting) == ["10.0.0.2"]


def test_torchruns_id_for_want_of_one_names_no_job() -> None:
    """torchrun's default run id "none" does not name a job, but restarts are still distinguished."""
    told = [{"TORCHELASTIC_RUN_ID": run_id, "TORCHELASTIC_RESTART_COUNT": "1"} for run_id in ("none", "mine")]

    assert [MeetingPlace.read(variables).generation for variables in told] == ["/1", "mine/1"]
