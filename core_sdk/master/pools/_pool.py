"""The seam: where attempts run, how they begin there, and what becomes of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core_sdk.master.pools._order import AttemptOrder
from core_sdk.records import AttemptOutcome
from core_sdk.tracking.home import TrialFolder


@dataclass(frozen=True)
class Begun:
    """What the journal of events says of an attempt that is about to be started."""

    number: int
    slot_ids: tuple[int, ...]
    boot: str
    """Which start of which machine it is on: an attempt cannot outlive it."""


class Execution(ABC):
    """An attempt that runs. Thread-safe, and nothing here blocks."""

    problem: str = ""
    """Why its command could not be started."""

    @property
    @abstractmethod
    def is_over(self) -> bool: ...

    @property
    @abstractmethod
    def loss(self) -> tuple[AttemptOutcome, str] | None:
        """What it means, and why, that the attempt ended with its machine; None if it did not."""

    @abstractmethod
    def signal(self, number: int) -> None:
        """Signals the command, if that can be done."""

    @abstractmethod
    def kill(self) -> None:
        """Kills the command with all that it has started."""


class Claim(ABC):
    """An attempt that is about to begin. Its slots are kept for it from construction on.

    It becomes whole in another thread: a storage or a cluster that does not answer holds up nothing else.
    """

    folder: TrialFolder
    slot_ids: tuple[int, ...] = ()
    node: str | None = None
    """What `Begun.boot` will be; None if it is not known yet."""
    is_abandoned: bool = False

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether it is whole, or has failed. Until then nobody else can claim the trial."""

    @abstractmethod
    def begun(self) -> Begun:
        """What is to be recorded. Raises what has prevented the attempt."""

    @abstractmethod
    def start(self) -> Execution:
        """Starts the command, once `begun` is recorded."""

    @abstractmethod
    def release(self) -> None:
        """Gives up the trial's lock, where `begun` could not be recorded."""

    @abstractmethod
    def abandon(self) -> None:
        """Takes the attempt back, at once or as soon as it is whole."""


class ResourcePool(ABC):
    """Slots that attempts run on. Only the thread that owns the master's state calls it."""

    problem: str = ""
    """Why nothing can begin or end at the moment; experiments stand still meanwhile."""

    cluster: str = ""
    """The address of the cluster whose slots these are; empty for this machine."""

    largest_node: str
    """For messages."""

    @property
    def is_known(self) -> bool:
        """Whether it is known what slots there are, or why that cannot be known."""
        return True

    def wait_until_known(self) -> None:  # noqa: B027 - a machine is known at once
        """Not for ever. Called in any thread."""

    @abstractmethod
    def sizes(self) -> Sequence[int]:
        """How many slots each node has."""

    @abstractmethod
    def rooms(self) -> Mapping[str, int]:
        """How many slots each node has for attempts of this home, free or not, by what `Begun.boot` is there."""

    @abstractmethod
    def claim(self, order: AttemptOrder, folder: TrialFolder, used: Collection[int]) -> Claim:
        """Begins an attempt on slots that are not `used`."""

    @abstractmethod
    def find_unrecorded(self, folder: TrialFolder, last_attempt: int) -> Begun | None:
        """An attempt after the `last_attempt` of which events tell, if one runs; takes back one that never began."""

    @abstractmethod
    def recover(self, order: AttemptOrder, folder: TrialFolder, begun: Begun) -> Execution | None:
        """An attempt that an earlier master has recorded. None if it never began, and is taken back."""

    def host_of(self, boot: str) -> str:
        """The node of the cluster that has this start, by name; empty for this machine."""
        return ""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Its slots as JSON values, for those who list them."""

    @abstractmethod
    def close(self) -> None:
        """Attempts go on."""
