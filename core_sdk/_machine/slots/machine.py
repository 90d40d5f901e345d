"""The slots of this machine, GPUs or places on its CPU, and those that one attempt has."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence

import msgspec

from core_sdk._ground.environment import num_cpus, visible_gpus
from core_sdk._machine.slots._gpus import gpus_here, slots_named
from core_sdk._machine.slots.directory import SlotDirectory, Ticket


class Slots(msgspec.Struct, frozen=True):
    """The slots that an attempt may use."""

    ids: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    """CUDA's names (indices or UUIDs) of the GPUs that the slots are; empty for places on the CPU."""
    num_threads: int = 1
    """The number of threads that one place on the CPU is worth."""
    ticket: Ticket | None = None
    """The ticket that keeps the slots from others; None for slots that somebody else, such as Ray, has given."""
    asked: float | None = None
    """The time since which the attempt has waited for them, in seconds since the Unix epoch, if that is known."""

    @property
    def variables(self) -> dict[str, str]:
        """The variables that hide the GPUs of other attempts. An attempt without a GPU sees none."""
        return {"CUDA_VISIBLE_DEVICES": ",".join(self.gpus)}

    @property
    def default_variables(self) -> dict[str, str]:
        """The variables that are set only if the user has not set them."""
        return {} if self.gpus else {"OMP_NUM_THREADS": str(self.num_threads)}


class Machine(msgspec.Struct, frozen=True):
    """The slots of this machine that trials run on, numbered from 0."""

    num_slots: int
    gpus: tuple[str, ...] = ()
    """CUDA's name of each slot's GPU, its UUID if known; empty if the slots are places on the CPU."""
    filled: Callable[[], Collection[str]] = frozenset
    """Returns the GPUs that programs fill. Those of them that nobody has as a slot are left alone."""

    @classmethod
    def here(cls, num_places: int | None = None, *, avoids_busy: bool = False) -> Machine:
        """Returns `num_places` on the CPU if given, else all GPUs that this process may use, else a place per CPU.

        Raises `SlotError`, and `MissingDependencyError` if busy GPUs cannot be told from others.
        """
        if num_places is not None:
            return cls(num_places)
        named = visible_gpus()
        gpus = [slot for gpu in gpus_here() for slot in gpu.slots] if named is None else slots_named(named, gpus_here)
        if not (gpus and avoids_busy):
            return cls(len(gpus) or num_cpus(), tuple(gpus))
        from core_sdk._machine.slots.busy import busy_gpus  # NVML, which few need

        return cls(len(gpus), tuple(gpus), busy_gpus)

    @property
    def names(self) -> Sequence[str]:
        """The names of the slots, by which all users of the machine know them."""
        return self.gpus or [f"cpu-{slot}" for slot in range(self.num_slots)]

    def usable(self, used: Collection[int] = ()) -> list[str]:
        """Returns the names of the slots that are not `used`, and that no program without a slot fills."""
        if busy := set(self.filled()):
            with contextlib.suppress(BlockingIOError):  # somebody posts a ticket just now
                busy -= {name for ticket in SlotDirectory().read() for name in ticket.held}
        return [name for slot, name in enumerate(self.names) if slot not in used and name not in busy]

    def slots(self, ids: Sequence[int], ticket: Ticket | None = None) -> Slots:
        gpus = tuple(self.gpus[slot] for slot in ids) if self.gpus else ()
        return Slots(tuple(ids), gpus, max(1, len(ids) * num_cpus() // max(1, self.num_slots)), ticket)

    def held(self, ticket: Ticket) -> Slots:
        """Returns the slots that the ticket has taken, which are of this machine."""
        numbers = {name: slot for slot, name in enumerate(self.names)}
        return self.slots([numbers[name] for name in ticket.held], ticket)
