"""wandb's integrations of other libraries, of which there are none: importing this says what to use instead."""

from core_sdk.compat.wandb._missing import missing

raise ImportError(missing("wandb.integration"))
