"""The actor that holds the slots of one attempt on a node of a Ray cluster, and starts its agent there."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import ray

from core_sdk.agent.starting import Agent, Spawner
from core_sdk.environment import visible_gpus
from core_sdk.errors import CoreSDKError
from core_sdk.experiments.submitted import SubmittedExperiment
from core_sdk.master.pools._order import AttemptOrder
from core_sdk.tracking.attempts.running import await_end, kill, never_began, take_back
from core_sdk.tracking.attempts.slots import Slots
from core_sdk.tracking.attempts.starting import Start
from core_sdk.tracking.home import Home

NUM_THREADS = 8
"""Those that wait for the end, of which each master leaves one; a signal; and some to spare."""


class AttemptActor:
    """Its methods run in several threads. What goes wrong they return in words."""

    def __init__(self, order: AttemptOrder) -> None:
        self._order = order
        self._home = Home(order.home_root)
        self._folder = self._home.folder(order.trial_id)
        self._starting = threading.Lock()
        self._start: Start | None = None
        self._agent: Agent | None = None
        self._problem = ""

    def node_id(self) -> str:
        """Where Ray has placed it."""
        node_id: str = ray.get_runtime_context().get_node_id()
        return node_id

    def claim(self) -> int | str:
        """Makes the attempt, which is this process's until it is started. Returns its number."""
        try:
            if not self._sees_home():
                node = os.uname().nodename
                return (
                    f"node {node} of the Ray cluster does not see the home {self._order.home_root}: "
                    "put it into a directory that all nodes share"
                )
            attempts = self._folder.attempts()
            if attempts and never_began(self._folder, attempts[-1]):
                take_back(self._folder, attempts[-1])
            submission = SubmittedExperiment(self._home, self._order.experiment_id)
            self._start = self._order.make_start(submission, self._slots())
        except (CoreSDKError, OSError) as error:
            return str(error)
        return self._start.number

    def run(self) -> str:
        """Starts the claimed attempt, if that is not done, and returns when it has ended."""
        with self._starting:
            if self._start is not None and self._agent is None:
                self._problem = self._start_agent(self._start)
        if self._agent is not None and not self._problem:
            self._agent.wait()
        await_end(self._folder)
        return self._problem

    def signal(self, number: int) -> None:
        with self._starting:
            if self._agent is not None:
                self._agent.signal(number)
            elif number == signal.SIGKILL:
                kill(self._folder, max(self._folder.attempts()))

    def withdraw(self) -> None:
        """Takes the claimed attempt back, if it was not started."""
        with self._starting:
            if self._start is not None and self._agent is None:
                self._start.withdraw()
                self._start = None

    def _start_agent(self, start: Start) -> str:
        # A child of ours would be killed by Ray with us; one of a spawner is not.
        self._agent = Agent(Spawner())
        try:
            with Path(os.devnull).open("rb") as nothing:
                # Whoever sees that the node is dead may rely on it.
                self._agent.start(start, stdin=nothing.fileno(), ends_with=os.getppid())
        except CoreSDKError as error:
            start.lock.release()
            return str(error)
        return ""

    def _sees_home(self) -> bool:
        """Another home at this place would have another experiment by this id, if any."""
        try:
            created = self._home.experiment(self._order.experiment_id).read().created
        except (CoreSDKError, OSError):
            return False
        return created == self._order.experiment_created and self._folder.path.is_dir()

    def _slots(self) -> Slots:
        """Ray hides the GPUs of others."""
        gpus = (visible_gpus() or []) if self._order.num_slots else []
        return Slots(tuple(range(self._order.num_slots)), tuple(gpus), max(1, self._order.num_slots))
