"""Samples figures of the machine during the training: processor, memory, disks, network, GPUs, and the process itself.

The attempt's journal gets a record for each group of figures and each report. If a source of figures fails, a warning
names it, and the others go on.
"""

from core_sdk.core._profiler._collector import FigureSource
from core_sdk.core._profiler._context import ProfilerContext
from core_sdk.core._profiler._usual import UsualFigures
