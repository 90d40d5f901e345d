"""What DeepSpeed's options come to: ranks and GPUs of this node, a place among others, or hosts to start on."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from core_sdk._ground.environment import recorded_variables, visible_gpus
from launch._command_line import UsageError
from launch._deepspeed._options import DeepSpeedOptions, parse_options, plan_here, plan_hosts
from launch._framework import LaunchOptions
from launch._ssh._hostfile import Host, Ssh, parse_hostfile
from launch.deepspeed import DeepSpeed

THREE_HOSTS = parse_hostfile("h1 slots=4\nh2 slots=2\nh3 slots=4\n")
NO_GPUS: list[str] = []


def here(line: str, gpus: list[str] = NO_GPUS) -> LaunchOptions:
    return plan_here(parse_options(line.split()), lambda: gpus)


def on_hosts(line: str, hosts: tuple[Host, ...] = THREE_HOSTS) -> LaunchOptions:
    return plan_hosts(parse_options(line.split()), hosts)


def hosts_of(plan: LaunchOptions) -> tuple[Host, ...]:
    assert plan.ssh_launch is not None
    return plan.ssh_launch.hosts


@pytest.mark.parametrize(
    "line",
    [
        "--hostfile=hosts --include=h1 --num_gpus=-1",
        "-H hosts -i h1",
        "-Hhosts --incl h1",
        "--host hosts --include h1 --no_python --no_local_rank --no_ssh_check -q --log_level error --launcher PDSH",
    ],
)
def test_options_are_read_as_deepspeed_reads_them(line: str) -> None:
    """Abbreviations, `=` and short options are accepted, and options for the default have no effect."""
    assert parse_options(line.split()) == DeepSpeedOptions(hostfile=Path("hosts"), include="h1")


def test_dashes_stand_for_underscores() -> None:
    """Options may be spelled with dashes, and torchrun's words give the node's place."""
    assert parse_options(["--num-gpus=2", "--node-rank", "1", "--master-addr=h-1"]) == DeepSpeedOptions(
        num_gpus=2, node_rank=1, master_addr="h-1"
    )
    assert parse_options(["--num_accelerators", "2"]) == DeepSpeedOptions(num_gpus=2)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--launcher openmpi", "--launcher is not understood.*srun"),
        ("--launcher_args=-v", "ssh/config"),
        ("--autotuning run", "tune with the `deepspeed` program"),
        ("--save_pid", "the launcher itself"),
        ("--enable_each_rank_log logs", "trial logs ID --rank N"),
        ("--venv_script a.sh", "launcher's own environment"),
    ],
)
def test_what_only_deepspeeds_launcher_does_is_refused_with_what_to_do_instead(line: str, message: str) -> None:
    """Options that only DeepSpeed's launcher supports are refused with an alternative."""
    with pytest.raises(UsageError, match=message):
        parse_options(line.split())


@pytest.mark.parametrize("line", ["--module -- package.train a", "--mod -- package.train a", "-- -m package.train a"])
def test_a_module_takes_the_place_of_a_script(line: str) -> None:
    """With `--module` the script is a module's name, as under DeepSpeed's launcher."""
    assert DeepSpeed().command(line.split()).script == ("-m", "package.train", "a")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--nproc-per-node=2", "unrecognized arguments: --nproc_per_node=2"),
        ("--num_g two", "invalid int value"),
        ("--num_gpus=0", "--num_gpus=0 would start nothing"),
        ("--num_nodes=0", "--num_nodes=0 would start nothing"),
        ("--no 1", "ambiguous option"),
        ("-q train.py", "followed by something else"),
        ("-i h1 -e h2", "cannot stand together"),
        ("-i h1 --num_gpus 2", "cannot stand beside"),
    ],
)
def test_options_that_make_no_sense_are_refused(line: str, message: str) -> None:
    """Contradictory or unknown options are usage errors."""
    with pytest.raises(UsageError, match=message):
        parse_options(line.split())


def test_one_node_has_as_many_ranks_as_gpus_are_asked_for() -> None:
    """Each sees these GPUs; on a node without as many, the ranks train on processors."""
    assert here("") == LaunchOptions(())
    assert here("--num_gpus=2", ["4", "5", "6"]) == LaunchOptions(("--nproc-per-node=2",), devices=("4", "5"))
    assert here("--num_gpus=2") == LaunchOptions(("--nproc-per-node=2",))
    assert here("--master_port=29777") == LaunchOptions(("--master-port=29777",))


@pytest.mark.parametrize(
    ("variables", "gpus"),
    [
        ({}, None),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "4, GPU-5e0f"}, ["4", "GPU-5e0f"]),
    ],
)
def test_gpus_that_a_scheduler_has_given_are_all_that_there_are(
    variables: dict[str, str], gpus: list[str] | None
) -> None:
    """GPUs in CUDA_VISIBLE_DEVICES are the only ones; without it they are counted."""
    assert visible_gpus(variables) == gpus


def test_what_deepspeed_reads_is_kept_for_a_resume() -> None:
    """Variables that DeepSpeed reads are recorded for a resume."""
    variables = {"DS_ACCELERATOR": "cpu", "DEEPSPEED_TIMEOUT": "60"}

    assert recorded_variables(variables) == variables


def test_gpus_of_this_node_are_included_and_excluded() -> None:
    """--include chooses GPUs by the driver's numbers, and --exclude leaves out visible ones."""
    assert here("-i localhost:3,0") == LaunchOptions(("--nproc-per-node=2",), devices=("0", "3"))
    assert here("-i localhost") == LaunchOptions(())
    assert here("-e localhost:0,2", ["0", "1", "2", "3"]) == LaunchOptions(("--nproc-per-node=2",), devices=("1", "3"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-i h1:0", "h1 is in no hostfile"),
        ("-e localhost:7", "no GPU 7 to exclude"),
        ("-e localhost", "leaves no GPU"),
        ("-i localhost:x", "names no hosts and slots"),
        ("-i localhost:", "names no hosts and slots"),
        ("--force_multi", "reached by ssh, a single one too"),
    ],
)
def test_a_choice_that_leaves_nothing_here_is_refused(line: str, message: str) -> None:
    """A choice that leaves no GPU or names an unknown one is refused."""
    with pytest.raises(UsageError, match=message):
        here(line, ["0", "1"])


def test_a_node_is_told_its_place_without_a_hostfile() -> None:
    """A node's place can be given by options without a hostfile."""
    plan = here("--no_ssh --num_nodes=2 --node_rank=1 --master_addr=h1 --num_gpus=4")

    assert plan.torchrun == ("--nnodes=2", "--node-rank=1", "--nproc-per-node=4", "--master-addr=h1")


def test_each_host_binds_its_own_ranks() -> None:
    """Options that bind cores are passed on to each host."""
    ssh_launch = on_hosts("--bind_cores_to_rank --bind_core_list=0-3").ssh_launch

    assert ssh_launch is not None
    assert ssh_launch.overrides == ("--bind_cores_to_rank", "--bind_core_list=0-3")


def test_hosts_of_a_hostfile_are_spread_over() -> None:
    """The hosts of a hostfile are used, and the options that are passed on name no hosts."""
    plan = on_hosts("--master_port=29777 --master_addr=10.0.0.1 --ssh_port=2222")

    assert plan.ssh_launch is not None
    assert (plan.ssh_launch.hosts, plan.ssh_launch.ssh) == (THREE_HOSTS, Ssh(port=2222))
    assert plan.ssh_launch.overrides == ("--master-addr=10.0.0.1", "--master-port=29777")
    there = here(" ".join(plan.ssh_launch.overrides))
    assert there.torchrun == plan.torchrun == ("--master-addr=10.0.0.1", "--master-port=29777")


@pytest.mark.parametrize(
    ("line", "hosts"),
    [
        ("--num_nodes=2", (Host("h1", 4), Host("h2", 2))),
        ("--num_nodes=2 --num_gpus=1", (Host("h1", 1, (0,)), Host("h2", 1, (0,)))),
        ("-i h3@h1:2,0", (Host("h1", 2, (0, 2)), Host("h3", 4, (0, 1, 2, 3)))),
        ("-i h1:1@h1:3", (Host("h1", 2, (1, 3)),)),
        ("-e h1:0,1@h2", (Host("h1", 2, (2, 3)), Host("h3", 4, (0, 1, 2, 3)))),
    ],
)
def test_hosts_and_their_gpus_are_chosen_as_deepspeed_chooses_them(line: str, hosts: tuple[Host, ...]) -> None:
    """Hosts and GPUs are chosen by DeepSpeed's rules, in the order of the hostfile."""
    assert hosts_of(on_hosts(line)) == hosts


def test_a_single_host_may_be_this_one() -> None:
    """A single host that is this machine gives its slots and GPUs to the local ranks."""
    plan = on_hosts("-i h1:1,3")

    assert (plan.torchrun, plan.devices) == (("--nproc-per-node=2",), ("1", "3"))
    assert hosts_of(plan) == (Host("h1", 2, (1, 3)),)


def test_without_ssh_a_hostfile_tells_a_node_its_slots() -> None:
    """With --no_ssh the hostfile gives a node its slots, and nodes meet at the first host."""
    plan = on_hosts("--no_ssh --node_rank=1 -e h3")

    assert plan == LaunchOptions(
        ("--nnodes=2", "--node-rank=1", "--nproc-per-node=2", "--master-addr=h1"), devices=("0", "1"), ssh_launch=None
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--no_ssh", "which of the 3 hosts is this"),
        ("--no_ssh --node_rank=3", "which of the 3 hosts is this"),
        ("--node_rank=1", "--node_rank needs --no_ssh"),
        ("--num_nodes=4", "the hostfile names 3 hosts"),
        ("-i h4", "does not name h4, but h1, h2, h3"),
        ("-e h2:2", "h2 has 2 slots.*no slot 2"),
        ("-e h1@h2@h3", "leaves no host"),
    ],
)
def test_hosts_that_are_not_there_are_refused(line: str, message: str) -> None:
    """Unknown or impossible hosts are refused before anything starts."""
    with pytest.raises(UsageError, match=message):
        on_hosts(line)


def test_ranks_are_told_their_places_in_deepspeeds_words(tmp_path: Path) -> None:
    """Ranks get DeepSpeed's variables, their GPUs and --local_rank, without DeepSpeed installed."""
    script = tmp_path / "train.py"
    names = ["LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "CUDA_VISIBLE_DEVICES"]
    script.write_text(
        textwrap.dedent(f"""\
            import os, sys
            print(sys.argv[1:], *(os.environ[name] for name in {names}))
        """)
    )
    command = ["-m", "launch.deepspeed", "--include=localhost:1,3", "--", "train.py", "--local_rank=${local_rank}"]

    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, timeout=120, env=dict(os.environ)
    )

    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"[rank={rank}] ['--local_rank={rank}'] {rank} 2 0 1 1,3" for rank in (0, 1)
    ]
