"""Keeps credentials out of the texts of servers, proxies and libraries, which quote requests."""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, urlsplit

_NAMES = (
    r"[\w-]*(?:authori[sz]ation|token|signature|secret|passw(?:or)?d|pwd|credential|cookie|"
    r"(?:api|access|account|private|shared)[ _-]?key)[\w-]*+|sig|pass|auth|key"
)
_SCHEMES = r"bearer|basic|digest|negotiate|ntlm|sharedkey(?:lite)?|aws4-hmac-sha256|goog4-[\w-]+"
# Each runs in time linear in the text's length, since anybody may have written the text.
_SECRETS = (
    re.compile(r"(?<=//)[^/\s@]*+@"),  # user:password@host
    re.compile(r"(?<=\?)[^\s'\"<]++"),  # a URL's query: a signature, a token, the id of an upload session
    re.compile(rf"(?i)(?<![\w-])(?:{_SCHEMES})\s++[^\s'\"<]++"),
    re.compile(rf"(?i)(?<![\w-])(?:{_NAMES})['\"]?\s*+[:=>]\s*+b?['\"]?[^\s'\",;&<]++"),
    re.compile(r"(?<![\w.-])ya29[\w.-]*+|eyJ[\w.-]{8,}+"),  # Google's tokens, JSON web tokens
    re.compile(r"(?<![\w+/=~%.-])(?=[\w+/=~%.-]*\d)[\w+/=~%.-]{20,}+"),  # as random as a key
)
_HEADERS = frozenset({"authorization", "proxy-authorization", "x-amz-security-token", "x-goog-api-key", "cookie"})
_LEAST_CHARS = 4
# A name such as "NoSuchUpload" or "XAmzContentSHA256Mismatch", or a status.
_WORD = re.compile(r"\d{3}|(?=.{1,40}$)[A-Za-z]+(?:\d{1,3}[A-Za-z]*)?")


def redacted(text: str, known: Iterable[str] = ()) -> str:
    """Returns `text` without anything that is, or looks like, a credential. `known` are credentials it may quote."""
    for secret in known:
        text = text.replace(secret, "…")
    for pattern in _SECRETS:
        text = pattern.sub("…", text)
    return text


def secrets_of(headers: Mapping[str, str | bytes]) -> list[str]:
    """Returns the credentials that a request has sent, in every form in which they may be quoted, longest first."""
    found: set[str] = set()
    for name, value in headers.items():
        if name.lower() in _HEADERS:
            text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
            for part in (text, *text.split()[1:]):
                found |= {part, quote(part), quote(part, safe=""), base64.b64encode(part.encode()).decode()}
                found.add(_password(part))
    return sorted((secret for secret in found if len(secret) >= _LEAST_CHARS), key=len, reverse=True)


def word(text: str, known: Iterable[str] = ()) -> str:
    """Returns `text` if it is a store's code for a failure ("NoSuchUpload"), else ""."""
    return text if _WORD.fullmatch(text) and not any(secret in text for secret in known) else ""


def check_address(key: str, url: str, example: str) -> None:
    """Raises `ValueError` unless `url` is a server's address alone. Does not repeat what it holds."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and parts.hostname is not None and (parts.port or 1) > 0
    except ValueError:
        is_address = False
    if set("@?#") & set(url):
        raise ValueError(f"{key} holds credentials or a query: give {example} alone")
    if not is_address:
        raise ValueError(f"{key} must be like {example}")


def hide_in_logs(*loggers: str) -> None:
    """Redacts what these loggers of libraries write. Does nothing the second time."""
    for name in loggers:
        logging.getLogger(name).addFilter(_redact_record)


def _redact_record(record: logging.LogRecord) -> bool:
    message = record.getMessage()
    if (shown := redacted(message)) != message:
        record.msg, record.args = shown, None
    return True


def _password(part: str) -> str:
    """Returns the password in a value that Basic authentication sends; "" for anything else."""
    try:
        return base64.b64decode(part, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""
