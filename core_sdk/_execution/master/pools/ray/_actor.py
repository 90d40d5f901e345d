"""The actor that holds the slots of an attempt on one node of a Ray cluster, and starts its agent there."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.util.placement_group import get_current_placement_group, remove_placement_group

from core_sdk._execution.agent.starting import Agent, AgentSpawner
from core_sdk._execution.experiments.attempt_order import AttemptOrder
from core_sdk._execution.experiments.submitted import SubmittedExperiment
from core_sdk._execution.master.pools.ray._environment import in_runtime_env
from core_sdk._execution.master.pools.ray._output import NodeOutput, OutputChunk, read_output
from core_sdk._ground.environment import visible_gpus
from core_sdk._ground.environment.names import MEETING_PORT_VARIABLE
from core_sdk._ground.placement import port_of
from core_sdk._home.attempts.killing import kill
from core_sdk._home.attempts.running import await_end, never_began
from core_sdk._home.attempts.starting import AttemptStart, claimed_elsewhere
from core_sdk._home.folders import Home, TrialFolder
from core_sdk._home.spool.node import sees_home
from core_sdk._machine.slots import Slots
from core_sdk.errors import CoreSDKError, NothingToResumeError

NUM_THREADS = 10
"""The number of threads: one per master that waits for the end, one for output, a signal, a call, and some spare."""

# How long an attempt that has ended keeps its slots if no master asks for it.
_UNASKED_S = 30.0
_POLL_S = 1.0


@dataclass(frozen=True)
class PlacedNode:
    """The node of an actor."""

    node_id: str
    address: str
    slots: Slots
    sees_home: bool


class NodeEnd(NamedTuple):
    """The end of an attempt on one node."""

    problem: str = ""
    """The reason why its command could not be started; empty if it was."""
    code: int = 0
    """The exit status of the command; 0 if there was nothing to start."""


class AttemptActor:
    """Holds the slots of an attempt on a node. Its methods run in several threads, and return errors in words."""

    def __init__(self, order: AttemptOrder, node: int) -> None:
        """`node` is the number of the node in the attempt."""
        self._order = order
        self._node = node
        self._folder = order.folder.of_node(node)
        """The folder of the node's part of the attempt, in the home or in a spool for it."""
        self._starting = threading.Lock()
        self._start: AttemptStart | None = None
        self._agent: Agent | None = None
        """The agent; None in an actor that replaces a dead one, since the attempt has an agent already."""
        self._has_started = False
        self._is_settled = False
        """Whether it was decided what to start here."""
        self._problem = ""
        self._asked_at = 0.0

    def look(self) -> PlacedNode:
        """Returns what the attempt's claim needs to know of the node on which Ray has placed the actor."""
        # Ray would kill a child of this process together with it, but not a child of a spawner.
        self._agent = Agent(AgentSpawner())
        node_id = ray.get_runtime_context().get_node_id()
        return PlacedNode(node_id, ray.util.get_node_ip_address(), self._slots(), self.sees_home())

    def claim(self, addresses: Sequence[str]) -> int | str:
        """Claims the attempt for this process, on nodes that all see the home. Returns its number, or what is wrong."""
        try:
            self._start = self._order.claim(self._slots()).on_nodes(addresses)
        except (CoreSDKError, OSError) as error:
            return str(error)
        return self._start.number

    def sees_home(self) -> bool:
        order = self._order
        return sees_home(order.home_root, order.home_identity) and order.folder.path.is_dir()

    def run(self, root: Path, number: int, others: Sequence[Any]) -> NodeEnd:
        """Starts the claimed attempt on this node unless it was started, and returns when it has ended here.

        `root` is the home, or the spool into which the attempt was put. If all of an attempt is at home already, the
        spool does not have the attempt, and nothing is started. On the first node, this also waits until the output of
        the `others`, the actors of the other nodes, is kept here.
        """
        with self._starting:
            self._start_once(Home(root).folder(self._order.trial_id), number)
            self._is_settled = True
        if self._problem or not self._folder.path.is_dir():
            return NodeEnd(self._problem)
        outputs = [NodeOutput(self._folder, number, node, actor) for node, actor in enumerate(others, 1)]
        if self._agent is not None and self._has_started:
            self._agent.wait()
        await_end(self._folder)
        for output in outputs:
            output.join()
        told = self._folder.read_exit(max(self._folder.attempts(), default=number))
        return NodeEnd(code=-signal.SIGKILL if told is None else told.code)

    def read_output(self, number: int, offset: int) -> OutputChunk:
        """Returns output of the attempt on this node from byte `offset` on. Waits a moment for it."""
        return read_output(lambda: self._folder if self._is_settled else None, number, offset)

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a function in this process, while the attempt runs."""
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

    def _start_once(self, folder: TrialFolder, number: int) -> None:
        self._folder = own = folder.of_node(self._node)
        if self._agent is None or self._has_started or not folder.exists():
            return
        if self._start is None and own.run_info_path(number).exists() and not never_began(own, number):
            return
        try:
            self._start_agent(self._agent, self._start or self._claimed_elsewhere(folder, number))
        except (CoreSDKError, OSError) as error:
            self._problem = str(error)

    def _claimed_elsewhere(self, folder: TrialFolder, number: int) -> AttemptStart:
        order = self._order
        if folder.home_root == order.home_root:
            command = folder.read_command()
        else:
            command = SubmittedExperiment(Home(folder.home_root), order.experiment_id).prepare(folder)
        if command is None:
            raise NothingToResumeError(order.trial_id, "its command was not recorded")
        return claimed_elsewhere(folder, number, command, self._slots(), order.home_root, self._node)

    def _start_agent(self, agent: Agent, start: AttemptStart) -> None:
        """Lets the agent start the command. Raises `CommandError`."""
        order = self._order
        self._has_started = True
        if order.num_nodes > 1:
            # The same on all nodes, also for a later master, and another one in the next attempt.
            port = port_of(f"{order.home_identity}/{order.trial_id}.{start.number}")
            start = replace(start, variables={**start.variables, MEETING_PORT_VARIABLE: str(port)})
        if start.command is not None:
            command = in_runtime_env(
                start.command,
                ray.get_runtime_context().runtime_env,
                python=Path(sys.executable),
                cwd=Path.cwd(),
                has_code=start.folder.of_node(0).code_path.exists(),
            )
            start = replace(start, command=command)
        try:
            # The agent ends with the node, so that an attempt of a dead node cannot be running.
            agent.start(start, ends_with=os.getppid())
        except CoreSDKError:
            start.lock.release()
            raise
        myself = ray.get_runtime_context().current_actor
        threading.Thread(target=self._leave_when_over, args=[myself], daemon=True).start()

    def _leave_when_over(self, myself: Any) -> None:
        """Frees the slots some time after the attempt's end. A master that lives does so at once.

        A later master makes a new actor.
        """
        with contextlib.suppress(FileNotFoundError):  # all of it is at home already
            await_end(self._folder)
        ended_at = time.monotonic()
        while (wait_s := max(ended_at, self._asked_at) + _UNASKED_S - time.monotonic()) > 0:
            time.sleep(wait_s)
        # The slots of all nodes are freed together, when the attempt has ended on the last one.
        while any(self._is_there(node) for node in range(self._node + 1, self._order.num_nodes)):
            time.sleep(_POLL_S)
        group = get_current_placement_group()
        if group is not None and not any(map(self._is_there, range(self._node))):
            remove_placement_group(group)
        ray.kill(myself)

    def _is_there(self, node: int) -> bool:
        return find_actor(self._order.name, node) is not None

    def _slots(self) -> Slots:
        """Returns the slots of this actor. Ray shows it only its own GPUs."""
        num_slots = self._order.num_slots // self._order.num_nodes
        gpus = (visible_gpus() or []) if num_slots else []
        return Slots(tuple(range(num_slots)), tuple(gpus), max(1, num_slots))


def actor_name(name: str, node: int) -> str:
    """Returns the name of the actor on this node of the attempt `name`."""
    return f"{name}/{node}" if node else name


def find_actor(name: str, node: int) -> Any:
    """Returns the actor on this node of the attempt `name`, or None if there is none."""
    try:
        return ray.get_actor(actor_name(name, node))
    except ValueError:
        return None
