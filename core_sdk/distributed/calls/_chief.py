"""The chief's end of a group: collects from all members, delivers to all, and knows who lives."""

from __future__ import annotations

import contextlib
import logging
import select
import threading
import time
from collections.abc import Iterable, Iterator, Sequence

from core_sdk.distributed._topology import RankIdentity
from core_sdk.distributed.calls._collectives import NOTHING, Call, StarChannel, milliseconds_until, mismatch
from core_sdk.distributed.calls._control_thread import ControlThread
from core_sdk.distributed.calls._late_ranks import Survey, Surveys, findings_on
from core_sdk.distributed.transport._connection import Connection, Peer
from core_sdk.distributed.transport._encoding import Content, Contribution, Decoded, join, release
from core_sdk.distributed.transport._frames import MAX_PAYLOAD_BYTES, ConnectionEndedError, Frame, Kind, Operation
from core_sdk.distributed.transport._memory_file import MemoryFile
from core_sdk.distributed.transport._messages import (
    Died,
    Fault,
    Interrupted,
    Left,
    Message,
    Mismatch,
    Notice,
    Question,
    Status,
    Statuses,
    TimedOut,
)
from core_sdk.errors import ChannelError, MessageTooLargeError, UnreadableObjectError

logger = logging.getLogger("core_sdk.distributed")

_OWN_SURVEY_S = 2.0
# Without any progress, as long as a host may be silent: a cable that is mended within it harms nothing.
_DELIVERY_TIMEOUT_S = 30.0
# Below, many small pieces cost more than one copy for all members.
_JOINED_BYTES = 1 << 15
_DELIVERY_INTERVAL_MS = 10.0
# So long only one member is waited for, so that not each that comes wakes us.
_ALONE_MS = 5.0
# Broadcasts after which we hear what members have said meanwhile; a socket holds many more of their announcements.
_NUM_UNHEARD = 16


class _Member:
    """A peer, and what it has said in the collectives so far."""

    def __init__(self, peer: Peer) -> None:
        self.rank = peer.identity.rank
        self.identity = peer.identity
        self.data = peer.data
        self.control = peer.control
        self.num_heard = 0
        """The number of its last call that we know of."""
        self.lent_at = 0
        """The number of the last call that sent it a file."""
        self._said: Frame | None = None

    def listen(self, number: int) -> Frame | None:
        """What it has said in the calls up to this one, if it has come. Raises `ConnectionEndedError`."""
        frame, self._said = self._said or self.data.receive_nowait(), None
        if frame is None:
            return None
        if frame.sequence > number:
            # It is ahead: this belongs to our next call.
            self._said = frame
            return None
        self.num_heard = frame.sequence
        return frame


class ChiefChannel(StarChannel):
    """Rank 0 of the group."""

    def __init__(self, identity: RankIdentity, peers: Sequence[Peer], timeout_s: float) -> None:
        self._members = {peer.identity.rank: _Member(peer) for peer in peers}
        self._members_by_descriptor = {member.data.fileno(): member for member in self._members.values()}
        self._surveys = Surveys(
            len(peers), ask_all=lambda serial: self._tell_others(Question(serial)), on_end=self._tell_asker
        )
        self._own_contribution = NOTHING
        # While results are being delivered, the news of a death must not overtake them.
        self._delivering = threading.Lock()
        super().__init__(identity, [identity, *(peer.identity for peer in peers)], timeout_s)
        self._poller = self._poller_of(self._members_by_descriptor)
        self._single_pollers = {rank: self._poller_of([member.data.fileno()]) for rank, member in self._members.items()}
        self._control.start()

    def has_chief(self) -> bool:
        return True

    def tell_chief(self, topic: str, content: bytes) -> None:
        notice = Notice(topic, 0, content)
        self._control.call(lambda: self._hear_notice(notice))

    def tell_all(self, topic: str, content: bytes) -> None:
        self._tell_others(Notice(topic, 0, content))
        self.tell_chief(topic, content)

    def _open_control(self) -> ControlThread:
        return ControlThread(
            {rank: member.control for rank, member in self._members.items()},
            on_message=self._on_message,
            on_end=self._on_end,
            on_tick=self._surveys.end_late,
        )

    def _data_connections(self) -> Sequence[Connection]:
        return [member.data for member in self._members.values()]

    def _tell_others(self, message: Message) -> None:
        self._relay(message, self._members)

    def _relay(self, message: Message, ranks: Iterable[int]) -> None:
        for rank in ranks:
            self._control.post(rank, message)

    def _exchange(self, call: Call, contribution: Contribution) -> Contribution | Sequence[Content | Decoded]:
        # A value is not kept: it may be large.
        self._own_contribution = contribution if contribution.is_failure else NOTHING
        if call.operation is Operation.BROADCAST:
            self._deliver(call, contribution)
            if call.number % _NUM_UNHEARD == 0:
                self._hear_announcements()
            return contribution if contribution.is_failure else [contribution.content]
        contributions = self._collect(call, contribution)
        contents = [contribution.content for contribution in contributions]
        pieces = join(contents) if call.operation is Operation.ALLGATHER else []
        failed = next((contribution for contribution in contributions if contribution.is_failure), None) or _too_large(
            pieces
        )
        if failed is not None:
            self._deliver(call, failed)
            return failed
        try:
            # Now already: what cannot be read fails on all ranks.
            decoded = [Decoded(rank and self._decoded(rank, content)) for rank, content in enumerate(contents)]
        except UnreadableObjectError as error:
            self._deliver(call, Contribution.of_error(self.rank, error))
            raise
        self._deliver(call, NOTHING, pieces)
        for content in contents[1:]:
            release(content)
        return decoded

    def _collect(self, call: Call, contribution: Contribution) -> list[Contribution]:
        contributions = [contribution] * self.size
        missing = dict(self._members)
        # The last to be answered is probably the last to call again: waiting for it spares us being woken by each.
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
            ready = self._wait(call, deadline, missing)
            if call.is_patient and time.monotonic() >= deadline:
                deadline = 0.0

    def _wait(self, call: Call, deadline: float, missing: dict[int, _Member]) -> list[_Member]:
        """The members that have said something, perhaps none."""
        events = self._poller.poll(milliseconds_until(deadline))
        if not events:
            self._bear_with(call, list(missing)) if call.is_patient else self._time_out(call, list(missing))
        ready = []
        for descriptor, _ in events:
            if descriptor == self._state.fileno():
                self._state.forget_wakes()
                self._state.check(call.number, str(call))
            else:
                ready.append(self._members_by_descriptor[descriptor])
        return ready

    def _hear_soon(self, member: _Member, call: Call) -> Contribution | None:
        if (heard := self._hear(member, call)) is not None:
            return heard
        self._single_pollers[member.rank].poll(_ALONE_MS)
        return self._hear(member, call)

    def _hear(self, member: _Member, call: Call) -> Contribution | None:
        """What the member brings to this call, if it has come."""
        try:
            while (frame := member.listen(call.number)) is not None:
                self._check(member, frame, call)
                if frame.sequence == call.number:
                    return Contribution(frame.kind == Kind.FAILURE, frame.content)
        except ConnectionEndedError:
            self._lose(member.rank, call)
        return None

    def _check(self, member: _Member, frame: Frame, call: Call) -> None:
        """A frame of an earlier call announces that the member waits for our broadcast.

        If it made another call then, it sees that in the broadcast, and tells; only why it did so is news.
        """
        is_wrong = frame.kind == Kind.FAILURE if frame.sequence < call.number else not call.is_met_by(frame)
        if is_wrong:
            self._break(self._mismatch(member, frame, call))
            self._state.check(call.number, str(call))

    def _mismatch(self, member: _Member, frame: Frame, expected: Call) -> Fault:
        # Who is where it is because of an error must tell of that.
        theirs = Contribution(frame.kind == Kind.FAILURE, frame.content)
        if (
            failed := next(
                (contribution for contribution in (self._own_contribution, theirs) if contribution.is_failure), None
            )
        ) is not None:
            failure = failed.failure()
            return Interrupted(failure.rank, failure.error_text, failure.traceback_text)
        return mismatch(0, expected, member.rank, Call(Operation(frame.operation), frame.sequence, frame.site))

    def _deliver(self, call: Call, contribution: Contribution, pieces: Sequence[Content] = ()) -> None:
        contents = [contribution.content, *pieces]
        small = _joined(contents)
        kind = Kind.FAILURE if contribution.is_failure else Kind.VALUE
        frame = Frame(kind, call.operation, call.number, call.site, small or b"")
        packed = b"" if small is None else frame.packed()
        deadline = time.monotonic() + self.timeout_s
        lost = []
        with self._delivering:
            for member in self._members.values():
                try:
                    if not packed or member.data.is_sealed:
                        self._send(member, call, deadline, frame, contents if small is None else ())
                    elif (num_sent := member.data.send_packed(packed)) < len(packed):
                        member.data.send_rest(packed[num_sent:], lambda: self._wait_to_send(member, call, deadline))  # noqa: B023 - called at once
                except ConnectionEndedError:
                    lost.append(member.rank)
        for rank in lost:
            self._lose(rank, call)

    def _send(self, member: _Member, call: Call, deadline: float, frame: Frame, contents: Sequence[Content]) -> None:
        if member.data.has_files() and any(isinstance(content, MemoryFile) for content in contents):
            self._await_room(member, call, deadline)
        member.data.send(frame, lambda: self._wait_to_send(member, call, deadline), contents)

    def _await_room(self, member: _Member, call: Call, deadline: float) -> None:
        """A file on its way takes memory, and no room in the connection: we wait until the last one has arrived."""
        # What it has said may have come with something earlier, and nothing more be on its way.
        self._hear_announced(member, call)
        while member.num_heard < member.lent_at:
            self._wait_for(member, select.POLLIN, call, deadline)
            self._hear_announced(member, call)
        member.lent_at = call.number

    def _wait_to_send(self, member: _Member, call: Call, deadline: float) -> None:
        """The member may itself wait until we have read what it announced."""
        if self._wait_for(member, select.POLLIN | select.POLLOUT, call, deadline) & ~select.POLLOUT:
            self._hear_announcement(member, call)

    def _wait_for(self, member: _Member, wanted: int, call: Call, deadline: float) -> int:
        """The events of its connection, perhaps none."""
        poller = select.poll()
        poller.register(self._state, select.POLLIN)
        poller.register(member.data, wanted)
        events = dict(poller.poll(milliseconds_until(deadline)))
        if not events:
            self._time_out(call, [member.rank])
        if self._state.fileno() in events:
            self._state.forget_wakes()
            self._state.check(call.number, str(call))
        return events.get(member.data.fileno(), 0)

    def _hear_announcements(self) -> None:
        """So that what members say never piles up, and a wrong call is found at once."""
        last = self._call
        if last is None:
            return
        for descriptor, _ in self._poller.poll(0):
            if descriptor != self._state.fileno():
                self._hear_announcement(self._members_by_descriptor[descriptor], last)

    def _hear_announcement(self, member: _Member, last: Call) -> None:
        try:
            self._hear_announced(member, last)
        except ConnectionEndedError:
            # It has what it came for, or its death is told by the other connection.
            with contextlib.suppress(KeyError):
                self._poller.unregister(member.data)

    def _hear_announced(self, member: _Member, last: Call) -> None:
        while (frame := member.listen(last.number)) is not None:
            self._check(member, frame, last)

    def _time_out(self, call: Call, missing: list[int]) -> None:
        findings = self._findings_on(missing, call)
        # Who has left meanwhile has a better reason than silence.
        self._state.check(call.number, str(call))
        self._break(TimedOut(str(call), self.timeout_s, missing, findings))
        self._state.check(call.number, str(call))

    def _bear_with(self, call: Call, missing: list[int]) -> None:
        """Only asks: a host that is gone without a word does not confirm the question, and is given up."""
        findings = "; ".join(self._findings_on(missing, call))
        logger.warning("%s goes on waiting after %g s: %s", call, self.timeout_s, findings)

    def _findings_on(self, missing: list[int], call: Call) -> list[str]:
        survey = self._surveys.start(asker=0)
        survey.is_complete.wait(_OWN_SURVEY_S)
        return findings_on(missing, survey.answers, self.ranks, call.number)

    def _tell_asker(self, survey: Survey) -> None:
        if survey.asker != 0:
            statuses = [self._status(survey.asked), *survey.answers.values()]
            self._control.post(survey.asker, Statuses(survey.asked, statuses))

    def _on_message(self, rank: int, message: Message) -> None:
        match message:
            case Notice():
                self._hear_notice(message)
            # In this order: once our own thread knows, it may leave, and the others are to hear of its reason first.
            case Left():
                self._relay(message, self._others_than(rank))
                self._state.report_left(message)
            case Died() | Mismatch() | TimedOut() | Interrupted():
                self._relay_fault(message, rank)
            case Question(serial):
                self._surveys.start(asker=rank, asked=serial)
            case Status():
                self._surveys.hear(rank, message)

    def _on_end(self, rank: int) -> Message | None:
        if self._state.knows(rank):
            return None
        died = Died(rank, self._members[rank].identity.process)
        self._relay_fault(died, rank)
        return died

    def _relay_fault(self, fault: Fault, sender: int) -> None:
        if not self._state.has_fault():
            with self._after_delivery():
                self._relay(fault, self._others_than(sender))
            self._state.report(fault)

    def _others_than(self, rank: int) -> list[int]:
        return [other for other in self._members if other != rank]

    @contextlib.contextmanager
    def _after_delivery(self) -> Iterator[None]:
        # Not for ever: the delivery may be waiting for the very rank that this is about.
        has_lock = self._delivering.acquire(timeout=0.5)
        try:
            yield
        finally:
            if has_lock:
                self._delivering.release()

    def _finish_sending(self) -> None:
        """A TCP connection that is closed before all was read from it may lose what the other side has not yet.

        What members say from now on cannot do that: they are told that the chief leaves, and say no more.
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

    def _poller_of(self, descriptors: Iterable[int]) -> select.poll:
        """Of these connections, and of news."""
        poller = select.poll()
        for descriptor in (self._state.fileno(), *descriptors):
            poller.register(descriptor, select.POLLIN)
        return poller

    def _num_bytes_on_their_way(self) -> int:
        """To ranks that may want them."""
        listeners = [member for member in self._members.values() if not self._state.has_left(member.rank)]
        return sum(member.data.num_bytes_on_their_way() for member in listeners)


def _joined(contents: Sequence[Content]) -> bytes | None:
    """As one, if they are small bytes."""
    pieces = [content for content in contents if not isinstance(content, MemoryFile)]
    is_small = len(pieces) == len(contents) and sum(map(len, pieces)) <= _JOINED_BYTES
    return b"".join(pieces) if is_small else None


def _too_large(pieces: Sequence[Content]) -> Contribution | None:
    num_bytes = sum(map(len, pieces))
    if num_bytes <= MAX_PAYLOAD_BYTES:
        return None
    return Contribution.of_error(0, MessageTooLargeError(num_bytes, MAX_PAYLOAD_BYTES))
