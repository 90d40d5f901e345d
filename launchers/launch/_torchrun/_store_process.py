"""A process that keeps the store in which the ranks of one node meet: `python -P _store_process.py DESCRIPTOR`.

The descriptor is a socket that listens already. The process ends with its standard input, which the launcher keeps
open.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

_HOST = "127.0.0.1"
# The oldest version of torch with which this was tried, and worked. It does not with 2.6.
_NEWER_SERVER_SINCE = (2, 13)


def main() -> None:
    kept: list[object] = []
    threading.Thread(target=lambda: kept.append(_store(int(sys.argv[1]))), daemon=True).start()
    os.read(0, 1)
    os._exit(0)  # without waiting for the import of torch


def _store(descriptor: int) -> object:
    import torch
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return TCPStore(
        _HOST,
        socket.socket(fileno=os.dup(descriptor)).getsockname()[1],
        is_master=True,
        wait_for_workers=False,
        master_listen_fd=descriptor,
        # The newer server of older versions cannot take over a socket.
        use_libuv=tuple(map(int, torch.__version__.split(".")[:2])) >= _NEWER_SERVER_SINCE,
    )


if __name__ == "__main__":
    main()
