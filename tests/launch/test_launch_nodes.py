"""Where a training runs is decided from what torchrun is told, then from the run info, then from the machine."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from core_sdk._ground.environment import get_cluster_info, run_info
from core_sdk._ground.environment.names import RUN_INFO_VARIABLE
from core_sdk._ground.placement import Placement
from core_sdk._ground.records import ClusterInfo
from core_sdk.errors import AttemptError
from launch._command_line import UsageError
from launch._torchrun._config import LaunchConfig, RendezvousConfig, configure
from launch._torchrun._nodes import Nodes, decide_nodes, find_nodes, write_run_info
from launch._torchrun._options import TorchrunOptions, parse_options

ONE_NODE = Nodes(num_nodes=1, node_rank=0, slots=2, chief_address="localhost")
SECOND_OF_TWO = Nodes(num_nodes=2, node_rank=1, slots=4, chief_address="h1")
CLUSTER = ClusterInfo(
    container_addrs=["10.0.0.1", "10.0.0.2"],
    container_rank=1,
    container_slot_counts=[4, 8],
    named_slot_ids=[0, 1, 2, 3, 4, 5, 6, 7],
)
PLACEMENT = Placement(("h1", "h2"), node_rank=1, slots=4, port=12345)


def options(line: str = "") -> TorchrunOptions:
    return parse_options(line.split())


def decided(line: str, info: ClusterInfo | None = None, num_gpus: int = 0) -> Nodes:
    return decide_nodes(options(line).given, info, lambda: num_gpus)


def configured(line: str, nodes: Nodes) -> LaunchConfig:
    return configure(options(line), nodes)


@pytest.mark.parametrize(("num_gpus", "slots"), [(0, 1), (1, 1), (8, 8)])
def test_a_machine_gives_a_slot_per_gpu(num_gpus: int, slots: int) -> None:
    """A machine has a slot per GPU, or one slot without GPUs, also with a run info that says nothing of slots."""
    expected = Nodes(num_nodes=1, node_rank=0, slots=slots, chief_address="localhost")

    assert decided("", None, num_gpus) == expected
    assert decided("", ClusterInfo(), num_gpus) == expected


def test_a_run_info_goes_before_the_machine() -> None:
    """A run info gives the nodes, this node's rank and slots, and the first node's address."""
    assert decided("", CLUSTER, 1) == Nodes(num_nodes=2, node_rank=1, slots=8, chief_address="10.0.0.1")
    assert decided("", ClusterInfo(named_slot_ids=[3]), 8).slots == 1
    assert decided("", ClusterInfo(container_slot_counts=[3]), 8).slots == 3


@pytest.mark.parametrize("line", ["--nproc-per-node 3", "--nproc-per-node=3", "--nproc_per_node 3", "--nproc-per-n=3"])
def test_torchruns_options_go_before_all(line: str) -> None:
    """--nproc-per-node in any of torchrun's spellings overrides the run info."""
    assert decided(line, None, 8).slots == decided(line, CLUSTER, 8).slots == 3


def test_a_head_has_counted_the_ranks_of_a_single_host() -> None:
    """A run info of one host with one slot counts only if the head has sent it."""
    one_slot = ClusterInfo(container_addrs=["h2"], container_slot_counts=[1])

    nodes = [decide_nodes({}, one_slot, lambda: 8, is_sent_by_head=is_sent) for is_sent in (True, False)]

    assert [node.slots for node in nodes] == [1, 8]


def test_options_take_a_node_out_of_its_group() -> None:
    """--nnodes=1 and --standalone make the node train alone, whatever the run info says."""
    alone = Nodes(num_nodes=1, node_rank=0, slots=8, chief_address="localhost")

    assert decided("--nnodes=1", CLUSTER) == decided("--standalone", CLUSTER) == alone


def test_nodes_are_given_by_options() -> None:
    """Nodes can be given by rank and address, or by a rendezvous."""
    assert decided("--nnodes 2 --node_rank 1 --master_addr h1", None, 4) == SECOND_OF_TWO
    assert decided("--nnodes=2 --node-rank=1 --rdzv-endpoint=h1:29500", None, 4) == SECOND_OF_TWO
    assert decided("--nnodes=1:4 --rdzv-backend=c10d --rdzv-endpoint=[fe80::1]:9") == Nodes(4, 0, 1, "fe80::1")
    assert decided("--nnodes=1:2", CLUSTER) == Nodes(2, 1, 8, "10.0.0.1")


def test_the_ranks_are_counted_as_torchrun_counts_them() -> None:
    """--nproc-per-node=cpu starts one rank per core on which the launcher may run."""
    assert decided("--nproc-per-node=cpu", CLUSTER).slots == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--nnodes=two", "--nnodes=two is no number of nodes"),
        ("--nnodes=3:2", "--nnodes=3:2 cannot be"),
        ("--nnodes=0", "cannot be"),
        ("--nproc-per-node=0", "would start nothing"),
        ("--nnodes=2", "which of the 2 nodes is this"),
        ("--nnodes=2 --master-addr=h1", "which of the 2 nodes is this"),
        ("--nnodes=2 --node-rank=0", "2 nodes need the first one's address"),
        ("--nnodes=1:2", "2 nodes need the first one's address"),
        ("--nnodes=2 --node-rank=2 --master-addr=h1", "--node-rank=2 is none of 2 nodes"),
    ],
)
def test_nodes_that_could_never_meet_are_refused(line: str, message: str) -> None:
    """Impossible numbers of nodes are refused, instead of waiting for nodes that cannot come."""
    with pytest.raises(UsageError, match=message):
        decided(line)


def test_one_node_gets_a_free_port() -> None:
    """A single node uses a free port and no host name, so that jobs do not clash."""
    config = configured("", ONE_NODE)

    assert (config.min_nodes, config.max_nodes, config.num_local_ranks) == (1, 1, 2)
    assert (config.rendezvous, config.port, config.local_address) == (None, 0, None)
    assert config.options.max_restarts == 0


@pytest.mark.parametrize("line", ["--standalone", "--rdzv-backend=static", "--standalone --rdzv-endpoint=h9:1"])
def test_a_node_alone_meets_only_itself(line: str) -> None:
    """A node alone ignores a rendezvous endpoint, as with torchrun."""
    config = configured(line, ONE_NODE)

    assert (config.rendezvous, config.port, config.local_address) == (None, 0, None)


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("--master-port=29511", (None, 29511)),
        ("--master-port=29511 --master-addr=h9", ("h9", 29511)),
        ("--master-addr=fe80::1", ("fe80::1", 0)),
        ("--master-port=29511 --master-addr=[fe80::1]", ("fe80::1", 29511)),
        ("--local-addr=h9", ("h9", 0)),
        ("--rdzv-backend=static --rdzv-endpoint=[fe80::1]", ("fe80::1", 0)),
        ("--rdzv-backend=static --rdzv-endpoint=[fe80::1]:7", ("fe80::1", 7)),
    ],
)
def test_a_node_alone_uses_the_place_that_it_is_given(line: str, place: tuple[str | None, int]) -> None:
    """A node alone uses the address and port that it is given."""
    config = configured(line, ONE_NODE)

    assert (config.rendezvous, (config.local_address, config.port)) == (None, place)


def test_several_nodes_meet_at_the_first_one() -> None:
    """Several nodes meet at the first one, on a fixed port."""
    config = configured("", SECOND_OF_TWO)

    assert config.rendezvous == RendezvousConfig("static", "h1:29400", {"rank": 1})
    assert (config.min_nodes, config.max_nodes, config.num_local_ranks, config.options.max_restarts) == (2, 2, 4, 0)


def test_an_address_of_ipv6_is_told_from_its_port() -> None:
    """An IPv6 address is written in brackets before the port."""
    assert configured("", Nodes(2, 0, 1, "fe80::1")).rendezvous == RendezvousConfig(
        "static", "[fe80::1]:29400", {"rank": 0}
    )


@pytest.mark.parametrize(
    ("line", "rendezvous"),
    [
        ("--rdzv-endpoint=h1:29511", RendezvousConfig("static", "h1:29511", {"rank": 1})),
        ("--rdzv-backend=etcd-v2 --rdzv-endpoint=e1:2379", RendezvousConfig("etcd-v2", "e1:2379")),
        ("--nnodes=1:2", RendezvousConfig("c10d", "h1:29400")),
        ("--nnodes=1:2 --rdzv-endpoint=h7:1", RendezvousConfig("c10d", "h7:1")),
        (
            "--nnodes=1:2 --rdzv-conf=timeout=9,is_host=0",
            RendezvousConfig("c10d", "h1:29400", {"timeout": "9", "is_host": "0"}),
        ),
        ("--master-port=29511 --master-addr=h9", RendezvousConfig("static", "h9:29511", {"rank": 1})),
    ],
)
def test_overrides_replace_what_would_be_said(line: str, rendezvous: RendezvousConfig) -> None:
    """Overrides replace the default rendezvous, and missing parts are completed."""
    assert configured(line, SECOND_OF_TWO).rendezvous == rendezvous


def test_numbers_that_are_given_count() -> None:
    """Given numbers of ranks and restarts are used."""
    config = configured("--max-restarts 3 --nproc_per_node=5", ONE_NODE)

    assert (config.options.max_restarts, decided("--nproc_per_node=5").slots) == (3, 5)


def test_variables_of_torchrun_count_as_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchrun's PET_ variables count as options."""
    for name, value in {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "h1", "NPROC_PER_NODE": "4"}.items():
        monkeypatch.setenv(f"PET_{name}", value)

    nodes = decided("", CLUSTER, 8)

    assert nodes == SECOND_OF_TWO
    assert configured("", nodes).rendezvous == RendezvousConfig("static", "h1:29400", {"rank": 1})


def test_overrides_that_name_a_script_are_refused() -> None:
    """Overrides that contain a script are refused."""
    with pytest.raises(UsageError, match="the script comes after"):
        options("--nnodes 1 other.py")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--nproc-per-node", "expected one argument"),
        ("--no-such-option", "unrecognized arguments: --no-such-option"),
        ("--max-restarts=-1", "--max-restarts=-1 cannot be"),
        ("--max-restarts=two", "invalid int value"),
        ("--rdzv-conf=timeout --nnodes=2", "--rdzv-conf=timeout cannot be read"),
        ("--rdzv-endpoint=h1 --nnodes=2", "has no port"),
    ],
)
def test_options_that_cannot_be_are_refused(line: str, message: str) -> None:
    """Invalid torchrun options are refused with torchrun's messages."""
    with pytest.raises(UsageError, match=message):
        configured(line, SECOND_OF_TWO)


def test_a_variable_that_an_option_cannot_be_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PET_ variable with an invalid value is named in the error."""
    monkeypatch.setenv("PET_MAX_RESTARTS", "often")

    with pytest.raises(UsageError, match="PET_MAX_RESTARTS is 'often', which --max-restarts cannot be"):
        options()


def test_the_run_info_is_read_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run info is read from its file, and one that contradicts itself is refused."""
    path = tmp_path / "run.json"
    monkeypatch.setenv("CORE_SDK_RUN_INFO", str(path))
    content = {"container_addrs": ["h1", "h2"], "container_rank": 1, "container_slot_counts": [2, 2]}

    path.write_text(json.dumps(content))
    assert find_nodes(options()) == Nodes(num_nodes=2, node_rank=1, slots=2, chief_address="h1")
    for name, value in {"container_rank": 2, "container_slot_counts": [1]}.items():
        path.write_text(json.dumps(content | {name: value}))
        with pytest.raises(AttemptError, match=r"run\.json.*contradict each other"):
            find_nodes(options())


def test_the_machine_is_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without options and run info, the machine gives the number of ranks."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    assert find_nodes(options()) == Nodes(num_nodes=1, node_rank=0, slots=1, chief_address="localhost")


def placed(line: str, info: ClusterInfo | None = None, placement: Placement = PLACEMENT) -> Nodes:
    return decide_nodes(options(line).given, info, lambda: 8, lambda: placement)


def test_a_scheduler_goes_before_the_machine() -> None:
    """A scheduler's placement gives the nodes, this node's rank and GPUs, the first node's address and the port."""
    nodes = placed("")
    config = configured("", nodes)

    assert (nodes.num_nodes, nodes.node_rank, nodes.slots, nodes.chief_address) == (2, 1, 4, "h1")
    assert config.rendezvous == RendezvousConfig("static", "h1:12345", {"rank": 1})
    assert config.num_local_ranks == 4


def test_gpus_that_a_scheduler_does_not_count_are_counted() -> None:
    """If the scheduler does not tell the number of GPUs, they are counted."""
    placement = Placement(("train-0", "train-1"), node_rank=0, slots=None, port=1234)

    assert placed("", placement=placement).slots == 8


def test_options_and_a_run_info_go_before_a_scheduler() -> None:
    """Options and a run info override the scheduler, which is then not asked."""

    def refuse() -> Placement:
        raise AssertionError("the scheduler was asked")

    for line in ("--nnodes=1", "--standalone", "--nnodes=2 --node-rank=0 --master-addr=h9"):
        assert decide_nodes(options(line).given, None, lambda: 1, refuse).run_info is None
    assert decide_nodes({}, CLUSTER, lambda: 1, refuse) == decided("", CLUSTER)
    assert placed("--nproc-per-node=3").slots == 3
    assert placed("--nnodes=1:2 --rdzv-backend=c10d").chief_address == "h1"


def test_a_run_info_that_all_nodes_share_leaves_the_place_to_the_scheduler() -> None:
    """Only of the same nodes the scheduler tells the place and the port; the run info keeps its slots."""
    shared = msgspec.structs.replace(CLUSTER, container_addrs=["h1", "h2"], container_rank=0)

    nodes = placed("", shared)

    assert (nodes.node_rank, nodes.slots, nodes.chief_address, nodes.port) == (1, 8, "h1", 12345)
    assert nodes.run_info == msgspec.structs.replace(shared, container_rank=1)
    assert placed("", msgspec.structs.replace(CLUSTER, container_rank=0)).node_rank == 0


def test_ranks_are_told_where_a_scheduler_has_placed_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler's placement reaches the ranks in a private run info that has no trial."""
    monkeypatch.setenv(RUN_INFO_VARIABLE, "")
    write_run_info(placed("--nproc-per-node=3"), tmp_path)

    info = run_info()

    assert info is not None
    assert get_cluster_info() is None, "a script that asks for its trial has none"
    assert (info.container_addrs, info.container_rank, info.container_slot_counts) == (["h1", "h2"], 1, [3, 3])
    assert (info.slot_ids, info.task_type) == ([0, 1, 2], "PLACED")
    assert (tmp_path / "run.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [None, '{"task_id": "trial-1"}', '{"slot_ids": [3], "container_slot_counts": [1]}'])
def test_ranks_are_told_the_slots_that_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    """The ranks' run info has one slot per rank and keeps its other fields."""
    monkeypatch.setenv(RUN_INFO_VARIABLE, "")
    if content is not None:
        (tmp_path / "given.json").write_text(content)
        monkeypatch.setenv(RUN_INFO_VARIABLE, str(tmp_path / "given.json"))

    write_run_info(ONE_NODE, tmp_path)
    info = run_info()

    assert info is not None
    assert (info.slot_ids, info.container_slot_counts) == ([0, 1], [2])
    assert (info.task_type, info.task_id) == (
        ("PLACED", "") if content is None else ("TRIAL", "trial-1" if "task_id" in content else "")
    )


def test_a_scheduler_that_has_not_started_every_node_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Slurm job whose other nodes were not started is a usage error that recommends srun."""
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")

    with pytest.raises(UsageError, match="Put srun before it"):
        find_nodes(options())
