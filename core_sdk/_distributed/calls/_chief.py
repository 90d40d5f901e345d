"""The chief's side of the collective calls: it collects from all members, and delivers to all."""

from __future__ import annotations

import contextlib
import logging
import select
import threading
import time
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from core_sdk._distributed._topology import RankIdentity
from core_sdk._distributed.calls._call_site import CollectiveCall
from core_sdk._distributed.calls._collectives import (
    CHIEF,
    NOTHING,
    Contents,
    StarChannel,
    milliseconds_until,
    too_large,
)
from core_sdk._distributed.calls._late_ranks import findings_on, late_ranks
from core_sdk._distributed.transport._connection import Peer
from core_sdk._distributed.transport._encoding import Buffer, Contribution, Decoded, join
from core_sdk._distributed.transport._frames import (
    MAX_PAYLOAD_BYTES,
    CollectiveOperation,
    ConnectionEndedError,
    Frame,
    FrameKind,
)
from core_sdk._distributed.transport._messages import Fault, Message
from core_sdk.errors import ChannelError

logger = logging.getLogger("core_sdk.distributed")

# How long the news of a death waits for a delivery, which may be waiting for the very rank that it is about.
_NEWS_DELAY_S = 0.5
# Applies to a time without progress. It equals the time for which a host may be silent, so that a network that fails
# for a shorter time does no harm.
_DELIVERY_TIMEOUT_S = 30.0
_DELIVERY_INTERVAL_MS = 10.0
# Below this size, many small pieces cost more than one copy for all members.
_JOINED_BYTES = 1 << 15
# The chief waits this long for one member alone, so that the others do not wake it one by one.
_ALONE_MS = 5.0
_SENT = object()
# After this many broadcasts the chief reads the members' announcements. A socket holds many more of them.
_NUM_UNHEARD = 16


class _Member:
    """A member's connection for collectives, and what has been received over it."""

    def __init__(self, peer: Peer) -> None:
        self.rank = peer.identity.rank
        self.data = peer.data
        self._ahead: Frame | None = None
        """A received frame that belongs to our next call."""

    def listen(self, number: int) -> Frame | None:
        """Returns the member's next frame if it has come and belongs to call `number` or an earlier one.

        Otherwise returns None. Raises `ConnectionEndedError`.
        """
        frame, self._ahead = self._ahead or self.data.receive_nowait(), None
        if frame is None:
            return None
        if frame.sequence > number:
            self._ahead = frame
            return None
        return frame


class ChiefChannel(StarChannel):
    """Rank 0 of the group."""

    def __init__(self, identity: RankIdentity, peers: Sequence[Peer], timeout_s: float) -> None:
        super().__init__(identity, [identity, *(peer.identity for peer in peers)], peers, timeout_s)
        self._members = {peer.identity.rank: _Member(peer) for peer in peers}
        self._members_by_descriptor = {member.data.fileno(): member for member in self._members.values()}
        self._own_failure = NOTHING
        # Held during a delivery, so that the news of a death does not overtake results.
        self._delivering = threading.Lock()
        self._poller = self._poller_of(self._members_by_descriptor)
        self._single_pollers = {rank: self._poller_of([member.data.fileno()]) for rank, member in self._members.items()}
        self._control.start()

    def _relay(self, message: Message, sender: int) -> None:
        self._control.post_to_all(message, but=sender)

    def _exchange(self, call: CollectiveCall, contribution: Contribution) -> Contribution | Contents:
        # Only a failure is kept: a value may be large.
        self._own_failure = contribution if contribution.is_failure else NOTHING
        if call.operation == CollectiveOperation.BROADCAST:
            self._deliver(call, contribution)
            if call.number % _NUM_UNHEARD == 0:
                self._hear_announcements()
            return contribution if contribution.is_failure else [contribution.content]
        contributions = self._collect(call, contribution)
        contents = [each.content for each in contributions]
        is_for_all = call.operation == CollectiveOperation.ALLGATHER
        pieces = join([each.pieces for each in contributions]) if is_for_all else []
        failed = next((each for each in contributions if each.is_failure), None) or _too_large(pieces)
        if failed is not None:
            self._deliver(call, failed)
            return failed
        try:
            # Decoded before the delivery, so that an unreadable value fails the call on all ranks.
            decoded = [Decoded(rank and self._decoded(rank, content)) for rank, content in enumerate(contents)]
        except ChannelError as error:
            self._deliver(call, Contribution.of_error(self.rank, error))
            raise
        self._deliver(call, NOTHING, pieces)
        return decoded

    def _collect(self, call: CollectiveCall, contribution: Contribution) -> list[Contribution]:
        contributions = [contribution] * self.size
        missing = dict(self._members)
        # The last member to be answered probably calls again last. Waiting for it first avoids a wakeup for each of
        # the others.
        for member in reversed(self._members.values()):
            if (heard := self._hear_soon(member, call)) is None:
                break
            contributions[member.rank] = heard
            del missing[member.rank]
        ready: Iterable[_Member] = list(missing.values())
        deadline = 0.0
        while True:
            for member in ready:
                if (heard := self._hear(member, call)) is not None and missing.pop(member.rank, None) is not None:
                    contributions[member.rank] = heard
            if not missing:
                return contributions
            deadline = deadline or time.monotonic() + self.timeout_s
            ready = self._wait(call, deadline, list(missing))
            if call.is_patient and time.monotonic() >= deadline:
                deadline = 0.0

    def _wait(self, call: CollectiveCall, deadline: float, missing: list[int]) -> list[_Member]:
        """Waits until members have sent something, and returns them. May return none."""
        events = self._poller.poll(milliseconds_until(deadline))
        if not events:
            self._time_out(call, missing)
        ready = []
        for descriptor, _ in events:
            if descriptor == self._state.wakeup.fileno():
                self._heed_wakeup(call)
            else:
                ready.append(self._members_by_descriptor[descriptor])
        return ready

    def _hear_soon(self, member: _Member, call: CollectiveCall) -> Contribution | None:
        if (heard := self._hear(member, call)) is not None:
            return heard
        self._single_pollers[member.rank].poll(_ALONE_MS)
        return self._hear(member, call)

    def _hear(self, member: _Member, call: CollectiveCall) -> Contribution | None:
        """Returns the member's contribution to this call, or None if it has not come."""
        try:
            while (frame := member.listen(call.number)) is not None:
                self._check(member, frame, call)
                if frame.sequence == call.number:
                    return Contribution(frame.kind == FrameKind.FAILURE, frame.payload)
        except ConnectionEndedError:
            self._fail_lost(member.rank, call)
        return None

    def _check(self, member: _Member, frame: Frame, call: CollectiveCall) -> None:
        """Fails the call if a member's frame carries an error or does not match this call.

        A frame of an earlier call only announces that the member was waiting for our broadcast. If the calls differ,
        the member notices that in the broadcast; so such a frame matters only if it carries an error.
        """
        is_failure = frame.kind == FrameKind.FAILURE
        if not (is_failure if frame.sequence < call.number else not call.is_met_by(frame)):
            return
        # An error of either rank explains why the calls differ.
        theirs = Contribution(is_failure, frame.payload)
        if (failed := next((each for each in (self._own_failure, theirs) if each.is_failure), None)) is not None:
            self._fail(failed.failure(), call)
        self._fail_mismatch(member.rank, CollectiveCall(frame.operation, frame.sequence, frame.site), call)

    def _deliver(self, call: CollectiveCall, contribution: Contribution, pieces: Sequence[Buffer] = ()) -> None:
        small, rest = _joined((contribution.content, *contribution.rest, *pieces))
        kind = FrameKind.FAILURE if contribution.is_failure else FrameKind.VALUE
        frame = Frame(kind, call.operation, call.number, call.site, small)
        packed = None if rest else frame.packed()
        deadline = time.monotonic() + self.timeout_s
        lost: list[int] = []
        unsent: dict[_Member, Iterator[None]] = {}

        def wait_to_send() -> None:
            self._wait_to_send([member], call, deadline)

        with self._delivering:
            for member in self._members.values():
                try:
                    if packed is not None and not member.data.is_sealed:
                        member.data.send_packed(packed, wait_to_send)
                    elif not _sends_all(sending := member.data.sending(frame, rest)):
                        unsent[member] = sending
                except ConnectionEndedError:
                    lost.append(member.rank)
            # All are served at once, so that a member that reads slowly keeps no other one waiting.
            while unsent:
                for member in self._wait_to_send([*unsent], call, deadline):
                    try:
                        if _sends_all(unsent[member]):
                            del unsent[member]
                    except ConnectionEndedError:
                        lost.append(member.rank)
                        del unsent[member]
        for rank in lost:
            self._fail_lost(rank, call)

    def _wait_to_send(self, waiting: Sequence[_Member], call: CollectiveCall, deadline: float) -> list[_Member]:
        """Waits for room in the sockets. Returns the members that have some.

        Reads their announcements, since they may be blocked on sending.
        """
        poller = select.poll()
        poller.register(self._state.wakeup, select.POLLIN)
        for member in waiting:
            poller.register(member.data, select.POLLIN | select.POLLOUT)
        events = dict(poller.poll(milliseconds_until(deadline)))
        if not events:
            self._time_out(msgspec.structs.replace(call, is_patient=False), [member.rank for member in waiting])
        if self._state.wakeup.fileno() in events:
            self._heed_wakeup(call)
        ready = [member for member in waiting if member.data.fileno() in events]
        for member in ready:
            if events[member.data.fileno()] & ~select.POLLOUT:
                self._hear_announcement(member, call)
        return ready

    def _hear_announcements(self) -> None:
        """Reads the announcements that have come, so that they do not fill the sockets and a wrong call is noticed."""
        last = self._call
        if last is None:
            return
        for descriptor, _ in self._poller.poll(0):
            if descriptor != self._state.wakeup.fileno():
                self._hear_announcement(self._members_by_descriptor[descriptor], last)

    def _hear_announcement(self, member: _Member, last: CollectiveCall) -> None:
        try:
            while (frame := member.listen(last.number)) is not None:
                self._check(member, frame, last)
        except ConnectionEndedError:
            # The member has its result and left, or the control connection reports its death. Or another thread is
            # closing all connections: a closed one has no descriptor, which raises ValueError.
            with contextlib.suppress(KeyError, ValueError):
                self._poller.unregister(member.data)

    def _time_out(self, call: CollectiveCall, missing: list[int]) -> None:
        """Ends the group because of the ranks that are late. A patient call fails only if some of them do not answer.

        Otherwise it logs a warning and goes on waiting. A host that has vanished does not confirm the question, and so
        its connection ends.
        """
        answers = self._ask_all()
        late = [rank for rank in missing if rank not in answers]
        if not call.is_patient:
            behind = late_ranks(answers, self.size, call.number, self.rank)
            late = [rank for rank in missing if rank in behind] or missing
        findings = findings_on(late or missing, answers, self.ranks, call.number)
        if late:
            self._fail_late(late, findings, call)
        logger.warning("%s goes on waiting after %g s: %s", call, self.timeout_s, "; ".join(findings))

    def _hear_fault(self, fault: Fault, sender: int) -> None:
        if not self._state.has_fault():
            has_lock = self._delivering.acquire(timeout=_NEWS_DELAY_S)
            try:
                self._relay(fault, sender)
            finally:
                if has_lock:
                    self._delivering.release()
        super()._hear_fault(fault, sender)

    def _finish_sending(self) -> None:
        """Waits until the members have received all data, and reads what they send meanwhile.

        Closing a TCP connection with unread data may destroy data that the peer has not yet read. Members send nothing
        more after they have been told that the chief leaves.
        """
        num_bytes, deadline = self._num_bytes_on_their_way(), 0.0
        with contextlib.suppress(ChannelError):
            while num_bytes > 0 and not self._state.has_fault():
                previous, num_bytes = num_bytes, self._num_bytes_on_their_way()
                if num_bytes < previous or not deadline:
                    deadline = time.monotonic() + _DELIVERY_TIMEOUT_S
                if time.monotonic() >= deadline:
                    break
                self._poller.poll(_DELIVERY_INTERVAL_MS)
                self._hear_announcements()

    def _num_bytes_on_their_way(self) -> int:
        """Returns the number of unconfirmed bytes to members that have not left."""
        readers = [member for member in self._members.values() if not self._state.has_left(member.rank)]
        return sum(member.data.num_bytes_on_their_way() for member in readers)

    def _poller_of(self, descriptors: Iterable[int]) -> select.poll:
        """Returns a poller for these connections and for changes of the group's state."""
        poller = select.poll()
        for descriptor in (self._state.wakeup.fileno(), *descriptors):
            poller.register(descriptor, select.POLLIN)
        return poller


def _joined(contents: Sequence[Buffer]) -> tuple[bytes, Sequence[Buffer]]:
    """Joins small contents. Returns the joined bytes, and the contents that are too large to join: all or none."""
    is_small = sum(map(len, contents)) <= _JOINED_BYTES
    return (b"".join(contents), ()) if is_small else (b"", contents)


def _sends_all(sending: Iterator[None]) -> bool:
    """Sends what the socket takes. Returns whether that was the rest."""
    return next(sending, _SENT) is _SENT


def _too_large(pieces: Sequence[Buffer]) -> Contribution | None:
    num_bytes = sum(map(len, pieces))
    if num_bytes <= MAX_PAYLOAD_BYTES:
        return None
    return Contribution.of_error(CHIEF, too_large(num_bytes))
