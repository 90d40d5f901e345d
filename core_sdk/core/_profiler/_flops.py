"""Counts the floating-point operations of a step, and knows those that devices can do in a second."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

# FLOP/s of dense matrices in bfloat16 (float16, where a device has no bfloat16), from the makers' data sheets. The
# first name that is a part of the device's decides.
_PEAKS = (
    ("B200", 2250e12),
    ("H200", 989e12),
    ("H100 PCIe", 756e12),
    ("H100 NVL", 835e12),
    ("H100", 989e12),
    ("A100", 312e12),
    ("A40", 150e12),
    ("A10G", 70e12),
    ("A10", 125e12),
    ("L40S", 362e12),
    ("L4", 121e12),
    ("V100", 125e12),
    ("T4", 65e12),
    ("MI300X", 1307e12),
    ("MI250X", 383e12),
)


def peak_of(device: str) -> float | None:
    """Returns the FLOP/s of a device of this name; None if it is not known. Pure."""
    return next((peak for name, peak in _PEAKS if name in device), None)


def peak_of_this_rank() -> float | None:
    """Returns the FLOP/s of the device that torch uses here; None without a GPU, or if it is not known."""
    import torch

    return peak_of(torch.cuda.get_device_name()) if torch.cuda.is_available() else None


@contextlib.contextmanager
def counted_flops(tell: Callable[[int], None]) -> Iterator[None]:
    """Counts the operations of the block, and tells them if it ends well."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        yield
    tell(counter.get_total_flops())
