"""The address at which a lab is reached, and the proxies that may stand in front of it."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from core_sdk._interfaces.lab.oidc import OidcProvider
from core_sdk._interfaces.server.serving import LOOPBACK_NAMES, is_loopback

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Site:
    """The address of a lab, as browsers see it, and who may speak for somebody else."""

    url: str
    """Such as `https://lab.example.org`, without a path."""
    hosts: frozenset[str]
    """What browsers and programs write in `Host`."""
    proxies: tuple[Network, ...] = ()
    """The machines whose header is believed."""
    person_header: str = ""
    """The header in which such a proxy names who has signed in with it; empty: in none."""
    only_by_proxies: bool = False
    """Whether nobody else may connect, since what is sent is not encrypted."""
    provider: OidcProvider | None = None
    """Where people sign in, besides by one-time links."""

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the lab by https, and may be given a cookie."""
        return self.url.startswith("https://")

    def is_proxy(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(found in network for network in self.proxies)


def parse_listen(text: str) -> tuple[str, int]:
    """Returns the host and the port of HOST:PORT. Raises `ValueError`."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:8700")
    return host, int(port)


def plan_site(
    host: str,
    port: int,
    *,
    url: str | None,
    has_tls: bool,
    proxies: Iterable[str],
    person_header: str,
    provider: OidcProvider | None = None,
) -> Site:
    """Returns how a server that listens there is reached.

    Raises `ValueError` for a URL with a path, for a header that nobody may send, for an address that other machines
    reach without encryption, unless only named proxies may connect, and for sign-ins without https.
    """
    networks = tuple(ipaddress.ip_network(one) for one in proxies)
    if person_header and not networks:
        raise ValueError("a header that names people is believed of named proxies only: give --proxy, too")
    is_open = not is_loopback(host) and not has_tls
    if is_open and not networks:
        raise ValueError(
            f"at {host} other machines would read what is sent: give --certificate and --key, or name with --proxy the "
            "machine whose proxy encrypts it; nobody else may connect then"
        )
    own = f"{'https' if has_tls else 'http'}://{_shown(host)}:{port}"
    parts = urlsplit(url or own)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise ValueError(f"{url!r} is not an address such as https://lab.example.org")
    if provider is not None and parts.scheme != "https":
        raise ValueError("sign-in by OpenID Connect needs https: give --url, or --certificate and --key")
    usual_port = ":443" if parts.scheme == "https" else ":80"  # browsers leave it out
    address = parts.netloc.lower()
    own_names = (*LOOPBACK_NAMES, _shown(host)) if is_loopback(host) else (_shown(host),)
    hosts = {address, *(f"{name}:{port}".lower() for name in own_names)}
    hosts |= {one.removesuffix(usual_port) for one in hosts}
    if parts.port is None:
        hosts.add(f"{address}{usual_port}")
    return Site(
        f"{parts.scheme}://{address.removesuffix(usual_port)}",
        frozenset(hosts),
        networks,
        person_header.lower(),
        only_by_proxies=is_open,
        provider=provider,
    )


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
