"""The actor that holds the slots of one attempt on a node of a Ray cluster, and starts its agent there."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray

from core_sdk.agent.starting import Agent, AgentSpawner
from core_sdk.environment import visible_gpus
from core_sdk.errors import CoreSDKError
from core_sdk.experiments.submitted import SubmittedExperiment
from core_sdk.master.pools._order import AttemptOrder
from core_sdk.slots import Slots
from core_sdk.tracking.attempts.killing import kill
from core_sdk.tracking.attempts.running import await_end, never_began
from core_sdk.tracking.attempts.starting import AttemptStart, claimed_elsewhere
from core_sdk.tracking.home import Home
from core_sdk.tracking.spool.node import sees_home

NUM_THREADS = 8
"""The number of threads: one per master that waits for the end, one for a signal, one for a call, and some spare."""

# How long an attempt that has ended keeps its slots if no master asks for it.
_UNASKED_S = 30.0


class AttemptActor:
    """Holds the slots of an attempt. Its methods run in several threads, and return errors in words."""

    def __init__(self, order: AttemptOrder) -> None:
        self._order = order
        self._folder = order.folder
        """The folder of the attempt's records on this node, in the home or in a spool for it."""
        self._starting = threading.Lock()
        self._start: AttemptStart | None = None
        self._agent: Agent | None = None
        """None in an actor that replaces a dead one, since the attempt has an agent already."""
        self._has_started = False
        self._problem = ""
        self._asked_at = 0.0

    def node_id(self) -> str:
        """Returns the id of the node on which Ray has placed the actor."""
        node_id: str = ray.get_runtime_context().get_node_id()
        return node_id

    def claim(self) -> int | str | Slots:
        """Claims the attempt for this process. Returns its number, or the error in words.

        On a node that does not see the home, returns the attempt's slots: it must be claimed where the home is.
        """
        try:
            if self._sees_home():
                self._start = self._order.claim(self._slots())
        except (CoreSDKError, OSError) as error:
            return str(error)
        # Ray would kill a child of this process together with it, but not a child of a spawner.
        self._agent = Agent(AgentSpawner())
        return self._slots() if self._start is None else self._start.number

    def run(self) -> str | None:
        """Starts the claimed attempt unless it was started, and returns when it has ended.

        Returns None at once if the node does not see the home; the attempt then runs in a spool.
        """
        if self._start is None and not self._sees_home():
            return None
        with self._starting:
            if self._start is not None and self._agent is not None and not self._has_started:
                self._start_agent(self._agent, self._start)
        if self._agent is not None and self._has_started and not self._problem:
            self._agent.wait()
        await_end(self._folder)
        return self._problem

    def start_in_spool(self, spool: Path, number: int) -> str:
        """Starts the attempt that was put into the spool, unless it was started. Does not wait for its end.

        If all of an attempt is at home already, the spool does not have the attempt, and nothing is started.
        """
        with self._starting:
            self._folder = Home(spool).folder(self._order.trial_id)
            if self._agent is not None and self._folder.exists() and never_began(self._folder, number):
                try:
                    command = SubmittedExperiment(Home(spool), self._order.experiment_id).prepare(self._folder)
                    start = claimed_elsewhere(self._folder, number, command, self._slots(), self._order.home_root)
                except (CoreSDKError, OSError) as error:
                    return str(error)
                self._start_agent(self._agent, start)
        return self._problem

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a function in this process, beside the attempt."""
        self._asked_at = time.monotonic()
        return function(*args, **kwargs)

    def signal(self, number: int) -> None:
        if self._agent is not None:
            self._agent.signal(number)
        elif number == signal.SIGKILL:
            kill(self._folder, max(self._folder.attempts()))

    def withdraw(self) -> None:
        """Takes the claimed attempt back unless it was started."""
        with self._starting:
            if self._start is not None and not self._has_started:
                self._start.withdraw()
                self._start = None

    def _start_agent(self, agent: Agent, start: AttemptStart) -> None:
        self._has_started = True
        try:
            # The agent ends with the node, so that an attempt of a dead node cannot be running.
            agent.start(start, ends_with=os.getppid())
        except CoreSDKError as error:
            start.lock.release()
            self._problem = str(error)
        else:
            myself = ray.get_runtime_context().current_actor
            threading.Thread(target=self._leave_when_over, args=[myself], daemon=True).start()

    def _leave_when_over(self, myself: Any) -> None:
        """Frees the slots some time after the attempt's end. A master that lives does so at once.

        A later master makes a new actor.
        """
        await_end(self._folder)
        ended_at = time.monotonic()
        while (wait_s := max(ended_at, self._asked_at) + _UNASKED_S - time.monotonic()) > 0:
            time.sleep(wait_s)
        ray.kill(myself)

    def _sees_home(self) -> bool:
        return sees_home(self._order.home_root, self._order.home_identity) and self._folder.path.is_dir()

    def _slots(self) -> Slots:
        """Returns the slots of this actor. Ray shows it only its own GPUs."""
        gpus = (visible_gpus() or []) if self._order.num_slots else []
        return Slots(tuple(range(self._order.num_slots)), tuple(gpus), max(1, self._order.num_slots))
