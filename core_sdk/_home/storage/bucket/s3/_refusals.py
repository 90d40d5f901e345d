"""S3's refusals, and the failures of boto3."""

from __future__ import annotations

import re
from typing import Any

from core_sdk._home.storage.bucket._bucket import ObjectExistsError, ObjectMissingError, TransientError
from core_sdk._home.storage.bucket._refusals import FOREIGN_ANSWER, Refusal, Refusals, retry_after_s
from core_sdk._home.storage.bucket._secrets import word
from core_sdk.errors import (
    BucketNotFoundError,
    CredentialsMissingError,
    CredentialsRejectedError,
    MissingDependencyError,
    StorageError,
    StoragePermissionError,
)

try:
    import boto3  # noqa: F401  other libraries bring botocore alone
    from botocore import exceptions
    from botocore.parsers import ResponseParserError
    from urllib3.exceptions import HTTPError
except ImportError as error:
    raise MissingDependencyError("boto3", extra="s3", purpose="a checkpoint storage in S3") from error

# Without the permission to list, S3 does not say that an object is missing.
_TO_READ = "s3:GetObject, and s3:ListBucket on the bucket"
PERMISSIONS = {
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "CompleteMultipartUpload": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "DeleteObject": "s3:DeleteObject",
    "GetObject": _TO_READ,
    "HeadObject": _TO_READ,
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "ListObjectsV2": "s3:ListBucket",
    "PutObject": "s3:PutObject",
    "UploadPart": "s3:PutObject",
}
"""The permission that each request needs."""

_LOG_IN = (
    "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, with temporary ones (STS) also AWS_SESSION_TOKEN, or run "
    "`aws configure`"
)


def code_of(error: exceptions.ClientError) -> str:
    """Returns S3's code for the failure; "" for an answer to HEAD, which has none, and for one that is not S3's."""
    code = word(str(error.response.get("Error", {}).get("Code", "")))
    return "" if code.isdigit() else code


def _answer_of(error: Exception) -> Refusal | None:
    if not isinstance(error, exceptions.ClientError):
        return None
    told: dict[str, Any] = error.response.get("Error", {})
    metadata: dict[str, Any] = error.response.get("ResponseMetadata", {})
    headers = metadata.get("HTTPHeaders", {})
    status, code = int(metadata.get("HTTPStatusCode", 0)), code_of(error)
    # These statuses tell of another region, and then name it.
    region = str(headers.get("x-amz-bucket-region") or told.get("Region") or "") if status in (301, 307, 400) else ""
    if re.fullmatch(r"[a-z]+(-[a-z]+)*(-\d)?", region):
        advice = f"the bucket is in the region {region}: set AWS_DEFAULT_REGION={region}"
        return Refusal(status, code, advice)
    if not code and status not in (408, 429) and status < 500:
        return Refusal(message=FOREIGN_ANSWER, kind=TransientError)
    return Refusal(status, code, retry_after_s=retry_after_s(headers.get("retry-after")))


S3 = Refusals(
    store="S3",
    log_in=_LOG_IN,
    make_bucket="make it with `aws s3 mb s3://{}`",
    codes={
        # Damaged on its way; in conflict with another write of this object; asked to come later.
        TransientError: "BadDigest IncompleteBody XAmzContentSHA256Mismatch ConditionalRequestConflict "
        "OperationAborted InternalError RequestLimitExceeded RequestTimeout ServiceUnavailable SlowDown Throttled "
        "ThrottledException Throttling ThrottlingException TooManyRequests",
        ObjectMissingError: "InvalidRange NoSuchKey NoSuchUpload NoSuchVersion",
        ObjectExistsError: "PreconditionFailed",
        BucketNotFoundError: "NoSuchBucket",
        CredentialsRejectedError: "ExpiredToken InvalidAccessKeyId InvalidToken RequestTimeTooSkewed "
        "SignatureDoesNotMatch TokenRefreshRequired",
        StoragePermissionError: "AccessDenied",
        StorageError: "InvalidObjectState",
    },
    advice={
        "ExpiredToken": f"They have expired. {_LOG_IN}",
        "RequestTimeTooSkewed": "Correct the clock of this machine",
        "SignatureDoesNotMatch": f"The secret key does not belong to the access key. {_LOG_IN}",
    },
    library=(exceptions.ClientError, exceptions.BotoCoreError, ResponseParserError, HTTPError),
    answer_of=_answer_of,
    unanswered={
        exceptions.NoCredentialsError: (CredentialsMissingError, ""),
        exceptions.PartialCredentialsError: (CredentialsMissingError, ""),
        exceptions.CredentialRetrievalError: (CredentialsRejectedError, "they could not be renewed"),
        exceptions.TokenRetrievalError: (CredentialsRejectedError, "they could not be renewed"),
        exceptions.SSOError: (CredentialsRejectedError, "they could not be renewed"),
        ResponseParserError: (TransientError, FOREIGN_ANSWER),
        exceptions.ConnectTimeoutError: (TransientError, "no connection in time"),
        exceptions.ReadTimeoutError: (TransientError, "no answer in time"),
        exceptions.SSLError: (TransientError, "no TLS connection: is the certificate one that this machine trusts?"),
        exceptions.ProxyConnectionError: (TransientError, "no connection to the proxy of HTTP_PROXY or HTTPS_PROXY"),
        exceptions.ConnectionClosedError: (TransientError, "the connection broke off"),
        exceptions.ConnectionError: (TransientError, "no connection"),
        exceptions.HTTPClientError: (TransientError, "the connection broke off"),
        exceptions.IncompleteReadError: (TransientError, "the answer broke off"),
        HTTPError: (TransientError, "the answer broke off"),
        exceptions.BotoCoreError: (StorageError, "boto3 cannot send it"),
    },
)
