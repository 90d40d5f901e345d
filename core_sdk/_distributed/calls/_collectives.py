"""The part of the collective calls that the chief and the members of a group have in common."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import time
import traceback
import weakref
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Never, TypeVar

from core_sdk._distributed._channel import Channel, Listener
from core_sdk._distributed._topology import RankIdentity
from core_sdk._distributed.calls._call_site import CallSites, CollectiveCall, describe
from core_sdk._distributed.calls._control_thread import ControlThread
from core_sdk._distributed.calls._group_state import GroupState, closed
from core_sdk._distributed.calls._late_ranks import StatusSurvey
from core_sdk._distributed.transport._connection import Peer
from core_sdk._distributed.transport._encoding import Buffer, Contribution, Decoded, decode
from core_sdk._distributed.transport._failure import RankFailure
from core_sdk._distributed.transport._frame_memory import FrameMemory
from core_sdk._distributed.transport._frames import MAX_PAYLOAD_BYTES, CollectiveOperation
from core_sdk._distributed.transport._messages import (
    Died,
    Fault,
    Left,
    Message,
    Mismatch,
    Notice,
    Status,
    StatusRequest,
    TimedOut,
)
from core_sdk.errors import (
    ChannelError,
    RankFailedError,
)

logger = logging.getLogger("core_sdk.distributed")
T = TypeVar("T")
Contents = Sequence[Buffer | Decoded]

CHIEF = 0
NOTHING = Contribution(False, b"")
# A host that is cut off must not delay the exit of the others for longer.
_CLOSE_TIMEOUT_S = 5.0
# Longer than a message takes to a busy host, through a network that loses packets.
_NEWS_TIMEOUT_S = 5.0
_SURVEY_S = 2.0


class StarChannel(Channel):
    """A rank of a group in which the chief has two connections to every member: for collectives, and for the rest."""

    def __init__(
        self, identity: RankIdentity, ranks: Sequence[RankIdentity], peers: Sequence[Peer], timeout_s: float
    ) -> None:
        """`peers` are the ranks to which this one has connections. The subclass starts the control thread."""
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
        self._call: CollectiveCall | None = None
        self._is_inside = False
        self._has_left = False
        self._is_closed = False
        self._listeners: dict[str, Listener] = {}
        self._unheard: list[Notice] = []
        self._survey_serials = itertools.count(1)
        self._survey = StatusSurvey(0, 0)
        self._connections = [peer.data for peer in peers]
        frame_memory = FrameMemory()
        for connection in self._connections:
            connection.frame_memory = frame_memory
        self._control = ControlThread(
            {peer.identity.rank: peer.control for peer in peers}, on_message=self._on_message, on_end=self._on_end
        )
        _close_in_child(self)

    @abstractmethod
    def _exchange(self, call: CollectiveCall, contribution: Contribution) -> Contribution | Contents:
        """Exchanges the contributions to a call. Returns a failure, or the contents that this rank receives.

        Raises a `ChannelError`.
        """

    @abstractmethod
    def _relay(self, message: Message, sender: int) -> None:
        """Passes a message on from the chief to all members but the sender. Does nothing on a member."""

    def gather(self, value: T) -> list[T] | None:
        if self.rank == CHIEF:
            # The chief's own value is not sent, and need not be pickled.
            return self._values(self._make(CollectiveOperation.GATHER, None)[1], value)
        self._make(CollectiveOperation.GATHER, lambda: value)
        return None

    def allgather(self, value: T) -> list[T]:
        return self.allgather_outcome(lambda: value)

    def broadcast(self, value: T) -> T:
        return self.broadcast_outcome(lambda: value)

    def allgather_outcome(self, compute: Callable[[], T], *, is_patient: bool = False) -> list[T]:
        own_value, contents = self._make(CollectiveOperation.ALLGATHER, compute, is_patient)
        return self._values(contents, own_value)

    def broadcast_outcome(self, compute: Callable[[], T], *, is_patient: bool = False) -> T:
        if self.rank == CHIEF:
            value: T = self._make(CollectiveOperation.BROADCAST, compute, is_patient)[0]
            return value
        _, (content,) = self._make(CollectiveOperation.BROADCAST, None, is_patient)
        return self._read(CHIEF, content)  # type: ignore[no-any-return]

    def listen(self, topic: str, listener: Listener) -> None:
        def register() -> None:
            self._listeners[topic] = listener
            waiting, self._unheard = self._unheard, []
            for notice in waiting:
                self._hear_notice(notice)

        self._control.call(register)

    def tell_chief(self, topic: str, content: bytes) -> None:
        notice = Notice(topic, self.rank, content)
        if self.rank == CHIEF:
            self._control.call(lambda: self._hear_notice(notice))
        else:
            self._control.post(CHIEF, notice)

    def tell_all(self, topic: str, content: bytes) -> None:
        if self.rank != CHIEF:
            raise RuntimeError(f"rank {self.rank} is not the chief: only the chief tells all")
        self._control.post_to_all(Notice(topic, CHIEF, content))
        self.tell_chief(topic, content)

    def has_chief(self) -> bool:
        return self.rank == CHIEF or not self._state.knows(CHIEF)

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
        failure = None if error is None else RankFailure.of(self.rank, error)
        self._control.post_to_all(Left(self.rank, self._num_calls - self._is_inside, failure))

    def _finish_sending(self) -> None:
        """Waits until closing the connections can no longer lose what was sent."""

    def _close_if_unused(self) -> None:
        """Closes the connections, unless a call is using them. Then the call closes them when it ends.

        The call may be in another thread, or in this one below a signal handler.
        """
        if not self._is_closed or not self._calling.acquire(blocking=False):
            return
        try:
            if not self._is_inside:
                for connection in self._connections:
                    connection.end_sending()
                    connection.close()
                self._state.wakeup.close()
        finally:
            self._calling.release()

    def _values(self, contents: Contents, own_value: Any) -> list[Any]:
        return [own_value if rank == self.rank else self._read(rank, content) for rank, content in enumerate(contents)]

    def _read(self, sender: int, content: Buffer | Decoded) -> Any:
        """Returns the object. Raises `ChannelError`."""
        return content.value if isinstance(content, Decoded) else self._decoded(sender, content)

    def _decoded(self, sender: int, content: Buffer) -> Any:
        try:
            return decode(content)
        except Exception as error:
            text = "".join(traceback.format_exception_only(error)).strip()
            reader, known_sender = (self.ranks[rank].known_as for rank in (self.rank, sender))
            raise ChannelError(
                f"rank {reader} could not unpickle the object that rank {known_sender} sent: {text}. Send only what "
                "all ranks can import, in one version."
            ) from error

    def _make(
        self, operation: int, compute: Callable[[], object] | None, is_patient: bool = False
    ) -> tuple[Any, Contents]:
        """Makes a call of the group with the value or the error of `compute`, or with no value if it is None.

        Returns this rank's value, and the contents that it receives.
        """
        site = self._sites.current_call_site(num_ours=2)
        if self._is_inherited or self._has_left:
            raise closed(CollectiveOperation.NAMES[operation], is_forked=self._is_inherited)
        value, contribution, own_error = self._contribution(compute)
        if not self._calling.acquire(False):
            self._refuse_thread(CollectiveCall(operation, self._num_calls, site))
        try:
            outcome = self._begin(CollectiveCall(operation, self._num_calls + 1, site, is_patient), contribution)
        except ChannelError:
            if own_error is None:
                raise
            outcome = contribution
        finally:
            self._calling.release()
            if self._is_closed:
                self._close_if_unused()
        if own_error is not None:
            raise own_error
        if isinstance(outcome, Contribution):
            failure = outcome.failure()
            raise RankFailedError(self.ranks[failure.rank].known_as, failure.error_text, failure.traceback_text)
        return value, outcome

    def _contribution(self, compute: Callable[[], object] | None) -> tuple[object, Contribution, BaseException | None]:
        """Returns this rank's value, the contribution that is sent, and the error if there is no value."""
        if compute is None:
            return None, NOTHING, None
        try:
            value = compute()
            contribution = Contribution.of_value(value)
            if contribution.num_bytes > MAX_PAYLOAD_BYTES:
                raise too_large(contribution.num_bytes)
            return value, contribution, None
        except BaseException as error:  # noqa: BLE001 - raised again, once the others know of it
            return None, Contribution.of_error(self.rank, error), error

    def _refuse_thread(self, call: CollectiveCall) -> Never:
        """Ends the group because two threads call at once.

        On other ranks they may call in the other order: then each would get the other's result.
        """
        if self._is_closed:
            raise closed(call)
        error = RuntimeError(
            f"two threads call at once on one DistributedContext: {threading.current_thread().name} called "
            f"{CollectiveOperation.NAMES[call.operation]} at {describe(call.site)} while another one was in "
            f"{self._call}. Ranks may differ in which comes first: make all calls from one thread, or give each a "
            "DistributedContext of its own."
        )
        self._break(RankFailure.of(self.rank, error))
        raise error

    def _begin(self, call: CollectiveCall, contribution: Contribution) -> Contribution | Contents:
        if not self._state.is_quiet():
            self._state.check(call.number, call)
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
            # This rank's next calls would not match the others' calls.
            self._break(RankFailure.of(self.rank, error))
            raise
        finally:
            self._is_inside = False

    def _break(self, fault: Fault) -> None:
        """Ends the group on all ranks."""
        if self._state.report(fault):
            self._control.post_to_all(fault)

    def _fail(self, fault: Fault, call: CollectiveCall) -> None:
        """Ends the group, and raises the error of the fault that has ended it first."""
        self._break(fault)
        self._state.check(call.number, call)

    def _fail_mismatch(self, rank: int, found: CollectiveCall, call: CollectiveCall) -> None:
        """Ends the group because rank `rank` has made another call."""
        pairs = sorted([(rank, str(found)), (self.rank, str(call))])
        self._fail(Mismatch(*pairs[0], *pairs[1]), call)

    def _fail_late(self, missing: list[int], findings: list[str], call: CollectiveCall) -> None:
        # If a rank has left, that explains more than the time-out.
        self._state.check(call.number, call)
        self._fail(TimedOut(str(call), self.timeout_s, missing, findings), call)

    def _fail_lost(self, rank: int, call: CollectiveCall) -> None:
        """Raises the error that says why the connection to this rank has ended."""
        # The reason arrives over the control connection, at about the same time.
        deadline = time.monotonic() + _NEWS_TIMEOUT_S
        while not self._state.knows(rank) and time.monotonic() < deadline:
            time.sleep(0.005)
        self._state.check(call.number, call)
        self._state.check_presence(rank, call)
        self._fail(Died(rank, self.ranks[rank].process), call)

    def _heed_wakeup(self, call: CollectiveCall) -> None:
        """Raises the error of what has happened to the group, if that ends this call."""
        self._state.wakeup.forget()
        self._state.check(call.number, call)

    def _ask_all(self) -> dict[int, Status]:
        """Asks all other ranks how far they are. Returns the answers that come in time.

        The answers come from the channels' threads, so that a rank answers while its script computes.
        """
        survey = self._survey = StatusSurvey(next(self._survey_serials), self.size - 1)
        self._control.post_to_all(StatusRequest(self.rank, survey.serial))
        if not self._state.has_fault() and self.has_chief():
            survey.is_over.wait(_SURVEY_S)
        return dict(survey.answers)

    def _on_message(self, sender: int, message: Message) -> None:
        match message:
            case Notice():
                self._hear_notice(message)
            # Relayed before it is reported: then our own thread may leave, and the others must know this reason first.
            case Left():
                self._relay(message, sender)
                self._state.report_left(message)
                if message.rank == CHIEF:
                    self._survey.is_over.set()
            case StatusRequest(asker, serial):
                self._relay(message, sender)
                call = "" if self._call is None else str(self._call)
                self._answer(Status(asker, serial, self.rank, self._num_calls, call, self._is_inside))
            case Status():
                self._answer(message)
            case Died() | Mismatch() | TimedOut() | RankFailure():
                self._hear_fault(message, sender)

    def _answer(self, status: Status) -> None:
        if status.asker == self.rank:
            self._survey.hear(status)
        else:
            self._control.post(status.asker if self.rank == CHIEF else CHIEF, status)

    def _hear_fault(self, fault: Fault, sender: int) -> None:
        self._state.report(fault)
        self._survey.is_over.set()

    def _on_end(self, rank: int) -> Message | None:
        if self._state.knows(rank):
            return None
        died = Died(rank, self.ranks[rank].process)
        self._hear_fault(died, rank)
        return died

    def _hear_notice(self, notice: Notice) -> None:
        listener = self._listeners.get(notice.topic)
        if listener is None:
            self._unheard.append(notice)
            return
        try:
            listener(notice.rank, notice.content)
        except Exception:
            # The thread must go on, since deaths and other notices come through it.
            logger.exception("a notice about %r could not be handled", notice.topic)

    def _close_inherited(self) -> None:
        self._is_inherited = True
        self._control.close_inherited()
        for connection in self._connections:
            connection.close()
        self._state.wakeup.close_inherited()


def too_large(size_bytes: int) -> ChannelError:
    return ChannelError(
        f"an object of {size_bytes:,} bytes is too large for the channel between ranks, which carries up to "
        f"{MAX_PAYLOAD_BYTES:,}. Send tensors with torch.distributed, or store them in a checkpoint."
    )


def milliseconds_until(deadline: float) -> float:
    """Returns the milliseconds until a deadline, which may be infinite; at most eleven days, the limit of `poll`."""
    return min(max(0.0, 1000 * (deadline - time.monotonic())), 1e9)


def _close_in_child(channel: StarChannel) -> None:
    """Makes forked processes close the channel's connections.

    A data-loader worker that kept them open would hide the death of this rank from the others.
    """
    reference = weakref.ref(channel)

    def after_in_child() -> None:
        if (inherited := reference()) is not None:
            with contextlib.suppress(OSError):
                inherited._close_inherited()

    os.register_at_fork(after_in_child=after_in_child)
