"""Serves a lab: listens, and runs until it is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from core_sdk._interfaces.lab.door import Door
from core_sdk._interfaces.lab.folder import Lab
from core_sdk._interfaces.lab.oidc import OidcProvider
from core_sdk._interfaces.lab.routes import WriterRoutes
from core_sdk._interfaces.lab.site import Site, parse_listen, plan_site
from core_sdk._interfaces.server.pages import read_page
from core_sdk._interfaces.server.serving import BoundedServer, listen

logger = logging.getLogger("core_sdk.server")

MOST_CONNECTIONS = 4096
_GRACE_S = 10
"""The time that requests have which are being answered when the server is told to end."""


@dataclass(frozen=True)
class Exposure:
    """Where a lab's server listens, and what stands in front of it."""

    listen_at: str = "127.0.0.1:8700"
    url: str | None = None
    certificate: Path | None = None
    key: Path | None = None
    proxies: Sequence[str] = ()
    person_header: str = ""
    provider: OidcProvider | None = None


def serve_lab(
    lab: Lab,
    exposure: Exposure,
    *,
    writer_routes: WriterRoutes | None = None,
    on_listening: Callable[[Site], None],
) -> None:
    """Serves the lab, and blocks until Ctrl-C or SIGTERM. SIGHUP reads the certificate again.

    Raises `ValueError` for an exposure that would be unsafe, `CoreSDKError` or `OSError`.
    """
    host, port = parse_listen(exposure.listen_at)
    if (exposure.certificate is None) != (exposure.key is None):
        raise ValueError("a certificate and its key belong together: --certificate FILE --key FILE")

    def site_at(port: int) -> Site:
        return plan_site(
            host,
            port,
            url=exposure.url,
            has_tls=exposure.certificate is not None,
            proxies=exposure.proxies,
            person_header=exposure.person_header,
            provider=exposure.provider,
        )

    site_at(port)  # what is unsafe is refused before anything listens
    _allow_many_connections()
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(each) for each in listen(host, port)]
        site = site_at(sockets[0].getsockname()[1])
        door = Door(lab, site, read_page(), writer_routes)
        stack.callback(door.workspaces.close)
        server = _LabServer(door, exposure, lambda: on_listening(site))
        with contextlib.suppress(KeyboardInterrupt):  # the server ends well, and raises it again
            server.run(sockets=sockets)


class _LabServer(BoundedServer):
    def __init__(self, door: Door, exposure: Exposure, on_started: Callable[[], None]) -> None:
        super().__init__(
            door,
            door.workspaces.end,
            on_started,
            most_connections=MOST_CONNECTIONS,
            grace_s=_GRACE_S,
            certificate=exposure.certificate,
            key=exposure.key,
        )
        self._door = door
        self._watching: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._watching = asyncio.create_task(self._door.watch())
        if self.config.ssl is not None:
            with contextlib.suppress(ValueError, RuntimeError):  # signals are for the main thread
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._read_certificate)
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self._watching is not None:
            self._watching.cancel()
        self._door.write_last_uses()

    def _read_certificate(self) -> None:
        """Takes a renewed certificate for the connections that come; those that are open keep theirs."""
        certificate, context = self.config.ssl_certfile, self.config.ssl
        try:
            if context is not None and certificate is not None:
                context.load_cert_chain(certificate, self.config.ssl_keyfile)
        except (OSError, ssl.SSLError) as error:
            logger.error("the certificate cannot be read, and the one before stays: %s", error)


def _allow_many_connections() -> None:
    """Lets this process have as many open files as the system allows it; each connection is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MOST_CONNECTIONS if most == resource.RLIM_INFINITY else min(most, 2 * MOST_CONNECTIONS)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
