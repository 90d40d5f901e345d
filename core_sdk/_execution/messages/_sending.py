"""Sends what waits in the queues of a home, as long as something waits."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from core_sdk._execution.messages._queue import DIRECTORY, Queue, next_due, note_sent, targets_waiting
from core_sdk._execution.messages._targets import Message, NotifyTarget, read_targets
from core_sdk._ground.alive import AliveLock
from core_sdk._home.attempts.ending import read_end, read_settled
from core_sdk._home.folders import Home
from core_sdk._home.states import trial_state
from core_sdk.errors import CoreSDKError

_LONGEST_SLEEP_S = 5.0
"""A clock may be set, a laptop may sleep, and the message or the home may be removed."""
_GATHERING_S = 2.0
"""What is posted within this time after the first message of a burst is sent together."""
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 300.0
_MOST_AGE_S = 7 * 86400.0
_MOST_CHARS = 300

Notify = Callable[[NotifyTarget, str, str, str], str]
"""Sends a title and a text under an identity. Returns what is wrong; empty if it has arrived."""


class MessageSender:
    """Sends the messages of a home. Only one sender at a time does."""

    def __init__(
        self, home_root: Path, notify: Notify | None = None, *, gathering_s: float = _GATHERING_S,
        longest_pause_s: float = _LONGEST_PAUSE_S,
    ) -> None:  # fmt: skip
        self._home_root = home_root
        self._notify = notify or by_apprise
        self._gathering_s = gathering_s
        self._longest_pause_s = longest_pause_s
        self._pauses: dict[str, tuple[float, float]] = {}
        """The last pause of each target that is away, and the time until which it lasts."""

    def run(self) -> None:
        """Sends until nothing waits. Returns at once if another sender is at work."""
        while targets_waiting(self._home_root):
            try:
                lock = AliveLock(self._home_root / DIRECTORY / "sender.lock")
            except (BlockingIOError, FileNotFoundError):
                return
            try:
                self._send_all()
            finally:
                lock.release()
            # What was posted meanwhile has started a sender that found the lock held.

    def _send_all(self) -> None:
        while waiting := targets_waiting(self._home_root):
            targets = {target.name: target for target in read_targets(self._home_root)}
            for name in waiting:
                queue, now = Queue(self._home_root, name), time.monotonic()
                if name not in targets:
                    queue.clear()
                elif self._pauses.get(name, (0.0, 0.0))[1] <= now:
                    self._deliver(targets[name], queue)
            pauses = [until - time.monotonic() for name, (_, until) in self._pauses.items() if name in waiting]
            if pauses:
                time.sleep(max(0.05, min(pauses)))

    def _deliver(self, target: NotifyTarget, queue: Queue) -> None:
        if target.name not in self._pauses:
            time.sleep(self._gathering_s)
        identity, batch = queue.batch()
        messages = [each for each in batch if is_still_so(self._home_root, each)]
        if not messages:
            queue.sent()
            return
        title, text = text_of(messages)
        problem = self._notify(target, title, text, identity)
        is_old = time.time() - messages[0].time > _MOST_AGE_S
        if problem and not is_old:
            pause_s = min(self._longest_pause_s, 2 * self._pauses.get(target.name, (_FIRST_PAUSE_S / 2, 0.0))[0])
            self._pauses[target.name] = pause_s, time.monotonic() + pause_s
            return
        queue.sent()
        note_sent(self._home_root, target.name, messages, problem)
        self._pauses.pop(target.name, None)


def text_of(messages: Sequence[Message]) -> tuple[str, str]:
    """Returns the title and the text of messages that are sent as one. Pure."""
    if len(messages) == 1:
        return messages[0].title, messages[0].body or messages[0].title
    lines = [f"{each.title}: {each.body}".removesuffix(": ")[:_MOST_CHARS] for each in messages]
    return f"{len(messages)} messages", "\n".join(lines)


def by_apprise(target: NotifyTarget, title: str, text: str, identity: str) -> str:
    from core_sdk._execution.messages._apprise import notify

    try:
        return notify(target.url, title, text, identity)
    except CoreSDKError as error:
        return str(error)


def send_test(target: NotifyTarget) -> str:
    """Sends a message to a target at once. Returns what is wrong; empty if it has arrived."""
    title = "a test of core-sdk"
    return by_apprise(target, title, f"{target.name} gets messages.", f"test-{time.time_ns()}")


def send_waiting(home_root: Path) -> None:
    """Sends what is to be sent, and waits for what is to be sent later, unless another process does."""
    with contextlib.suppress(CoreSDKError, OSError):
        MessageSender(home_root).run()
        if next_due(home_root) is None:
            return
        try:
            lock = AliveLock(home_root / DIRECTORY / "waiting.lock")
        except (BlockingIOError, FileNotFoundError):
            return
        try:
            while (due := next_due(home_root)) is not None and (home_root / "notify.json").exists():
                time.sleep(min(_LONGEST_SLEEP_S, max(0.05, due - time.time())))
                MessageSender(home_root).run()
        finally:
            lock.release()


def is_still_so(home_root: Path, message: Message) -> bool:
    """Returns whether a message is to be sent: a reminder only if its trial is paused since the same attempt."""
    if message.kind != "not_resumed" or message.trial_id is None:
        return True
    try:
        folder = Home(home_root).trial(message.trial_id)
        state, _ = trial_state(read_end(folder, None), folder.running_attempt() is not None, read_settled(folder))
        return state == "PAUSED" and max(folder.attempts()) == message.attempt
    except (CoreSDKError, OSError, ValueError):  # it was deleted
        return False
