"""What the master's process does, once it is in the background."""

from __future__ import annotations

import logging
import os
import signal

from core_sdk.agent.starting import Spawner
from core_sdk.environment import Environment
from core_sdk.errors import CoreSDKError
from core_sdk.master._master import Master
from core_sdk.master._server import Server
from core_sdk.master.machine import Machine
from core_sdk.tracking.home import Home


def be_master(spawner: Spawner, *, num_places: int | None, idle_s: float | None, listening: int) -> None:
    """Carries out the home's experiments; writes to the descriptor `listening` when it, or another master, listens."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    try:
        home = Home.create(Environment.read().home)
        master = Master(home, Machine.here(num_places), idle_s, spawner)
    except BlockingIOError:
        os.write(listening, b"+")  # another one was first
        return
    except CoreSDKError as error:
        logging.error("the master cannot start: %s", error)
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: master.stop())
    server = Server(home.root, master.answer)
    os.write(listening, b"+")
    os.close(listening)
    try:
        master.recover()
        master.run()
    finally:
        server.close()
        master.close()
