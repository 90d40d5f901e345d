"""Turns refusals of stores, and failures of their libraries, into the errors of `Bucket`: a table for each store.

The libraries' errors are not chained to ours, and of their texts and the servers' only redacted parts are passed on:
they quote requests, which are signed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from urllib3.exceptions import InvalidHeader
from urllib3.util import Retry

from core_sdk._home.storage.bucket._bucket import ObjectExistsError, ObjectMissingError, TransientError
from core_sdk._home.storage.bucket._secrets import redacted
from core_sdk.errors import (
    BucketNotFoundError,
    CredentialsMissingError,
    CredentialsRejectedError,
    StorageError,
    StoragePermissionError,
)

Kind = type[Exception]

FOREIGN_ANSWER = "what came is not the store's answer (it may be the login page of this network)"

# The meaning of a status with an unknown code. 501 and 505 are permanent: the server does not implement the request.
_STATUSES: Mapping[Kind, str] = {
    TransientError: "408 429",
    ObjectMissingError: "404 410 416",
    ObjectExistsError: "412",
    CredentialsRejectedError: "401",
    StoragePermissionError: "403",
    StorageError: "501 505",
}


@dataclass(frozen=True)
class StoreRequest:
    """A request, as errors describe it."""

    where: str
    """The object, or the prefix."""
    permission: str
    """The store's name for the permission that the request needs."""
    needs_object: bool = True
    """Whether a 404 means that the object is missing; otherwise it means that the bucket is missing."""


@dataclass(frozen=True)
class Refusal:
    """A store's answer to a request that failed, or a library's reason why there is no answer."""

    status: int = 0
    """The status of HTTP; 0 if there is no answer."""
    code: str = ""
    """The store's code for the failure: "rateLimitExceeded", "NoSuchUpload"."""
    message: str = ""
    """Further words for people, without secrets."""
    kind: Kind | None = None
    """The error that it means, if neither the code nor the status tells."""
    permission: str = ""
    """The permission that the answer names."""
    retry_after_s: float | None = None

    def __str__(self) -> str:
        return f"{self.status} {self.code}".rstrip() + (f" ({self.message})" if self.message else "")


@dataclass(frozen=True)
class Refusals:
    """The meanings of a store's refusals, and of the failures of its library."""

    store: str
    """The store's name for messages."""
    log_in: str
    """The way to give credentials, for messages."""
    make_bucket: str
    """The command that makes the bucket `{}`, for messages."""
    codes: Mapping[Kind, str]
    """The codes that mean each error, separated by spaces."""
    library: tuple[Kind, ...]
    """The classes of errors that the store's library raises."""
    answer_of: Callable[[Any], Refusal | None]
    """Reads the store's answer from an error of the library; returns None if there was no answer."""
    unanswered: Mapping[Kind, tuple[Kind, str]]
    """The meaning of an error of the library if there was no answer, and words. The first class that matches counts."""
    advice: Mapping[str, str]
    """The remedy for rejected credentials, for codes of which `log_in` says too little."""

    @contextlib.contextmanager
    def translated(self, request: StoreRequest) -> Iterator[None]:
        """Raises the errors of `Bucket` in place of the library's."""
        try:
            yield
        except self.library as error:
            raise self.error(self.answer_of(error) or self._without_answer(error), request) from None

    def error(self, refusal: Refusal, request: StoreRequest) -> Exception:
        """Returns the error to raise for a request that failed."""
        where, kind = request.where, self._kind(refusal, request)
        said = f"{self.store} answered {refusal}" if refusal.status else refusal.message
        if kind is TransientError:
            return TransientError(said, refusal.retry_after_s)
        if kind is BucketNotFoundError:
            return BucketNotFoundError(where, self.make_bucket.format(where.split("/")[2]))
        if kind is CredentialsMissingError:
            return CredentialsMissingError(where, self.log_in)
        if kind is CredentialsRejectedError:
            return CredentialsRejectedError(where, said, self.advice.get(refusal.code, self.log_in))
        if kind is StoragePermissionError:
            return StoragePermissionError(where, refusal.permission or request.permission, said)
        return StorageError.refused(where, said) if kind is StorageError else kind(where)

    def _kind(self, refusal: Refusal, request: StoreRequest) -> Kind:
        if kind := refusal.kind or _listed(refusal.code, self.codes):
            return kind
        if refusal.status == 404 and not request.needs_object:
            return BucketNotFoundError
        otherwise = TransientError if refusal.status >= 500 else StorageError
        return _listed(str(refusal.status), _STATUSES) or otherwise

    def _without_answer(self, error: Exception) -> Refusal:
        kind, words = next(meaning for of, meaning in self.unanswered.items() if isinstance(error, of))
        return Refusal(kind=kind, message=f"{words}: {system_reason(error)}")


def _listed(code: str, codes: Mapping[Kind, str]) -> Kind | None:
    return next((kind for kind, listed in codes.items() if code in listed.split()), None)


def retry_after_s(header: str | None) -> float | None:
    """Returns the seconds that the store asks us to wait, or None. The header holds a number of seconds, or a date."""
    try:
        return None if header is None else Retry().parse_retry_after(header)
    except InvalidHeader:
        return None


def system_reason(error: BaseException) -> str:
    """Returns the operating system's text for a failed connection, or the name of the error's class."""
    cause: BaseException | None = error
    while cause is not None:
        # Libraries derive classes from OSError too, and put URLs into `strerror`.
        if isinstance(cause, OSError) and cause.strerror and type(cause).__module__ in ("builtins", "socket", "ssl"):
            return redacted(cause.strerror)
        cause = getattr(cause, "inner_exception", None) or cause.__cause__ or cause.__context__
    return type(error).__name__
