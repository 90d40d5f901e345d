"""A group of ranks around its chief: what the chief and the members have in common."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import traceback
import weakref
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Never, TypeVar

from core_sdk.distributed._channel import Channel, Listener
from core_sdk.distributed._topology import RankIdentity
from core_sdk.distributed.calls._call_site import CallSites, describe
from core_sdk.distributed.calls._control_thread import ControlThread
from core_sdk.distributed.calls._group_state import GroupState
from core_sdk.distributed.transport._connection import Connection
from core_sdk.distributed.transport._encoding import Content, Contribution, Decoded, Failure, decode, names_in, release
from core_sdk.distributed.transport._frames import MAX_PAYLOAD_BYTES, Frame, Operation
from core_sdk.distributed.transport._memory_file import MemoryFiles
from core_sdk.distributed.transport._messages import (
    Died,
    Fault,
    Interrupted,
    Left,
    Message,
    Mismatch,
    Notice,
    Status,
)
from core_sdk.errors import (
    ChannelClosedError,
    ChannelError,
    MessageTooLargeError,
    RankFailedError,
    UnreadableObjectError,
)

logger = logging.getLogger("core_sdk.distributed")
T = TypeVar("T")

# A host that is cut off must not keep the others longer than its loss already has.
_CLOSE_TIMEOUT_S = 5.0
NOTHING = Contribution(False, b"")
# A busy host may take its time to read it, and a network that loses packets to bring it.
_NEWS_TIMEOUT_S = 5.0


class Call(NamedTuple):
    """One collective, as one rank makes it."""

    operation: Operation
    number: int
    """From 1, over all calls of the group."""
    site: bytes
    is_patient: bool = False
    """It goes on past its time-out."""

    def __str__(self) -> str:
        return f"{self.operation.name.lower()} (its call {self.number}, at {describe(self.site)})"

    def is_met_by(self, frame: Frame) -> bool:
        """Whether the frame belongs to the same call of another rank, from whichever line that makes it."""
        return frame.operation == self.operation and frame.sequence == self.number


class StarChannel(Channel):
    """The chief has two connections to every member: one for the collectives, one for all else."""

    def __init__(self, identity: RankIdentity, ranks: Sequence[RankIdentity], timeout_s: float) -> None:
        self.rank = identity.rank
        self.size = len(ranks)
        self.ranks = tuple(ranks)
        self.timeout_s = timeout_s
        self._state = GroupState([each.known_as for each in self.ranks])
        self._sites = CallSites()
        # Reentrant: a signal handler may close the group in the middle of a call.
        self._calling = threading.RLock()
        self._is_inherited = False
        self._num_calls = 0
        self._call: Call | None = None
        self._is_inside = False
        self._has_left = False
        self._is_closed = False
        self._listeners: dict[str, Listener] = {}
        self._unheard: list[Notice] = []
        self._files = MemoryFiles()
        for connection in self._data_connections():
            connection.exchange_files(self._files)
        self._has_files = any(connection.has_files() for connection in self._data_connections())
        self._control = self._open_control()
        _close_in_child(self)

    @abstractmethod
    def _open_control(self) -> ControlThread:
        """Not yet started."""

    @abstractmethod
    def _data_connections(self) -> Sequence[Connection]: ...

    @abstractmethod
    def _exchange(self, call: Call, contribution: Contribution) -> Contribution | Sequence[Content | Decoded]:
        """A failure, or the other ranks' contents as `Operation` says; raises a `ChannelError`."""

    @abstractmethod
    def _tell_others(self, message: Message) -> None:
        """Of the whole group."""

    def gather(self, value: T) -> list[T] | None:
        if self.rank == 0:
            # Its own value goes nowhere.
            return self._values(self._make(Operation.GATHER, None), value)
        self._make(Operation.GATHER, lambda: value)
        return None

    def allgather(self, value: T) -> list[T]:
        return self._values(self._make(Operation.ALLGATHER, lambda: value), value)

    def broadcast(self, value: T) -> T:
        if self.rank == 0:
            self._make(Operation.BROADCAST, lambda: value)
            return value
        (content,) = self._make(Operation.BROADCAST, None)
        return self._read(0, content)  # type: ignore[no-any-return]

    def allgather_outcome(self, compute: Callable[[], T], *, is_patient: bool = False) -> list[T]:
        values: list[T] = []

        def compute_once() -> T:
            values.append(compute())
            return values[0]

        contents = self._make(Operation.ALLGATHER, compute_once, is_patient)
        return self._values(contents, values[0])

    def broadcast_outcome(self, compute: Callable[[], T], *, is_patient: bool = False) -> T:
        values: list[T] = []

        def compute_once() -> T:
            values.append(compute())
            return values[0]

        if self.rank == 0:
            self._make(Operation.BROADCAST, compute_once, is_patient)
            return values[0]
        (content,) = self._make(Operation.BROADCAST, None, is_patient)
        return self._read(0, content)  # type: ignore[no-any-return]

    def listen(self, topic: str, listener: Listener) -> None:
        def register() -> None:
            self._listeners[topic] = listener
            waiting, self._unheard = self._unheard, []
            for notice in waiting:
                self._hear_notice(notice)

        self._control.call(register)

    def check(self) -> None:
        if not self._is_closed and not self._state.is_quiet():
            self._state.check(self._num_calls, "this call")

    def close(self, error: BaseException | None = None) -> None:
        if self._is_closed or self._is_inherited:
            return
        self._is_closed = True
        self.leave(error)
        self._state.report_closed()
        self._finish_sending()
        self._control.stop(_CLOSE_TIMEOUT_S)
        self._close_if_unused()

    def leave(self, error: BaseException | None = None) -> None:
        if self._has_left:
            return
        self._has_left = True
        failure = Failure(self.rank, "") if error is None else Failure.of(self.rank, error)
        num_calls = self._num_calls - self._is_inside
        self._tell_others(Left(self.rank, num_calls, failure.error_text, failure.traceback_text))

    def _finish_sending(self) -> None:
        """Nothing that was sent gets lost."""

    def _close_if_unused(self) -> None:
        """A call that is going on, in another thread or under a signal handler that closes, closes at its end."""
        if not self._is_closed or not self._calling.acquire(blocking=False):
            return
        try:
            if not self._is_inside:
                self._close_descriptors()
        finally:
            self._calling.release()

    def _close_descriptors(self) -> None:
        for connection in self._data_connections():
            connection.end_sending()
            connection.close()
        self._state.close()

    def _values(self, contents: Sequence[Content | Decoded], own_value: Any) -> list[Any]:
        return [own_value if rank == self.rank else self._read(rank, content) for rank, content in enumerate(contents)]

    def _read(self, sender: int, content: Content | Decoded) -> Any:
        """Raises `UnreadableObjectError`."""
        if isinstance(content, Decoded):
            return content.value
        try:
            return self._decoded(sender, content)
        finally:
            release(content)

    def _decoded(self, sender: int, content: Content) -> Any:
        try:
            return decode(content)
        except Exception as error:
            text = "".join(traceback.format_exception_only(error)).strip()
            reader, known_sender = (self.ranks[rank].known_as for rank in (self.rank, sender))
            raise UnreadableObjectError(known_sender, reader, names_in(content), text) from error

    def _make(
        self, operation: Operation, compute: Callable[[], object] | None, is_patient: bool = False
    ) -> Sequence[Content | Decoded]:
        """Makes a call of the group with what `compute` returns, or raises; nothing at all if it is None."""
        site = self._sites.current_call_site()
        if self._is_inherited or self._has_left:
            raise ChannelClosedError(operation.name.lower(), is_forked=self._is_inherited)
        contribution, own_error = self._contribution(compute)
        if not self._calling.acquire(blocking=False):
            self._refuse_thread(Call(operation, self._num_calls, site))
        try:
            call = Call(operation, self._num_calls + 1, site, is_patient)
            outcome = self._begin(call, contribution)
        except ChannelError:
            if own_error is None:
                raise
            outcome = contribution
        finally:
            self._calling.release()
            release(contribution.content)
            if self._is_closed:
                self._close_if_unused()
        if own_error is not None:
            raise own_error
        if isinstance(outcome, Contribution):
            failure = outcome.failure()
            raise RankFailedError(self.ranks[failure.rank].known_as, failure.error_text, failure.traceback_text)
        return outcome

    def _contribution(self, compute: Callable[[], object] | None) -> tuple[Contribution, BaseException | None]:
        if compute is None:
            return NOTHING, None
        try:
            contribution = Contribution.of_value(compute(), self._files if self._has_files else None)
            if len(contribution.content) > MAX_PAYLOAD_BYTES:
                raise MessageTooLargeError(len(contribution.content), MAX_PAYLOAD_BYTES)
            return contribution, None
        except BaseException as error:  # noqa: BLE001 - raised again, once the others know of it
            return Contribution.of_error(self.rank, error), error

    def _refuse_thread(self, call: Call) -> Never:
        """On other ranks it may have been the other thread that came first: their results would be exchanged."""
        if self._is_closed:
            raise ChannelClosedError(str(call), is_forked=False)
        error = RuntimeError(
            f"two threads call at once on one DistributedContext: {threading.current_thread().name} called "
            f"{call.operation.name.lower()} at {describe(call.site)} while another one was in {self._call}. Ranks may "
            "differ in which comes first: make all calls from one thread, or give each a DistributedContext of its own."
        )
        failure = Failure.of(self.rank, error)
        self._break(Interrupted(self.rank, failure.error_text, failure.traceback_text))
        raise error

    def _begin(self, call: Call, contribution: Contribution) -> Contribution | Sequence[Content | Decoded]:
        if not self._state.is_quiet():
            self._state.check(call.number, str(call))
        if self._is_inside:
            raise RuntimeError(f"{call} is inside {self._call}: a signal handler makes no calls")
        self._num_calls = call.number
        self._call = call
        self._is_inside = True
        try:
            return self._exchange(call, contribution)
        except ChannelError:
            raise
        except BaseException as error:
            # Whatever comes next on this rank would be out of step.
            failure = Failure.of(self.rank, error)
            self._break(Interrupted(self.rank, failure.error_text, failure.traceback_text))
            raise
        finally:
            self._is_inside = False

    def _break(self, fault: Fault) -> None:
        """Ends the group, on all ranks."""
        if self._state.report(fault):
            self._tell_others(fault)

    def _status(self, serial: int) -> Status:
        call = "" if self._call is None else str(self._call)
        return Status(serial, self.rank, self._num_calls, call, self._is_inside)

    def _hear_notice(self, notice: Notice) -> None:
        listener = self._listeners.get(notice.topic)
        if listener is None:
            self._unheard.append(notice)
            return
        try:
            listener(notice.rank, notice.content)
        except Exception:
            # The thread must live: deaths and other notices come through it. Who waits for this one has a time-out.
            logger.exception("a notice about %r could not be handled", notice.topic)

    def _lose(self, rank: int, call: Call) -> None:
        """Raises why the connection to this rank has ended."""
        self._await_news(rank)
        self._state.check(call.number, str(call))
        self._state.check_presence(rank, str(call))
        self._break(Died(rank, self.ranks[rank].process))
        self._state.check(call.number, str(call))

    def _await_news(self, rank: int) -> None:
        """Why a connection has ended is told on the other one, at about the same time."""
        deadline = time.monotonic() + _NEWS_TIMEOUT_S
        while not self._state.knows(rank) and time.monotonic() < deadline:
            time.sleep(0.005)

    def _close_inherited(self) -> None:
        self._is_inherited = True
        self._control.close_inherited()
        for connection in self._data_connections():
            connection.close()
        self._files.close_inherited()
        self._state.close_inherited()


def mismatch(first_rank: int, first: Call, second_rank: int, second: Call) -> Mismatch:
    return Mismatch(first_rank, str(first), second_rank, str(second))


def milliseconds_until(deadline: float) -> float:
    """At most what `poll` takes, eleven days: a deadline may be infinitely far."""
    return min(max(0.0, 1000 * (deadline - time.monotonic())), 1e9)


def _close_in_child(channel: StarChannel) -> None:
    """A forked data-loader worker that kept our connections open would hide our death from the others."""
    reference = weakref.ref(channel)

    def after_in_child() -> None:
        if (inherited := reference()) is not None:
            with contextlib.suppress(OSError):
                inherited._close_inherited()

    os.register_at_fork(after_in_child=after_in_child)
