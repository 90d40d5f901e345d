"""Holds the training that this process executes, so that the functions of `core_sdk.train` can find it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from core_sdk.train.worker.session import Session

_session: Session | None = None


@contextlib.contextmanager
def set_to(session: Session) -> Iterator[None]:
    global _session
    if _session is not None:
        raise RuntimeError("this process executes a training function already")
    _session = session
    try:
        yield
    finally:
        _session = None


def session(call: str) -> Session:
    """Returns the training of this process. Raises `RuntimeError` outside of a training function."""
    if _session is None:
        raise RuntimeError(f"{call} works only in a function that a TorchTrainer executes")
    return _session
