"""The spawner's process: `python -P -m core_sdk.agent._spawner`, whose stdin is a socket to who wants agents.

It has one thread, and has imported what agents need. For each byte that comes, with a descriptor, it forks an agent
whose stdin is that descriptor. It ends with the connection; its agents do not.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import traceback
from typing import NoReturn

import psutil  # noqa: F401 - an agent needs it at its end, and would import it anew each time

from core_sdk.agent import __main__ as agent

_STDIN = 0
_STDERR = 2


def main() -> None:
    # The kernel then reaps the agents.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    requests = socket.socket(fileno=_STDIN)
    # What was imported is not to be copied for each agent by a collection of garbage.
    gc.freeze()
    while True:
        is_wanted, descriptors, _, _ = socket.recv_fds(requests, 1, 1)
        if not is_wanted:
            return
        # Where no process can be forked, the starter sees that the connection is closed.
        with contextlib.suppress(OSError):
            if os.fork() == 0:
                requests.detach()
                _be_agent(descriptors[0])
        os.close(descriptors[0])


def _be_agent(connection: int) -> NoReturn:
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(connection, _STDIN)
        _close_all_but_standard_streams()
        agent.main()
    except BaseException:  # noqa: BLE001 - as the interpreter would: nothing of the spawner may go on here
        traceback.print_exc()
    finally:
        os._exit(0)


def _close_all_but_standard_streams() -> None:
    """Closes the files, locks and sockets of the spawner."""
    # Lists the open descriptors, since their limit can be a thousand million.
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 - the listing of the directory is among them, and gone by now
        if int(name) > _STDERR:
            with contextlib.suppress(OSError):
                os.close(int(name))


if __name__ == "__main__":
    main()
