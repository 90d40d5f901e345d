"""A member's end of a group: it speaks to the chief only."""

from __future__ import annotations

import contextlib
import itertools
import select
import threading
import time
from collections.abc import Sequence

from core_sdk.distributed._topology import RankIdentity
from core_sdk.distributed.calls._collectives import Call, StarChannel, milliseconds_until, mismatch
from core_sdk.distributed.calls._control_thread import ControlThread
from core_sdk.distributed.calls._late_ranks import findings_on, late_ranks
from core_sdk.distributed.transport._connection import Connection, Peer
from core_sdk.distributed.transport._encoding import Content, Contribution, Decoded, split
from core_sdk.distributed.transport._frames import ConnectionEndedError, Frame, Kind, Operation
from core_sdk.distributed.transport._messages import (
    Died,
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
from core_sdk.errors import ChannelError

_CHIEF = 0
_SURVEY_S = 3.0
# What the chief has sent on one connection may be overtaken by what it says on the other.
_LAST_WORDS_S = 0.1
_ON_ITS_WAY_S = 2.0
# Of a chief that is about to broadcast; it need not hear that somebody waits.
_SHORT_MS = 1.0


class MemberChannel(StarChannel):
    """Any rank of the group but its chief."""

    def __init__(self, identity: RankIdentity, chief: Peer, ranks: Sequence[RankIdentity], timeout_s: float) -> None:
        self._data = chief.data
        self._chief_control = chief.control
        self._early: Frame | None = None
        self._serials = itertools.count(1)
        self._serial = 0
        self._statuses: Statuses | None = None
        self._has_answer = threading.Event()
        super().__init__(identity, ranks, timeout_s)
        self._poller = select.poll()
        self._poller.register(self._state, select.POLLIN)
        self._poller.register(self._data, select.POLLIN)
        self._control.start()

    def has_chief(self) -> bool:
        return not self._state.knows(_CHIEF)

    def tell_chief(self, topic: str, content: bytes) -> None:
        self._control.post(_CHIEF, Notice(topic, self.rank, content))

    def tell_all(self, topic: str, content: bytes) -> None:
        raise RuntimeError(f"rank {self.rank} is not the chief: only the chief tells all")

    def _open_control(self) -> ControlThread:
        return ControlThread(
            {_CHIEF: self._chief_control},
            on_message=self._on_message,
            on_end=self._on_end,
            on_tick=lambda: None,
        )

    def _data_connections(self) -> Sequence[Connection]:
        return [self._data]

    def _tell_others(self, message: Message) -> None:
        self._control.post(_CHIEF, message)

    def _exchange(self, call: Call, contribution: Contribution) -> Contribution | Sequence[Content | Decoded]:
        deadline = time.monotonic() + self.timeout_s
        try:
            if call.operation is Operation.BROADCAST:
                result = self._await_broadcast(call, contribution, deadline)
            else:
                self._tell(call, contribution, deadline)
                result = self._await_result(call, deadline)
        except ConnectionEndedError:
            self._lose(_CHIEF, call)
            raise
        self._check(result, call)
        if result.kind == Kind.FAILURE:
            return Contribution(True, result.payload)
        if call.operation is Operation.ALLGATHER:
            return split(result.payload, result.files)
        return [result.content]

    def _await_broadcast(self, call: Call, contribution: Contribution, deadline: float) -> Frame:
        """Says that it waits only if it waits long, or if the chief counts the files that have not arrived."""
        result = self._data.receive_nowait()
        if result is None and self._poller.poll(_SHORT_MS):
            result = self._data.receive_nowait()
        if result is None:
            self._tell(call, contribution, deadline)
            return self._await_result(call, deadline)
        if result.files:
            self._tell(call, contribution, deadline)
        return result

    def _tell(self, call: Call, contribution: Contribution, deadline: float) -> None:
        # A chief that has left after a broadcast listens no more; over TCP, speaking to it may destroy what is coming.
        if not self._state.is_quiet() and self._state.has_left(_CHIEF):
            return
        kind = Kind.FAILURE if contribution.is_failure else Kind.VALUE
        frame = Frame(kind, call.operation, call.number, call.site, b"")
        with contextlib.suppress(ConnectionEndedError):  # what it sent before it went may still be there
            self._data.send(frame, lambda: self._wait_to_send(call, deadline), [contribution.content])

    def _wait_to_send(self, call: Call, deadline: float) -> None:
        poller = select.poll()
        poller.register(self._state, select.POLLIN)
        # The chief's answer cannot come before our call is complete: whatever comes belongs to another call.
        is_answer_early = call.operation is not Operation.BROADCAST and self._early is None
        poller.register(self._data, select.POLLOUT | (select.POLLIN if is_answer_early else 0))
        events = dict(poller.poll(milliseconds_until(deadline)))
        if not events:
            self._give_up(call, self._ask_chief())
        if self._state.fileno() in events:
            self._state.forget_wakes()
            self._state.check(call.number, str(call))
        if is_answer_early and events.get(self._data.fileno(), 0) & ~select.POLLOUT:
            self._early = self._data.receive_nowait()
            if self._early is not None:
                self._check(self._early, call)

    def _await_result(self, call: Call, deadline: float) -> Frame:
        if self._early is not None:
            frame, self._early = self._early, None
            return frame
        while True:
            events = dict(self._poller.poll(milliseconds_until(deadline)))
            if self._data.fileno() in events and (received := self._data.receive_nowait()) is not None:
                return received
            if not events:
                if (late := self._await_late_result(call)) is not None:
                    return late
                deadline = time.monotonic() + self.timeout_s
            if self._state.fileno() in events:
                self._state.forget_wakes()
                if (last := self._heed_state(call)) is not None:
                    return last

    def _heed_state(self, call: Call) -> Frame | None:
        """Raises what the board says, unless the result of this call has come after all."""
        try:
            self._state.check(call.number, str(call))
        except ChannelError:
            if (frame := self._last_words(_LAST_WORDS_S)) is not None:
                return frame
            raise
        return None

    def _last_words(self, timeout_s: float) -> Frame | None:
        poller = select.poll()
        poller.register(self._data, select.POLLIN)
        deadline = time.monotonic() + timeout_s
        with contextlib.suppress(ConnectionEndedError):
            while poller.poll(milliseconds_until(deadline)):
                if (frame := self._data.receive_nowait()) is not None:
                    return frame
        return None

    def _check(self, result: Frame, call: Call) -> None:
        if not call.is_met_by(result):
            theirs = Call(Operation(result.operation), result.sequence, result.site)
            self._break(mismatch(_CHIEF, theirs, self.rank, call))
            self._state.check(call.number, str(call))

    def _await_late_result(self, call: Call) -> Frame | None:
        """Raises who is late, unless the result comes while that is being found out; a patient call only asks."""
        answers = self._ask_chief()
        are_all_in_it = bool(answers) and not late_ranks(answers, self.size, call.number, self.rank)
        frame = self._last_words(_ON_ITS_WAY_S if are_all_in_it else 0.0)
        if frame is None and not call.is_patient:
            self._give_up(call, answers)
            raise ConnectionEndedError("the result of the call did not come")
        return frame

    def _ask_chief(self) -> dict[int, Status]:
        """How all ranks are; nothing is known of any if the chief does not answer, or has worse to tell."""
        self._serial = next(self._serials)
        self._statuses = None
        self._has_answer.clear()
        self._control.post(_CHIEF, Question(self._serial))
        if not self._state.knows(_CHIEF):
            self._has_answer.wait(_SURVEY_S)
        return {status.rank: status for status in self._statuses.statuses} if self._statuses else {}

    def _give_up(self, call: Call, answers: dict[int, Status]) -> None:
        # Who has left meanwhile has a better reason than silence.
        self._state.check(call.number, str(call))
        late = late_ranks(answers, self.size, call.number, self.rank) if answers else []
        missing = late or [_CHIEF]
        findings = findings_on(missing, answers, self.ranks, call.number)
        self._break(TimedOut(str(call), self.timeout_s, missing, findings))
        self._state.check(call.number, str(call))

    def _on_message(self, rank: int, message: Message) -> None:
        match message:
            case Notice():
                self._hear_notice(message)
            case Left():
                self._state.report_left(message)
                self._has_answer.set()
            case Died() | Mismatch() | TimedOut() | Interrupted():
                self._state.report(message)
                self._has_answer.set()
            case Question(serial):
                self._control.post(_CHIEF, self._status(serial))
            case Statuses(serial) if serial == self._serial:
                self._statuses = message
                self._has_answer.set()

    def _on_end(self, rank: int) -> Message | None:
        if self._state.knows(_CHIEF):
            return None
        died = Died(_CHIEF, self.ranks[_CHIEF].process)
        self._state.report(died)
        self._has_answer.set()
        return died
