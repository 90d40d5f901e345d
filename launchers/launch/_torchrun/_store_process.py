"""A process that keeps the store in which the ranks of one node meet: `python -P _store_process.py DESCRIPTOR`.

The descriptor is a socket that listens already. The process ends with its standard input, which the launcher keeps
open.

The store is a class of torch's C++ library. `import torch` loads that library, and then over a thousand Python modules,
and NumPy. A rank needs these; the store does not, and without them it starts in a sixth of the processor's time.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import socket
import sys
import threading
import types
from typing import Any

_HOST = "127.0.0.1"
# The oldest version of torch with which this was tried, and worked. It does not with 2.6.
_NEWER_SERVER_SINCE = (2, 13)
# Asks for the store as torch documents it.
WHOLE_TORCH = "--whole-torch"


def main() -> None:
    kept: list[object] = []
    threading.Thread(target=lambda: kept.append(_store(int(sys.argv[1]))), daemon=True).start()
    os.read(0, 1)
    os._exit(0)  # without waiting for the import of torch


def _store(descriptor: int) -> object:
    try:
        version, store_class = _whole_torch() if WHOLE_TORCH in sys.argv else _library_of_torch()
        return store_class(
            _HOST,
            socket.socket(fileno=os.dup(descriptor)).getsockname()[1],
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=os.dup(descriptor),  # which ends with an attempt that failed
            # The newer server of older versions cannot take over a socket.
            use_libuv=tuple(map(int, version.split(".")[:2])) >= _NEWER_SERVER_SINCE,
        )
    except Exception:  # a torch that is built otherwise may fail in any way
        if WHOLE_TORCH in sys.argv:
            raise
        # A library of which only a part was loaded cannot be loaded again.
        os.execv(sys.executable, [sys.executable, "-P", *sys.argv, WHOLE_TORCH])


def _whole_torch() -> tuple[str, Any]:
    import torch
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return torch.__version__, TCPStore


def _library_of_torch() -> tuple[str, Any]:
    """Loads torch's library without torch's Python modules. Raises any error if this torch is built otherwise."""
    found = importlib.util.find_spec("torch")
    if found is None:
        raise ModuleNotFoundError("torch")
    package = types.ModuleType("torch")
    package.__path__ = found.submodule_search_locations or []
    modules: dict[str, Any] = {"torch": package, "torch.distributed": types.ModuleType("distributed"), "numpy": None}
    sys.modules.update(modules)
    importlib.import_module("torch._C")._c10d_init()
    store_class = importlib.import_module("torch._C._distributed_c10d").TCPStore
    return importlib.import_module("torch.version").__version__, store_class


if __name__ == "__main__":
    main()
