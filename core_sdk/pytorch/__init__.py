"""Trial and Trainer: a training whose loop, data order, reports, checkpoints and resumes are taken care of.

with core_sdk.pytorch.init(hparams=hparams) as train_context:
    trial = MyTrial(train_context)
    core_sdk.pytorch.Trainer(trial, train_context).fit(max_length=core_sdk.pytorch.Epoch(10))
"""

from core_sdk.pytorch._callback import PyTorchCallback
from core_sdk.pytorch._trial import PyTorchTrial

__all__ = ["PyTorchCallback", "PyTorchTrial"]
