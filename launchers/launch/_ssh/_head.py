"""One command on several hosts: this process starts the launcher on each, and hands on signals, output and the end.

Each host's launcher is then a placed one, as under a scheduler: it knows its place from a run info, and meets the
others by itself. This process, the head, takes no part in the training.
"""

from __future__ import annotations

import math
import secrets
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from core_sdk.environment import (
    LaunchSettings,
    job_placement,
    login_variables,
    meeting_port,
    passed_variables,
    run_info,
)
from core_sdk.errors import PlacementError
from core_sdk.processes import GUARDIAN_FILE, ISOLATION, STOPS, CaughtSignals, exit_code, signal_name
from core_sdk.processes.output import Forwarder
from launch._command_line import Command, CommandError
from launch._directory import LaunchDirectory
from launch._framework import Framework
from launch._messages import marked
from launch._result import Ending
from launch._ssh import _host_program
from launch._ssh._host_job import NodeJob, node_infos, with_meeting_port
from launch._ssh._host_results import NodeEnding, Why, ending_of_all
from launch._ssh._hostfile import Host, Spread
from launch._ssh._local_host import is_here
from launch._ssh._remote_launcher import Node
from launch._ssh._ssh_command import ssh_argv

_STDOUT = 1
_STDERR = 2
# The hosts believe that the head is dead when they hear nothing for a minute.
_BEAT_S = 5.0
_UNSETTLED_S = 0.1
# Launchers tell each other of failed ranks, and end theirs.
_OTHERS_S = 15.0
# A failure that looks like another's consequence: ssh notices within half a minute that a host has vanished.
_ROOT_S = 40.0
# Between `end` and the kill of a host's connection; there it is SIGTERM, a grace of ten seconds, and a kill.
_END_S = 25.0
# What a second Ctrl-C kills, ends.
_AFTER_KILL_S = 15.0


class NoSshError(CommandError):
    exit_code = 127

    def __init__(self) -> None:
        super().__init__("there is no ssh in PATH, which other hosts are reached by: install the OpenSSH client")


def spread_of(framework: Framework, command: Command) -> Spread | None:
    """The hosts to start launchers on; None where this process is itself one node's launcher, or the only one.

    Raises `UsageError`, `RunInfoError`, and `ValueError` for variables that make no sense.
    """
    if _is_placed():
        return None
    spread = framework.spread(command.overrides)
    if spread is None or (len(spread.hosts) == 1 and is_here(spread.hosts[0])):
        return None
    return spread


def _is_placed() -> bool:
    info = run_info()
    if meeting_port() is not None or (info is not None and len(info.container_addrs) > 1):
        return True
    try:
        placement = job_placement()
    except PlacementError:
        return False  # a job of several nodes, on which nothing has started launchers yet
    return placement is not None and len(placement.addresses) > 1


def run(
    framework: Framework,
    command: Command,
    spread: Spread,
    settings: LaunchSettings,
    directory: LaunchDirectory,
    signals: CaughtSignals,
) -> Ending:
    """Blocks until all hosts' launchers have ended. Raises `CommandError`."""
    infos = node_infos(spread.hosts, run_info())
    overrides = command.overrides if spread.overrides is None else spread.overrides
    job = NodeJob(
        module=framework.module,
        arguments=(*overrides, "--", *command.script),
        directory=str(Path.cwd()),
        variables=with_meeting_port(passed_variables()),
        mark=f"\x1e{secrets.token_hex(16)} ",
    )
    forwarder = Forwarder(_STDOUT, _STDERR, signals.is_stop_asked)
    watch = _Watch(spread, settings.grace_s, signals, forwarder)
    try:
        for info, host in zip(infos, spread.hosts, strict=True):
            node = _start(info.container_rank, host, spread, job.mark, forwarder, directory, signals)
            watch.nodes.append(node)
            node.send(job.line(info, host.devices))
        return watch.run()
    finally:
        for node in watch.nodes:
            node.kill()
        signals.wait_for(forwarder.close)


def _start(
    rank: int,
    host: Host,
    spread: Spread,
    mark: str,
    forwarder: Forwarder,
    directory: LaunchDirectory,
    signals: CaughtSignals,
) -> Node:
    place = directory.path / f"node-{rank}"
    place.mkdir(mode=0o700)
    program = [sys.executable, *ISOLATION, _host_program.__file__, GUARDIAN_FILE]
    is_child = is_here(host)
    argv = program if is_child else ssh_argv(host, spread.ssh, program, place / "ssh.log")
    variables = login_variables() if is_child else None
    try:
        node = Node(host, spread.ssh, argv, variables, mark, forwarder, place, signals.ring)
    except FileNotFoundError:
        raise NoSshError from None
    if not is_child:
        # The end of the connection ends what is at its other end; a child hears of the head's end by its input's.
        directory.guardian.guard(node.pid)
    return node


class _Watch:
    """What the head does while the hosts train."""

    def __init__(self, spread: Spread, grace_s: float, signals: CaughtSignals, forwarder: Forwarder) -> None:
        self.nodes: list[Node] = []
        """Those that run."""
        self._min_hosts = spread.min_hosts
        self._first = spread.hosts[0]
        self._grace_s = grace_s
        self._signals = signals
        self._forwarder = forwarder
        self._endings: list[NodeEnding] = []
        self._stops: list[int] = []
        self._is_ending = False
        self._end_at = self._kill_at = math.inf
        self._beat_at = 0.0

    def run(self) -> Ending:
        while self.nodes:
            self._beat()
            number = self._signals.wait(self._wait_s())
            if number:
                self._hand_on(number)
            self._look()
            self._press()
        return ending_of_all(self._endings)

    def _beat(self) -> None:
        if time.monotonic() >= self._beat_at:
            self._beat_at = time.monotonic() + _BEAT_S
            self._send(b"alive\n")

    def _send(self, line: bytes) -> None:
        for node in self.nodes:
            node.send(line)

    def _wait_s(self) -> float:
        if any(node.is_unsettled for node in self.nodes):
            self._send(b"")
            return _UNSETTLED_S
        return max(0.0, min(self._beat_at, self._end_at, self._kill_at) - time.monotonic())

    def _hand_on(self, number: int) -> None:
        if number in STOPS:
            if number == signal.SIGINT and number in self._stops:
                self._kill_at = min(self._kill_at, time.monotonic() + _AFTER_KILL_S)
            self._stops.append(number)
        self._send(b"signal %d\n" % number)

    def _look(self) -> None:
        for node in list(self.nodes):
            ending = node.ending()
            if ending is not None:
                self.nodes.remove(node)
                self._note(node, replace(ending, why=Why.ENDED) if self._is_ending else ending)

    def _note(self, node: Node, ending: NodeEnding) -> None:
        if node.is_lost and self._can_go_on_without(node):
            self._forwarder.say(marked([*ending.ending.words, self._goes_on()]).encode(errors="surrogateescape"))
            return
        self._endings.append(ending)
        if ending.is_failure:
            self._end_at = min(self._end_at, time.monotonic() + self._patience_s(ending))

    def _can_go_on_without(self, node: Node) -> bool:
        """The others meet at the first one."""
        is_first = node.host == self._first
        return (
            self._min_hosts is not None and len(self.nodes) >= self._min_hosts and not is_first and not self._is_ending
        )

    def _goes_on(self) -> str:
        return f"the training goes on: nodes left: {len(self.nodes)}, needed: {self._min_hosts}"

    def _patience_s(self, ending: NodeEnding) -> float:
        """How long the other nodes have to end by themselves."""
        if not ending.ending.is_of_ranks:
            return 0.0
        if self._stops:
            return self._grace_s
        return _ROOT_S if ending.why is Why.SUFFERED else _OTHERS_S

    def _press(self) -> None:
        now = time.monotonic()
        if now >= self._end_at:
            self._is_ending, self._end_at, self._kill_at = True, math.inf, min(self._kill_at, now + _END_S)
            self._send(b"end\n")
        if now >= self._kill_at:
            hosts = ", ".join(node.host.name for node in self.nodes)
            self._forwarder.say(marked([f"{hosts}: no answer; given up"]).encode(errors="surrogateescape"))
            for node in self.nodes:
                node.send(b"kill\n")
                node.kill()
                self._endings.append(NodeEnding(node.host.address, self._given_up(), Why.ENDED))
            self.nodes = []

    def _given_up(self) -> Ending:
        if not self._stops:
            return Ending(1)
        code = exit_code(-self._stops[0])
        return Ending(code, (f"killed after {signal_name(self._stops[0])}; exit code {code}",))
