"""A real Slurm: a controller and two or three nodes on hosts of this machine, with a munge of their own.

Everything lies in one short private directory; nothing of the machine's own /etc is read or changed.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from hosts.hosts import Host, HostGroup, host_group
from parts import require
from processes import wait_for

_START_S = 30
"""For the nodes to be ready."""

# A requeued job waits until credentials of its last start are over: 5 s are the least that Slurm accepts.
_CONFIGURATION = """\
ClusterName=tests
SlurmctldHost=h1(10.77.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/%n
SlurmctldPidFile={directory}/ctld.pid
SlurmdPidFile={directory}/%n/pid
SlurmctldLogFile={directory}/ctld.log
SlurmdLogFile={directory}/%n/log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SlurmdTimeout={silence_s}
SlurmctldTimeout=30
KillWait=20
ReturnToService=2
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=2 State=UP
"""

# The controller's host is taken last, so that a node that dies need not be the controller's.
_NODE = "NodeName={name} NodeAddr={address} CPUs=4 State=UNKNOWN Weight={weight}"


class Cluster:
    """Slurm at work; its commands run on the controller's host."""

    def __init__(self, hosts: HostGroup, directory: Path) -> None:
        self.hosts = hosts
        self._directory = directory
        self._daemons: dict[str, subprocess.Popen[Any]] = {}

    def submit(self, script: str, *options: str, cwd: Path) -> int:
        """Submits a batch script and returns its job id; the output of all starts goes to `<cwd>/<job id>.out`."""
        output = cwd / "%j.out"
        argv = ["sbatch", "--parsable", f"--output={output}", "--open-mode=append", *options]
        return int(self.run([*argv, "--wrap", script], cwd=cwd).split(";")[0])

    def run(self, argv: Sequence[str], *, cwd: Path | None = None) -> str:
        """Runs one of Slurm's commands, which must succeed, and returns its output."""
        return self.hosts[0].run(argv, env=self._environment(), cwd=cwd or self._directory).stdout

    def try_to_run(self, argv: Sequence[str], *, cwd: Path, timeout_s: float = _START_S * 2) -> tuple[int, str, str]:
        """Runs one of Slurm's commands, and returns its exit status, stdout and stderr."""
        process = self.hosts[0].start(
            argv, env=self._environment(), cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        output, errors = process.communicate(timeout=timeout_s)
        return process.returncode, output, errors

    def start(self, argv: Sequence[str], *, cwd: Path, **keywords: Any) -> subprocess.Popen[Any]:
        """Starts a command on the controller's host, which is also the one where users log in."""
        return self.hosts[0].start(argv, env=self._environment(), cwd=cwd, **keywords)

    def job(self, job_id: int | str) -> dict[str, str]:
        """Returns what `scontrol show job` says: JobState, ExitCode, Restarts, NodeList, …"""
        return dict(re.findall(r"(\S+?)=(\S*)", self.run(["scontrol", "show", "job", str(job_id)])))

    def await_state(self, job_id: int, *states: str, timeout_s: float = 60) -> dict[str, str]:
        """Waits until the job is in one of these states, and returns it."""
        seen: dict[str, str] = {}

        def is_there() -> bool:
            seen.update(self.job(job_id))
            return seen["JobState"] in states

        self.wait_for(is_there, timeout_s)
        return seen

    def wait_for(self, condition: Callable[[], bool], timeout_s: float = 60) -> None:
        """Blocks until the condition holds; if it never does, the failure shows the jobs, the nodes and the logs."""
        try:
            wait_for(condition, timeout_s)
        except AssertionError as error:
            shown = [self.run(["scontrol", "show", what]) for what in ("jobs", "nodes")]
            raise AssertionError("\n".join([str(error), *shown, self._logs()])) from None

    def _environment(self) -> dict[str, str]:
        """Returns the environment of jobs, which they share with this test."""
        return dict(os.environ) | {"SLURM_CONF": str(self._directory / "slurm.conf")}

    def host_named(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    def _logs(self) -> str:
        """Returns the logs of the daemons, for a start that failed."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self._directory.glob("**/*log")))

    def _start(self) -> None:
        for host in self.hosts:
            (self._directory / host.name).mkdir(mode=0o755)
        self._start_munge()
        self._start_daemon(self.hosts[0], ["slurmctld", "-D"], "ctld")
        for host in self.hosts:
            self._start_slurmd(host)
        wait_for(self._is_ready, _START_S)

    def restart_controller(self) -> None:
        """Kills slurmctld, once it has saved which jobs run, and starts it again.

        One that does not know of a job that runs gives its number to another job.
        """
        if running := self.run(["squeue", "--noheader", "--states=RUNNING", "--format=%i"]).split():
            changed_at = time.time()
            self.run(["scontrol", "update", f"JobId={','.join(running)}", "Comment=saved"])
            self.wait_for(lambda: (self._directory / "state" / "job_state").stat().st_mtime > changed_at)
        self._kill_daemon("ctld")
        self._start_daemon(self.hosts[0], ["slurmctld", "-D"], "ctld")

    def restart_slurmd(self, host: Host) -> None:
        """Kills the node's slurmd, and starts it again; its jobs go on."""
        self._kill_daemon(host.name)
        self._start_slurmd(host)

    def reboot(self, host: Host) -> None:
        """Kills all processes of a node that is not the controller's, and starts its slurmd again."""
        host.kill_all()
        self._daemons[host.name].wait()
        self._start_slurmd(host)

    def _start_slurmd(self, host: Host) -> None:
        self._start_daemon(host, ["slurmd", "-D", "-N", host.name], host.name)

    def _kill_daemon(self, name: str) -> None:
        self._daemons[name].kill()
        self._daemons[name].wait()

    def _start_munge(self) -> None:
        place = self._directory / "munge"
        place.mkdir(mode=0o711)
        (place / "key").touch(mode=0o600)
        (place / "key").write_bytes(os.urandom(1024))
        options = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        files = [f"--{option}={place / name}" for option, name in options.items()]
        # All hosts reach it through the file system.
        self._start_daemon(self.hosts[0], ["munged", "--foreground", "--force", "--num-threads=2", *files], "munged")
        wait_for((place / "socket").exists, _START_S)

    def _start_daemon(self, host: Host, argv: Sequence[str], name: str) -> None:
        with (self._directory / f"{name}.stderr").open("ab") as errors:
            self._daemons[name] = host.start(
                argv, env=self._environment(), cwd=self._directory, stdout=errors, stderr=errors
            )

    def _is_ready(self) -> bool:
        code, output, _ = self.try_to_run(
            ["sinfo", "--noheader", "--Node", "--partition=all", "--format=%T"], cwd=self._directory
        )
        return code == 0 and output.split() == ["idle"] * len(self.hosts)


@contextlib.contextmanager
def slurm_cluster(num_nodes: int, *, silence_s: int = 120) -> Iterator[Cluster]:
    """Slurm on hosts h1, h2, …, whose first also is the controller's; all of it is gone at the end.

    A node that has not answered for `silence_s` is given up: a busy machine's may take seconds.
    """
    require("slurm")
    # Short: Unix sockets lie in it, whose paths have about a hundred bytes.
    with tempfile.TemporaryDirectory(prefix="slurm-") as name, host_group(num_nodes) as hosts:
        directory = Path(name)
        directory.chmod(0o711)
        nodes = [
            _NODE.format(name=host.name, address=host.address, weight=10 - 9 * bool(index))
            for index, host in enumerate(hosts)
        ]
        configuration = _CONFIGURATION.format(directory=directory, silence_s=silence_s, nodes="\n".join(nodes))
        (directory / "slurm.conf").write_text(configuration)
        (directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n")
        (directory / "state").mkdir()
        cluster = Cluster(hosts, directory)
        try:
            cluster._start()
            yield cluster
        except BaseException:
            sys.stderr.write(cluster._logs())
            raise
