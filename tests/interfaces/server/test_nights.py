"""The server answers what has happened since somebody last looked, and what was sent about it."""

from __future__ import annotations

import time

from home.journals import START
from interfaces.server.visitor import Visitor

from core_sdk._analysis.night import last_look
from core_sdk._execution.messages import Message
from core_sdk._execution.messages._queue import Queue, note_sent
from core_sdk._home import Home


def test_the_news_say_what_has_happened_and_what_was_sent(visitor: Visitor, home: Home) -> None:
    """A message that was given up has its problem; one that was sent before is left out."""
    message = Message(identity="x", kind="failed", time=START, title="trial 1 failed", body="ValueError", trial_id=1)
    Queue(home.root, "phone").add(message)
    note_sent(home.root, "phone", [message])
    note_sent(home.root, "chat", [message], "it is away")

    answer = visitor.question("/night", since=START - 1)

    assert any(line.startswith("trial 1 (") for one in answer["happened"] for line in one["lines"])
    assert [(one["target"], one["problem"]) for one in answer["sent"]] == [("chat", "it is away"), ("phone", "")]
    assert answer["sent"][0]["message"]["title"] == "trial 1 failed"
    assert visitor.question("/night", since=time.time() + 3600)["sent"] == []


def test_a_look_is_remembered(visitor: Visitor, home: Home) -> None:
    """The next answer begins there."""
    visitor.act("/night/actions/look", {"until": START + 5000})

    assert last_look(home) == START + 5000
    assert visitor.question("/night")["since"] == START + 5000
