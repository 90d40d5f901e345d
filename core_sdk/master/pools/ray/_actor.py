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

from core_sdk.agent.starting import Agent, Spawner
from core_sdk.environment import visible_gpus
from core_sdk.errors import CoreSDKError
from core_sdk.experiments.submitted import SubmittedExperiment
from core_sdk.master.pools._order import AttemptOrder
from core_sdk.tracking.attempts.killing import kill
from core_sdk.tracking.attempts.running import await_end, never_began
from core_sdk.tracking.attempts.slots import Slots
from core_sdk.tracking.attempts.starting import Start, claimed_elsewhere
from core_sdk.tracking.home import Home
from core_sdk.tracking.spool.node import sees_home

NUM_THREADS = 8
"""Those that wait for the end, of which each master leaves one; a signal, a call; and some to spare."""

# How long an attempt that has ended keeps its places where no master asks for it.
_UNASKED_S = 30.0


class AttemptActor:
    """Its methods run in several threads. What goes wrong they return in words."""

    def __init__(self, order: AttemptOrder) -> None:
        self._order = order
        self._folder = order.folder
        """Where the attempt's records lie on this node: in the home, or in a spool for it."""
        self._starting = threading.Lock()
        self._start: Start | None = None
        self._agent: Agent | None = None
        """None in an actor that takes the place of a dead one: the attempt has an agent."""
        self._has_started = False
        self._problem = ""
        self._asked_at = 0.0

    def node_id(self) -> str:
        """Where Ray has placed it."""
        node_id: str = ray.get_runtime_context().get_node_id()
        return node_id

    def claim(self) -> int | str | Slots:
        """Makes the attempt, which is this process's until it is started. Returns its number.

        A node that does not see the home returns the attempt's slots: it is to be claimed where the home is.
        """
        try:
            if self._sees_home():
                self._start = self._order.claim(self._slots())
        except (CoreSDKError, OSError) as error:
            return str(error)
        # A child of ours would be killed by Ray with us; one of a spawner is not.
        self._agent = Agent(Spawner())
        return self._slots() if self._start is None else self._start.number

    def run(self) -> str | None:
        """Starts the claimed attempt, if that is not done, and returns when it has ended.

        Returns None, at once, if the node does not see the home: then the attempt runs in a spool.
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
        """Starts the attempt with which the spool was fitted out, if that is not done, and does not wait for its end.

        The spool has nothing of an attempt of which all is at home.
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
        """Runs in this process, beside the attempt."""
        self._asked_at = time.monotonic()
        return function(*args, **kwargs)

    def signal(self, number: int) -> None:
        if self._agent is not None:
            self._agent.signal(number)
        elif number == signal.SIGKILL:
            kill(self._folder, max(self._folder.attempts()))

    def withdraw(self) -> None:
        """Takes the claimed attempt back, if it was not started."""
        with self._starting:
            if self._start is not None and not self._has_started:
                self._start.withdraw()
                self._start = None

    def _start_agent(self, agent: Agent, start: Start) -> None:
        self._has_started = True
        try:
            with Path(os.devnull).open("rb") as nothing:
                # Whoever sees that the node is dead may rely on it.
                agent.start(start, stdin=nothing.fileno(), ends_with=os.getppid())
        except CoreSDKError as error:
            start.lock.release()
            self._problem = str(error)
        else:
            myself = ray.get_runtime_context().current_actor
            threading.Thread(target=self._leave_when_over, args=[myself], daemon=True).start()

    def _leave_when_over(self, myself: Any) -> None:
        """Gives the places back, which a master does at once if one lives. The next one makes an actor of its own."""
        await_end(self._folder)
        ended_at = time.monotonic()
        while (wait_s := max(ended_at, self._asked_at) + _UNASKED_S - time.monotonic()) > 0:
            time.sleep(wait_s)
        ray.kill(myself)

    def _sees_home(self) -> bool:
        return sees_home(self._order.home_root, self._order.home_identity) and self._folder.path.is_dir()

    def _slots(self) -> Slots:
        """Ray hides the GPUs of others."""
        gpus = (visible_gpus() or []) if self._order.num_slots else []
        return Slots(tuple(range(self._order.num_slots)), tuple(gpus), max(1, self._order.num_slots))
