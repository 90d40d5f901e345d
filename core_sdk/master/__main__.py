"""The master's process: `python -P -m core_sdk.master`, in the background."""

from __future__ import annotations

import argparse
import logging
import signal
import sys

from core_sdk.environment import Environment
from core_sdk.master._master import Master
from core_sdk.master._server import Server
from core_sdk.master.machine import Machine
from core_sdk.tracking.home import Home

_IDLE_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="core_sdk.master")
    parser.add_argument("--slots", type=int, help="places on the CPU; the default is all GPUs, or all CPUs")
    parser.add_argument("--stay", action="store_true", help="go on when there is nothing to do")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    home = Home.create(Environment.read().home)
    try:
        master = Master(home, Machine.here(arguments.slots), None if arguments.stay else _IDLE_S)
    except BlockingIOError:
        sys.exit(0)  # another one was first
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: master.stop())
    server = Server(home.root, master.answer)
    try:
        master.recover()
        master.run()
    finally:
        server.close()
        master.close()


if __name__ == "__main__":
    main()
