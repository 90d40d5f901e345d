"""The master of a home, which carries out the home's experiments on the slots of this machine and of Ray clusters."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from core_sdk._execution.agent.starting import AgentSpawner
from core_sdk._execution.experiments.calling import lock_path, log_path
from core_sdk._execution.experiments.protocol import (
    AnyRequest,
    ChangeSettings,
    Continue,
    Down,
    ExperimentStatus,
    GetStatus,
    KillTrial,
    MasterAnswer,
    MasterStatus,
    Move,
    Post,
    PostAnswer,
    StateAnswer,
    Submit,
    Want,
)
from core_sdk._execution.experiments.submitted import SubmittedExperiment
from core_sdk._execution.master._queue import decide, place_beside
from core_sdk._execution.master._run import Run
from core_sdk._execution.master._standstill import Standstill, file_states, find_held
from core_sdk._execution.master.pools import MachinePool, ResourcePool, SlotsTaken
from core_sdk._ground.alive import AliveLock
from core_sdk._ground.records import (
    FORMAT,
    ExperimentBegun,
    ExperimentContinued,
    ExperimentWanted,
    OperationsPosted,
    SettingsChanged,
    TrialWanted,
)
from core_sdk._ground.version import __version__
from core_sdk._home.folders import ExperimentFolder, Home
from core_sdk._machine.slots import Machine
from core_sdk.errors import (
    CodeDamagedError,
    CoreSDKError,
    ExperimentError,
    ExperimentNotFoundError,
    MasterError,
    MasterRefusedError,
    RecordDamagedError,
)

if TYPE_CHECKING:
    from core_sdk._execution.master.pools.ray import ClusterPool
    from core_sdk._execution.master.pools.slurm import SlurmPool

logger = logging.getLogger("core_sdk.master")

DAMAGE = RecordDamagedError, CodeDamagedError

# The time between two looks at journals and ends of attempts while any attempt runs.
_LOOK_S = 0.1
# How often a cluster's answer is looked for.
_ANSWER_S = 0.02
# The time between two checks whether somebody has restored a damaged file, if there is nothing else to do.
_REPAIR_S = 1.0


class Master:
    """Carries out the experiments of a home. It holds the home's lock from construction to `close`.

    Only the thread of `run` uses its state. Raises `BlockingIOError` if the home has a master.
    """

    def __init__(
        self, home: Home, machine: Machine, idle_s: float | None = None, spawner: AgentSpawner | None = None
    ) -> None:
        """`run` returns when there was nothing to do for `idle_s`; with None, only when `stop` was called."""
        self._lock = AliveLock(lock_path(home.root))
        self._lock.sign()
        self._home = home
        self._idle_s = idle_s
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._runs: dict[int, Run] = {}
        self._suspended: dict[int, str] = {}
        """Experiments that cannot go on because of an error of the disk, each with the error's words."""
        self._standing: dict[int, Standstill] = {}
        """Experiments whose files are damaged or cannot be read. They are not in `_runs`."""
        self._is_stopping = False
        self._machine = MachinePool(home, machine, self._wake, spawner)
        self._clusters: dict[str, ClusterPool | SlurmPool] = {}
        """The pools of Ray clusters, by address, and Slurm's pool."""
        self._waits: dict[int, str] = {}
        """Experiments of which a trial waits for a node, each with the reason in words."""

    def recover(self) -> None:
        """Opens the experiments that have not ended."""
        for experiment_id in self._home.experiment_ids():
            self._take_up(experiment_id)

    def _take_up(self, experiment_id: int) -> None:
        with self._suspending(experiment_id):
            if SubmittedExperiment(self._home, experiment_id).has_to_go_on():
                self._open(experiment_id)
            else:
                self._standing.pop(experiment_id, None)

    def run(self, is_done: Callable[[], bool] = lambda: False) -> None:
        """Carries out experiments until `is_done`, until `stop`, or until there was nothing to do for `idle_s`.

        It also returns if the home was renamed or removed.
        """
        idle_since = time.monotonic()
        while not self._is_stopping and not is_done():
            if not self.is_home_here():
                logger.error("%s was renamed or removed: the next master goes on where it is now", self._home.root)
                return
            is_busy = bool(self._suspended) or any(
                run.attempts or run.experiment.waiting for run in self._runs.values()
            )
            if is_busy:
                idle_since = time.monotonic()
            if self._idle_s is not None and time.monotonic() - idle_since > self._idle_s:
                return
            with contextlib.suppress(queue.Empty):
                self._inbox.get(timeout=self._pause_s(is_busy))()
                while True:
                    self._inbox.get_nowait()()
            self._go_on()

    def _pause_s(self, is_busy: bool) -> float | None:
        if is_busy:
            return _LOOK_S
        if not self._standing:
            return self._idle_s
        return _REPAIR_S if self._idle_s is None else min(_REPAIR_S, self._idle_s)

    def is_home_here(self) -> bool:
        return self._lock.is_at(lock_path(self._home.root))

    def stop(self) -> None:
        """Lets `run` return. Attempts go on, and the next master finds them. Can be called in any thread."""
        self._is_stopping = True
        self._inbox.put(lambda: None)

    def close(self) -> None:
        for run in self._runs.values():
            run.close()
        for pool in self._pools():
            pool.close()
        self._lock.release()

    def answer(self, request: AnyRequest) -> MasterAnswer:
        """Lets the thread of `run` carry out a request, and returns its answer. Must be called in another thread."""

        def do(future: Future[MasterAnswer]) -> None:
            try:
                if not self.is_home_here():
                    raise MasterError("the home was renamed, and it ends; ask once more, and the next one answers")
                future.set_result(self._do(request))
            except Exception as error:  # noqa: BLE001  (the caller of `answer` gets it)
                future.set_exception(error)

        while True:
            future: Future[MasterAnswer] = Future()
            self._inbox.put(partial(do, future))
            try:
                return future.result()
            except _NotYet as early:
                early.wait()

    # Requests

    def _do(self, request: AnyRequest) -> MasterAnswer:
        match request:
            case GetStatus():
                return self._status()
            case Down():
                self.stop()
                return MasterAnswer()
        experiment_id = request.experiment_id
        try:
            return self._change_experiment(request)
        except DAMAGE as error:
            self._set_aside(experiment_id, str(error), _path_of(error))
            fork = f", and `core-sdk experiment fork {experiment_id}` begins it from nothing"
            raise MasterError(
                f"experiment {experiment_id} stands still, until its files are whole. {error} `core-sdk trial kill` "
                f"ends a trial of it{'' if isinstance(error, CodeDamagedError) else fork}"
            ) from error

    def _change_experiment(
        self, request: Submit | Want | Continue | ChangeSettings | Move | KillTrial | Post
    ) -> MasterAnswer:
        match request:
            case Submit(experiment_id=experiment_id, is_paused=is_paused):
                return StateAnswer(state=self._begin(experiment_id, is_paused=is_paused).experiment.state)
            case Want():
                return self._want(request)
            case Continue():
                return self._continue(request)
            case ChangeSettings():
                run = self._unended(request.experiment_id)
                change = SettingsChanged(time=time.time(), priority=request.priority, max_slots=request.max_slots)
                run.record(change)
                return MasterAnswer()
            case Move():
                return self._move(request)
            case KillTrial():
                return self._kill_trial(request)
            case Post():
                return self._post(request)

    def _begin(self, experiment_id: int, *, is_paused: bool = False) -> Run:
        run = self._open(experiment_id)
        if run.experiment.num_events == 0:
            self._check_slots(run)
            run.record(ExperimentBegun(time=time.time(), format=FORMAT, is_paused=is_paused))
            self._carry_out(run)
        return run

    def _check_slots(self, run: Run) -> None:
        experiment_id = run.experiment.experiment_id
        if (refusal := run.pool.refusal(SubmittedExperiment(self._home, experiment_id))) is None:
            raise _NotYet(partial(time.sleep, _ANSWER_S))
        if problem := run.pool.problem or refusal:
            self._runs.pop(experiment_id).close()
            raise MasterRefusedError(problem)

    def _want(self, request: Want) -> StateAnswer:
        run, state = self._begun(request.experiment_id), request.state
        if state == "ACTIVE" and run.experiment.state_at_end == "COMPLETED":
            return StateAnswer(state=run.experiment.state)  # its last trial has just ended, so there is nothing to do
        _check_unended(run)
        if state == "ACTIVE":
            _check_code(run)
        run.record(ExperimentWanted(time=time.time(), state=state, by=request.by))
        self._carry_out(run)
        return StateAnswer(state=run.experiment.state)

    def _continue(self, request: Continue) -> StateAnswer:
        experiment_id = request.experiment_id
        run = self._open(experiment_id)
        if not run.experiment.is_ended:
            raise MasterError(f"experiment {experiment_id} has not ended: it is {run.experiment.state}")
        if obstacle := run.experiment.obstacle:
            raise MasterRefusedError(f"experiment {experiment_id} cannot go on: {obstacle}")
        _check_code(run)
        run.record(ExperimentContinued(time=time.time(), by=request.by))
        self._carry_out(run)
        return StateAnswer(state=run.experiment.state)

    def _move(self, request: Move) -> MasterAnswer:
        run, other = self._unended(request.experiment_id), self._unended(request.other_id).experiment
        if run.experiment is other:
            raise MasterError(f"experiment {request.experiment_id} cannot be moved before or behind itself")
        others = (each.experiment for each in self._runs.values() if each is not run)
        places = [each.place for each in others if each.priority == other.priority]
        place = place_beside(other.place, places, is_behind=request.is_behind)
        run.record(SettingsChanged(time=time.time(), priority=other.priority, place=place))
        return MasterAnswer()

    def _kill_trial(self, request: KillTrial) -> MasterAnswer:
        experiment_id, trial_id = request.experiment_id, request.trial_id
        run = self._unended(experiment_id)
        trial = run.experiment.trial(trial_id)
        if trial is None and run.is_beginning(trial_id):
            raise _NotYet(partial(time.sleep, _LOOK_S))
        if trial is None:
            raise MasterError(f"experiment {experiment_id} has no trial {trial_id}")
        if trial.is_over:
            raise MasterError(f"trial {trial_id} has ended: it is {trial.state}, and nothing was killed")
        run.record(TrialWanted(time=time.time(), request_id=trial.request_id, state="KILLED", by=request.by))
        self._carry_out(run)
        return MasterAnswer()

    def _post(self, request: Post) -> PostAnswer:
        """Records the operations that a search method has posted. Ignores repeated posts and those after the end."""
        experiment_id, num_events, operations = request.experiment_id, request.num_events, request.operations
        run = self._open(experiment_id)
        experiment = run.experiment
        if num_events > len(experiment.told):
            raise MasterError(f"experiment {experiment_id} has had {len(experiment.told)} events, not {num_events}")
        if num_events > experiment.num_answered and not experiment.is_ended:
            experiment.check_operations(operations)
            run.record(OperationsPosted(time=time.time(), num_events=num_events, operations=operations))
            self._carry_out(run)
        return PostAnswer(state=experiment.state, num_events=experiment.num_answered)

    def _status(self) -> MasterStatus:
        running = [self._status_of(experiment_id, run) for experiment_id, run in sorted(self._runs.items())]
        return MasterStatus(
            version=__version__,
            pid=os.getpid(),
            num_slots=self._machine.machine.num_slots,
            gpus=self._machine.machine.gpus,
            clusters=tuple(pool.status() for pool in self._clusters.values()),
            experiments=(*running, *(each.status(id_) for id_, each in sorted(self._standing.items()))),
        )

    def _status_of(self, experiment_id: int, run: Run) -> ExperimentStatus:
        experiment, pool, waiting, running = run.experiment, run.pool, run.waiting(), tuple(run.occupied())
        since, why = waiting[0] if waiting else (None, "")
        if waiting and not why:
            is_at_most = (
                experiment.max_slots is not None
                and sum(len(trial.slots) for trial in running) + max(1, run.slots_per_trial) > experiment.max_slots
            )
            why = f"max_slots is {experiment.max_slots}" if is_at_most else "trials of this home have the slots"
        return ExperimentStatus(
            experiment_id,
            experiment.state,
            experiment.priority,
            experiment.max_slots,
            self._suspended.get(experiment_id, "") or pool.problem or self._waits.get(experiment_id, ""),
            len(waiting),
            pool.cluster,
            running,
            since,
            experiment.place,
            why,
        )

    # Carrying out

    def _carry_out(self, run: Run) -> None:
        """Carries out what a request has made due, so that the records show its effect before the answer is sent."""
        with self._suspending(run.experiment.experiment_id):
            run.carry_out(run.experiment.take_due())
            run.publish()

    def _open(self, experiment_id: int) -> Run:
        """Returns the experiment's run, and begins it if needed. Raises an error of `DAMAGE` if it cannot go on."""
        if experiment_id not in self._runs:
            standstill = self._standing.get(experiment_id)
            if standstill is not None and not all(claim.is_over for claim in standstill.claims):
                raise MasterError(f"experiment {experiment_id} stands still: {standstill.problem}")
            submission = SubmittedExperiment(self._home, experiment_id)
            _check_own(submission)
            run = Run(self._home, submission, self._pool_of(submission))
            self._runs[experiment_id] = run
            self._standing.pop(experiment_id, None)
            run.recover()
        return self._runs[experiment_id]

    def _set_aside(
        self, experiment_id: int, problem: str, damaged: Path | None = None, *, is_transient: bool = False
    ) -> None:
        """Lets the experiment stand still until its files have changed. Its attempts go on, and keep their slots."""
        run = self._runs.pop(experiment_id, None)
        before = self._standing.get(experiment_id)
        claims = before.claims if before is not None else []
        self._suspended.pop(experiment_id, None)
        self._waits.pop(experiment_id, None)
        if before is None or before.problem != problem:
            logger.error("experiment %d stands still: %s", experiment_id, problem)
            with contextlib.suppress(CoreSDKError, OSError):  # the record itself may be damaged
                SubmittedExperiment(self._home, experiment_id).publish_damage(problem)
        folder = ExperimentFolder(self._home.root, experiment_id)
        files = (*folder.files, *([] if damaged is None else [damaged]))
        self._standing[experiment_id] = Standstill(
            problem,
            file_states(files),
            claims if run is None else run.leave(),
            find_held(self._home, experiment_id),
            is_transient,
        )

    def _pools(self) -> list[ResourcePool]:
        return [self._machine, *self._clusters.values()]

    def _pool_of(self, submission: SubmittedExperiment) -> ResourcePool:
        resources = submission.config.resources
        if not (address := resources.cluster):
            return self._machine
        if address not in self._clusters and resources.engine == "slurm":
            from core_sdk._execution.master.pools.slurm import SlurmPool

            self._clusters[address] = SlurmPool(self._home, self._wake)
        elif address not in self._clusters:
            from core_sdk._execution.master.pools.ray import ClusterPool  # imported here, since few masters need it

            self._clusters[address] = ClusterPool(address, self._home.root, self._wake)
        return self._clusters[address]

    def _begun(self, experiment_id: int) -> Run:
        self._begin(experiment_id)  # the command that submitted it may have been killed before it called the master
        return self._open(experiment_id)

    def _unended(self, experiment_id: int) -> Run:
        run = self._begun(experiment_id)
        _check_unended(run)
        return run

    def _wake(self) -> None:
        self._inbox.put(lambda: None)

    def _go_on(self) -> None:
        for experiment_id, standstill in list(self._standing.items()):
            if standstill.may_go_on:
                self._take_up(experiment_id)
        for experiment_id, run in list(self._runs.items()):
            with self._suspending(experiment_id):
                if experiment_id in self._suspended:
                    run.recover()
                run.look()
                self._suspended.pop(experiment_id, None)
        for pool in self._pools():
            if not pool.problem:
                self._schedule(pool)
        for experiment_id, run in list(self._runs.items()):
            with self._suspending(experiment_id):
                run.publish()
                if run.experiment.is_ended:
                    run.close()
                    del self._runs[experiment_id]

    def _schedule(self, pool: ResourcePool) -> None:
        runs = {id_: run for id_, run in self._runs.items() if run.pool is pool}
        used = {slot for run in runs.values() for trial in run.occupied() for slot in trial.slots}
        held: Counter[str] = Counter()
        for experiment_id in runs.keys() & self._suspended.keys():
            held.update(runs[experiment_id].num_occupied())
        active = [run.demand() for id_, run in runs.items() if id_ not in self._suspended]
        foreign: Mapping[str, int] = {}
        if pool is self._machine:
            slots = {slot for standstill in self._standing.values() for slot in standstill.held_slots()} - used
            used |= slots
            held.update(dict.fromkeys(pool.rooms(), self._machine.num_here(slots)))
            if any(demand.waiting and demand.slots_per_trial for demand in active):
                foreign = self._machine.foreign(used)
        rooms = {node: max(0, room - held[node]) for node, room in pool.rooms().items()}
        decisions = decide(active, rooms, foreign)
        pool.heed(active, decisions)
        for experiment_id in runs:
            self._waits.pop(experiment_id, None)
        for experiment_id, most in decisions.scattered.items():
            self._waits[experiment_id] = runs[experiment_id].demand().describe_scattered(most)
        for experiment_id, request_id in decisions.withdraw:
            runs[experiment_id].withdraw(request_id)
        for stopped, reason in (
            (decisions.preempt, "its slots are needed for an experiment of a higher priority"),
            (decisions.excess, "max_slots of its experiment was lowered"),
        ):
            for experiment_id, request_id in stopped:
                with self._suspending(experiment_id):
                    runs[experiment_id].preempt(request_id, reason)
        blocked = [] if decisions.blocked is None else [decisions.blocked]
        for experiment_id, request_id in (*decisions.start, *blocked):
            run = runs[experiment_id]
            claim = pool.reserve(run.slots_per_trial, used, is_blocked=(experiment_id, request_id) in blocked)
            if isinstance(claim, SlotsTaken):
                if claim.by:
                    self._waits[experiment_id] = claim.by
                break
            with self._suspending(experiment_id):
                used.update(run.start(request_id, claim))

    @contextlib.contextmanager
    def _suspending(self, experiment_id: int) -> Iterator[None]:
        """Keeps an error of one experiment away from the others.

        An experiment whose records cannot be written is tried again. One whose files are damaged stands still until
        they are restored. One that no longer has records is dropped.
        """
        try:
            yield
        except ExperimentNotFoundError:  # it was deleted right after its end, or removed by hand
            self._suspended.pop(experiment_id, None)
            self._standing.pop(experiment_id, None)
            if (run := self._runs.pop(experiment_id, None)) is not None:
                run.close()
                if not run.experiment.is_ended:
                    logger.error("experiment %d was removed from the home: its running trials end alone", experiment_id)
        except DAMAGE as error:
            self._set_aside(experiment_id, str(error), _path_of(error))
        except OSError as error:
            words = error.strerror or str(error)
            if experiment_id not in self._runs:
                self._set_aside(experiment_id, f"its records cannot be read: {words}", is_transient=True)
                return
            if self._suspended.get(experiment_id) != words:
                logger.error(
                    "experiment %d stands still, since its records cannot be written: %s", experiment_id, words
                )
            self._suspended[experiment_id] = words
        except Exception as error:  # a bug of ours: the state of this experiment may be wrong from now on
            logger.exception("experiment %d has met an error of Core SDK", experiment_id)
            problem = f"an error of Core SDK, which {log_path(self._home.root)} tells in full: {error!r}"
            self._set_aside(experiment_id, problem)


class _NotYet(Exception):
    """A request cannot be answered yet. `wait` blocks until it may be asked again."""

    def __init__(self, wait: Callable[[], None]) -> None:
        self.wait = wait


def _path_of(error: RecordDamagedError | CodeDamagedError) -> Path:
    """Returns the path of the damaged file."""
    return error.path if isinstance(error, RecordDamagedError) else error.archive


def _check_code(run: Run) -> None:
    """Refuses to let an experiment go on that would stand still as soon as its next trial begins."""
    try:
        run.check_code()
    except CodeDamagedError as error:
        raise MasterError(f"experiment {run.experiment.experiment_id} cannot go on: {error}") from error


def _check_own(submission: SubmittedExperiment) -> None:
    """Raises `MasterRefusedError` if another home carries the experiment out."""
    try:
        submission.folder.read_own()
    except ExperimentError as error:
        raise MasterRefusedError(str(error)) from error


def _check_unended(run: Run) -> None:
    experiment = run.experiment
    if experiment.is_ended:
        advice = (
            f"continue --new {experiment.experiment_id}` begins an experiment that goes on with its best trial"
            if experiment.obstacle
            else f"continue {experiment.experiment_id}` lets its trials that are not completed go on"
        )
        raise MasterError(
            f"experiment {experiment.experiment_id} has ended: it is {experiment.state}. `core-sdk experiment {advice}"
        )
