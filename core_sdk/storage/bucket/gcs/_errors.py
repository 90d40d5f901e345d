"""Turns Google's refusals, and failures to get an answer, into the errors of `Bucket`.

Only parts of what the libraries say are passed on: their texts hold whole URLs, which may hold credentials. For the
same reason their errors are not chained to ours.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

import requests
from google.api_core.exceptions import GoogleAPICallError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, RefreshError, TransportError

from core_sdk.errors import (
    BucketNotFoundError,
    CredentialsMissingError,
    CredentialsRejectedError,
    StoragePermissionError,
    StorageRefusedError,
)
from core_sdk.storage.bucket._bucket import ObjectExistsError, ObjectMissingError, TransientError
from core_sdk.storage.bucket._http import retry_after_s, system_reason
from core_sdk.storage.bucket._secrets import redacted, secrets_of, word

NOT_THE_STORE = "what came is not the store's answer (it may be the login page of this network)"
_LONGEST_TEXT_BYTES = 64 << 10
_LONGEST_MESSAGE = 300
_RATE_CODES = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "SlowDown"})
_LOGIN = "Run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a key file"


@dataclass(frozen=True)
class Purpose:
    """A request, as errors describe it."""

    where: str
    permission: str
    """Google's name for the permission that the request needs."""
    needs_object: bool = False
    """Whether a 404 means that the object is missing; otherwise it means that the bucket is missing."""


@dataclass(frozen=True)
class GcsErrorResponse:
    """Google's answer to a request that failed."""

    status: int
    code: str = ""
    """Google's code for the failure: "rateLimitExceeded", "NoSuchUpload"."""
    message: str = ""
    is_page: bool = False
    """Whether the answer is an HTML page, which the store never sends."""
    retry_after_s: float | None = None

    def __str__(self) -> str:
        message = self.message[:_LONGEST_MESSAGE]
        return f"{self.status} {self.code}".rstrip() + (f" ({message})" if message else "")


@contextlib.contextmanager
def translated_errors(purpose: Purpose) -> Iterator[None]:
    """Raises the errors of `Bucket` in place of those of requests and of Google's libraries."""
    try:
        yield
    except GoogleAPICallError as error:
        answer = error.response
        if not isinstance(answer, requests.Response):
            raise TransientError(f"Google's library failed with {type(error).__name__}") from None
        raise failure(refusal(answer), purpose) from None
    except GoogleAuthError as error:
        raise _credentials_failure(error, purpose) from None
    except requests.TooManyRedirects:
        raise failure(GcsErrorResponse(302), purpose) from None
    except requests.JSONDecodeError:
        raise TransientError(NOT_THE_STORE) from None
    except requests.RequestException as error:
        raise TransientError(_network_reason(error)) from None


def check(answer: requests.Response, purpose: Purpose) -> None:
    """Raises the error that the answer means, unless it is a success of the store."""
    if answer.status_code >= 300 or _is_html(answer):
        with answer:
            raise failure(refusal(answer), purpose)


def refusal(answer: requests.Response) -> GcsErrorResponse:
    """Returns what the answer says. Reads at most the beginning of a body that has not been read yet."""
    text = next(answer.iter_content(_LONGEST_TEXT_BYTES), b"").decode(errors="replace").strip()
    if _is_html(answer) and text.startswith("<"):
        return GcsErrorResponse(answer.status_code, is_page=True)
    code, message = _code_and_message(text)
    # A store or a proxy may quote the request.
    sent = secrets_of(answer.request.headers)
    code, message = word(code, sent), redacted(message, sent)
    return GcsErrorResponse(
        answer.status_code, code, message, retry_after_s=retry_after_s(answer.headers.get("Retry-After"))
    )


def failure(refusal: GcsErrorResponse, purpose: Purpose) -> Exception:
    """Returns the error to raise for a refusal."""
    status = refusal.status
    if refusal.is_page or status < 400:
        return TransientError(NOT_THE_STORE)
    # 501 and 505 are permanent: the server does not implement the request.
    if status in (408, 429) or (status >= 500 and status not in (501, 505)) or refusal.code in _RATE_CODES:
        return TransientError(f"the store answered {refusal}", refusal.retry_after_s)
    if status == 401:
        return CredentialsRejectedError(purpose.where, f"the store answered {refusal}", _LOGIN)
    if status == 403:
        return StoragePermissionError(purpose.where, _permission(refusal.message) or purpose.permission)
    if status == 404:
        return _missing(refusal, purpose)
    if status == 412:
        return ObjectExistsError(purpose.where)
    if status == 416:
        return ObjectMissingError(purpose.where)
    if refusal.code == "BadDigest" or "crc32c" in refusal.message.lower():
        return TransientError("the store received other bytes than were sent")
    return StorageRefusedError(purpose.where, str(refusal))


def _missing(refusal: GcsErrorResponse, purpose: Purpose) -> Exception:
    is_bucket = refusal.code == "NoSuchBucket" or "bucket does not exist" in refusal.message
    if is_bucket or not purpose.needs_object:
        return BucketNotFoundError(purpose.where, "make it with `gcloud storage buckets create`")
    return ObjectMissingError(purpose.where)


def _permission(message: str) -> str | None:
    """Returns the permission that Google's text names, or None.

    Such a text is "… does not have storage.objects.get access to the Google Cloud Storage object.".
    """
    named = re.search(r"\bstorage\.[a-zA-Z]+\.[a-zA-Z]+\b(?<!googleapis\.com)", message)
    return named.group() if named else None


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


def _credentials_failure(error: GoogleAuthError, purpose: Purpose) -> Exception:
    if isinstance(error, DefaultCredentialsError):
        return CredentialsMissingError(purpose.where, _LOGIN)
    if isinstance(error, TransportError) or error.retryable:
        return TransientError(f"a token could not be fetched: {_network_reason(error)}")
    return CredentialsRejectedError(purpose.where, _refresh_reason(error), _LOGIN)


def _refresh_reason(error: GoogleAuthError) -> str:
    """Returns OAuth's code for the failure, such as invalid_grant. The rest of the text may quote the request."""
    word = re.match(r"[a-z]+_[a-z_]+\b", str(error.args[0])) if error.args else None
    if word:
        return f"they cannot be renewed ({word.group()})"
    return "they cannot be renewed" if isinstance(error, RefreshError) else "the store wants others"


def _network_reason(error: Exception) -> str:
    return system_reason(error) or type(error).__name__
