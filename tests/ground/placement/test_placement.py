"""A scheduler's variables are read as the place of one launcher in its job."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from core_sdk._ground.placement import Placement, kubernetes_placement, slurm_placement
from core_sdk._ground.placement._host_list import expand_counts, expand_hosts
from core_sdk.errors import PlacementError

# As srun of Slurm 22.05 set them for the second of two tasks.
STEP = {
    "SLURMD_NODENAME": "h2",
    "SLURM_CLUSTER_NAME": "tests",
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "h[1-2]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}
# What a batch script has of them.
BATCH = {name: STEP[name] for name in ("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_PROCID")}
POD = {"JOB_COMPLETION_INDEX": "1", "CORE_SDK_NUM_NODES": "3"}
DOMAIN = "workers.team.svc.cluster.local"


def placed_by_slurm(**changes: str) -> Placement:
    placement = slurm_placement(STEP | changes)
    assert placement is not None
    return placement


def placed_by_kubernetes(variables: Mapping[str, str], hostname: str = "train-1", domain: str = DOMAIN) -> Placement:
    placement = kubernetes_placement(variables, hostname, f"{hostname}.{domain}".rstrip("."))
    assert placement is not None
    return placement


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("h1", ["h1"]),
        ("h1,h2", ["h1", "h2"]),
        ("h[1-3,07]", ["h1", "h2", "h3", "h07"]),
        ("h[08-11].lan", ["h08.lan", "h09.lan", "h10.lan", "h11.lan"]),
        ("gpu-[01-02]-x[1-2],h[9-10]", ["gpu-01-x1", "gpu-01-x2", "gpu-02-x1", "gpu-02-x2", "h9", "h10"]),
    ],
)
def test_a_list_of_hosts_is_expanded(text: str, hosts: list[str]) -> None:
    """A list of hosts is expanded in its order, with leading zeros."""
    assert expand_hosts(text) == hosts


@pytest.mark.parametrize("text", ["", "h1,", "h[", "h[1-", "h]1", "h[3-1]", "h[a-b]", "h[]"])
def test_what_is_no_list_of_hosts_is_refused(text: str) -> None:
    """Text that is no list of hosts is refused, and not taken for a host's name."""
    with pytest.raises(ValueError, match=r"is not a|runs backwards"):
        expand_hosts(text)


def test_a_list_of_counts_is_expanded() -> None:
    """A list of counts such as 1(x2),3 is expanded, and a bad one is refused."""
    assert expand_counts("1(x2),3,2(x1)") == [1, 1, 3, 2]
    with pytest.raises(ValueError, match="is not a count"):
        expand_counts("1(x)")


def test_a_step_of_slurm_has_its_place() -> None:
    """In a step of Slurm, a launcher learns all nodes, the first one, and its own rank."""
    placement = placed_by_slurm()

    assert (placement.addresses, placement.node_rank, placement.slots) == (("h1", "h2"), 1, None)


def test_nodes_of_a_heterogeneous_job_are_counted_from_component_to_component() -> None:
    """In a heterogeneous job, nodes are numbered by component, although the step's list is sorted."""
    components = {
        "SLURM_HET_SIZE": "2",
        "SLURM_JOB_NODELIST_HET_GROUP_0": "h3",
        "SLURM_JOB_NODELIST_HET_GROUP_1": "h[1-2]",
    }
    step = {"SLURM_STEP_NODELIST": "h[1-3]", "SLURM_STEP_NUM_NODES": "3", "SLURM_STEP_TASKS_PER_NODE": "1(x3)"}

    over_both = placed_by_slurm(**components, **step, SLURM_NODEID="2")
    over_one = placed_by_slurm(**components)

    assert (over_both.addresses, over_one.addresses) == (("h3", "h1", "h2"), ("h1", "h2"))


def test_nodes_meet_at_a_port_of_their_jobs_own() -> None:
    """All nodes of a step derive the same port, which differs for other jobs and steps."""
    ports = {
        placed_by_slurm(SLURM_JOB_ID=str(job), SLURM_STEP_ID=str(step)).port for job in range(9) for step in (0, 1)
    }

    first = placed_by_slurm(SLURM_NODEID="0", SLURM_PROCID="0", SLURMD_NODENAME="h1")

    assert first.port == placed_by_slurm().port
    assert len(ports) == 18
    assert all(10_000 <= port < 30_000 for port in ports)


@pytest.mark.parametrize(
    ("variables", "slots"),
    [
        ({"SLURM_GPUS_ON_NODE": "4"}, 4),
        ({"SLURM_GPUS_ON_NODE": "4", "SLURM_GPUS_PER_TASK": "2"}, 2),
        ({"SLURM_GPUS_ON_NODE": "4", "SLURM_GPUS_PER_TASK": "a100:2"}, 2),
        ({"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "0,3,5"}, 3),
        ({"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": ""}, None),
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, None),
        ({"SLURM_GPUS_ON_NODE": "0"}, None),
    ],
)
def test_slots_are_the_gpus_that_may_be_used(variables: dict[str, str], slots: int | None) -> None:
    """Slots are the GPUs that the task may use, rather than the node's; CUDA_VISIBLE_DEVICES has precedence."""
    assert placed_by_slurm(**variables).slots == slots


def test_without_a_step_nothing_is_placed() -> None:
    """Without a step of Slurm, as on a laptop or in a batch script on one node, nothing is placed."""
    assert slurm_placement({}) is None
    assert slurm_placement(BATCH | {"SLURM_JOB_NUM_NODES": "1"}) is None
    assert slurm_placement(BATCH | {"SLURM_JOB_NUM_NODES": "1", "SLURM_STEP_ID": "4294967291"}) is None


@pytest.mark.parametrize(
    ("variables", "error", "words"),
    [
        (BATCH, PlacementError, "srun --ntasks-per-node=1"),
        (STEP | {"SLURM_STEP_ID": "4294967290"}, PlacementError, "2 nodes"),
        (
            STEP | {"SLURM_STEP_TASKS_PER_NODE": "4(x2)", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "8"},
            PlacementError,
            "4 launchers on a node",
        ),
        (STEP | {"SLURM_NODEID": "0"}, PlacementError, "in another order than it lists them"),
        (BATCH | {"SLURM_JOB_NUM_NODES": "1", "SLURM_HET_SIZE": "3"}, PlacementError, "3 nodes"),
        (STEP | {"SLURM_STEP_NODELIST": "h["}, PlacementError, "'h\\['"),
        (STEP | {"SLURM_STEP_NODELIST": "h[1-3]"}, PlacementError, "3 nodes"),
        (STEP | {"SLURM_NODEID": "2"}, PlacementError, "a place among 2 nodes"),
        ({name: value for name, value in STEP.items() if name != "SLURM_NODEID"}, PlacementError, "is not set"),
    ],
)
def test_other_than_one_launcher_per_node_is_refused(
    variables: dict[str, str], error: type[PlacementError], words: str
) -> None:
    """Other numbers than one launcher per node are refused with what to write instead."""
    with pytest.raises(error, match=words):
        slurm_placement(variables)


def test_a_pod_of_an_indexed_job_has_its_place() -> None:
    """A pod of an indexed Job learns its rank from its index and the others' addresses from its own name."""
    placement = placed_by_kubernetes(POD)

    assert placement.addresses == tuple(f"train-{index}.{DOMAIN}" for index in range(3))
    assert (placement.node_rank, placement.slots) == (1, None)
    assert placement.port == placed_by_kubernetes(POD | {"JOB_COMPLETION_INDEX": "0"}, "train-0").port


def test_torchruns_number_of_nodes_serves_a_pod_too() -> None:
    """A pod takes the number of nodes from PET_NNODES too, and the largest number of an elastic training."""
    variables = {"JOB_COMPLETION_INDEX": "1", "PET_NNODES": "1:3"}

    assert placed_by_kubernetes(variables) == placed_by_kubernetes(POD)


def test_a_pods_manifest_may_name_the_first_one() -> None:
    """If the manifest gives MASTER_ADDR and MASTER_PORT, a pod needs no subdomain."""
    placement = placed_by_kubernetes(POD | {"MASTER_ADDR": "10.1.2.3", "MASTER_PORT": "2222"}, domain="")

    assert (placement.addresses[0], placement.port, placement.node_rank) == ("10.1.2.3", 2222, 1)


def test_a_pod_alone_needs_no_address() -> None:
    """A pod that trains alone needs no address, and its index does not count as a rank."""
    placement = placed_by_kubernetes({"JOB_COMPLETION_INDEX": "7", "CORE_SDK_NUM_NODES": "1"}, "sweep-7", "")

    assert (placement.addresses, placement.node_rank) == (("sweep-7",), 0)


def test_outside_of_an_indexed_job_no_pod_is_placed() -> None:
    """A pod outside of an indexed Job gets no placement."""
    assert kubernetes_placement({"CORE_SDK_NUM_NODES": "2"}, "train-x7f2", "train-x7f2") is None


@pytest.mark.parametrize(
    ("variables", "hostname", "domain", "error", "words"),
    [
        (
            {"JOB_COMPLETION_INDEX": "1"},
            "train-1",
            DOMAIN,
            PlacementError,
            r"Set CORE_SDK_NUM_NODES in .*`completions`",
        ),
        (POD, "train-1", "", PlacementError, "headless Service"),
        (POD, "of-its-own", DOMAIN, PlacementError, "MASTER_ADDR"),
        (POD | {"JOB_COMPLETION_INDEX": "3"}, "train-3", DOMAIN, PlacementError, "less than .* 3"),
        (POD | {"CORE_SDK_NUM_NODES": "two"}, "train-1", DOMAIN, PlacementError, "'two'.* a number"),
        (POD | {"CORE_SDK_NUM_NODES": "0"}, "train-1", DOMAIN, PlacementError, "at least 1"),
    ],
)
def test_what_a_manifest_lacks_is_named(
    variables: dict[str, str], hostname: str, domain: str, error: type[PlacementError], words: str
) -> None:
    """An error for an incomplete manifest names what is missing and what to put there."""
    with pytest.raises(error, match=words):
        placed_by_kubernetes(variables, hostname, domain)
