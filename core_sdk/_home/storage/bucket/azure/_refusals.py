"""Azure's refusals, and the failures of its library.

See learn.microsoft.com/rest/api/storageservices/blob-service-error-codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_sdk._home.storage.bucket._bucket import ObjectExistsError, TransientError
from core_sdk._home.storage.bucket._refusals import Refusal, Refusals, retry_after_s
from core_sdk._home.storage.bucket._secrets import word
from core_sdk.errors import (
    BucketNotFoundError,
    CredentialsMissingError,
    CredentialsRejectedError,
    MissingDependencyError,
)

try:
    from azure.core import exceptions
except ImportError as error:
    raise MissingDependencyError("azure-storage-blob", "azure", "a checkpoint storage in Azure") from error

LOG_IN = (
    "Set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN; "
    "or name the account and log in with `az login`"
)

# The permissions that requests need: an action of a role, or a letter of a SAS.
_NEED = (
    "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/{} (the role {} has it; of a SAS: permission {!r})"
)
READ = _NEED.format("read", "Storage Blob Data Reader", "r")
LIST = _NEED.format("read", "Storage Blob Data Reader", "l")
WRITE = _NEED.format("write", "Storage Blob Data Contributor", "w")
DELETE = _NEED.format("delete", "Storage Blob Data Contributor", "d")


def refuse_foreign(response: Any) -> None:
    """Raises `TransientError` for an answer without the headers that every answer of the service has.

    The library calls this for every answer, before it reads it.
    """
    answer = response.http_response
    # Every answer of the service has an id. A refusal of Azurite has no version.
    if "x-ms-request-id" not in answer.headers:
        reason = (
            f"the answer (HTTP {answer.status_code}) is not Azure's: something on the way gave it, a login page perhaps"
        )
        raise TransientError(reason, _wait_s(answer.headers))


def _wait_s(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds that the answer asks us to wait, or None."""
    for name in ("x-ms-retry-after-ms", "retry-after-ms"):
        if (wait_ms := retry_after_s(headers.get(name))) is not None:
            return wait_ms / 1000
    return retry_after_s(headers.get("Retry-After"))


def _answer_of(error: exceptions.AzureError) -> Refusal | None:
    response = getattr(error, "response", None)
    if response is not None:
        code = word(str(response.headers.get("x-ms-error-code") or getattr(error, "error_code", "")))
        hint = "as an account's firewall does, too" if code == "AuthorizationFailure" else ""
        return Refusal(response.status_code, code, hint, retry_after_s=_wait_s(response.headers))
    if isinstance(error, exceptions.ClientAuthenticationError) and isinstance(error.__cause__, ValueError):
        return Refusal(kind=CredentialsRejectedError, message="the account key is not base64")
    return None


AZURE = Refusals(
    store="Azure",
    log_in=LOG_IN,
    make_bucket="create the container: `az storage container create --name {}`",
    codes={
        # InvalidBlockList: another upload of this name was committed, or a week has passed. Retries end at the deadline
        # with this error.
        TransientError: "BlobBeingRehydrated ContainerBeingDeleted InternalError InvalidBlockList Md5Mismatch "
        "OperationTimedOut ServerBusy",
        BucketNotFoundError: "AccountNotFound ContainerDisabled ContainerNotFound",
        ObjectExistsError: "BlobAlreadyExists",
        CredentialsRejectedError: "AuthenticationFailed InvalidAuthenticationInfo KeyBasedAuthenticationNotPermitted "
        "NoAuthenticationInformation",
    },
    advice={
        "AuthenticationFailed": f"A SAS may have expired, a key may have been changed. {LOG_IN}",
        "KeyBasedAuthenticationNotPermitted": "The account takes no keys: log in with `az login`, and name it alone",
    },
    library=(exceptions.AzureError,),
    answer_of=_answer_of,
    unanswered={
        exceptions.ClientAuthenticationError: (CredentialsMissingError, ""),
        exceptions.ServiceRequestTimeoutError: (TransientError, "nothing came in time"),
        exceptions.ServiceResponseTimeoutError: (TransientError, "nothing came in time"),
        exceptions.ServiceRequestError: (TransientError, "there was no connection"),
        exceptions.ServiceResponseError: (TransientError, "the connection broke"),
        exceptions.AzureError: (TransientError, "the answer was incomplete, or its bytes are not those that were sent"),
    },
)
