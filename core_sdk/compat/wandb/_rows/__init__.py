"""The rows that a run records: of calls of `log()`, of hooks, of event writers, and its summary."""

from core_sdk.compat.wandb._rows._event_writers import EventWriters
from core_sdk.compat.wandb._rows._history import History
from core_sdk.compat.wandb._rows._metrics import MetricDefinition, SummaryFigures, summary_figures
from core_sdk.compat.wandb._rows._summary import Summary
from core_sdk.compat.wandb._rows._watching import ModuleWatch
