"""The interface of resource pools, on which attempts begin and run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from core_sdk._execution.experiments.attempt_order import AttemptOrder
from core_sdk._execution.experiments.submitted import SubmittedExperiment
from core_sdk._execution.master._queue import Decisions, Demand
from core_sdk._ground.config import Resources
from core_sdk._ground.records import AttemptOutcome
from core_sdk._home.attempts.running import never_began, take_back
from core_sdk._home.folders import TrialFolder


@dataclass(frozen=True)
class Begun:
    """The entry in the journal of events for an attempt that is about to be started."""

    number: int
    slot_ids: tuple[int, ...]
    boot: str
    """The id of the boot of its machine, or of its nodes in a cluster, by `join_nodes`. It cannot outlive any."""


def join_nodes(node_ids: Iterable[str]) -> str:
    """Returns the `Begun.boot` of an attempt on these nodes."""
    return ",".join(node_ids)


def split_nodes(boot: str) -> tuple[str, ...]:
    """Returns the nodes of an attempt by its `Begun.boot`."""
    return tuple(boot.split(","))


def too_many_slots(submission: SubmittedExperiment) -> str:
    """Returns the beginning of the words that refuse an experiment which wants too many slots."""
    num_slots = submission.config.resources.slots_per_trial
    return f"experiment {submission.experiment_id} wants {num_slots} slots for each trial (resources.slots_per_trial)"


def newest_supervised(folder: TrialFolder) -> int:
    """Returns the newest attempt that a process has claimed; 0 if there is none."""
    return max((each for each in folder.attempts() if folder.supervised_path(each).exists()), default=0)


def take_back_unbegun(folder: TrialFolder, number: int) -> bool:
    """Takes the attempt back if it never began. Returns whether it did so."""
    if not never_began(folder, number):
        return False
    take_back(folder, number)
    return True


def unrecorded_attempt(folder: TrialFolder, last_attempt: int) -> int:
    """Returns the attempt that has begun after the recorded `last_attempt`, or 0. Takes back one that never began."""
    number = newest_supervised(folder)
    if number == 0 or take_back_unbegun(folder, number):
        return 0
    return number if number > last_attempt else 0


@dataclass(frozen=True)
class SlotsTaken:
    """The answer that no slots can be reserved for an attempt now."""

    by: str = ""
    """The words of who has them; empty if it is this home."""


class Execution(ABC):
    """An attempt that runs. Its methods are thread-safe, and do not block."""

    problem: str = ""
    """The reason for which its command could not be started; empty if it was."""

    @property
    @abstractmethod
    def is_over(self) -> bool: ...

    @property
    def notice(self) -> str:
        """The announced end of its machine or of a node, in words that are a reason to stop; empty without one."""
        return ""

    @property
    @abstractmethod
    def loss(self) -> tuple[AttemptOutcome, str] | None:
        """The outcome and the reason if the attempt ended with its machine; None if it did not."""

    @property
    def lost_node(self) -> str:
        """The death of one of its nodes, in words; empty if none has died. What other nodes tell follows from that."""
        return ""

    @abstractmethod
    def signal(self, number: int) -> None:
        """Sends a signal to the command, if that is possible."""

    @abstractmethod
    def kill(self) -> None:
        """Kills the command and all processes that it has started."""


class Claim(ABC):
    """An attempt that is about to begin. Its slots are reserved for it from construction on.

    It is completed in another thread, so that a storage or a cluster that does not answer delays nothing else.
    """

    folder: TrialFolder
    slot_ids: tuple[int, ...] = ()
    node: str | None = None
    """The future value of `Begun.boot`; None if it is not known yet."""
    is_abandoned: bool = False

    @property
    def wait(self) -> str:
        """The reason for which it does not begin yet; empty if it begins as soon as it can."""
        return ""

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether the claim is complete or has failed. Until then nobody else can claim the trial."""

    @abstractmethod
    def begun(self) -> Begun:
        """Returns what must be recorded of the attempt. Raises the error that has prevented it."""

    @abstractmethod
    def start(self) -> Execution:
        """Starts the command. The result of `begun` must have been recorded."""

    @abstractmethod
    def release(self) -> None:
        """Releases the trial's lock after `begun` could not be recorded."""

    def abandon(self) -> None:
        """Takes the attempt back, at once or as soon as the claim is complete. Does nothing the second time."""
        if not self.is_abandoned:
            self.is_abandoned = True
            self._take_back()

    @abstractmethod
    def _take_back(self) -> None: ...

    def leave(self) -> None:
        """Leaves the attempt to the next master, which claims it again; takes it back if it cannot wait for that."""
        self.abandon()


MakeClaim = Callable[[AttemptOrder], Claim]
"""Begins an attempt on slots that were reserved."""


class ResourcePool(ABC):
    """The slots that attempts run on. Only the thread of the master's `run` uses it, unless a method says otherwise."""

    problem: str = ""
    """The reason for which nothing can begin or end now, while experiments stand still; empty if all is well."""

    cluster: str = ""
    """The address of the cluster whose slots these are; empty for this machine."""

    def num_nodes(self, resources: Resources) -> int:
        """Returns over how many nodes the slots of each trial with these resources are divided evenly."""
        return 1

    def usable_nodes(self, resources: Resources) -> Collection[str] | None:
        """Returns the nodes on which trials with these resources can run; None for all."""
        return None

    @abstractmethod
    def rooms(self) -> Mapping[str, int]:
        """Returns the number of slots for attempts of this home on each node, free or not, by `Begun.boot`."""

    @abstractmethod
    def refusal(self, submission: SubmittedExperiment) -> str | None:
        """Returns the reason for which no trial of the experiment can ever begin here, or an empty text.

        Returns None if it is not known yet.
        """

    @abstractmethod
    def heed(self, demands: Sequence[Demand], decisions: Decisions) -> None:
        """Tells the pool at each look what the experiments of this home want, and what was decided about it."""

    @abstractmethod
    def reserve(self, num_slots: int, used: Collection[int], *, is_blocked: bool) -> MakeClaim | SlotsTaken:
        """Reserves slots that are not `used` for an attempt.

        A home waits with one attempt at a time; `is_blocked` tells that none of its slots are free for it.
        """

    @abstractmethod
    def find_unrecorded(self, folder: TrialFolder, last_attempt: int) -> Begun | None:
        """Returns a running attempt after the recorded `last_attempt`, or None. Takes back one that never began."""

    @abstractmethod
    def recover(self, order: AttemptOrder, begun: Begun) -> Execution | None:
        """Returns an attempt that an earlier master has recorded. Takes it back and returns None if it never began."""

    def host_of(self, boot: str) -> str:
        """Returns the name of the cluster's node with this `Begun.boot`; empty for this machine."""
        return ""

    @abstractmethod
    def close(self) -> None:
        """Stops using the slots. Attempts go on."""
