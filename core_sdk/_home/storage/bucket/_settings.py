"""What must not be contradictory in the settings of a store. No library of the store is needed to tell."""

from __future__ import annotations

from core_sdk._home.storage.bucket._secrets import check_address

EXAMPLE_ACCOUNT = "https://ACCOUNT.blob.core.windows.net"


def check_s3(access_key: str | None = None, secret_key: str | None = None, endpoint_url: str | None = None) -> None:
    """Raises `ValueError` if an S3 bucket cannot be opened with these settings."""
    if (access_key is None) != (secret_key is None):
        raise ValueError("there is only one of access_key and secret_key: give both, or neither")
    if endpoint_url is not None:
        check_address("endpoint_url", endpoint_url, "https://host or http://host:port")


def check_azure(
    connection_string: str | None = None, account_url: str | None = None, credential: str | None = None
) -> None:
    """Raises `ValueError` if a container of Azure cannot be opened with these settings."""
    if connection_string is not None and (account_url is not None or credential is not None):
        raise ValueError("there is a connection_string and an account_url or credential: give one or the other")
    if credential is not None and account_url is None:
        raise ValueError("there is a credential without account_url")
    if account_url is not None:
        check_address("account_url", account_url, EXAMPLE_ACCOUNT)
