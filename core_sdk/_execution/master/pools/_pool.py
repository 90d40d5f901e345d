"""The interface of resource pools, on which attempts begin and run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from core_sdk._execution.experiments.attempt_order import AttemptOrder
from core_sdk._execution.experiments.submitted import SubmittedExperiment
from core_sdk._ground.config import Resources
from core_sdk._ground.records import AttemptOutcome
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

    @abstractmethod
    def abandon(self) -> None:
        """Takes the attempt back, at once or as soon as the claim is complete."""

    def leave(self) -> None:
        """Leaves the attempt to the next master, which claims it again; takes it back if it cannot wait for that."""
        self.abandon()


class ResourcePool(ABC):
    """The slots that attempts run on. Only the thread of the master's `run` uses it, unless a method says otherwise."""

    problem: str = ""
    """The reason for which nothing can begin or end now, while experiments stand still; empty if all is well."""

    cluster: str = ""
    """The address of the cluster whose slots these are; empty for this machine."""

    wait: str = ""
    """The words of who has the slots for which `may_begin` makes a trial wait; empty if it is this home."""

    @property
    def is_known(self) -> bool:
        """Whether it is known which slots there are, or why they cannot be known."""
        return True

    def wait_until_known(self) -> None:  # noqa: B027 - a machine is known at once
        """Blocks until `is_known`, or until a time limit. Can be called in any thread."""

    def num_nodes(self, resources: Resources) -> int:
        """Returns over how many nodes the slots of each trial with these resources are divided evenly."""
        return 1

    def usable_nodes(self, resources: Resources) -> Collection[str] | None:
        """Returns the nodes on which trials with these resources can run; None for all."""
        return None

    def await_slots(self, waiting: Sequence[tuple[Resources, int]]) -> None:  # noqa: B027 - only a cluster can grow
        """Is told which resources trials wait for, and how many trials: each time anew, also when none waits."""

    @abstractmethod
    def rooms(self) -> Mapping[str, int]:
        """Returns the number of slots for attempts of this home on each node, free or not, by `Begun.boot`."""

    @abstractmethod
    def refusal(self, submission: SubmittedExperiment) -> str | None:
        """Returns the reason for which no trial of the experiment can ever begin here, or an empty text.

        Returns None if it is not known yet.
        """

    def foreign(self, used: Collection[int]) -> Mapping[str, int]:
        """Returns how many slots of `rooms` others have on each node. `used` are those of this home."""
        return {}

    def may_begin(self, num_slots: int, used: Collection[int], *, is_blocked: bool) -> bool:
        """Returns whether an attempt can be claimed now, on slots that are not `used`.

        A home waits with one attempt at a time; `is_blocked` tells that none of its slots are free for it.
        """
        return not is_blocked

    def leave_line(self) -> None:  # noqa: B027 - a cluster has no line
        """Gives up the home's place in the line for slots, since no trial of it waits."""

    def take_over(self, slots: Collection[int]) -> None:  # noqa: B027
        """Lets the home wait in the place of a trial of it that has these slots, and is stopped for another."""

    def prioritize(self, levels: Mapping[int, int]) -> None:  # noqa: B027 - a pool without a queue of its own
        """Tells the order of the experiments to a queue that is not this home's. Those of level 0 come first."""

    @abstractmethod
    def claim(self, order: AttemptOrder, folder: TrialFolder, used: Collection[int]) -> Claim:
        """Begins an attempt on slots that are not `used`."""

    @abstractmethod
    def find_unrecorded(self, folder: TrialFolder, last_attempt: int) -> Begun | None:
        """Returns a running attempt after the recorded `last_attempt`, or None. Takes back one that never began."""

    @abstractmethod
    def recover(self, order: AttemptOrder, folder: TrialFolder, begun: Begun) -> Execution | None:
        """Returns an attempt that an earlier master has recorded. Takes it back and returns None if it never began."""

    def host_of(self, boot: str) -> str:
        """Returns the name of the cluster's node with this `Begun.boot`; empty for this machine."""
        return ""

    @abstractmethod
    def close(self) -> None:
        """Stops using the slots. Attempts go on."""
