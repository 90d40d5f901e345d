"""The devices of a worker, and reproducible calculations."""

from __future__ import annotations

import torch

from core_sdk._ground.environment import add_variables
from core_sdk._runtime.devices import devices
from core_sdk.loop import _rng as rng
from core_sdk.train._worker.session import Session


def get_device() -> torch.device:
    """Returns this worker's first device: a GPU if the training uses them, otherwise the CPU."""
    return get_devices()[0]


def get_devices() -> list[torch.device]:
    """Returns all devices of this worker."""
    session = Session.current("get_devices()")
    return devices(session.context.distributed.local_rank, session.program.training.num_gpus)


def enable_reproducibility(seed: int = 0) -> None:
    """Seeds Python, NumPy and torch, and has torch use deterministic algorithms only, which may be slower."""
    rng.seed_all(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    # cuBLAS is deterministic only with this setting.
    add_variables({"CUBLAS_WORKSPACE_CONFIG": ":4096:8"})
