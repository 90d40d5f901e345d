"""The one adapter of Apprise."""

from __future__ import annotations

import logging
from urllib.parse import quote

from core_sdk._ground.masking import masked_text
from core_sdk.errors import MissingDependencyError

try:
    import apprise
except ImportError as error:
    raise MissingDependencyError("apprise", "notify", "messages") from error

# The kinds of targets that take headers of ours.
_WITH_HEADERS = ("json", "jsons", "xml", "xmls", "form", "forms")


def is_known(url: str) -> bool:
    """Returns whether Apprise knows what to do with the URL."""
    return apprise.Apprise.instantiate(url, suppress_exceptions=True) is not None


def notify(url: str, title: str, text: str, identity: str) -> str:
    """Sends a message. Returns what is wrong; empty if it has arrived."""
    if url.partition("://")[0] in _WITH_HEADERS:
        url += f"{'&' if '?' in url else '?'}+Idempotency-Key={quote(identity)}"
    target = apprise.Apprise()
    if not target.add(url):
        return "its URL is not one of Apprise's"
    words = _LastWords()
    logger = logging.getLogger("apprise")
    logger.addHandler(words)
    try:
        return "" if target.notify(title=title, body=text) else masked_text(words.text) or "it was not taken"
    except Exception as error:  # noqa: BLE001 - each of a hundred plugins has its own
        return f"{type(error).__name__}"
    finally:
        logger.removeHandler(words)


class _LastWords(logging.Handler):
    """Keeps the last warning of Apprise, which says what is wrong."""

    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self.text = record.getMessage()
