"""An account of Azure's storage: its address, our credentials, and the connections to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from core_sdk._ground.environment import AzureSettings
from core_sdk._home.storage.bucket._secrets import check_address, hide_in_logs
from core_sdk._home.storage.bucket._settings import EXAMPLE_ACCOUNT, check_azure
from core_sdk._home.storage.bucket.azure._refusals import LOG_IN, refuse_foreign
from core_sdk.errors import CredentialsMissingError, CredentialsRejectedError, MissingDependencyError

# These come after our own imports, one of which says what to install if they are missing.
from azure.core.credentials import AzureNamedKeyCredential  # isort: skip
from azure.core.pipeline.transport import RequestsTransport  # isort: skip
from azure.storage.blob import BlobServiceClient  # isort: skip
from requests.adapters import HTTPAdapter  # isort: skip

# More than a transfer has threads. A connection beyond the pool's size would be opened for each request.
_MOST_CONNECTIONS = 64
# The library reads answers in pieces of this size.
_PIECE_BYTES = 1 << 20
_UNBOUNDED = 1 << 62


@dataclass(frozen=True)
class Account:
    """A storage account and our credentials for it: a `connection_string`, or a `url` with or without a `credential`.

    `credential` is a key or a SAS. A `url` without one uses the identity that is logged in, such as a managed identity
    or the one of `az login`.
    """

    connection_string: str | None = field(default=None, repr=False)
    url: str | None = None
    credential: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_azure(self.connection_string, self.url, self.credential)

    @classmethod
    def from_environment(cls, where: str, url: str | None = None) -> Account:
        """Returns the account at `url`, or the one that the environment names, with credentials from the environment.

        The key or SAS of another account is not used: a SAS would be disclosed to a stranger. Raises
        `CredentialsMissingError` if there is neither a `url` nor an account in the environment.
        """
        settings = AzureSettings.read()
        if settings.connection_string is not None:
            connected = cls(connection_string=settings.connection_string)
            if url is None or connected.endpoint(where) == url.rstrip("/"):
                return connected
        if url is not None:
            is_named = settings.account is None or settings.account == _account_name(url)
            return cls(url=url, credential=(settings.key or settings.sas_token) if is_named else None)
        if settings.account is None:
            raise CredentialsMissingError(where, LOG_IN)
        url = f"https://{settings.account}.blob.core.windows.net"
        return cls(url=url, credential=settings.key or settings.sas_token)

    def endpoint(self, where: str) -> str:
        """Returns the address of the account's blobs, without credentials."""
        if self.url is not None:
            return self.url.rstrip("/")
        with _service(self, where, {}) as service:
            endpoint = str(service.url).partition("?")[0].rstrip("/")
        check_address("account_url", endpoint, EXAMPLE_ACCOUNT)
        return endpoint

    def connect(self, where: str, timeout_s: float) -> BlobServiceClient:
        """Makes a client, without sending a request. `where` is for messages."""
        # Connections log the URL of every request, which includes the signature of a SAS.
        hide_in_logs("urllib3.connectionpool")
        return _service(
            self,
            where,
            {
                "transport": _transport(timeout_s),
                "raw_response_hook": refuse_foreign,
                "retry_total": 0,
                # Azure never redirects; a network with a login page does.
                "permit_redirects": False,
                # Otherwise the library splits a range into several requests.
                "max_single_get_size": _UNBOUNDED,
                "max_single_put_size": _UNBOUNDED,
            },
        )


def _transport(timeout_s: float) -> RequestsTransport:
    transport = RequestsTransport(
        connection_timeout=min(20.0, timeout_s),
        read_timeout=timeout_s,
        connection_data_block_size=_PIECE_BYTES,
    )
    transport.open()
    for scheme in ("http://", "https://"):
        transport.session.mount(scheme, HTTPAdapter(pool_maxsize=_MOST_CONNECTIONS, max_retries=0))
    return transport


def _service(account: Account, where: str, options: dict[str, Any]) -> BlobServiceClient:
    if account.connection_string is None:
        url = account.url or ""
        return BlobServiceClient(url, credential=_credential(url, account.credential, where), **options)
    try:
        return BlobServiceClient.from_connection_string(account.connection_string, **options)
    except ValueError:
        raise CredentialsRejectedError(where, "the connection string is malformed", LOG_IN) from None


def _credential(url: str, credential: str | None, where: str) -> Any:
    if credential is None:
        if not url.startswith("https:"):
            raise CredentialsMissingError(where, f"A login needs an account_url with https. {LOG_IN}")
        return _logged_in_identity()
    if "sig=" in credential:
        return credential.lstrip("?")
    return AzureNamedKeyCredential(_account_name(url), credential)


def _logged_in_identity() -> Any:
    try:
        from azure.identity import DefaultAzureCredential  # slow to import; only needed without a key or SAS
    except ImportError as error:
        raise MissingDependencyError("azure-identity", "azure", "Azure without a key or a SAS") from error
    return DefaultAzureCredential()


def _account_name(url: str) -> str:
    """Returns the account's name, which is in the host's name or, for emulators, in the path."""
    parts = urlsplit(url)
    return parts.path.strip("/") or (parts.hostname or "").partition(".")[0]
