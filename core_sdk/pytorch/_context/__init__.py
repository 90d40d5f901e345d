"""The context of a trial, which wraps its models and optimizers, and gives it information about the run."""

from core_sdk.pytorch._context._pytorch_context import PyTorchExperimentalContext, PyTorchTrialContext
from core_sdk.pytorch._context._trial_context import TrialContext, run_of, split_batch_size
