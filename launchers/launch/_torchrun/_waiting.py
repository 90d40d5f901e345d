"""Says for whom the launcher of a node waits, if the nodes do not meet soon."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from queue import Empty, Queue

from launch._torchrun._config import LaunchConfig
from launch._torchrun._nodes import MASTER_PORT, split_endpoint

# Nodes of one job usually start within this time.
_FIRST_S = 10.0
_INTERVAL_S = 60.0
_ANSWER_S = 2.0
_LOOK_UP_S = 5.0


@contextlib.contextmanager
def wait_told(config: LaunchConfig, say: Callable[[str], None]) -> Iterator[None]:
    """Says after ten seconds, and then every minute, for whom the block waits. Does nothing for a node alone."""
    if config.rendezvous is None:
        yield
        return
    begun_at, is_over = time.monotonic(), threading.Event()

    def tell() -> None:
        pause_s = _FIRST_S
        while not is_over.wait(pause_s):
            pause_s, whom = _INTERVAL_S, missing(config)
            if not is_over.is_set():
                say(f"waiting for {time.monotonic() - begun_at:.0f} s for {whom}")

    threading.Thread(target=tell, name="launch-waiting", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()


def missing(config: LaunchConfig) -> str:
    """Returns the nodes that have not come, as far as can be told: the place of the meeting is asked for an answer."""
    place = config.rendezvous.endpoint if config.rendezvous else ""
    least, most = config.min_nodes, config.max_nodes
    others = f"the other nodes: {least if least == most else f'{least} to {most}'} are to meet at {place}"
    host, port = split_endpoint(place)
    if not host or (port is None and config.rendezvous and config.rendezvous.backend != "c10d"):
        return others
    try:
        _look_up(host)
        with socket.create_connection((host, port or MASTER_PORT), _ANSWER_S):
            return others
    except socket.gaierror as error:
        return f"the first node: there is no host {host!r} ({error.strerror})"
    except OSError as error:
        return f"the first node: nothing answers at {place} ({error.strerror or error})"


def _look_up(host: str) -> None:
    """Waits until a host is known by its address.

    Raises:
        OSError: if there is no such host, or if no name server answers soon: a look-up itself knows no time-out, and
            a network that drops its questions holds it for minutes.
    """
    outcome: Queue[OSError | None] = Queue()

    def look_up() -> None:
        try:
            socket.getaddrinfo(host, None)
        except OSError as error:
            outcome.put(error)
        else:
            outcome.put(None)

    threading.Thread(target=look_up, name="launch-look-up", daemon=True).start()
    try:
        error = outcome.get(timeout=_LOOK_UP_S)
    except Empty:
        raise socket.gaierror(socket.EAI_AGAIN, f"no name server answered in {_LOOK_UP_S:.0f} s") from None
    if error is not None:
        raise error
