"""The slots of this machine, on which the master starts attempts itself.

It shares them with other homes and users. A home waits in line with one ticket: whichever of its trials is next gets
the slots, so that its priorities hold while it waits, and a home with many trials does not keep out one with few.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path

from core_sdk._execution.agent.starting import Agent, AgentSpawner
from core_sdk._execution.agent.warm.agents import WarmAgents
from core_sdk._execution.experiments.attempt_order import AttemptOrder
from core_sdk._execution.experiments.submitted import SubmittedExperiment
from core_sdk._execution.master._queue import Decisions, Demand
from core_sdk._execution.master.pools._pool import (
    Begun,
    Claim,
    Execution,
    MakeClaim,
    ResourcePool,
    SlotsTaken,
    take_back_unbegun,
    too_many_slots,
    unrecorded_attempt,
)
from core_sdk._ground.records import AttemptOutcome
from core_sdk._home.attempts.killing import kill
from core_sdk._home.attempts.starting import AttemptStart
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._machine.slots import Machine, PostedTicket, SlotDirectory, Slots, Ticket, obstacles_of
from core_sdk.errors import CoreSDKError, SlotError

logger = logging.getLogger("core_sdk.master")

# How long the master, which has more to do, waits for somebody who posts a ticket just now.
_PATIENCE_S = 0.05
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class MachinePool(ResourcePool):
    """Runs attempts under agents that are forked on this machine."""

    def __init__(
        self, home: Home, machine: Machine, tell: Callable[[], None], spawner: AgentSpawner | None = None
    ) -> None:
        """`tell` is called, in any thread, when a claim is complete, or an attempt may have ended."""
        self.machine = machine
        self._home = home
        self._directory = SlotDirectory()
        self._ticket: Ticket | None = None
        """The ticket with which the home waits, or which has the slots of the next claim."""
        self._place: int | None = None
        """The place in the line that its next ticket takes over."""
        self._posted: Sequence[PostedTicket] = ()
        self._ticketed: set[int] = set()
        """The slots of this home's attempts that have tickets, or had them and have just ended."""
        self._tell = tell
        self._agents = WarmAgents(spawner or AgentSpawner())

    def refusal(self, submission: SubmittedExperiment) -> str:
        num_slots = self.machine.num_slots
        is_possible = submission.config.resources.slots_per_trial <= num_slots
        return "" if is_possible else f"{too_many_slots(submission)}, and this machine has {num_slots}"

    def rooms(self) -> Mapping[str, int]:
        return {_boot(): self.machine.num_slots}

    def num_here(self, slot_ids: Iterable[int]) -> int:
        """Returns how many of these slots the machine has. An earlier master may have had more slots."""
        return sum(slot < self.machine.num_slots for slot in slot_ids)

    def foreign(self, used: Collection[int]) -> Mapping[str, int]:
        """Returns how many slots of `rooms` others have. `used` are the slots of this home."""
        held = {name for ticket in self._tickets() for name in ticket.held}
        slots = {slot for slot, name in enumerate(self.machine.names) if name in held}
        self._ticketed = (self._ticketed | slots) & set(used)
        return {_boot(): len(slots - set(used))}

    def heed(self, demands: Sequence[Demand], decisions: Decisions) -> None:
        slots = {request_id: slots for demand in demands for request_id, slots in demand.slots.items()}
        for _, request_id in decisions.preempt:
            self._take_over(slots[request_id])
        self._agents.keep({demand.experiment_id for demand in demands})
        if not (decisions.start or decisions.blocked or decisions.excess or decisions.withdraw):
            self._leave_line()

    def reserve(self, num_slots: int, used: Collection[int], *, is_blocked: bool) -> MakeClaim | SlotsTaken:
        """Posts a ticket, or takes slots with the one that waits, also if no slots of this home are free."""
        if not num_slots:
            return partial(self._claim, self.machine.slots([]))
        why = ""
        if self._ticket is not None and self._ticket.held and len(self._ticket.held) != num_slots:
            self._place = self._ticket.place
            self._leave_line()
        untold = set(used) - self._ticketed  # an older version has started attempts there, without a ticket
        usable = self.machine.usable(untold)
        try:
            if self._ticket is None:
                self._ticket = Ticket(
                    self._directory, self._home.root, num_slots, usable, place=self._place, patience_s=_PATIENCE_S
                )
            elif not self._ticket.held:
                if self._place is not None:
                    self._ticket.place = min(self._place, self._ticket.place)
                self._ticket.take(num_slots, usable, _PATIENCE_S)
            self._place = None
            if not self._ticket.held:
                why = obstacles_of(self._ticket, self.machine, self._home.root)
        except SlotError as error:
            why = str(error)
        except BlockingIOError:  # somebody posts a ticket just now: the next look tells
            pass
        if self._ticket is None or not self._ticket.held:
            return SlotsTaken(why)
        held = self.machine.held(self._ticket)
        # They may belong to an attempt that runs, and whose ticket somebody has removed: not before its end.
        return partial(self._claim, held) if set(used).isdisjoint(held.ids) else SlotsTaken(why)

    def _leave_line(self) -> None:
        """Gives up the home's place in the line for slots, since no trial of it waits."""
        if self._ticket is not None:
            self._ticket.release()
            self._ticket = None

    def _take_over(self, slots: Collection[int]) -> None:
        """Lets the home wait in the place of a trial of it that has these slots, and is stopped for another."""
        names = {name for slot, name in enumerate(self.machine.names) if slot in slots}
        places = [ticket.place for ticket in self._tickets() if not names.isdisjoint(ticket.held)]
        self._place = min([*places, *([] if self._place is None else [self._place])], default=None)

    def _tickets(self) -> Sequence[PostedTicket]:
        """Returns the tickets of all users, or the ones last seen if somebody posts a ticket just now."""
        with contextlib.suppress(BlockingIOError, SlotError), self._directory.locked(_PATIENCE_S):
            self._posted = self._directory.tickets()
        return self._posted

    def _claim(self, slots: Slots, order: AttemptOrder) -> Claim:
        if slots.ids:
            self._ticket = None
            self._ticketed.update(slots.ids)

        def make_start() -> AttemptStart:
            submission = SubmittedExperiment(Home(order.home_root), order.experiment_id)
            start = order.make_start(submission, slots)
            asked = self._agents.variables(order.experiment_id) if submission.config.warm else {}
            return replace(start, variables={**start.variables, **asked})

        agent = self._agents.agent(order.experiment_id)

        def hear_of_end() -> None:
            self._agents.learn(order.experiment_id, agent.variables)
            self._tell()

        return _MachineClaim(order.folder, slots, agent, make_start, self._tell, hear_of_end)

    def find_unrecorded(self, folder: TrialFolder, last_attempt: int) -> Begun | None:
        number = unrecorded_attempt(folder, last_attempt)
        return Begun(number, (), _boot()) if number else None

    def recover(self, order: AttemptOrder, begun: Begun) -> Execution | None:
        folder = order.folder
        if take_back_unbegun(folder, begun.number):
            return None
        return _MachineExecution(folder, begun.number, begun.boot)

    def close(self) -> None:
        self._leave_line()
        self._agents.close()


class _MachineClaim(Claim):
    def __init__(
        self,
        folder: TrialFolder,
        slots: Slots,
        agent: Agent,
        make_start: Callable[[], AttemptStart],
        on_made: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        """Calls `make_start` in a new thread, and then `on_made`; `on_end` when the command has ended."""
        self.folder = folder
        self.slot_ids = slots.ids
        self._ticket = slots.ticket
        self.node = _boot()
        self._agent = agent
        self._on_made = on_made
        self._on_end = on_end
        self._is_over = False
        self._start: Future[AttemptStart] = Future()
        threading.Thread(target=self._make, args=[make_start], daemon=True).start()

    @property
    def is_over(self) -> bool:
        return self._is_over

    def begun(self) -> Begun:
        return Begun(self._start.result().number, self.slot_ids, _boot())

    def start(self) -> Execution:
        start = self._start.result()
        execution = _MachineExecution(self.folder, start.number, _boot())
        execution.start(start, self._agent, self._on_end)
        return execution

    def release(self) -> None:
        self._agent.close()
        self._start.result().release()

    def _take_back(self) -> None:
        self._agent.close()
        self._start.add_done_callback(_withdraw)

    def _make(self, make_start: Callable[[], AttemptStart]) -> None:
        try:
            self._start.set_result(make_start())
        except Exception as error:  # noqa: BLE001  (`begun` raises it)
            self._agent.close()
            if self._ticket is not None:
                self._ticket.release()
            self._start.set_exception(error)
        self._is_over = True
        self._on_made()


class _MachineExecution(Execution):
    """An attempt that is watched by polling. Its agent's messages only make the master look sooner."""

    def __init__(self, folder: TrialFolder, number: int, boot: str) -> None:
        self._folder = folder
        self._number = number
        self._boot = boot
        self._agent: Agent | None = None
        """None for an attempt that an earlier master has started."""
        self._is_starting = False

    def start(self, start: AttemptStart, agent: Agent, on_end: Callable[[], None]) -> None:
        """Starts the command in a new thread, which calls `on_end` when the command has ended."""
        self._agent, self._is_starting = agent, True
        threading.Thread(target=self._run, args=[start, agent, on_end], daemon=True).start()

    @property
    def is_over(self) -> bool:
        return not self._is_starting and self._folder.running_attempt() is None

    @property
    def loss(self) -> tuple[AttemptOutcome, str] | None:
        return ("lost", "the machine was started again") if self._boot != _boot() else None

    def signal(self, number: int) -> None:
        if self._agent is not None:
            self._agent.signal(number)

    def kill(self) -> None:
        if self._agent is not None:
            self._agent.signal(signal.SIGKILL)
        else:
            threading.Thread(target=self._kill_left, daemon=True).start()

    def _run(self, start: AttemptStart, agent: Agent, on_end: Callable[[], None]) -> None:
        try:
            agent.start(start)
        except CoreSDKError as error:
            self.problem = str(error)
            start.release()
        self._is_starting = False
        if not self.problem and agent.wait().code is None:
            # Somebody has killed the agent, and perhaps its guardian.
            self._agent = None
            self._kill_left()
        agent.close()
        on_end()

    def _kill_left(self) -> None:
        try:
            kill(self._folder, self._number)
        except CoreSDKError as error:
            logger.warning("%s", error)


def _withdraw(made: Future[AttemptStart]) -> None:
    if made.exception() is None:
        made.result().withdraw()


def _boot() -> str:
    """Returns the id of the machine's current boot; empty if the system has none."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
