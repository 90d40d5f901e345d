"""The work of the master's process once it is in the background."""

from __future__ import annotations

import logging
import os
import signal

from core_sdk._execution.agent.starting import AgentSpawner
from core_sdk._execution.experiments.reviving import announce_master, dismiss_master
from core_sdk._execution.master._master import Master
from core_sdk._execution.master._server import Server
from core_sdk._ground.environment import Environment
from core_sdk._home.folders import Home
from core_sdk._machine.slots import Machine
from core_sdk.errors import CoreSDKError


def be_master(
    spawner: AgentSpawner, *, num_places: int | None, avoids_busy: bool, idle_s: float | None, listening: int
) -> None:
    """Carries out the home's experiments. Writes to the descriptor `listening` when it, or another master, listens."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    try:
        home = Home.create(Environment.read().home)
        master = Master(home, Machine.here(num_places, avoids_busy=avoids_busy), idle_s, spawner)
    except BlockingIOError:
        os.write(listening, b"+")  # another master was first
        return
    except CoreSDKError as error:
        logging.error("the master cannot start: %s", error)
        return
    was_signalled = False

    def stop(*_: object) -> None:
        nonlocal was_signalled
        was_signalled = True
        master.stop()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    announce_master(home.root, _options(num_places, avoids_busy, idle_s))
    server = Server(home.root, master.answer)
    os.write(listening, b"+")
    os.close(listening)
    try:
        master.recover()
        master.run()
        # It was told to end, or has nothing to do. A signal may come from a shutdown.
        if not was_signalled and master.is_home_here():
            dismiss_master(home.root)
    finally:
        server.close()
        master.close()


def _options(num_places: int | None, avoids_busy: bool, idle_s: float | None) -> list[str]:
    """Returns the options that start a master like this one."""
    slots = [] if num_places is None else [f"--slots={num_places}"]
    busy = ["--avoid-busy"] if avoids_busy else []
    return [*slots, *busy, "--stay" if idle_s is None else f"--idle={idle_s:g}"]
