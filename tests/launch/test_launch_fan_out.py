"""What is told to other hosts and how, and what becomes of their answers: rules over values."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from parts import needs

from core_sdk._ground.environment import meeting_port, passed_variables
from core_sdk._ground.placement import scheduled_job, slurm_placement
from core_sdk._ground.records import ClusterInfo
from launch._command_line import UsageError
from launch._result import LaunchResult, overall_result
from launch._ssh._head import HostJob, host_run_infos, with_meeting_port
from launch._ssh._hostfile import Host, Ssh, is_here, parse_hostfile, parse_hosts, read_hostfile
from launch._ssh._link import HostReport
from launch._ssh._remote_launcher import HostOutput
from launch._ssh._ssh_command import ssh_argv, why_lost, why_not_started
from launch._torchrun._options import split_hostfile
from launch.torch_distributed import plan_ssh_launch

H1, H2 = Host("h1", 2), Host("h2", 4)
MARK = "\x1e0123456789abcdef "


def option(argv: list[str], name: str) -> str:
    return next(word.partition("=")[2] for word in argv if word.startswith(f"{name}="))


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("h1 slots=2\nh2 slots=4", (H1, H2)),
        ("# all of them\n\n  h1\tslots=2  # old\r\nh2 slots=4 max_slots=8\n", (H1, H2)),
        ("me@h1.example.com slots=1", (Host("me@h1.example.com", 1),)),
        (
            "10.0.0.1 slots=1\n[fe80::1%eth0] slots=2\n::2 slots=1",
            (Host("10.0.0.1", 1), Host("fe80::1%eth0", 2), Host("::2", 1)),
        ),
    ],
)
def test_a_hostfile_names_hosts_with_slots(text: str, hosts: tuple[Host, ...]) -> None:
    """Hostfiles of MPI, DeepSpeed and Horovod are understood."""
    assert parse_hostfile(text) == hosts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("h1 slots=2\nh2", "line 2 is 'h2', where `NAME slots=N` is expected"),
        ("h1 slots=two", "line 1"),
        ("h1 slots=2 h2 slots=4", "line 1"),
        ("h1 slots=0", "line 1: h1 has no slots"),
        ("\n-oProxyCommand=true slots=1", "line 2: '-oProxyCommand=true' is no name of a host"),
        ("me@-h1 slots=1", "line 1"),
        ("h1;reboot slots=1", "line 1: 'h1;reboot' is no name of a host"),
        ("h1 slots=1\n\nH1 slots=1", "line 3: H1 was named before, in line 1"),
        ("# nobody\n", "no host is named"),
    ],
)
def test_a_bad_hostfile_is_refused_by_its_line(text: str, words: str) -> None:
    """A bad hostfile is refused with its line, including names that look like options or commands."""
    with pytest.raises(UsageError, match=None) as caught:
        parse_hostfile(text)

    assert words in str(caught.value)


def test_a_missing_hostfile_is_named(tmp_path: Path) -> None:
    """A missing or bad hostfile is named by its path."""
    bad = tmp_path / "hosts"
    bad.write_text("h1")

    with pytest.raises(UsageError, match="nowhere does not exist"):
        read_hostfile(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=f"the hostfile {bad}: line 1"):
        read_hostfile(bad)


def test_hosts_can_stand_in_an_option() -> None:
    """Hosts can be given in an option, as with horovodrun and mpirun."""
    assert parse_hosts("h1:2, h2:4,[::1]:1,h3") == (H1, H2, Host("::1", 1), Host("h3", 1))


@pytest.mark.parametrize("text", ["", "h1:0", "h1:x", "h1:2:3", "-oX:1", "h1:1,h1:1", "a b:1"])
def test_bad_hosts_in_an_option_are_refused(text: str) -> None:
    """Bad hosts in an option are refused."""
    with pytest.raises(UsageError):
        parse_hosts(text)


def test_ssh_asks_nobody_and_trusts_only_known_hosts() -> None:
    """ssh never prompts, accepts only known hosts and notices a lost host within 30 seconds."""
    argv = ssh_argv(H2, Ssh(2222, Path("/keys/id")), ["/usr/bin/python3", "/a b/node.py"], Path("/private/log"))

    assert argv[0] == "ssh"
    assert {
        name: option(argv, name) for name in ("BatchMode", "StrictHostKeyChecking", "ForwardAgent", "ForwardX11")
    } == {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "ForwardAgent": "no",
        "ForwardX11": "no",
    }
    assert int(option(argv, "ServerAliveInterval")) * int(option(argv, "ServerAliveCountMax")) <= 30
    assert argv[argv.index("-p") : argv.index("-p") + 4] == ["-p", "2222", "-i", "/keys/id"]
    assert argv[-3:] == ["--", "h2", shlex.join(["/usr/bin/python3", "/a b/node.py"])]


def test_variables_pass_by_an_allow_list() -> None:
    """Only allowed variables and the ones that the user names are passed; this host's own never are."""
    passed = {
        "PATH": "/bin",
        "LANG": "C",
        "LC_ALL": "C",
        "TZ": "UTC",
        "OMP_NUM_THREADS": "1",
        "NCCL_DEBUG": "INFO",
        "HF_HOME": "/hf",
        "TOKENIZERS_PARALLELISM": "1",
        "CORE_SDK_HOME": "/home",
        "CORE_SDK_CHANNEL_KEY": "k",
        "CORE_SDK_PASS_VARIABLES": "WANDB_API_KEY, MY_*",
        "WANDB_API_KEY": "w",
        "MY_TOKEN": "m",
        "SLURM_ARRAY_JOB_ID": "6",
        "SLURM_ARRAY_TASK_ID": "3",
        "SLURM_CLUSTER_NAME": "c",
        "SLURM_JOB_ID": "7",
        "SLURM_RESTART_COUNT": "1",
    }
    kept = {
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_ACCESS_KEY_ID": "s",
        "FOO_TOKEN": "s",
        "HF_TOKEN": "s",
        "HOME": "/root",
        "SSH_AUTH_SOCK": "/s",
        "CORE_SDK_RUN_INFO": "/r",
        "CORE_SDK_LAUNCH_DIR": "/l",
        "CORE_SDK_RENDEZVOUS": "/v",
        "CORE_SDK_MEETING_PORT": "1",
        "CORE_SDK_HEAD": "m /d",
        "CUDA_API_KEY": "s",
        "CUDA_VISIBLE_DEVICES": "0",
        "MYTOKEN": "s",
        "CORE_SDK_LEFT_JOB": "1:j",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_STEP_ID": "0",
    }

    assert passed_variables(passed | kept) == passed
    assert "CUDA_VISIBLE_DEVICES" in passed_variables(kept | {"CORE_SDK_PASS_VARIABLES": "CUDA_VISIBLE_DEVICES"})


def test_hosts_know_the_job_and_no_place_in_it() -> None:
    """Hosts learn the Slurm job but no place in it, so that a requeue continues the same trial."""
    variables = {
        "SLURM_ARRAY_JOB_ID": "6",
        "SLURM_ARRAY_TASK_ID": "3",
        "SLURM_CLUSTER_NAME": "c",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_RESTART_COUNT": "1",
    }

    passed = passed_variables(variables)

    job = scheduled_job(passed, ["train.py"])
    assert job is not None
    assert job == scheduled_job(variables, ["train.py"])
    assert slurm_placement(passed) is None


def test_a_host_is_told_its_place() -> None:
    """Each host is told its place, slots and devices."""
    hosts = (H1, Host("me@h2", 2, devices=(1, 3)))
    job = HostJob("launch.torch_distributed", ("--", "train.py"), "/work", {"PATH": "/bin"}, MARK)

    infos = host_run_infos(hosts, None)
    told = [json.loads(job.line(info, host.devices)) for info, host in zip(infos, hosts, strict=True)]

    places = [json.loads(node["run_info"]) for node in told]
    assert [place["container_addrs"] for place in places] == [["h1", "h2"]] * 2
    assert [place["container_rank"] for place in places] == [0, 1]
    assert [place["container_slot_counts"] for place in places] == [[2, 2]] * 2
    assert [place["slot_ids"] for place in places] == [[], [1, 3]]
    assert [node["variables"] for node in told] == [{"PATH": "/bin"}, {"PATH": "/bin", "CUDA_VISIBLE_DEVICES": "1,3"}]
    assert {job.line(info, ()).count(b"\n") for info in infos} == {1}


def test_the_trial_of_the_head_is_that_of_its_nodes() -> None:
    """Nodes belong to the trial that `core-sdk run` gave to the head."""
    infos = host_run_infos((H1, H2), ClusterInfo(allocation_id="7.1"))

    assert [(info.allocation_id, info.task_type, info.container_rank) for info in infos] == [
        ("7.1", "TRIAL", 0),
        ("7.1", "TRIAL", 1),
    ]


def test_localhost_is_no_name_among_several_hosts() -> None:
    """localhost is refused among several hosts, since it means another machine on each."""
    with pytest.raises(UsageError, match="localhost means another machine"):
        host_run_infos((Host("localhost", 1), H2), None)


def test_nodes_meet_at_a_port_of_their_own() -> None:
    """The meeting port is random, unless CORE_SDK_MEETING_PORT gives a valid one."""
    ports = {meeting_port(with_meeting_port({})) for _ in range(20)}

    assert len(ports) > 10
    assert meeting_port({}) is None
    with pytest.raises(ValueError, match="CORE_SDK_MEETING_PORT"):
        meeting_port({"CORE_SDK_MEETING_PORT": "70000"})


def test_a_hostfile_is_taken_out_of_the_options() -> None:
    """--hostfile is removed from the options, and --nnodes limits its hosts."""
    hostfile, options = split_hostfile(["--hostfile", "f", "--max-restarts=1", "--nnodes=1:2"])

    plan = plan_ssh_launch([H1, H2, Host("h3", 1)], options)

    assert (hostfile, options) == (Path("f"), ("--max-restarts=1", "--nnodes=1:2"))
    assert (plan.hosts, plan.min_hosts, plan.overrides) == ((H1, H2), 1, options)
    assert plan_ssh_launch([H1, H2], ()).min_hosts is None


@pytest.mark.parametrize("options", [["--nnodes=3"], ["--nnodes=x"], ["--node-rank=0"], ["--standalone"]])
def test_options_that_contradict_a_hostfile_are_refused(options: list[str]) -> None:
    """Options that contradict a hostfile are refused."""
    with pytest.raises(UsageError):
        plan_ssh_launch([H1, H2], options)


def test_this_machine_is_known_by_name_and_address() -> None:
    """A host is this machine if its name or address is, unless it names another user."""
    assert is_here(Host("localhost", 1))
    assert is_here(Host("127.0.0.1", 1))
    assert not is_here(Host("192.0.2.1", 1))
    assert not is_here(Host("no-such-user-here@localhost", 1))
    assert not is_here(Host("no-such-host.invalid", 1))


@needs("hosts")
def test_an_address_that_can_merely_be_bound_is_not_this_machine() -> None:
    """Balancers of load let any address be bound to (`ip_nonlocal_bind`); all hosts would be taken for this one."""
    script = "from launch._ssh import _hostfile as it; print(it.is_here(it.Host('10.9.9.7', 1)))"
    allow = 'echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind; exec "$0" "$@"'

    ran = subprocess.run(
        ["unshare", "-n", "sh", "-c", allow, sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert ran.stdout == "False\n"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("Host key verification failed.", "h2 has a host key that ssh does not know"),
        ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", "another host key"),
        ("me@h2: Permission denied (publickey).", "refuses our key: `ssh -p 22 h2` must work without a password"),
        ("ssh: connect to host h2 port 22: Connection refused", "cannot be reached"),
        ("ssh: Could not resolve hostname h2: Name or service not known", "cannot be reached"),
    ],
)
def test_failures_of_ssh_are_told_apart(log: str, words: str) -> None:
    """Each kind of ssh failure has its own message, with ssh's last line."""
    lines = why_not_started(H2, Ssh(22), 255, log, "")

    assert words in lines[0]
    assert log.splitlines()[-1] in lines[-1]


def test_a_missing_interpreter_is_the_remote_shells_word() -> None:
    """A missing interpreter on a host is distinguished from a lost connection."""
    lines = why_not_started(H2, Ssh(), 127, "", "bash: line 1: python: No such file or directory\n")

    assert f"{sys.executable} cannot be started there (status 127)" in lines[0]
    assert lines[1:] == ["  bash: line 1: python: No such file or directory"]
    assert "h2 was lost" in why_lost(H2, "Timeout, server h2 not responding.")[0]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_records_are_taken_out_of_what_a_host_writes(size: int) -> None:
    """Records are removed from a host's output, and launcher lines get the host's name."""
    reports: list[HostReport] = []
    lines = HostOutput("h2", MARK, reports.append)
    result = '{"result": {"code": 3}}'
    written = f"{MARK}{{}}\n[rank=1] a\n[core-sdk] b\n[rank=1] \x1ec{MARK}{result}\nd\n".encode()

    text = b"".join(lines.feed(written[start : start + size]) for start in range(0, len(written), size))

    assert text + lines.finish() == b"[rank=1] a\n[core-sdk] h2: b\n[rank=1] \x1ecd\n"
    assert reports == [HostReport(), HostReport(result=LaunchResult(3))]


def test_the_first_cause_is_the_end_of_all() -> None:
    """The overall result is the first cause, before consequences; a stop counts only without failures."""
    suffered = LaunchResult(1, ("suffered",), is_consequence=True)
    ended = LaunchResult(143, ("ended",), is_ended_by_head=True)
    cause = LaunchResult(3, ("cause",))
    stopped = LaunchResult(75, ("stopped",))
    good = LaunchResult(0)

    assert overall_result([good, stopped, suffered, ended, cause]) == cause
    assert overall_result([stopped, ended, suffered]) == suffered
    assert overall_result([good, stopped, stopped]) == stopped
    assert overall_result([good, good]) == good
