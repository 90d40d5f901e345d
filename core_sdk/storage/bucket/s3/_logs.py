"""Keeps the secrets out of what botocore logs with DEBUG: it shows requests and answers as they are."""

from __future__ import annotations

import logging
import re

_LOGGERS = ("botocore.auth", "botocore.endpoint", "botocore.parsers")
# The token of a temporary login is a header of each request; where one is asked for, the answer holds it and the key. A
# signature lets whoever has it repeat the request for a quarter of an hour.
_SECRET = re.compile(
    r"(x-amz-(?:s3session|security)-token['\"]?:\s*b?['\"]?|<(?:SecretAccessKey|SessionToken)>|signature[=:]\s*)[^'\"\s<]+",
    re.IGNORECASE,
)


def hide_secrets_in_logs() -> None:
    """Does nothing the second time."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_hide_secrets)


def _hide_secrets(record: logging.LogRecord) -> bool:
    message = record.getMessage()
    if _SECRET.search(message):
        record.msg, record.args = _SECRET.sub(r"\1…", message), None
    return True
