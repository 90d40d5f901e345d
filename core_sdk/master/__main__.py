"""The master's process: `python -P -m core_sdk.master`, which returns when its child, the master, listens."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys

from core_sdk.environment import Environment
from core_sdk.errors import CoreSDKError
from core_sdk.master._master import Master
from core_sdk.master._server import Server
from core_sdk.master.machine import Machine
from core_sdk.tracking.home import Home

_IDLE_S = 60.0


def main() -> None:
    """Exits with status 0 if there is a master now, this one or another."""
    arguments = _parse()
    read, write = os.pipe()
    if os.fork() != 0:
        os.close(write)
        sys.exit(0 if os.read(read, 1) else 1)
    os.close(read)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    try:
        home = Home.create(Environment.read().home)
        master = Master(home, Machine.here(arguments.slots), None if arguments.stay else _IDLE_S)
    except BlockingIOError:
        os.write(write, b"+")  # another one was first
        return
    except CoreSDKError as error:
        logging.error("the master cannot start: %s", error)
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: master.stop())
    server = Server(home.root, master.answer)
    os.write(write, b"+")
    os.close(write)
    try:
        master.recover()
        master.run()
    finally:
        server.close()
        master.close()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="core_sdk.master")
    parser.add_argument("--slots", type=int, help="places on the CPU; the default is all GPUs, or all CPUs")
    parser.add_argument("--stay", action="store_true", help="go on when there is nothing to do")
    return parser.parse_args()


if __name__ == "__main__":
    main()
