"""The Core API: a thin Context around a training script of your own.

    with core_sdk.core.init() as core_context:
        core_context.train.report_training_metrics(steps_completed=step, metrics={"loss": loss})

One code path on and off a cluster. A process that nobody started begins a trial in the home; one that
`core-sdk trial resume` started goes on with its trial. The parts share one journal and know nothing of each other.
"""

from core_sdk._distributed import DistributedContext
from core_sdk._ground.guards import Guard
from core_sdk.core._checkpoint import CheckpointContext, DownloadMode
from core_sdk.core._context import Context
from core_sdk.core._experimental import ExperimentalCoreContext
from core_sdk.core._init import init
from core_sdk.core._logger import Logger
from core_sdk.core._preempt import PreemptContext, PreemptMode
from core_sdk.core._profiler import ProfilerContext
from core_sdk.core._searcher import SearcherContext, SearcherMode, SearcherOperation, Unit
from core_sdk.core._train import EarlyExitReason, TensorboardMode, TrainContext

__all__ = [
    "CheckpointContext",
    "Context",
    "DistributedContext",
    "DownloadMode",
    "EarlyExitReason",
    "ExperimentalCoreContext",
    "Guard",
    "Logger",
    "PreemptContext",
    "PreemptMode",
    "ProfilerContext",
    "SearcherContext",
    "SearcherMode",
    "SearcherOperation",
    "TensorboardMode",
    "TrainContext",
    "Unit",
    "init",
]
