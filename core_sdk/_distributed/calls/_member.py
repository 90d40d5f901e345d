"""A member's side of the collective calls: a member exchanges frames with the chief only."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Sequence

from core_sdk._distributed._topology import RankIdentity
from core_sdk._distributed.calls._call_site import CollectiveCall
from core_sdk._distributed.calls._collectives import CHIEF, Contents, StarChannel, milliseconds_until
from core_sdk._distributed.calls._late_ranks import findings_on, late_ranks
from core_sdk._distributed.transport._connection import Peer
from core_sdk._distributed.transport._encoding import Contribution, split
from core_sdk._distributed.transport._frames import CollectiveOperation, ConnectionEndedError, Frame, FrameKind
from core_sdk._distributed.transport._messages import Message, Status
from core_sdk.errors import ChannelError

# The chief's messages on the control connection may overtake a result on the other one.
_LAST_RESULT_S = 0.1
_ON_ITS_WAY_S = 2.0
# A chief that broadcasts within this time need not be told that this rank waits.
_SHORT_MS = 1.0


class MemberChannel(StarChannel):
    """A rank of the group that is not its chief."""

    def __init__(self, identity: RankIdentity, chief: Peer, ranks: Sequence[RankIdentity], timeout_s: float) -> None:
        super().__init__(identity, ranks, [chief], timeout_s)
        self._data = chief.data
        self._early: Frame | None = None
        """A result that came before this rank had contributed, and so belongs to another call."""
        self._poller = select.poll()
        self._poller.register(self._state.wakeup, select.POLLIN)
        self._poller.register(self._data, select.POLLIN)
        self._control.start()

    def _relay(self, message: Message, sender: int) -> None:
        pass

    def _exchange(self, call: CollectiveCall, contribution: Contribution) -> Contribution | Contents:
        try:
            if call.operation == CollectiveOperation.BROADCAST:
                result = self._await_broadcast(call, contribution)
            else:
                deadline = time.monotonic() + self.timeout_s
                self._refuse_early(self._data.take(), call)
                self._tell(call, contribution, deadline)
                result = self._await_result(call, deadline)
        except ConnectionEndedError:
            self._fail_lost(CHIEF, call)
            raise
        self._check(result, call)
        if result.kind == FrameKind.FAILURE:
            return Contribution(True, result.payload)
        if call.operation == CollectiveOperation.ALLGATHER:
            return split(result.payload)
        return [result.payload]

    def _await_broadcast(self, call: CollectiveCall, contribution: Contribution) -> Frame:
        """Waits for the chief's broadcast. Announces that to the chief only after a short wait."""
        result = self._data.receive_nowait()
        if result is None and self._poller.poll(_SHORT_MS):
            result = self._data.receive_nowait()
        if result is not None:
            return result
        deadline = time.monotonic() + self.timeout_s
        self._tell(call, contribution, deadline)
        return self._await_result(call, deadline)

    def _tell(self, call: CollectiveCall, contribution: Contribution, deadline: float) -> None:
        # A chief that has left after a broadcast reads nothing more. Over TCP, sending to it may destroy the result.
        if not self._state.is_quiet() and self._state.has_left(CHIEF):
            return
        kind = FrameKind.FAILURE if contribution.is_failure else FrameKind.VALUE
        frame = Frame(kind, call.operation, call.number, call.site, contribution.content)
        with contextlib.suppress(ConnectionEndedError):  # the result of a chief that has ended may still be there
            self._data.send(frame, lambda: self._wait_to_send(call, deadline), contribution.rest)

    def _wait_to_send(self, call: CollectiveCall, deadline: float) -> None:
        poller = select.poll()
        poller.register(self._state.wakeup, select.POLLIN)
        # The chief answers a call only when it is complete. A result that comes now belongs to another call.
        is_answer_early = call.operation != CollectiveOperation.BROADCAST and self._early is None
        poller.register(self._data, select.POLLOUT | (select.POLLIN if is_answer_early else 0))
        events = dict(poller.poll(milliseconds_until(deadline)))
        if not events:
            self._give_up(call, self._ask_all())
        if self._state.wakeup.fileno() in events:
            self._heed_wakeup(call)
        if is_answer_early and events.get(self._data.fileno(), 0) & ~select.POLLOUT:
            self._refuse_early(self._data.receive_nowait(), call)

    def _refuse_early(self, frame: Frame | None, call: CollectiveCall) -> None:
        """Fails the call if a result has come before this rank has contributed."""
        self._early = frame
        if frame is not None:
            self._check(frame, call)

    def _await_result(self, call: CollectiveCall, deadline: float) -> Frame:
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
            if self._state.wakeup.fileno() in events:
                try:
                    self._heed_wakeup(call)
                except ChannelError:
                    if (last := self._last_result(_LAST_RESULT_S)) is not None:
                        return last
                    raise

    def _last_result(self, timeout_s: float) -> Frame | None:
        poller = select.poll()
        poller.register(self._data, select.POLLIN)
        deadline = time.monotonic() + timeout_s
        with contextlib.suppress(ConnectionEndedError):
            while poller.poll(milliseconds_until(deadline)):
                if (frame := self._data.receive_nowait()) is not None:
                    return frame
        return None

    def _check(self, result: Frame, call: CollectiveCall) -> None:
        if not call.is_met_by(result):
            self._fail_mismatch(CHIEF, CollectiveCall(result.operation, result.sequence, result.site), call)

    def _await_late_result(self, call: CollectiveCall) -> Frame | None:
        """Asks which ranks are late, and raises an error that names them, unless the result comes meanwhile.

        Returns None for a patient call that should go on waiting, which it should if any rank answers.
        """
        answers = self._ask_all()
        are_all_in_it = bool(answers) and not late_ranks(answers, self.size, call.number, self.rank)
        frame = self._last_result(_ON_ITS_WAY_S if are_all_in_it else 0.0)
        if frame is None and not (call.is_patient and answers):
            self._give_up(call, answers)
            raise ConnectionEndedError("the result of the call did not come")
        return frame

    def _give_up(self, call: CollectiveCall, answers: dict[int, Status]) -> None:
        late = late_ranks(answers, self.size, call.number, self.rank) if answers else []
        missing = late or [CHIEF]
        self._fail_late(missing, findings_on(missing, answers, self.ranks, call.number), call)
