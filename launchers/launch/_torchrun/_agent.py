"""torchrun's elastic agent, in this process, with our own supervision of the ranks that it starts.

The agent brings what torchrun can do: nodes that gather, ranks that are given their places, restarts. What happens to
the processes (who failed first, who is ended and when) is the supervisor's. So there is one process per node beside
the ranks, and all of torchrun's options mean what they mean there.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from typing import Any

from torch.distributed import DistError, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import PContext, SubprocessContext
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler
from torch.distributed.launcher.api import LaunchConfig
from torch.distributed.run import get_args_parser

from core_sdk.environment import LaunchSettings
from core_sdk.processes import Failed, FailedElsewhere, NodesLost, Outcome, Succeeded, Supervisor, cause_of
from core_sdk.processes.output import RankErrors, RankOutput
from launch._command_line import CommandError
from launch._directory import LaunchDirectory
from launch._framework import Framework, Start
from launch._messages import marked
from launch._result import ending_of, loss_of
from launch._torchrun._config import configure, wants_files, worker_spec
from launch._torchrun._fresh_store import fresh_store
from launch._torchrun._keepalive import bound_silence
from launch._torchrun._peer_nodes import Noticeboard, Word
from launch._torchrun._rank_logs import RankLogs

_LINE_PREFIX = "[rank=${rank}] "
# torch's own time for ranks that must make room for other nodes: those that can save then, do.
_MAKE_ROOM_S = 30.0

_log = logging.getLogger(__name__)


class NodesApartError(CommandError):
    exit_code = 1

    def __init__(self, endpoint: str, reason: str) -> None:
        super().__init__(
            f"the nodes do not meet at {endpoint or 'their rendezvous'}: {reason}. Check that all of them were given "
            "the same address, port, id and number of nodes, and that each can reach the first."
        )


class MeetingPlaceLostError(CommandError):
    """The nodes had met before."""

    exit_code = 1

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
    def __init__(
        self,
        spec: WorkerSpec,
        config: LaunchConfig,
        framework: Framework,
        logs: RankLogs,
        directory: LaunchDirectory,
        supervisor: Supervisor,
        output: RankOutput,
    ) -> None:
        super().__init__(
            spec,
            logs,
            start_method=config.start_method,
            log_line_prefix_template=config.log_line_prefix_template or _LINE_PREFIX,
        )
        self._framework = framework
        self._supervisor = supervisor
        self._logs = logs
        self._directory = directory
        self._meeting_place = config.rdzv_endpoint
        self._output = output
        self._max_restarts = spec.max_restarts
        self._board = Noticeboard(None)
        self._num_starts = 0
        self._ranks_store: TCPStore | None = None

    def _rendezvous(self, worker_group: WorkerGroup) -> None:
        self._supervisor.waiting()
        handler = worker_group.spec.rdzv_handler
        if isinstance(handler, DynamicRendezvousHandler):
            # Where the ranks' store is, torch tells in the first round only: for one more node, or after the loss of
            # the first, a new store is needed. It also is free of what the ranks of the last round wrote.
            handler._bootstrap_store_info = None
        super()._rendezvous(worker_group)
        start = _start_of(worker_group)
        if start.num_nodes > 1:
            bound_silence()
        self._num_starts += 1
        if self._are_nodes_fixed() and self._num_starts > 1:
            self._ranks_store, port = fresh_store(start, self._num_starts)
            setattr(worker_group, "master_port", port)  # noqa: B010 - torch's own annotation of it is None
        # torch gives each meeting of nodes that come and go a fresh store; fixed ones start in step, in the same store.
        number = self._num_starts if self._are_nodes_fixed() else 0
        self._board = Noticeboard(worker_group.store, start.node_rank, start.num_nodes, self._meeting_place, number)
        self._agree()
        self._framework.meet(start)

    def _agree(self) -> None:
        """On what all ranks must be told alike, wherever the chief is now."""
        trial = self._directory.trial_word()
        # A node counts the restarts that its own ranks made necessary.
        own = self._max_restarts - self._remaining_restarts
        words = self._board.exchange(Word(socket.gethostname(), own, trial))
        self._logs.num_restarts = max(word.num_restarts for word in words)
        if not trial and (told := [word.trial for word in words if word.trial]):
            self._directory.take_trial_word(told[0])

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        self._supervisor.starting()
        pids: dict[int, Any] = super()._start_workers(worker_group)
        _close_write_ends(self._pcontext)
        ranks = {worker.global_rank: pids[worker.local_rank] for worker in worker_group.workers}
        self._supervisor.started(ranks, worker_group.workers[0].world_size)
        return pids

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        outcome = self._supervisor.decided or self._outcome()
        if outcome is None or self._made_room(outcome):
            return RunResult(state=WorkerState.HEALTHY)
        if isinstance(outcome, Succeeded):
            self._board.leave()
            if outcome.was_stopped:
                # The others' store may be here, and they have their grace to save.
                self._exit_barrier_timeout = max(self._exit_barrier_timeout, self._supervisor.grace_s)
            ranks = [worker.global_rank for worker in worker_group.workers]
            return RunResult(state=WorkerState.SUCCEEDED, return_values=dict.fromkeys(ranks))
        if isinstance(outcome, Failed | NodesLost):
            self._decide_on_restart(outcome)
        elif not (isinstance(outcome, FailedElsewhere) and outcome.is_restarting):
            self._remaining_restarts = 0
        return RunResult(state=WorkerState.FAILED)

    def _made_room(self, outcome: Outcome) -> bool:
        """Whether the ranks have stopped because another launcher was sooner to see that more nodes want to come."""
        if not isinstance(outcome, Succeeded) or not outcome.was_stopped or self._supervisor.stop_signal is not None:
            return False
        return self._worker_group.spec.rdzv_handler.num_nodes_waiting() > 0

    # What else these two are given differs between torch's versions.
    def _stop_workers(self, worker_group: WorkerGroup, *more: Any, **named: Any) -> None:
        if worker_group.state is WorkerState.HEALTHY:
            # Nothing failed: more nodes want to take part.
            self._supervisor.end(_MAKE_ROOM_S)
        super()._stop_workers(worker_group, *more, **named)

    def _shutdown(self, *more: Any, **named: Any) -> None:
        self._supervisor.end()
        # Only reaps them, and ends what torch has running beside them.
        super()._shutdown(*more, **named)

    def _outcome(self) -> Outcome | None:
        elsewhere = self._board.read()
        own = None if elsewhere else self._supervisor.outcome(is_alone=self._board.is_alone)
        other = elsewhere or (None if own else self._board.lost())
        if other is not None:
            self._supervisor.decide(other)
        return own or other

    def _decide_on_restart(self, outcome: Failed | NodesLost) -> None:
        if self._remaining_restarts > 0 and not self._may_restart(outcome):
            self._remaining_restarts = 0
        if self._remaining_restarts > 0:
            attempt = self._max_restarts - self._remaining_restarts + 2
            self._say(f"{_failure_of(outcome)}; attempt {attempt} of {self._max_restarts + 1} begins")
            if self._are_nodes_fixed():
                # Elsewhere nobody would notice, before ranks there fail for want of these, or never.
                self._board.post(FailedElsewhere(1, (), is_restarting=True))
        elif isinstance(outcome, Failed):
            ending = ending_of(outcome, self._supervisor.num_ranks, socket.gethostname())
            earlier = self._board.post(FailedElsewhere(ending.code, ending.words))
            if earlier is not None:
                self._supervisor.decide(earlier)

    def _may_restart(self, outcome: Failed | NodesLost) -> bool:
        if self._supervisor.stop_signal is not None:
            return False
        if isinstance(outcome, NodesLost) and self._are_nodes_fixed():
            return False  # these nodes, or none
        if self._board.is_gone or not self._is_meeting_place_there():
            self._say(f"no other attempt begins: the nodes cannot meet without {self._meeting_place}, which is lost")
            return False
        return True

    def _are_nodes_fixed(self) -> bool:
        return self._worker_group.spec.rdzv_handler.get_backend() == "static"

    def _is_meeting_place_there(self) -> bool:
        store: Any = self._worker_group.store
        try:
            store.check([""])
        except RuntimeError:
            return False
        return True

    def _say(self, line: str) -> None:
        self._output.say(marked([line]))


def run(
    arguments: Sequence[str],
    framework: Framework,
    output: RankOutput,
    errors: RankErrors,
    directory: LaunchDirectory,
    supervisor: Supervisor,
) -> None:
    """Blocks until the ranks have ended for good; the supervisor then knows how. `arguments` are torchrun's.

    Not in the main thread, where torch would take over the signals. Raises `CommandError`, `NotStarted`, and
    `SystemExit` for arguments that torch's parser refuses.
    """
    settings = LaunchSettings.read()
    _set_up_logging(settings.log_level)
    options = get_args_parser().parse_args(arguments)
    files_wanted = wants_files(options)
    config, program, program_arguments = configure(options)
    if config.nproc_per_node > 1 and not settings.has_num_threads:
        _log.info("OMP_NUM_THREADS=1 for each rank, so that they do not fight for the processor; set it to choose")
    if getattr(options, "shutdown_timeout", None) is not None:
        supervisor.grace_s = options.shutdown_timeout
    files = config.logs_specs if files_wanted else None
    logs = RankLogs(output, errors, directory, framework, files, supervisor.grace_s)
    try:
        _run(config, program, program_arguments, framework, logs, directory, supervisor, output)
    except (RendezvousError, DistError) as error:
        if supervisor.num_ranks:
            raise MeetingPlaceLostError(config.rdzv_endpoint) from error
        raise NodesApartError(config.rdzv_endpoint, str(error)) from error
    except OSError as error:
        if supervisor.is_starting():
            raise ProgramNotStartedError(program, error) from error
        raise


def _run(
    config: LaunchConfig,
    program: str,
    arguments: Sequence[str],
    framework: Framework,
    logs: RankLogs,
    directory: LaunchDirectory,
    supervisor: Supervisor,
    output: RankOutput,
) -> None:
    spec = worker_spec(config, program, arguments)
    try:
        SupervisedAgent(spec, config, framework, logs, directory, supervisor, output).run()
    finally:
        framework.close()
        # So that the other nodes do not wait for this one to come back.
        spec.rdzv_handler.shutdown()


def _set_up_logging(log_level: str | None) -> None:
    if log_level is not None:
        logging.basicConfig(level=log_level.upper())
        return
    # Its warnings and summaries say, in many lines, less than our last words.
    logger = logging.getLogger("torch.distributed")
    logger.handlers = [logging.NullHandler()]
    logger.propagate = False


def _failure_of(outcome: Failed | NodesLost) -> str:
    if isinstance(outcome, NodesLost):
        return loss_of(outcome)
    return f"rank {outcome.first.rank} (pid {outcome.first.pid}) {cause_of(outcome.first)}"


def _start_of(worker_group: WorkerGroup) -> Start:
    store: Any = worker_group.store
    return Start(
        node_rank=worker_group.group_rank or 0,
        num_nodes=worker_group.group_world_size or 1,
        local_size=len(worker_group.workers),
        chief_address=worker_group.master_addr or "localhost",
        store=store,
    )


def _close_write_ends(ranks: PContext | None) -> None:
    """torch keeps those of the ranks' pipes open, which would then seem to be written to for ever."""
    if not isinstance(ranks, SubprocessContext):
        raise TypeError(f"torch started the ranks as {type(ranks).__name__}, where processes were asked for")
    for handler in ranks.subprocess_handlers.values():
        for file in (handler._stdout, handler._stderr):
            if file is not None:
                file.close()
