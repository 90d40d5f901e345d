"""The clouds that give notices, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import urlsplit

from core_sdk.environment import StopNoticeSettings
from core_sdk.environment.names import STOP_NOTICES_VARIABLE

CloudName = Literal["gce", "ec2"]
_NAMES: tuple[CloudName, ...] = get_args(CloudName)


@dataclass(frozen=True)
class Cloud:
    """A cloud, and the address of its metadata server."""

    name: CloudName
    host: str
    port: int
    path: str = ""
    """The beginning of each request's path, without a slash at its end."""


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
            return _located("gce", "GCE_METADATA_HOST", settings.gce_host, f"http://{settings.gce_host}")
        case "ec2":
            endpoint = settings.ec2_endpoint
            return _located("ec2", "AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoint, endpoint)
    raise ValueError(f"{said_in} names {name!r}; known are {', '.join(_NAMES)}")


def _located(name: CloudName, variable: str, said: str, url: str) -> Cloud:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or parts.scheme != "http" or not _is_printable(host + parts.path):
        example = "metadata.google.internal:80" if name == "gce" else "http://169.254.169.254"
        raise ValueError(f"{variable} is {said!r}; it must be an address like {example}")
    return Cloud(name, host, port or 80, parts.path.rstrip("/"))


def _is_printable(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text
