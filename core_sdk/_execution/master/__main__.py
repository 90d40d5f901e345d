"""The master's process: `python -P -m core_sdk._execution.master`. It returns when its child, the master, listens."""

from __future__ import annotations

import argparse
import os
import sys

from core_sdk._execution.agent.starting import AgentSpawner
from core_sdk._machine.processes import heed_signals


def main() -> None:
    """Starts a master. Exits with status 0 if there is a master now, this one or another."""
    parser = argparse.ArgumentParser(prog="core_sdk._execution.master")
    parser.add_argument("--slots", type=int, help="places on the CPU; the default is all GPUs, or all CPUs")
    parser.add_argument("--avoid-busy", action="store_true", help="leave GPUs alone that other programs fill")
    parser.add_argument("--idle", type=float, default=60.0, help="end after so many seconds with nothing to do")
    parser.add_argument("--stay", action="store_const", const=None, dest="idle", help="go on with nothing to do")
    arguments = parser.parse_args()
    heed_signals()  # its trials do not belong to the command that happens to have started it
    read, write = os.pipe()
    if os.fork() != 0:
        os.close(write)
        sys.exit(0 if os.read(read, 1) else 1)
    os.close(read)
    # The spawner imports what agents need while this process imports what a master needs.
    spawner = AgentSpawner()
    from core_sdk._execution.master._process import be_master

    be_master(
        spawner,
        num_places=arguments.slots,
        avoids_busy=arguments.avoid_busy,
        idle_s=arguments.idle,
        listening=write,
    )


if __name__ == "__main__":
    main()
