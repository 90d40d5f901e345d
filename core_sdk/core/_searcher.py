"""`core_context.searcher`, which says how long to train: what a search wants, or else the configured length."""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from core_sdk._distributed import DistributedContext
from core_sdk._ground.pickling import OfOneProcess
from core_sdk._ground.records import OperationCompleted, to_json
from core_sdk._home import TrialFolder
from core_sdk._home.attempts.operations import PostedOperations, completed_lengths, has_search_ended
from core_sdk._home.journal import Journal
from core_sdk.core._preempt import PreemptContext
from core_sdk.core._train import TrainContext

logger = logging.getLogger("core_sdk.searcher")

_POLL_S = 0.05


class Unit(enum.Enum):
    """The unit in which a length is counted."""

    EPOCHS = "EPOCHS"
    RECORDS = "RECORDS"
    BATCHES = "BATCHES"


class SearcherMode(enum.Enum):
    """The ranks that iterate over the operations."""

    WorkersAskChief = "WORKERS_ASK_CHIEF"
    ChiefOnly = "CHIEF_ONLY"

    @classmethod
    def _missing_(cls, value: object) -> SearcherMode | None:
        # Determined's spelling.
        return cls.ChiefOnly if value == "CHEIF_ONLY" else None


class SearcherOperation:
    """A request to train until `length`, counted from the beginning of the trial, and then to report a metric."""

    def __init__(self, *, length: int, is_chief: bool, train: TrainContext, journal: Journal) -> None:
        self._length = length
        self._is_chief = is_chief
        self._train = train
        self._journal = journal
        self.is_completed = False

    @property
    def length(self) -> int:
        """The length, in the unit of `SearcherContext.get_configured_units()`."""
        return self._length

    def report_progress(self, length: float) -> None:
        """Reports that the training has come to `length`, in the unit of `self.length`.

        Raises `RuntimeError` on ranks other than the chief.
        """
        self._check_chief("report_progress")
        if self.is_completed and length != self._length:
            raise RuntimeError("report_progress() after report_completed()")
        self._train.report_progress(min(max(length / self._length, 0.0), 1.0))

    def report_completed(self, searcher_metric: Any) -> None:
        """Completes the operation with the searcher's metric.

        Raises `RuntimeError` on ranks other than the chief, and the second time.
        """
        self._check_chief("report_completed")
        if self.is_completed:
            raise RuntimeError("report_completed() was called before for this operation")
        metric = to_json(searcher_metric, "searcher_metric")
        self._journal.append(OperationCompleted(time=time.time(), length=self._length, metric=metric))
        self.is_completed = True

    def _check_chief(self, call: str) -> None:
        if not self._is_chief:
            raise RuntimeError(f"only the chief calls {call}()")


class End(enum.Enum):
    """The reason why there are no more operations."""

    CLOSED = "closed"
    STOPPED = "stopped"


class WantedLength(NamedTuple):
    """A length to which the trial is to be trained."""

    length: int
    is_last: bool
    """Whether no more can follow, as far as is known."""


class Operations(Protocol):
    """The lengths that are wanted of a trial, as the chief knows them."""

    def next(self) -> WantedLength | End | None:
        """Returns the next length that is not completed, or `End` if there are no more; None while it is not known."""

    def complete(self, length: int) -> None: ...


class ConfiguredOperation(Operations):
    """The one operation of a trial that no search governs."""

    def __init__(self, length: int | None) -> None:
        if length is None:
            logger.warning("no max_length was given: the one searcher operation has length 1")
        self._wanted = WantedLength(length or 1, is_last=True)

    def next(self) -> WantedLength:
        return self._wanted

    def complete(self, length: int) -> None:
        """Does nothing: there is only one operation."""


class SearchedOperations(Operations):
    """The operations that a search posts step by step, without those that this or an earlier attempt has completed."""

    def __init__(self, folder: TrialFolder, preempt: PreemptContext) -> None:
        self._posted = PostedOperations(folder)
        self._completed = completed_lengths(folder)
        self._has_ended = has_search_ended(folder)
        self._preempt = preempt

    def next(self) -> WantedLength | End | None:
        if self._preempt.is_stop_agreed:
            return End.STOPPED
        self._posted.read()
        is_closed = self._posted.is_closed or self._has_ended
        lengths = [length for length in self._posted.lengths if length not in self._completed]
        if lengths:
            return WantedLength(lengths[0], is_last=is_closed and len(lengths) == 1)
        return End.CLOSED if is_closed else None

    def complete(self, length: int) -> None:
        self._completed.add(length)


class SearcherContext(OfOneProcess):
    """The operations of this trial."""

    def __init__(
        self,
        *,
        distributed: DistributedContext,
        train: TrainContext,
        journal: Journal,
        preempt: PreemptContext,
        folder: TrialFolder,
        max_length: int | Mapping[str, int] | None,
    ) -> None:
        """`max_length` is a length, or a length by its unit: `{"epochs": 20}`."""
        self._distributed = distributed
        self._train = train
        self._journal = journal
        self._preempt = preempt
        self._folder = folder
        self._max_length, self._unit = parse_max_length(max_length)
        self._is_stopped = False

    def operations(
        self, searcher_mode: SearcherMode = SearcherMode.WorkersAskChief, auto_ack: bool = True
    ) -> Iterator[SearcherOperation]:
        """Yields operations until the search wants no more; `RuntimeError` if a finished one was not completed.

        If a search decides step by step how long the trial is trained, this waits for the next length. It ends when
        the search wants no more, and when a stop is asked for: a script that then ends well is paused, and resumed once
        its search wants more of it. With `auto_ack=False` the script calls `acknowledge_out_of_ops()` for that.

        In mode WorkersAskChief the call is collective, and all ranks get the chief's operations. In mode ChiefOnly only
        the chief may call it; other ranks get a `RuntimeError`. Only the chief completes operations.
        """
        is_collective = SearcherMode(searcher_mode) is SearcherMode.WorkersAskChief
        if not is_collective and not self._distributed.is_chief:
            raise RuntimeError("in SearcherMode.ChiefOnly only the chief asks for operations")
        known = self._known() if self._distributed.is_chief else None

        def ask() -> WantedLength | End:
            return _await_next(known) if known is not None else End.CLOSED

        while True:
            # Without a time-out: the chief may have to wait until other trials have come as far.
            found = self._distributed.channel.broadcast_outcome(ask, is_patient=True) if is_collective else ask()
            if isinstance(found, End):
                self._is_stopped = found is End.STOPPED
                if auto_ack:
                    self.acknowledge_out_of_ops()
                return
            operation = SearcherOperation(
                length=found.length, is_chief=self._distributed.is_chief, train=self._train, journal=self._journal
            )
            yield operation
            if known is not None:
                if not operation.is_completed:
                    raise RuntimeError("the operation ended without report_completed()")
                known.complete(found.length)
            if found.is_last:
                return

    def acknowledge_out_of_ops(self) -> None:
        """Acknowledges that the script is going to stop, if a stop has ended `operations()`."""
        if self._is_stopped:
            self._preempt.acknowledge_agreed_stop()

    def has_operations(self) -> bool:
        """Returns whether a search or a configured length says how long to train. Collective."""
        return self._distributed.channel.broadcast_outcome(
            lambda: self._max_length is not None or self._folder.operations_path.exists()
        )

    def get_configured_units(self) -> Unit | None:
        """Returns the unit of lengths; None if `max_length` has none."""
        return self._unit

    def _known(self) -> Operations:
        if self._folder.operations_path.exists():
            return SearchedOperations(self._folder, self._preempt)
        return ConfiguredOperation(self._max_length)


def _await_next(operations: Operations) -> WantedLength | End:
    while (found := operations.next()) is None:
        time.sleep(_POLL_S)
    return found


def parse_max_length(max_length: int | Mapping[str, int] | None) -> tuple[int | None, Unit | None]:
    """Returns the length and its unit.

    Raises `ValueError` or `TypeError` for anything but None, a positive int, or one that is keyed by its unit.
    """
    unit = None
    if isinstance(max_length, Mapping):
        if len(max_length) != 1:
            raise ValueError(f"max_length has {len(max_length)} units; it must have one, such as {{'epochs': 20}}")
        ((name, max_length),) = max_length.items()
        try:
            unit = Unit[str(name).upper()]
        except KeyError:
            raise ValueError(f"max_length counts {name!r}; it can count epochs, records or batches") from None
    if max_length is None:
        return None, unit
    if not isinstance(max_length, int):
        raise TypeError(f"max_length is a {type(max_length).__name__}; it must be an int")
    if max_length < 1:
        raise ValueError(f"max_length is {max_length}; it must be at least 1")
    return max_length, unit
