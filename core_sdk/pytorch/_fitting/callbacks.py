"""Calls the hooks of all callbacks of a trial."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any

from core_sdk.pytorch._callback import PyTorchCallback

logger = logging.getLogger("core_sdk.pytorch")


class TrialCallbacks:
    """The callbacks of a trial. Hooks are called in the order in which the callbacks were given."""

    def __init__(self, callbacks: Mapping[str, PyTorchCallback]) -> None:
        """Raises `TypeError` for what `build_callbacks()` must not return."""
        if not isinstance(callbacks, Mapping):
            raise TypeError(
                f"build_callbacks() returned a {type(callbacks).__name__}; it must return a dict, such as "
                '{"early_stopping": EarlyStopping()}'
            )
        for name, callback in callbacks.items():
            if not isinstance(callback, PyTorchCallback):
                raise TypeError(
                    f"build_callbacks() returned a {type(callback).__name__} as {name!r}; callbacks are subclasses of "
                    "pytorch.PyTorchCallback"
                )
        self._callbacks = dict(callbacks)

    def hooks(self, name: str) -> list[Callable[..., None]]:
        """Returns the methods of this name of all callbacks that override it."""
        found = [getattr(callback, name) for callback in self._callbacks.values() if _overrides(callback, name)]
        return [_of_any_epoch(hook) if name == "on_training_epoch_start" else hook for hook in found]

    def call(self, name: str, *args: Any) -> None:
        for hook in self.hooks(name):
            hook(*args)

    def call_at_end(self, ends: contextlib.ExitStack) -> None:
        """Makes `ends` call `on_exception()` if an error ends the training, and `on_trial_shutdown()` in any case."""
        for hook in reversed(self.hooks("on_trial_shutdown")):
            ends.callback(hook)

        def tell_of_error(kind: object, error: BaseException | None, traceback: object) -> None:
            if error is not None:
                self.call("on_exception", error)

        ends.push(tell_of_error)

    def state_dict(self) -> dict[str, Any]:
        return {name: callback.state_dict() for name, callback in self._callbacks.items()}

    def load_state_dict(self, states: Mapping[str, Any]) -> None:
        for name, callback in self._callbacks.items():
            if name in states:
                callback.load_state_dict(states[name])
            else:
                logger.warning("the checkpoint has no state of the callback %r, which begins anew", name)


def _overrides(callback: PyTorchCallback, name: str) -> bool:
    return getattr(getattr(callback, name), "__func__", None) is not getattr(PyTorchCallback, name)


def _of_any_epoch(hook: Callable[..., None]) -> Callable[..., None]:
    """Adds the argument `epoch_idx` to a hook of an old callback that lacks it."""
    return hook if inspect.signature(hook).parameters else lambda epoch_idx: hook()
