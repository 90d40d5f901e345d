"""The signs of life of a pusher: they tell which trials run, and bring what people ask of the home."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec

from core_sdk._home.folders import Home
from core_sdk._workspace.actions.acting import Hands
from core_sdk._workspace.connection import WorkspaceConnection
from core_sdk._workspace.wire import HandedRequest, SignOfLife
from core_sdk.errors import RecordDamagedError

_SIGN_S = 30.0
_LISTEN_S = 0.5
"""The shortest time between two signs of a pusher that carries out requests."""


class PusherSigns:
    """Those of one pusher to one workspace. Only one thread may use it."""

    def __init__(self, home: Home, hands: Hands | None) -> None:
        self._home = home
        self._hands = hands
        self._handed: list[HandedRequest] = []
        self._told_running: Mapping[int, int] = {}
        self._last_sign = 0.0

    def give(self, connection: WorkspaceConnection, running: Mapping[int, int], others: Sequence[int]) -> None:
        """Tells which attempts run, by the numbers of their trials, and which trials do not.

        It does so when that has changed and now and then, and all the time if the home carries out requests.
        """
        hands = self._hands
        is_due = time.monotonic() - self._last_sign > (_SIGN_S if hands is None else _LISTEN_S)
        if not (running != self._told_running or ((running or hands) and is_due) or self._last_sign == 0.0):
            return
        sign = SignOfLife(dict(running), list(others))
        if hands is None:
            connection.give_sign(sign)
        else:
            self._hear(connection, sign, hands)
        self._told_running, self._last_sign = dict(running), time.monotonic()

    def _hear(self, connection: WorkspaceConnection, sign: SignOfLife, hands: Hands) -> None:
        try:
            outcomes = hands.outcomes(self._handed)
        except RecordDamagedError:  # nobody knows what was done already
            connection.give_sign(sign)
            return
        listening = msgspec.structs.replace(
            sign, home=self._home.identity(), adopted=[*self._home.ownership().adopted], outcomes=outcomes
        )
        self._handed = connection.give_sign(listening).requests
        hands.told(outcomes)
        hands.take(connection.url, self._handed)
