"""What a failed request to S3 means, told in one place.

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
        "ConditionalRequestConflict",  # S3: another write of this object is under way, come again
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
_REJECTED = {
    "ExpiredToken": "they have expired",
    "InvalidAccessKeyId": "the store does not know the access key",
    "InvalidToken": "the store does not know the session token",
    "SignatureDoesNotMatch": "the secret key does not belong to the access key",
    "TokenRefreshRequired": "they must be renewed",
}
_GET_CREDENTIALS = "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws configure`"
# Without the permission to list, S3 refuses to say that an object is missing.
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
_NETWORK: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.ConnectTimeoutError, "no connection in time"),
    (exceptions.ReadTimeoutError, "no answer in time"),
    (exceptions.SSLError, "no TLS connection: is the certificate one that this machine trusts?"),
    (exceptions.ProxyConnectionError, "no connection to the proxy that HTTP_PROXY or HTTPS_PROXY names"),
    (exceptions.EndpointConnectionError, "no connection"),
    (exceptions.ConnectionError, "no connection"),
    (exceptions.ConnectionClosedError, "the connection broke off"),
    (exceptions.HTTPClientError, "the connection broke off"),
    (exceptions.IncompleteReadError, "the answer broke off"),
    (HTTPError, "the answer broke off"),
)


@dataclass(frozen=True)
class S3Request:
    """What was asked, as an error may say it."""

    operation: str
    """S3's own name of it."""
    where: str
    """The object, or the prefix."""
    bucket: str


@contextlib.contextmanager
def failures_told(request: S3Request) -> Iterator[None]:
    """Raises what `Bucket` promises in place of what boto3 raises."""
    try:
        yield
    except exceptions.ClientError as error:
        raise refusal(request, S3ErrorResponse.read(error.response)) from None
    except (exceptions.BotoCoreError, ResponseParserError, HTTPError) as error:
        raise _without_answer(request, error) from None


@dataclass(frozen=True)
class S3ErrorResponse:
    """An answer that says no."""

    code: str
    """A number, as a text, where the answer had no body in S3's words."""
    status: int
    named_header: str | None = None
    """One of S3's checksums that it speaks of."""
    region: str | None = None
    """Of the bucket, if it is another than was asked."""
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
        """It gives no reason: the answer to a HEAD, which has no body, or not S3's."""
        return self.code.isdigit() or not self.code


def refusal(request: S3Request, refused: S3ErrorResponse) -> Exception:
    """What to raise for it."""
    code, where = refused.code, request.where
    if _is_transient(refused):
        return TransientError(_short(request, refused), refused.retry_after_s)
    if code in _MISSING_CODES:
        return ObjectMissingError(where)
    if code == "PreconditionFailed":
        return ObjectExistsError(where)
    if code == "NoSuchBucket":
        return BucketNotFoundError(where, f"make it with `aws s3 mb s3://{request.bucket}`")
    if code in _REJECTED:
        return CredentialsRejectedError(where, _REJECTED[code], _GET_CREDENTIALS)
    if code == "RequestTimeTooSkewed":
        return CredentialsRejectedError(where, "the time of the request is off", "Correct the clock of this machine")
    if code == "AccessDenied" or (refused.status in (401, 403) and code != "InvalidObjectState"):
        return StoragePermissionError(where, _PERMISSIONS.get(request.operation, f"s3:{request.operation}"))
    return StorageRefusedError(request.where, _why_never(request, refused))


def _is_transient(refused: S3ErrorResponse) -> bool:
    if refused.code in _TRANSIENT_CODES or refused.code.startswith("Throttl"):
        return True
    # 501 does not pass: the server lacks what was asked for.
    if refused.status in (408, 429) or (refused.status >= 500 and refused.code != "NotImplemented"):
        return True
    # S3 gives a reason in all but its answers to HEAD, which are asked again: what has none comes from in between.
    return refused.is_bare


def _short(request: S3Request, refused: S3ErrorResponse) -> str:
    if refused.is_bare and refused.status < 500 and refused.status not in (408, 429):
        return f"{request.operation} was answered with {refused.status}, and not by S3: by a login page, or a proxy?"
    return f"{request.operation} was answered with {refused.code or refused.status}"


def _why_never(request: S3Request, refused: S3ErrorResponse) -> str:
    answer = f"{request.operation} was answered with {refused.code} ({refused.status})"
    if refused.region:
        return f"{answer}; the bucket is in the region {refused.region}: set AWS_DEFAULT_REGION={refused.region}"
    return answer


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
    """For an answer that lacks what S3 always says."""
    return TransientError(f"the answer to {operation} is not S3's: a login page, or a proxy's?")


def _region(text: str) -> str | None:
    return text if re.fullmatch(r"[a-z]+(-[a-z]+)*(-\d)?", text) else None
