"""Google's refusals, and the failures of its libraries."""

from __future__ import annotations

import contextlib
import json
import re
from xml.etree import ElementTree

import requests
from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError, TransportError

from core_sdk._home.storage.bucket._bucket import ObjectMissingError, TransientError
from core_sdk._home.storage.bucket._refusals import (
    FOREIGN_ANSWER,
    Refusal,
    Refusals,
    StoreRequest,
    retry_after_s,
    system_reason,
)
from core_sdk._home.storage.bucket._secrets import redacted, secrets_of, word
from core_sdk.errors import BucketNotFoundError, CredentialsMissingError, CredentialsRejectedError

_LONGEST_TEXT_BYTES = 64 << 10
_LONGEST_MESSAGE = 300
_FOREIGN = Refusal(message=FOREIGN_ANSWER, kind=TransientError)


def check(answer: requests.Response, request: StoreRequest) -> None:
    """Raises the error that the answer means, unless it is a success of the store."""
    if answer.status_code >= 300 or _is_html(answer):
        with answer:
            raise GOOGLE.error(_refusal(answer), request)


def _refusal(answer: requests.Response) -> Refusal:
    """Returns what the answer says. Reads at most the beginning of a body that has not been read yet."""
    text = next(answer.iter_content(_LONGEST_TEXT_BYTES), b"").decode(errors="replace").strip()
    if answer.status_code < 400 or (_is_html(answer) and text.startswith("<")):
        return _FOREIGN
    code, message = _code_and_message(text)
    # A store or a proxy may quote the request.
    sent = secrets_of(answer.request.headers)
    code, message = word(code, sent), redacted(message, sent)
    if "bucket does not exist" in message:
        code = "NoSuchBucket"
    if answer.status_code == 400 and "crc32c" in message.lower():
        code = "BadDigest"
    # Google names it: "… does not have storage.objects.get access to the Google Cloud Storage object."
    permission = re.search(r"\bstorage\.[a-zA-Z]+\.[a-zA-Z]+\b(?<!googleapis\.com)", message)
    return Refusal(
        answer.status_code,
        code,
        message[:_LONGEST_MESSAGE],
        permission=permission.group() if permission else "",
        retry_after_s=retry_after_s(answer.headers.get("Retry-After")),
    )


def _code_and_message(text: str) -> tuple[str, str]:
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
        error = json.loads(text)["error"]
        reasons = [str(reason.get("reason", "")) for reason in error.get("errors", [])]
        return (reasons or [""])[0], str(error["message"])
    with contextlib.suppress(ElementTree.ParseError):
        root = ElementTree.fromstring(text)
        parts = [root.findtext(f"{{*}}{name}", "") for name in ("Code", "Message", "Details")]
        return parts[0], " ".join(filter(None, parts[1:]))
    return "", text


def _is_html(answer: requests.Response) -> bool:
    return "html" in answer.headers.get("Content-Type", "").lower()


def _answer_of(error: Exception) -> Refusal | None:
    if isinstance(error, GoogleAPICallError) and isinstance(error.response, requests.Response):
        return _refusal(error.response)
    if isinstance(error, GoogleAuthError) and not isinstance(error, DefaultCredentialsError):
        if isinstance(error, TransportError) or error.retryable:
            return Refusal(kind=TransientError, message=f"a token could not be fetched: {system_reason(error)}")
        return Refusal(kind=CredentialsRejectedError, message=_refresh_reason(error))
    return None


def _refresh_reason(error: GoogleAuthError) -> str:
    """Returns OAuth's code for the failure, such as invalid_grant. The rest of the text may quote the request."""
    word = re.match(r"[a-z]+_[a-z_]+\b", str(error.args[0])) if error.args else None
    if word:
        return f"they cannot be renewed ({word.group()})"
    return "they cannot be renewed" if isinstance(error, RefreshError) else "the store wants others"


GOOGLE = Refusals(
    store="Google",
    log_in="Run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a key file",
    make_bucket="make it with `gcloud storage buckets create gs://{}`",
    codes={
        TransientError: "BadDigest SlowDown rateLimitExceeded userRateLimitExceeded",
        BucketNotFoundError: "NoSuchBucket",
        ObjectMissingError: "NoSuchUpload",
    },
    advice={},
    library=(GoogleAPICallError, GoogleAuthError, requests.RequestException),
    answer_of=_answer_of,
    unanswered={
        DefaultCredentialsError: (CredentialsMissingError, ""),
        GoogleAPICallError: (TransientError, "Google's library failed"),
        requests.TooManyRedirects: (TransientError, FOREIGN_ANSWER),
        requests.JSONDecodeError: (TransientError, FOREIGN_ANSWER),
        requests.RequestException: (TransientError, "there was no answer"),
    },
)
