"""Runs one command on several hosts: starts a launcher on each, and passes signals, output and results on.

Each host's launcher is placed as under a scheduler: it knows its place from a run info, and meets the others by itself.
This process, the head, takes no part in the training.
"""

from __future__ import annotations

import math
import random
import secrets
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import asdict, replace

from core_sdk._ground.environment import job_placement, meeting_port, passed_variables, run_info
from core_sdk._ground.environment.names import MEETING_PORT_VARIABLE
from core_sdk._ground.placement import MEETING_PORTS
from core_sdk._ground.records import PLACED, ClusterInfo, encode_file
from core_sdk._ground.typed_lines import to_line
from core_sdk._machine.processes import STOPS, exit_code, signal_name
from core_sdk._machine.processes.output import RankOutput
from core_sdk.errors import PlacementError
from launch._command_line import NOT_FOUND, CommandLineError, UsageError
from launch._framework import Launch, LaunchOptions
from launch._result import LaunchResult, marked, overall_result
from launch._ssh._hostfile import Host, SshLaunch, is_here, is_loopback
from launch._ssh._remote_launcher import RemoteLauncher

_DEVICES_VARIABLE = "CUDA_VISIBLE_DEVICES"
# The hosts take the head for dead when they receive nothing for a minute.
_HEARTBEAT_S = 5.0
_UNSETTLED_S = 0.1
# The time that the other launchers have to end their ranks. They tell each other of failed ranks.
_OTHERS_S = 15.0
# Their time if the failure looks like a consequence: ssh takes half a minute to notice that a host has vanished.
_ROOT_CAUSE_S = 40.0
# The time between `end` and the kill of a host's connection. The host sends SIGTERM, waits ten seconds, and kills.
_END_S = 25.0
# The time between a second Ctrl-C and the kill.
_AFTER_KILL_S = 15.0


def hosts_to_reach(plan: LaunchOptions) -> SshLaunch | None:
    """Returns the hosts on which to start launchers; None if this process is itself a node's launcher, or the only one.

    Raises `AttemptError`, and `ValueError` for variables that make no sense.
    """
    hosts = plan.ssh_launch
    if is_placed() or hosts is None or (len(hosts.hosts) == 1 and is_here(hosts.hosts[0])):
        return None
    return hosts


def is_placed() -> bool:
    """Returns whether another launcher or a scheduler has told this one its place among several nodes."""
    info = run_info()
    if meeting_port() is not None or (info is not None and len(info.container_addrs) > 1):
        return True
    try:
        placement = job_placement()
    except PlacementError:
        return False  # a job of several nodes, on which no launchers have been started yet
    return placement is not None and len(placement.addresses) > 1


def run(launch: Launch, hosts: SshLaunch) -> LaunchResult:
    """Runs the launchers of all hosts, and blocks until they have ended. Raises `CommandLineError`."""
    infos = host_run_infos(hosts.hosts, run_info())
    overrides = launch.command.overrides if hosts.overrides is None else hosts.overrides
    job = HostJob(
        module=launch.framework.module,
        arguments=(*overrides, "--", *launch.command.script),
        directory=str(Path.cwd()),
        variables=with_meeting_port(passed_variables()),
        mark=f"\x1e{secrets.token_hex(16)} ",
    )
    head = _Head(launch, hosts)
    try:
        for info, host in zip(infos, hosts.hosts, strict=True):
            head.start(info.container_rank, host, job.mark).send(job.line(info, host.devices))
        return head.watch()
    finally:
        head.close()


class HostJob(msgspec.Struct, frozen=True):
    """The description of a host's part of a training, which differs between hosts in the run info and the devices only.

    It is sent as one line of JSON on the host's standard input, so that it does not appear among the arguments.
    """

    module: str
    arguments: tuple[str, ...]
    directory: str
    variables: Mapping[str, str]
    mark: str
    """A secret with which the host's records for the head begin, to tell them from the output of its ranks."""

    def line(self, info: ClusterInfo, devices: Sequence[int]) -> bytes:
        own = {_DEVICES_VARIABLE: ",".join(map(str, devices))} if devices else {}
        job = asdict(self) | {"variables": {**self.variables, **own}, "run_info": encode_file(info).decode()}
        return to_line(job)


def host_run_infos(hosts: Sequence[Host], info: ClusterInfo | None) -> list[ClusterInfo]:
    """Makes a run info for each host, from the head's if it has one. Raises `UsageError` for hosts like localhost."""
    for host in hosts:
        if len(hosts) > 1 and is_loopback(host):
            raise UsageError(f"{host.name} means another machine on each of the hosts: give it by its name")
    info = info or ClusterInfo(task_type=PLACED)
    return [
        msgspec.structs.replace(
            info,
            container_addrs=[host.address for host in hosts],
            container_rank=rank,
            container_slot_counts=[host.slots for host in hosts],
            named_slot_ids=list(host.devices),
            gpu_uuids=[],
        )
        for rank, host in enumerate(hosts)
    ]


def with_meeting_port(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables with a random port, so that two trainings on the same hosts do not meet each other."""
    return {**variables, MEETING_PORT_VARIABLE: str(random.SystemRandom().choice(MEETING_PORTS))}


class _Head:
    def __init__(self, launch: Launch, hosts: SshLaunch) -> None:
        self._hosts = hosts
        self._directory = launch.directory
        self._grace_s = launch.settings.grace_s
        self._signals = launch.signals
        self._output = RankOutput(launch.directory.path, is_hurried=launch.signals.is_stop_asked)
        self._running: list[RemoteLauncher] = []
        self._results: list[LaunchResult] = []
        self._stops: list[int] = []
        self._is_ending = False
        self._end_at = self._kill_at = math.inf
        self._heartbeat_at = 0.0

    def start(self, number: int, host: Host, mark: str) -> RemoteLauncher:
        log = self._directory.path / f"ssh-{number}.log"
        try:
            launcher = RemoteLauncher(number, host, self._hosts.ssh, mark, self._output, log, self._signals.ring)
        except FileNotFoundError:
            reason = "there is no ssh in PATH, which other hosts are reached by: install the OpenSSH client"
            raise CommandLineError(reason, NOT_FOUND) from None
        if not launcher.is_child:
            # When the connection ends, the processes at its other end end too. A child notices the end of its input.
            self._directory.guardian.guard(launcher.pid)
        self._running.append(launcher)
        return launcher

    def watch(self) -> LaunchResult:
        while self._running:
            if time.monotonic() >= self._heartbeat_at:
                self._heartbeat_at = time.monotonic() + _HEARTBEAT_S
                self._send(b"alive\n")
            number = self._signals.wait(self._wait_s())
            if number:
                self._hand_on(number)
            self._collect()
            self._end_late()
        return overall_result(self._results)

    def close(self) -> None:
        for launcher in self._running:
            launcher.kill()
        self._signals.wait_for(self._output.close)

    def _send(self, line: bytes) -> None:
        for launcher in self._running:
            launcher.send(line)

    def _wait_s(self) -> float:
        if any(launcher.is_unsettled for launcher in self._running):
            self._send(b"")
            return _UNSETTLED_S
        return max(0.0, min(self._heartbeat_at, self._end_at, self._kill_at) - time.monotonic())

    def _hand_on(self, number: int) -> None:
        if number in STOPS:
            if number == signal.SIGINT and number in self._stops:
                self._kill_at = min(self._kill_at, time.monotonic() + _AFTER_KILL_S)
            self._stops.append(number)
        if number != signal.SIGHUP:
            self._send(b"signal %d\n" % number)

    def _collect(self) -> None:
        for launcher in list(self._running):
            result = launcher.result()
            if result is not None:
                self._running.remove(launcher)
                self._note(launcher, replace(result, is_ended_by_head=self._is_ending))

    def _note(self, launcher: RemoteLauncher, result: LaunchResult) -> None:
        if launcher.is_lost and self._can_go_on_without(launcher.host):
            left = f"the training goes on: nodes left: {len(self._running)}, needed: {self._hosts.min_hosts}"
            self._say(*result.messages, left)
            return
        self._results.append(result)
        if result.is_failure:
            self._end_at = min(self._end_at, time.monotonic() + self._patience_s(result))

    def _can_go_on_without(self, host: Host) -> bool:
        """Returns whether an elastic training can continue without this host.

        It needs the first one, where the others meet.
        """
        least = self._hosts.min_hosts
        is_first = host == self._hosts.hosts[0]
        return least is not None and len(self._running) >= least and not is_first and not self._is_ending

    def _patience_s(self, result: LaunchResult) -> float:
        """Returns the time that the other hosts have to end by themselves."""
        if not result.is_of_ranks:
            return 0.0
        if self._stops:
            return self._grace_s
        return _ROOT_CAUSE_S if result.is_consequence else _OTHERS_S

    def _end_late(self) -> None:
        now = time.monotonic()
        if now >= self._end_at:
            self._is_ending, self._end_at, self._kill_at = True, math.inf, min(self._kill_at, now + _END_S)
            self._send(b"end\n")
        if now >= self._kill_at:
            self._say(f"{', '.join(launcher.host.name for launcher in self._running)}: no answer; given up")
            self._send(b"kill\n")
            for launcher in self._running:
                launcher.kill()
                self._results.append(self._given_up())
            self._running = []

    def _given_up(self) -> LaunchResult:
        if not self._stops:
            return LaunchResult(1, is_ended_by_head=True)
        code = exit_code(-self._stops[0])
        message = f"killed after {signal_name(self._stops[0])}; exit code {code}"
        return LaunchResult(code, (message,), is_ended_by_head=True)

    def _say(self, *lines: str) -> None:
        self._output.say(marked(lines))
