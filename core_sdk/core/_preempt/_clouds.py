"""The clouds that give notices of a machine's end, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from core_sdk._ground.environment import StopNoticeSettings
from core_sdk._ground.environment.names import STOP_NOTICES_VARIABLE


class Cloud(msgspec.Struct, frozen=True):
    """A cloud, and the address of its metadata server."""

    name: Literal["gce", "ec2"]
    url: str
    """The URL of the metadata server, without a slash at its end."""


def chosen_clouds(stop_notices: str | Sequence[str] | None, settings: StopNoticeSettings) -> tuple[Cloud, ...]:
    """Returns the clouds that the argument names, or the environment if the argument is None.

    Raises `ValueError` for an unknown cloud, or a wrong address of a server.
    """
    if stop_notices is None:
        names, said_in = settings.clouds, STOP_NOTICES_VARIABLE
    else:
        names = (stop_notices,) if isinstance(stop_notices, str) else tuple(stop_notices)
        said_in = "stop_notices"
    return tuple(_cloud(name, said_in, settings) for name in dict.fromkeys(names))


def _cloud(name: str, said_in: str, settings: StopNoticeSettings) -> Cloud:
    match name:
        case "gce":
            return Cloud(name, _checked("GCE_METADATA_HOST", f"http://{settings.gce_host}"))
        case "ec2":
            return Cloud(name, _checked("AWS_EC2_METADATA_SERVICE_ENDPOINT", settings.ec2_endpoint))
    raise ValueError(f"{said_in} names {name!r}; known are gce, ec2")


def _checked(variable: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme == "http" and parts.hostname is not None and (parts.port is None or parts.port > 0)
    except ValueError:
        is_address = False
    if not is_address:
        raise ValueError(f"{variable} leads to {url!r}, which is not an address like http://169.254.169.254:80")
    return url.rstrip("/")
