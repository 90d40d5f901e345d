"""What a trial builds itself with: its context, which wraps models and optimizers and answers what it asks."""

from core_sdk.pytorch._context._experimental import PyTorchExperimentalContext
from core_sdk.pytorch._context._pytorch_context import PyTorchTrialContext
from core_sdk.pytorch._context._trial_context import TrialContext, TrialSetup, split_batch_size
