"""A fake of Google's storage, of the tests' own, that answers as Google's public documentation says.

It exists because no emulator that can be installed does these: all preconditions, CRC-32C checked on every way up,
uploads in parts with their limits, 416, pages, and Google's texts for what is refused. It
was not compared with the real service.

https://cloud.google.com/storage/docs/json_api/v1, https://cloud.google.com/storage/docs/xml-api/reference-methods
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import ThreadingHTTPServer

from buckets.gcs import GcsServer
from buckets.strict_gcs._answers import Answer
from buckets.strict_gcs._handler import Handler
from buckets.strict_gcs._store import Store, Switches


@dataclass(frozen=True)
class StrictGcs(GcsServer):
    """Runs in threads of this process."""

    store: Store
    switches: Switches


@contextlib.contextmanager
def start_strict_gcs() -> Iterator[StrictGcs]:
    store, switches = Store(), Switches()
    handler = type("BoundHandler", (Handler,), {"store": store, "switches": switches})
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield StrictGcs("strict-gcs", ("127.0.0.1", server.server_address[1]), store, switches)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    # A connection that a client keeps open ends with the process.
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128


__all__ = ["Answer", "StrictGcs", "start_strict_gcs"]
