"""Requests to one S3 bucket, each sent once; failures are the errors of `Bucket`."""

from __future__ import annotations

import functools
import threading
from typing import Any

from core_sdk._home.storage.bucket._refusals import StoreRequest
from core_sdk._home.storage.bucket._secrets import hide_in_logs
from core_sdk._home.storage.bucket.s3._capabilities import Capabilities
from core_sdk._home.storage.bucket.s3._refusals import PERMISSIONS, S3, code_of

# These come after our own imports, one of which says what to install if they are missing.
import boto3.session  # isort: skip
import botocore.loaders  # isort: skip
import botocore.session  # isort: skip
from botocore import xform_name  # isort: skip
from botocore.config import Config  # isort: skip
from botocore.exceptions import ClientError  # isort: skip

# More than a transfer has threads. A connection beyond the pool's size would be opened for each request.
_MOST_CONNECTIONS = 64


class S3Client:
    """Sends requests to one bucket. boto3's client is made for the first one, since finding credentials may be slow."""

    def __init__(
        self, bucket: str, prefix: str, keys: tuple[str | None, str | None], endpoint_url: str | None, timeout_s: float
    ) -> None:
        """`keys` are the access key and the secret key; with None boto3 looks for credentials."""
        self.bucket = bucket
        self.root = f"{prefix}/" if prefix else ""
        """The beginning of all keys."""
        self.capabilities = Capabilities()
        self._keys = keys
        self._endpoint_url = endpoint_url
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._maybe_client: Any = None

    def where(self, name: str) -> str:
        return f"s3://{self.bucket}/{self.root}{name}".rstrip("/")

    def request(self, operation: str, name: str) -> StoreRequest:
        """Describes a request for errors."""
        return StoreRequest(self.where(name), PERMISSIONS[operation])

    def of_object(self, operation: str, name: str, **parameters: Any) -> dict[str, Any]:
        """Sends a request about one object and returns the answer. `operation` is S3's name of it: "PutObject"."""
        return self.of_bucket(operation, name, Key=self.root + name, **parameters)

    def of_bucket(self, operation: str, about: str, **parameters: Any) -> dict[str, Any]:
        """Sends a request and returns the answer. `about` is the object or folder that errors name."""
        with S3.translated(self.request(operation, about)):
            try:
                return self._send(operation, parameters)
            except ClientError as error:
                self.capabilities.heed(error.response.get("Error", {}), parameters)
                raise

    def head(self, name: str) -> dict[str, Any]:
        """Returns S3's answer about an object, without the content."""
        parameters = {"Key": self.root + name, **self.capabilities.for_reading()}
        with S3.translated(self.request("HeadObject", name)):
            try:
                return self._send("HeadObject", parameters)
            except ClientError as error:
                if not code_of(error):
                    # An answer to HEAD has no body. An answer to GET says if object, bucket or credentials are wrong.
                    self.of_bucket("GetObject", name, Range="bytes=0-0", **parameters)["Body"].close()
                raise

    def close(self) -> None:
        with self._lock:
            if self._maybe_client is not None:
                self._maybe_client.close()

    def _send(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = getattr(self._client(), xform_name(operation))(Bucket=self.bucket, **parameters)
        return answer

    def _client(self) -> Any:
        with self._lock:
            if self._maybe_client is None:
                self._maybe_client = self._new_client()
            return self._maybe_client

    def _new_client(self) -> Any:
        config = Config(
            retries={"total_max_attempts": 1},
            max_pool_connections=_MOST_CONNECTIONS,
            connect_timeout=self._timeout_s,
            read_timeout=self._timeout_s,
            tcp_keepalive=True,
            # We compute and check checksums ourselves, and many servers refuse what the library sends by default.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        # At the level DEBUG the library logs requests and answers unchanged.
        hide_in_logs("botocore.auth", "botocore.endpoint", "botocore.parsers", "urllib3.connectionpool")
        # The default session is shared by the whole process, and not safe in threads.
        library = botocore.session.Session()
        library.register_component("data_loader", _tables())
        session = boto3.session.Session(*self._keys, botocore_session=library)
        client = session.client("s3", endpoint_url=self._endpoint_url, config=config)
        client.meta.events.register_first("needs-retry.s3", _spare_region_search)
        return client


@functools.cache
def _tables() -> Any:
    """Returns the library's descriptions of S3's requests. Reading them takes 0.25 s, so all clients share them."""
    return botocore.loaders.create_loader()


def _spare_region_search(request_dict: dict[str, Any], response: Any, **_: object) -> None:
    """Keeps the library from following a redirect that names no region, such as one to a login page.

    The library would ask for the bucket's region, be redirected again, and so on until the stack overflows. A redirect
    of S3 names the region.
    """
    if response is None or response[0].status_code not in (301, 302, 307):
        return
    is_named = "x-amz-bucket-region" in response[0].headers or "Region" in response[1].get("Error", {})
    if not is_named:
        request_dict["context"].setdefault("s3_redirect", {})["redirected"] = True
