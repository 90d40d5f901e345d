"""Figures of the machine, sampled beside the training: processor, memory, disks, network, GPUs, and the process itself.

They go into the attempt's journal as records that belong to a time, one per group and report. Each source of figures
stands alone: one that fails is given up with a warning that names it, and the others go on.
"""

from core_sdk.core._profiler._context import ProfilerContext
from core_sdk.core._profiler._sources import Source

__all__ = ["ProfilerContext", "Source"]
