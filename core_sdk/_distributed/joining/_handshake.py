"""The handshake in which two processes prove to each other that they hold the same key, before either is trusted.

    connector -> acceptor    knock: 32 random bytes B, HMAC-SHA-256(key, "knock" + B)
    acceptor  -> connector   greeting, 32 random bytes A
    connector -> acceptor    proof: HMAC-SHA-256(key, "connector" + A + B)
    acceptor  -> connector   HMAC-SHA-256(key, "acceptor" + A + B)

Each message has a fixed length. The words keep a proof from being sent back to its sender. A and B keep it from being
used again, and give the connection two keys of its own. The knock is sent with the connection, before the greeting. It
is not a proof, since anybody who has seen one can repeat it. But it tells ranks from strangers early, so that many
strangers cannot crowd the ranks out.
"""

from __future__ import annotations

import hmac
import secrets

from core_sdk._distributed.transport._frames import Seal

GREETING = b"core-sdk ranks 3"
GREETING_BYTES = len(GREETING) + 32
KNOCK_BYTES = 64
PROOF_BYTES = 32
REPLY_BYTES = 32


class WrongPeerError(Exception):
    """The process at the other end does not hold the key."""


class AcceptorHandshake:
    """The side that waits for connections."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._nonce = secrets.token_bytes(32)

    def greeting(self) -> bytes:
        return GREETING + self._nonce

    def hear_knock(self, knock: bytes) -> None:
        """Checks the knock. Raises `WrongPeerError`."""
        nonce, code = knock[:32], knock[32:]
        self._check(_proof(self._key, b"knock", nonce), code)
        self._nonces = self._nonce + nonce

    def reply(self, proof: bytes) -> bytes:
        """Checks the proof and returns the reply. Call `hear_knock()` before. Raises `WrongPeerError`."""
        self._check(_proof(self._key, b"connector", self._nonces), proof)
        return _proof(self._key, b"acceptor", self._nonces)

    def _check(self, expected: bytes, found: bytes) -> None:
        if not hmac.compare_digest(expected, found):
            raise WrongPeerError("it does not hold the key of this group")

    def seal(self) -> Seal:
        return Seal(
            send_key=_proof(self._key, b"to connector", self._nonces),
            receive_key=_proof(self._key, b"to acceptor", self._nonces),
        )


class ConnectorHandshake:
    """The side that connects."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._nonce = secrets.token_bytes(32)

    def knock(self) -> bytes:
        return self._nonce + _proof(self._key, b"knock", self._nonce)

    def proof(self, greeting: bytes) -> bytes:
        """Checks the greeting and returns the proof. Raises `WrongPeerError`."""
        if greeting[: len(GREETING)] != GREETING:
            raise WrongPeerError("what answers there is no rank")
        self._theirs = greeting[len(GREETING) :]
        return _proof(self._key, b"connector", self._theirs, self._nonce)

    def check(self, reply: bytes) -> None:
        """Checks the reply. Raises `WrongPeerError`."""
        if not hmac.compare_digest(_proof(self._key, b"acceptor", self._theirs, self._nonce), reply):
            raise WrongPeerError("what answers there does not hold the key of this group")

    def seal(self) -> Seal:
        nonces = self._theirs + self._nonce
        return Seal(
            send_key=_proof(self._key, b"to acceptor", nonces),
            receive_key=_proof(self._key, b"to connector", nonces),
        )


def _proof(key: bytes, word: bytes, *nonces: bytes) -> bytes:
    return hmac.digest(key, word + b"".join(nonces), "sha256")
