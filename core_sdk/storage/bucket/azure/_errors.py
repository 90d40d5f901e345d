"""Turns Azure's refusals into the errors of `Bucket`, without Azure's own texts, which quote requests."""

from __future__ import annotations

import contextlib
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
from core_sdk.storage.bucket._http import retry_after_s, system_reason
from core_sdk.storage.bucket._secrets import word

try:
    from azure.core.exceptions import (
        AzureError,
        ClientAuthenticationError,
        ServiceRequestError,
        ServiceRequestTimeoutError,
        ServiceResponseError,
        ServiceResponseTimeoutError,
    )
except ImportError as error:
    raise MissingDependencyError("azure-storage-blob", "azure", "a checkpoint storage in Azure") from error

CREDENTIALS_ADVICE = (
    "Set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN; "
    "or name the account and log in with `az login`"
)

_BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
_PASSING = frozenset(
    {
        "BlobBeingRehydrated",
        "ContainerBeingDeleted",
        "InternalError",
        # Another upload of this name was committed, or a week has passed. Retries end at the deadline with this error.
        "InvalidBlockList",
        "Md5Mismatch",
        "OperationTimedOut",
        "PendingCopyOperation",
        "ServerBusy",
    }
)
_NOT_WHO_IT_SAYS = frozenset(
    {
        "AuthenticationFailed",
        "InvalidAuthenticationInfo",
        "KeyBasedAuthenticationNotPermitted",
        "NoAuthenticationInformation",
    }
)


@dataclass(frozen=True)
class Need:
    """The permission that a request needs: an action of a role, or a letter of a SAS."""

    action: str
    letter: str
    role: str = "Storage Blob Data Contributor"

    def __str__(self) -> str:
        return f"{_BLOBS}/{self.action} (the role {self.role} has it; of a SAS: permission {self.letter!r})"


READ = Need("read", "r", "Storage Blob Data Reader")
LIST = Need("read", "l", "Storage Blob Data Reader")
WRITE = Need("write", "w")
DELETE = Need("delete", "d")


class ForeignAnswerError(TransientError):
    """The answer came from something between us and Azure: a login page, a load balancer."""


@contextlib.contextmanager
def translated_errors(where: str, need: Need) -> Iterator[None]:
    """Raises the errors of `Bucket` in place of the library's, whose texts may hold signed addresses."""
    try:
        yield
    except AzureError as error:
        raise meaning_of(error, where, need) from None


def refuse_foreign(response: Any) -> None:
    """Raises `ForeignAnswerError` for an answer without the headers that every answer of the service has.

    The library calls this for every answer, before it reads it.
    """
    answer = response.http_response
    headers: Mapping[str, str] = answer.headers
    # Every answer of the service has an id. A refusal of Azurite has no version.
    if "x-ms-request-id" not in headers:
        status = answer.status_code
        reason = f"the answer (HTTP {status}) is not Azure's: something on the way gave it, a login page perhaps"
        raise ForeignAnswerError(reason, _wait_s(headers))


def _wait_s(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds that the answer asks us to wait, or None."""
    for name in ("x-ms-retry-after-ms", "retry-after-ms"):
        if (wait_ms := retry_after_s(headers.get(name))) is not None:
            return wait_ms / 1000
    return retry_after_s(headers.get("Retry-After"))


def meaning_of(error: AzureError, where: str, need: Need) -> Exception:
    """Returns our error for a failure that the library has raised."""
    response = getattr(error, "response", None)
    if response is None:
        return _without_answer(error, where)
    code = word(str(response.headers.get("x-ms-error-code") or getattr(error, "error_code", None))) or "no code"
    return meaning_of_status(response.status_code, code, response.headers, where, need)


def meaning_of_status(status: int, code: str, headers: Mapping[str, str], where: str, need: Need) -> Exception:
    """Returns our error for a failed request. `code` is Azure's name for the failure.

    See learn.microsoft.com/rest/api/storageservices/blob-service-error-codes.
    """
    said = f"{code} (HTTP {status})"
    if status in (408, 429) or (status >= 500 and status not in (501, 505)) or code in _PASSING:
        return TransientError(f"Azure answered {said}", _wait_s(headers))
    if code in ("ContainerNotFound", "ContainerDisabled", "AccountNotFound"):
        return BucketNotFoundError(where, "create the container: `az storage container create --name NAME`")
    if status in (404, 416):
        return ObjectMissingError(where)
    if status == 412 or code == "BlobAlreadyExists":
        return ObjectExistsError(where)
    if status == 401 or code in _NOT_WHO_IT_SAYS:
        return CredentialsRejectedError(where, said, _rejected_advice(code))
    if status == 403:
        firewall = ", as an account's firewall does too" if code == "AuthorizationFailure" else ""
        return StoragePermissionError(where, f"{need}; Azure answered {code}{firewall}")
    return StorageRefusedError(where, f"Azure answered {said}")


def _rejected_advice(code: str) -> str:
    if code == "KeyBasedAuthenticationNotPermitted":
        return "The account takes no keys: log in with `az login`, and name the account alone"
    return f"A SAS may have expired, a key may have been changed. {CREDENTIALS_ADVICE}"


def _without_answer(error: AzureError, where: str) -> Exception:
    if isinstance(error, ClientAuthenticationError):
        if isinstance(error.__cause__, ValueError):
            return CredentialsRejectedError(where, "the account key is not base64", CREDENTIALS_ADVICE)
        return CredentialsMissingError(where, CREDENTIALS_ADVICE)
    return TransientError(_network_reason(error))


def _network_reason(error: AzureError) -> str:
    """Returns a reason without the request's URL, which may be signed."""
    match error:
        case ServiceRequestTimeoutError() | ServiceResponseTimeoutError():
            what = "nothing came in time"
        case ServiceRequestError():
            what = "there was no connection"
        case ServiceResponseError():
            what = "the connection broke"
        case _:
            what = "the answer was incomplete, or its bytes are not those that were sent"
    strerror = system_reason(error)
    return f"{what}: {strerror}" if strerror else what
