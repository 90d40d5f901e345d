"""Sets up torch.distributed in workers. These functions run there."""

from __future__ import annotations

import atexit
import datetime
import socket

from core_sdk._ground.environment import add_variables

# Open until this process ends.
_stores: list[object] = []


def load_torch() -> None:
    """Loads torch. Called on all ranks, so that they load it while rank 0 opens the store."""
    import torch.distributed  # noqa: F401


def open_store(host: str) -> int:
    """Opens torch's store on rank 0, and returns its port, which the system has chosen."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]  # slow to import

    listener = socket.create_server((host, 0))
    port: int = listener.getsockname()[1]
    # The store becomes the owner of the descriptor.
    _stores.append(TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()))
    return port


def tell_store(host: str, port: int) -> None:
    """Sets the store through which ranks meet: torch's ranks, and the ranks of a `DistributedContext`."""
    # The last one keeps torch from opening another store at this address on rank 0.
    add_variables({"MASTER_ADDR": host, "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"})


def init_process_group(backend: str | None, timeout_s: float) -> None:
    """Begins torch's process group. Called on all ranks, after `tell_store`. Collective."""
    import torch  # slow to import
    import torch.distributed as dist

    chosen = backend or ("nccl" if torch.cuda.is_available() else "gloo")
    dist.init_process_group(chosen, timeout=datetime.timedelta(seconds=timeout_s))
    # Otherwise threads of torch may still run when Python ends, which then aborts.
    atexit.register(_destroy_process_group)


def _destroy_process_group() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
