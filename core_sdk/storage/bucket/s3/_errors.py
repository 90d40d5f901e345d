"""Turns the failures that boto3 and S3 report into the errors of `Bucket`.

The texts of the library and of servers are never passed on: they quote requests, which are signed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from core_sdk.errors import (
    BucketNotFoundError,
    CredentialsMissingError,
    CredentialsRejectedError,
    MissingDependencyError,
    StoragePermissionError,
    StorageRefusedError,
)
from core_sdk.storage.bucket._bucket import ObjectExistsError, ObjectMissingError, TransientError
from core_sdk.storage.bucket._http import retry_after_s
from core_sdk.storage.bucket._secrets import word

try:
    import boto3  # noqa: F401  other libraries bring botocore alone
    from botocore import exceptions
    from botocore.parsers import ResponseParserError
    from urllib3.exceptions import HTTPError
except ImportError as error:
    raise MissingDependencyError("boto3", extra="s3", purpose="a checkpoint storage in S3") from error

_TRANSIENT_CODES = frozenset(
    {
        "BadDigest",  # damaged on its way
        "ConditionalRequestConflict",  # S3: another write of this object is under way, retry
        "IncompleteBody",
        "InternalError",
        "OperationAborted",
        "RequestLimitExceeded",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "TooManyRequests",
        "XAmzContentSHA256Mismatch",
    }
)
_MISSING_CODES = frozenset({"InvalidRange", "NoSuchKey", "NoSuchUpload", "NoSuchVersion"})
_GET_CREDENTIALS = (
    "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, with temporary ones (STS) also AWS_SESSION_TOKEN, or run "
    "`aws configure`"
)
_REJECTED = {
    "ExpiredToken": ("they have expired", _GET_CREDENTIALS),
    "InvalidAccessKeyId": ("the store does not know the access key", _GET_CREDENTIALS),
    "InvalidToken": ("the store does not know the session token", _GET_CREDENTIALS),
    "RequestTimeTooSkewed": ("the time of the request is off", "Correct the clock of this machine"),
    "SignatureDoesNotMatch": ("the secret key does not belong to the access key", _GET_CREDENTIALS),
    "TokenRefreshRequired": ("they must be renewed", _GET_CREDENTIALS),
}
# Without the permission to list, S3 does not say that an object is missing.
_TO_READ = "s3:GetObject, and s3:ListBucket on the bucket"
_PERMISSIONS = {
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "CompleteMultipartUpload": "s3:PutObject",
    "CopyObject": "s3:GetObject and s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "DeleteObject": "s3:DeleteObject",
    "GetObject": _TO_READ,
    "HeadObject": _TO_READ,
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "ListObjectsV2": "s3:ListBucket",
    "PutObject": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "UploadPartCopy": "s3:GetObject and s3:PutObject",
}
# The first class that matches is used.
_NETWORK: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.ConnectTimeoutError, "no connection in time"),
    (exceptions.ReadTimeoutError, "no answer in time"),
    (exceptions.SSLError, "no TLS connection: is the certificate one that this machine trusts?"),
    (exceptions.ProxyConnectionError, "no connection to the proxy that HTTP_PROXY or HTTPS_PROXY names"),
    (exceptions.ConnectionClosedError, "the connection broke off"),
    (exceptions.ConnectionError, "no connection"),
    (exceptions.HTTPClientError, "the connection broke off"),
    (exceptions.IncompleteReadError, "the answer broke off"),
    (HTTPError, "the answer broke off"),
)


@dataclass(frozen=True)
class S3Request:
    """A request, as errors describe it."""

    operation: str
    """S3's name of the request."""
    where: str
    """The object, or the prefix."""
    bucket: str


@contextlib.contextmanager
def translated_errors(request: S3Request) -> Iterator[None]:
    """Raises the errors of `Bucket` in place of boto3's."""
    try:
        yield
    except exceptions.ClientError as error:
        raise _meaning(request, S3ErrorResponse.read(error.response)) from None
    except (exceptions.BotoCoreError, ResponseParserError, HTTPError) as error:
        raise _without_answer(request, error) from None


@dataclass(frozen=True)
class S3ErrorResponse:
    """S3's answer to a request that failed."""

    code: str
    """S3's code for the failure, or the status if the answer has no such code."""
    status: int
    named_header: str | None = None
    """The checksum header that the answer names."""
    region: str | None = None
    """The bucket's region, if the request went to another one."""
    retry_after_s: float | None = None

    @classmethod
    def read(cls, response: Mapping[str, Any]) -> S3ErrorResponse:
        error = response.get("Error", {})
        metadata = response.get("ResponseMetadata", {})
        headers = metadata.get("HTTPHeaders", {})
        header = re.search(r"x-amz-(sdk-)?checksum[a-z0-9-]*", str(error.get("Message", "")))
        return cls(
            code=word(str(error.get("Code", ""))),
            status=int(metadata.get("HTTPStatusCode", 0)),
            named_header=header.group() if header else None,
            region=_region(str(headers.get("x-amz-bucket-region") or error.get("Region") or "")),
            retry_after_s=retry_after_s(headers.get("retry-after")),
        )

    @property
    def is_bare(self) -> bool:
        """Whether the answer gives no reason: it answers a HEAD, which has no body, or it does not come from S3."""
        return self.code.isdigit() or not self.code


def _meaning(request: S3Request, answer: S3ErrorResponse) -> Exception:
    """Returns the error to raise for an answer."""
    code, where = answer.code, request.where
    said = f"{request.operation} was answered with {code or answer.status}"
    if _is_transient(answer):
        return TransientError(said, answer.retry_after_s)
    if answer.region:
        said += f"; the bucket is in the region {answer.region}: set AWS_DEFAULT_REGION={answer.region}"
    if answer.is_bare and answer.region and answer.status in (301, 307, 400):
        return StorageRefusedError(where, said)
    if answer.is_bare:
        # S3 always gives a reason, except in answers to HEAD, after which a GET is sent.
        return not_from_s3(request.operation)
    if code in _MISSING_CODES:
        return ObjectMissingError(where)
    if code == "PreconditionFailed":
        return ObjectExistsError(where)
    if code == "NoSuchBucket":
        return BucketNotFoundError(where, f"make it with `aws s3 mb s3://{request.bucket}`")
    if code in _REJECTED:
        return CredentialsRejectedError(where, *_REJECTED[code])
    if code == "AccessDenied" or (answer.status in (401, 403) and code != "InvalidObjectState"):
        return StoragePermissionError(where, _PERMISSIONS.get(request.operation, f"s3:{request.operation}"))
    return StorageRefusedError(where, said)


def _is_transient(answer: S3ErrorResponse) -> bool:
    if answer.code in _TRANSIENT_CODES or answer.code.startswith("Throttl"):
        return True
    # 501 is permanent: the server does not implement the request.
    return answer.status in (408, 429) or (answer.status >= 500 and answer.code != "NotImplemented")


def _without_answer(request: S3Request, error: Exception) -> Exception:
    if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
        return CredentialsMissingError(request.where, _GET_CREDENTIALS)
    if isinstance(error, exceptions.CredentialRetrievalError | exceptions.TokenRetrievalError | exceptions.SSOError):
        reason = f"they could not be renewed ({type(error).__name__})"
        return CredentialsRejectedError(request.where, reason, f"Log in again. {_GET_CREDENTIALS}")
    if isinstance(error, ResponseParserError):
        return not_from_s3(request.operation)
    for kind, reason in _NETWORK:
        if isinstance(error, kind):
            return TransientError(f"{request.operation}: {reason}")
    return StorageRefusedError(request.where, f"{request.operation} cannot be asked for: {type(error).__name__}")


def not_from_s3(operation: str) -> TransientError:
    """Returns the error for an answer that lacks what every answer of S3 has."""
    return TransientError(f"the answer to {operation} is not S3's: a login page, or a proxy's?")


def _region(text: str) -> str | None:
    return text if re.fullmatch(r"[a-z]+(-[a-z]+)*(-\d)?", text) else None
