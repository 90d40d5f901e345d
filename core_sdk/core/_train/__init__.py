"""Reporting: what a script tells about its training, and which reports are recorded."""

from core_sdk.core._train._context import TRAINING, VALIDATION, EarlyExitReason, TrainContext
from core_sdk.core._train._event_files import TensorboardMode
from core_sdk.core._train._ledger import Ledger, TrialLedger
