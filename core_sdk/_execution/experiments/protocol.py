"""The requests to a master and its answers, each a line of JSON. `calling` and the master's server send the lines.

{"protocol": 1, "version": "0.1.0", "do": "want", "experiment_id": 3, "state": "PAUSED", "by": "…"}
{"ok": true, …}    {"ok": false, "error": "…", "is_refused": false}
"""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from core_sdk._ground.records import Wish
from core_sdk._ground.version import __version__

PROTOCOL = 1
"""The number of these forms. A master answers only requests that have its own."""


class Sender(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a request that a master of any version understands."""

    protocol: int = PROTOCOL
    version: str = __version__


class MasterAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request that needs no other."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The part of each answer that says whether the request was carried out."""

    ok: bool
    error: str = ""
    is_refused: bool = False
    """Whether another attempt would be answered in the same way."""


class StateAnswer(MasterAnswer, frozen=True, kw_only=True):
    state: str


class PostAnswer(StateAnswer, frozen=True, kw_only=True):
    num_events: int
    """The number of events that have been answered."""


class RunningTrial(msgspec.Struct, frozen=True):
    trial_id: int
    slots: tuple[int, ...]
    nodes: tuple[str, ...] = ()
    """The nodes of a Ray cluster, on which it has its slots evenly; none for this machine."""


class ExperimentStatus(msgspec.Struct, frozen=True):
    """An experiment that has not ended."""

    experiment_id: int
    state: str
    priority: int
    """Smaller numbers are served first."""
    max_slots: int | None
    """The largest number of slots at a time; None: as many as are free."""
    suspended: str = ""
    """The reason why it stands still although it is active; else empty."""
    waiting: int = 0
    """The number of trials that wait for slots."""
    cluster: str = ""
    """The address of the Ray cluster, or `slurm`; empty for this machine."""
    running: tuple[RunningTrial, ...] = ()
    since: float | None = None
    """The time since which the first of the waiting trials waits, in seconds since the epoch."""
    place: float = 0.0
    """Its place among experiments of the same priority; smaller ones are served first."""
    why: str = ""
    """The reason for which that one waits, if nothing keeps the experiment from going on (`suspended`)."""


class NodeStatus(msgspec.Struct, frozen=True):
    node: str
    num_slots: int
    device: str


class ClusterStatus(msgspec.Struct, frozen=True):
    """A cluster of Ray that experiments use, or Slurm."""

    address: str
    """The address of the Ray cluster; `slurm` for Slurm, whose nodes are not listed."""
    problem: str = ""
    """The reason why it cannot be used just now; else empty."""
    nodes: tuple[NodeStatus, ...] = ()


class HomeStatus(MasterAnswer, frozen=True, kw_only=True):
    """The slots and experiments of a home, as a master or its journals tell them."""

    num_slots: int
    gpus: tuple[str, ...]
    """CUDA's name of each slot's GPU; empty if the slots are places on the CPU."""
    clusters: tuple[ClusterStatus, ...] = ()
    experiments: tuple[ExperimentStatus, ...] = ()


class MasterStatus(HomeStatus, frozen=True, kw_only=True):
    version: str
    pid: int
    """The master's process."""


A_co = TypeVar("A_co", bound=MasterAnswer, covariant=True)


class MasterRequest(Sender, Generic[A_co], frozen=True, kw_only=True, tag_field="do"):
    answer_type: ClassVar[type[MasterAnswer]] = MasterAnswer


class Submit(MasterRequest[StateAnswer], frozen=True, kw_only=True, tag="submit"):
    """Begins an experiment whose records are complete. Does nothing if it has begun."""

    answer_type = StateAnswer
    experiment_id: int
    is_paused: bool = False


class Want(MasterRequest[StateAnswer], frozen=True, kw_only=True, tag="want"):
    """Pauses, activates, cancels or kills an experiment."""

    answer_type = StateAnswer
    experiment_id: int
    state: Wish
    by: str = ""


class Continue(MasterRequest[StateAnswer], frozen=True, kw_only=True, tag="continue"):
    """Lets an experiment that has ended go on."""

    answer_type = StateAnswer
    experiment_id: int
    by: str = ""


class ChangeSettings(MasterRequest[MasterAnswer], frozen=True, kw_only=True, tag="change"):
    """Changes how an experiment gets slots. What is None is left unchanged."""

    experiment_id: int
    priority: int | None = None
    max_slots: int | None = None


class Move(MasterRequest[MasterAnswer], frozen=True, kw_only=True, tag="move"):
    """Gives an experiment the priority of another one, and the place directly before or behind it."""

    experiment_id: int
    other_id: int
    is_behind: bool = False


class KillTrial(MasterRequest[MasterAnswer], frozen=True, kw_only=True, tag="kill_trial"):
    experiment_id: int
    trial_id: int
    by: str = ""


class Post(MasterRequest[PostAnswer], frozen=True, kw_only=True, tag="post"):
    """Posts the operations of a search method outside of the master."""

    answer_type = PostAnswer
    experiment_id: int
    num_events: int
    """The number of events that the method has answered with this post and earlier ones."""
    operations: list[dict[str, Any]]


class GetStatus(MasterRequest[MasterStatus], frozen=True, kw_only=True, tag="status"):
    answer_type = MasterStatus


class Down(MasterRequest[MasterAnswer], frozen=True, kw_only=True, tag="down"):
    """Ends the master."""


AnyRequest = Submit | Want | Continue | ChangeSettings | Move | KillTrial | Post | GetStatus | Down
