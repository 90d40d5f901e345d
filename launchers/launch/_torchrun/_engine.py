"""Starts the ranks of one node, watches them, and starts them again; the nodes meet before each start."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from string import Template

from core_sdk._ground.environment import quiet_torch, torch_extensions_directory
from core_sdk._ground.environment.names import CHIEF_IP_VARIABLE, GRACE_VARIABLE, RENDEZVOUS_VARIABLE
from core_sdk._machine.processes import (
    Failed,
    FailedElsewhere,
    NodesLost,
    Outcome,
    RankGrace,
    Succeeded,
    Supervisor,
    cause_of,
)
from core_sdk._machine.processes.output import RankOutput, RankPipes
from launch._command_line import CommandLineError, program_argv
from launch._framework import Launch, Start
from launch._rank_process import start_rank
from launch._result import describe_lost, marked, result_of
from launch._torchrun._build_locks import describe_lock, stale_locks
from launch._torchrun._config import LaunchConfig, configure
from launch._torchrun._meeting import Meeting, TrainingOver, errors_of_meeting, meeting_of
from launch._torchrun._nodes import Nodes
from launch._torchrun._options import TorchrunOptions
from launch._torchrun._peer_nodes import NodeFacts, PeerNodes
from launch._torchrun._rank_files import RankLogs
from launch._torchrun._torch_names import EventLog, bound_to_cores
from launch._torchrun._variables import defaults_of, num_ranks, torchrun_variables
from launch._torchrun._waiting import wait_told

# The time for ranks that must make room for other nodes, as under torchrun. Ranks can save within it.
_MAKE_ROOM_S = 30.0
# How long a node whose ranks have ended waits for the others, whose store it may keep, as under torchrun.
_EXIT_S = 300.0
# The time after the start at which ranks may wait for the build of an extension.
_BUILD_S = 10.0
# The time after which such a wait is explained.
_SILENT_S = 5.0

_log = logging.getLogger(__name__)


def run(launch: Launch, options: TorchrunOptions, nodes: Nodes, supervisor: Supervisor, output: RankOutput) -> None:
    """Runs the ranks, and blocks until they have ended for good. The supervisor then has the outcome.

    Raises `CommandLineError`, `NotStarted`.
    """
    config = configure(options, nodes)
    _set_up_logging(launch.settings.log_level, needs_torch=config.rendezvous is not None)
    if "OMP_NUM_THREADS" in defaults_of(config) and not launch.settings.has_num_threads:
        _log.info("OMP_NUM_THREADS=1 for each rank, so that they do not fight for the processor; set it to choose")
    if config.options.shutdown_timeout is not None:
        supervisor.grace = RankGrace(config.options.shutdown_timeout, "--shutdown-timeout")
    logs = RankLogs(output, launch.directory, options)
    try:
        # Closed at once, so that the other nodes do not wait for this one to come back.
        with wait_told(config, lambda line: output.say(marked([line]))):
            opened = meeting_of(config)
        with contextlib.closing(opened) as meeting, contextlib.closing(launch.framework):
            NodeLauncher(launch, config, meeting, logs, supervisor, output).run()
    except TrainingOver:
        pass
    except errors_of_meeting(config) as error:
        place = config.rendezvous.endpoint if config.rendezvous else ""
        if supervisor.num_ranks:
            raise CommandLineError(
                f"the nodes cannot meet without {place}, which is lost: its host is down or cut off, or its launcher "
                "was killed. The ranks of this node were ended; the training can be resumed from its newest checkpoint."
            ) from error
        raise CommandLineError(
            f"the nodes do not meet at {place or 'their rendezvous'}: {error}. Check that all of them were given the "
            "same address, port, id and number of nodes, and that each can reach the first."
        ) from error


@dataclass
class NodeLauncher:
    """The launcher's part on one node, through all starts of the ranks."""

    launch: Launch
    config: LaunchConfig
    meeting: Meeting
    logs: RankLogs
    supervisor: Supervisor
    output: RankOutput

    def __post_init__(self) -> None:
        self._events = EventLog(self.config)
        self._peers = PeerNodes(None)
        self._ranks: list[tuple[subprocess.Popen[bytes], dict[str, str]]] = []
        """The processes and the variables of the ranks."""
        self._tell_of_locks_at = math.inf
        self._num_restarts = 0
        """The number of restarts that this node's own ranks made necessary."""

    def run(self) -> None:
        """Runs the ranks until they have ended. Raises `CommandLineError`, `NotStarted`, and torch's errors."""
        try:
            self._start()
            while self._watch():
                self._end()
                self._start()
        finally:
            self._end()

    def _start(self) -> None:
        self.supervisor.waiting()
        with wait_told(self.config, self._say):
            start = self.meeting.meet()
            self._peers = PeerNodes(start.store, start.node_rank, start.num_nodes, self.meeting.place)
            nodes = self._exchange_facts()
        self.launch.framework.meet(start, tuple(node.num_ranks for node in nodes))
        self.supervisor.starting()
        try:
            variables = self._variables(start, nodes)
            outputs = self.logs.open(variables)
            for local_rank, of_rank in variables.items():
                process = self._start_rank(local_rank, of_rank, outputs[local_rank])
                self._ranks.append((process, of_rank))
        except OSError as error:
            raise CommandLineError(f"the ranks' files cannot be made: {error.filename}: {error.strerror}") from error
        self.supervisor.started(
            {int(of_rank["RANK"]): process.pid for process, of_rank in self._ranks}, num_ranks(nodes)
        )
        self._events.record("START", self._ranks)
        self._tell_of_locks_at = time.monotonic() + _BUILD_S

    def _tell_of_locks(self) -> None:
        """Explains why ranks may hang while they load extensions."""
        if time.monotonic() < self._tell_of_locks_at:
            return
        self._tell_of_locks_at = math.inf
        with contextlib.suppress(OSError):
            for lock in stale_locks(torch_extensions_directory()):
                self._say(describe_lock(lock))

    def _exchange_facts(self) -> list[NodeFacts]:
        """Exchanges facts between the nodes, so that all ranks are told the same, even if the chief has moved."""
        directory, config = self.launch.directory, self.config
        trial = directory.statements.trial_word()
        own = NodeFacts(socket.gethostname(), self._num_restarts, trial, config.num_local_ranks, config.options.role)
        nodes = self._peers.exchange(own)
        if not trial and (told := [each.trial for each in nodes if each.trial]):
            directory.take_trial_word(told[0])
        return nodes

    def _variables(self, start: Start, nodes: Sequence[NodeFacts]) -> dict[int, dict[str, str]]:
        """Returns what the ranks are told besides the launcher's own environment, by local rank."""
        directory = self.launch.directory
        common = {
            # Otherwise output would appear in blocks, and the last block of a killed rank would be lost.
            "PYTHONUNBUFFERED": "1",
            **directory.variables,
            GRACE_VARIABLE: str(self.supervisor.grace.total_s),
            CHIEF_IP_VARIABLE: start.chief_address,
        }
        if start.num_nodes == 1:
            common[RENDEZVOUS_VARIABLE] = str(directory.new_meeting_place())
        variables = {}
        for local_rank in range(self.config.num_local_ranks):
            told = torchrun_variables(local_rank, nodes, start, self.config) | common
            variables[local_rank] = told | dict(self.launch.framework.variables(told))
        return variables

    def _start_rank(self, local_rank: int, variables: dict[str, str], outputs: RankPipes) -> subprocess.Popen[bytes]:
        """Starts a rank. Raises `CommandLineError` and `OSError`."""
        program = program_argv(self.launch.command.script)
        command = [Template(argument).safe_substitute(local_rank=local_rank) for argument in program]
        if self.config.options.numa_binding is not None:
            command = bound_to_cores(command, local_rank, self.config.options.numa_binding)
        cores = self.launch.framework.cores(local_rank, self.config.num_local_ranks)
        return start_rank(command, outputs, variables, defaults_of(self.config), cores)

    def _watch(self) -> bool:
        """Blocks until the ranks have ended or must be ended. Returns whether they are to be started again."""
        while True:
            self.supervisor.await_death(self.config.options.monitor_interval)
            outcome = self.supervisor.decided or self._outcome()
            if outcome is None:
                self._tell_of_locks()
            if outcome is None or self._has_made_room(outcome):
                if self.meeting.num_waiting() == 0:
                    continue
                self.supervisor.end(_MAKE_ROOM_S)
                return True
            if isinstance(outcome, Succeeded):
                self._await_other_nodes(outcome)
                return False
            if self._is_restarted_after(outcome):
                self._num_restarts += 1
                return True
            return False

    def _end(self) -> None:
        """Ends the ranks that still run, and reaps all of them."""
        self.supervisor.end()
        self._events.record("SUCCEEDED" if isinstance(self.supervisor.decided, Succeeded) else "FAILED", self._ranks)
        ranks, self._ranks = self._ranks, []
        for process, _ in ranks:
            if self.supervisor.is_starting():
                # The start broke off, and nobody else knows of it.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            process.poll()

    def _outcome(self) -> Outcome | None:
        elsewhere = self._peers.failure()
        own = None if elsewhere else self.supervisor.outcome(is_alone=self._peers.is_alone)
        other = elsewhere or (None if own else self._peers.lost())
        if other is not None:
            self.supervisor.decide(other)
        return own or other

    def _has_made_room(self, outcome: Outcome) -> bool:
        """Returns whether the ranks stopped because another launcher noticed first that more nodes want to join."""
        if not isinstance(outcome, Succeeded) or not outcome.was_stopped or self.supervisor.stop_signal is not None:
            return False
        return self.meeting.num_waiting() > 0

    def _await_other_nodes(self, outcome: Succeeded) -> None:
        """Waits until the ranks of all nodes have ended: this node may keep the store of the others."""
        # Ranks that were asked to stop have their grace to save.
        longest_s = max(_EXIT_S, self.supervisor.grace.total_s if outcome.was_stopped else 0)
        deadline = time.monotonic() + longest_s
        silent_until = time.monotonic() + _SILENT_S
        self._peers.leave()
        while (staying := self._peers.staying()) and time.monotonic() < deadline:
            if self._peers.failure() is not None or self._peers.lost() is not None:
                return
            if time.monotonic() > silent_until:
                hosts = ", ".join(staying)
                self._say(f"this node's ranks have ended: waiting up to {longest_s:g} s for those of {hosts}")
                silent_until = deadline
            time.sleep(self.config.options.monitor_interval)

    def _is_restarted_after(self, outcome: Outcome) -> bool:
        """Decides whether the ranks are started again after a failure, and tells the other nodes."""
        is_left = self._num_restarts < self.config.options.max_restarts
        if isinstance(outcome, FailedElsewhere):
            return is_left and outcome.is_restarting
        if not isinstance(outcome, Failed | NodesLost):
            return False
        if is_left and self._may_restart(outcome):
            attempt = self._num_restarts + 2
            self._say(f"{_failure_of(outcome)}; attempt {attempt} of {self.config.options.max_restarts + 1} begins")
            if self.meeting.is_fixed:
                # Otherwise the other nodes would notice only when their ranks lose these as peers, or never.
                self._peers.post(FailedElsewhere(1, (), is_restarting=True))
            return True
        if isinstance(outcome, Failed):
            result = result_of(outcome, self.supervisor.num_ranks, socket.gethostname())
            earlier = self._peers.post(FailedElsewhere(result.code, result.messages))
            if earlier is not None:
                self.supervisor.decide(earlier)
        return False

    def _may_restart(self, outcome: Failed | NodesLost) -> bool:
        if self.supervisor.stop_signal is not None:
            return False
        if isinstance(outcome, NodesLost) and self.meeting.is_fixed:
            return False  # fixed nodes cannot continue without one
        if self._peers.is_store_gone or not self.meeting.is_place_there():
            self._say(f"no other attempt begins: the nodes cannot meet without {self.meeting.place}, which is lost")
            return False
        return True

    def _say(self, line: str) -> None:
        self.output.say(marked([line]))


def _set_up_logging(log_level: str | None, *, needs_torch: bool) -> None:
    if log_level is not None:
        logging.basicConfig(level=log_level.upper())
        return
    # torch's warnings and summaries say in many lines less than our own report. A node that leaves last hears that the
    # store is gone, for example, which torch tells with the stack of its C++ code.
    if needs_torch:
        with quiet_torch():
            import torch.distributed  # noqa: F401 - it sets up its logger
    logger = logging.getLogger("torch.distributed")
    logger.handlers = [logging.NullHandler()]
    logger.propagate = False


def _failure_of(outcome: Failed | NodesLost) -> str:
    if isinstance(outcome, NodesLost):
        return describe_lost(outcome)
    return f"rank {outcome.first.rank} (pid {outcome.first.pid}) {cause_of(outcome.first)}"
