"""torchrun's elastic agent, in this process, with our own supervision of the ranks that it starts.

The agent does what torchrun does: nodes meet, ranks get their places, ranks are restarted. The supervisor judges which
rank failed first, and ends processes. So there is one process per node beside the ranks, and all of torchrun's options
have the same meaning as there.
"""

from __future__ import annotations

import logging
import socket
from typing import Any

from torch.distributed import DistError, PrefixStore, TCPStore  # type: ignore[attr-defined]

from core_sdk.processes import (
    Failed,
    FailedElsewhere,
    NodesLost,
    Outcome,
    Succeeded,
    Supervisor,
    cause_of,
)
from core_sdk.processes.output import RankOutput
from launch._command_line import CommandError, program_argv
from launch._framework import Launch, Start
from launch._messages import marked
from launch._network import enable_keepalive
from launch._result import describe_lost, result_of
from launch._torchrun._config import configure, wants_files, worker_spec
from launch._torchrun._nodes import Nodes
from launch._torchrun._options import TorchrunOptions
from launch._torchrun._peer_nodes import NodeFacts, PeerNodes
from launch._torchrun._rank_logs import RankLogs
from launch._torchrun._torch_internals import (
    DynamicRendezvousHandler,
    LaunchConfig,
    LocalElasticAgent,
    PContext,
    RendezvousError,
    RunResult,
    SubprocessContext,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)

_LINE_PREFIX = "[rank=${rank}] "
# torch's own time for ranks that must make room for other nodes. Ranks can save within it.
_MAKE_ROOM_S = 30.0

_log = logging.getLogger(__name__)


class NodesApartError(CommandError):
    """The nodes could not meet."""

    def __init__(self, endpoint: str, reason: str) -> None:
        super().__init__(
            f"the nodes do not meet at {endpoint or 'their rendezvous'}: {reason}. Check that all of them were given "
            "the same address, port, id and number of nodes, and that each can reach the first."
        )


class MeetingPlaceLostError(CommandError):
    """The place where the nodes had met is gone."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(
            f"the nodes cannot meet without {endpoint}, which is lost: its host is down or cut off, or its launcher "
            "was killed. The ranks of this node were ended; the training can be resumed from its newest checkpoint."
        )


class ProgramNotStartedError(CommandError):
    def __init__(self, program: str, error: OSError) -> None:
        self.exit_code = 127 if isinstance(error, FileNotFoundError) else 126
        super().__init__(f"{error.filename or program} cannot be started: {error.strerror}")


class SupervisedAgent(LocalElasticAgent):
    """Adds our supervision to torch's agent, which calls these methods in order. The nodes meet before each start."""

    def __init__(
        self,
        spec: WorkerSpec,
        config: LaunchConfig,
        launch: Launch,
        logs: RankLogs,
        supervisor: Supervisor,
        output: RankOutput,
    ) -> None:
        super().__init__(
            spec,
            logs,
            start_method=config.start_method,
            log_line_prefix_template=config.log_line_prefix_template or _LINE_PREFIX,
        )
        self._framework = launch.framework
        self._directory = launch.directory
        self._logs = logs
        self._supervisor = supervisor
        self._output = output
        self._meeting_place = config.rdzv_endpoint
        self._max_restarts = spec.max_restarts
        self._are_nodes_fixed = spec.rdzv_handler.get_backend() == "static"
        self._peers = PeerNodes(None)
        self._num_starts = 0
        self._ranks_store: TCPStore | None = None

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        self._supervisor.waiting()
        handler = worker_group.spec.rdzv_handler
        if isinstance(handler, DynamicRendezvousHandler):
            # torch tells only in the first round where the ranks' store is. After a node has come or gone a new store
            # is needed; it is also free of what the ranks of the last round wrote.
            handler._bootstrap_store_info = None
        super()._rendezvous(worker_group)
        self._num_starts += 1
        start = _start_of(worker_group, self._num_starts if self._are_nodes_fixed else 0)
        if start.num_nodes > 1:
            enable_keepalive()
        if self._are_nodes_fixed and self._num_starts > 1:
            self._renew_ranks_store(worker_group, start)
        self._peers = PeerNodes(start.store, start.node_rank, start.num_nodes, self._meeting_place)
        self._exchange_facts()
        self._framework.meet(start)

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        self._supervisor.starting()
        pids: dict[int, Any] = super()._start_workers(worker_group)
        _close_write_ends(self._pcontext)
        ranks = {worker.global_rank: pids[worker.local_rank] for worker in worker_group.workers}
        self._supervisor.started(ranks, worker_group.workers[0].world_size)
        return pids

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        """Returns the state of the ranks. Called repeatedly while they run."""
        outcome = self._supervisor.decided or self._outcome()
        if outcome is None or self._made_room(outcome):
            return RunResult(state=WorkerState.HEALTHY)
        if isinstance(outcome, Succeeded):
            self._peers.leave()
            if outcome.was_stopped:
                # This node may keep the store of the others, and they have their grace to save.
                self._exit_barrier_timeout = max(self._exit_barrier_timeout, self._supervisor.grace_s)
            ranks = [worker.global_rank for worker in worker_group.workers]
            return RunResult(state=WorkerState.SUCCEEDED, return_values=dict.fromkeys(ranks))
        if isinstance(outcome, Failed | NodesLost):
            self._decide_on_restart(outcome)
        elif not (isinstance(outcome, FailedElsewhere) and outcome.is_restarting):
            self._remaining_restarts = 0
        return RunResult(state=WorkerState.FAILED)

    # The other arguments of these two differ between torch's versions.
    def _stop_workers(self, worker_group: WorkerGroup, *more: Any, **named: Any) -> None:
        if worker_group.state is WorkerState.HEALTHY:
            # Nothing failed: more nodes want to take part.
            self._supervisor.end(_MAKE_ROOM_S)
        super()._stop_workers(worker_group, *more, **named)

    def _shutdown(self, *more: Any, **named: Any) -> None:
        self._supervisor.end()
        # Only reaps the ranks, and ends what torch has running beside them.
        super()._shutdown(*more, **named)

    def _renew_ranks_store(self, group: WorkerGroup, start: Start) -> None:
        """Gives the ranks of each start a new store.

        torch keeps one store for all starts of fixed nodes, where ranks would find their predecessors' addresses.
        """
        if start.node_rank == 0:
            self._ranks_store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
            start.store.set("port", str(self._ranks_store.port))
        setattr(group, "master_port", int(start.store.get("port")))  # noqa: B010 - torch's own annotation of it is None

    def _exchange_facts(self) -> None:
        """Exchanges facts between the nodes, so that all ranks are told the same, even if the chief has moved."""
        trial = self._directory.trial_word()
        own = NodeFacts(socket.gethostname(), self._max_restarts - self._remaining_restarts, trial)
        facts = self._peers.exchange(own)
        self._logs.num_restarts = max(each.num_restarts for each in facts)
        if not trial and (told := [each.trial for each in facts if each.trial]):
            self._directory.take_trial_word(told[0])

    def _outcome(self) -> Outcome | None:
        elsewhere = self._peers.failure()
        own = None if elsewhere else self._supervisor.outcome(is_alone=self._peers.is_alone)
        other = elsewhere or (None if own else self._peers.lost())
        if other is not None:
            self._supervisor.decide(other)
        return own or other

    def _made_room(self, outcome: Outcome) -> bool:
        """Whether the ranks have stopped because another launcher noticed first that more nodes want to join."""
        if not isinstance(outcome, Succeeded) or not outcome.was_stopped or self._supervisor.stop_signal is not None:
            return False
        return self._worker_group.spec.rdzv_handler.num_nodes_waiting() > 0

    def _decide_on_restart(self, outcome: Failed | NodesLost) -> None:
        if self._remaining_restarts > 0 and not self._may_restart(outcome):
            self._remaining_restarts = 0
        if self._remaining_restarts > 0:
            attempt = self._max_restarts - self._remaining_restarts + 2
            self._say(f"{_failure_of(outcome)}; attempt {attempt} of {self._max_restarts + 1} begins")
            if self._are_nodes_fixed:
                # Otherwise the other nodes would notice only when their ranks lose these as peers, or never.
                self._peers.post(FailedElsewhere(1, (), is_restarting=True))
        elif isinstance(outcome, Failed):
            result = result_of(outcome, self._supervisor.num_ranks, socket.gethostname())
            earlier = self._peers.post(FailedElsewhere(result.code, result.messages))
            if earlier is not None:
                self._supervisor.decide(earlier)

    def _may_restart(self, outcome: Failed | NodesLost) -> bool:
        if self._supervisor.stop_signal is not None:
            return False
        if isinstance(outcome, NodesLost) and self._are_nodes_fixed:
            return False  # fixed nodes cannot continue without one
        if self._peers.is_store_gone or not self._is_meeting_place_there():
            self._say(f"no other attempt begins: the nodes cannot meet without {self._meeting_place}, which is lost")
            return False
        return True

    def _is_meeting_place_there(self) -> bool:
        store: Any = self._worker_group.store
        try:
            store.check([""])
        except RuntimeError:
            return False
        return True

    def _say(self, line: str) -> None:
        self._output.say(marked([line]))


def run(launch: Launch, options: TorchrunOptions, nodes: Nodes, supervisor: Supervisor, output: RankOutput) -> None:
    """Runs the ranks, and blocks until they have ended for good. The supervisor then has the outcome.

    It must not run in the main thread, where torch would take over the signals. Raises `CommandError`, `NotStarted`.
    """
    _set_up_logging(launch.settings.log_level)
    program = [*launch.framework.prefix(), *program_argv(launch.command.script)]
    config = configure(options, nodes, program)
    if config.nproc_per_node > 1 and not launch.settings.has_num_threads:
        _log.info("OMP_NUM_THREADS=1 for each rank, so that they do not fight for the processor; set it to choose")
    if getattr(options.values, "shutdown_timeout", None) is not None:
        supervisor.grace_s = options.values.shutdown_timeout
    files = config.logs_specs if wants_files(options) else None
    handled_signals = getattr(config, "signals_to_handle", None)
    logs = RankLogs(output, launch.directory, launch.framework, files, supervisor.grace_s, handled_signals)
    try:
        spec = worker_spec(config, program)
        try:
            SupervisedAgent(spec, config, launch, logs, supervisor, output).run()
        finally:
            launch.framework.close()
            # So that the other nodes do not wait for this one to come back.
            spec.rdzv_handler.shutdown()
    except (RendezvousError, DistError) as error:
        if supervisor.num_ranks:
            raise MeetingPlaceLostError(config.rdzv_endpoint) from error
        raise NodesApartError(config.rdzv_endpoint, str(error)) from error
    except OSError as error:
        if supervisor.is_starting():
            raise ProgramNotStartedError(program[0], error) from error
        raise


def _close_write_ends(ranks: PContext | None) -> None:
    """Closes the writing ends of the ranks' pipes. torch keeps them open, so that the pipes would never end."""
    if not isinstance(ranks, SubprocessContext):
        raise TypeError(f"torch started the ranks as {type(ranks).__name__}, where processes were asked for")
    for handler in ranks.subprocess_handlers.values():
        for file in filter(None, (handler._stdout, handler._stderr)):
            file.close()


def _set_up_logging(log_level: str | None) -> None:
    if log_level is not None:
        logging.basicConfig(level=log_level.upper())
        return
    # torch's warnings and summaries say in many lines less than our own report.
    logger = logging.getLogger("torch.distributed")
    logger.handlers = [logging.NullHandler()]
    logger.propagate = False


def _failure_of(outcome: Failed | NodesLost) -> str:
    if isinstance(outcome, NodesLost):
        return describe_lost(outcome)
    return f"rank {outcome.first.rank} (pid {outcome.first.pid}) {cause_of(outcome.first)}"


def _start_of(group: WorkerGroup, number: int) -> Start:
    """Describes a start. `number` counts the starts that share torch's store, which is the case for fixed nodes."""
    store: Any = group.store  # torch annotates it as None
    return Start(
        node_rank=group.group_rank or 0,
        num_nodes=group.group_world_size or 1,
        local_size=len(group.workers),
        chief_address=group.master_addr or "localhost",
        store=PrefixStore(f"core-sdk/{number}", store),
    )
