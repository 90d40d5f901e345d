"""A trainer that a program leads: creators make the model, the data and the optimizer on each of its workers.

    with PyTorchTrainer(model_creator, data_creator, optimizer_creator, nn.MSELoss, num_replicas=2) as trainer:
        for _ in range(10):
            print(trainer.train(max_retries=3), trainer.validate())
        model = trainer.get_model()

Names and semantics come from RaySGD 0.8.2, and for `TorchTrainer` and `TrainingOperator` from Ray 1.x. The
workers are processes of this machine, or of a Ray cluster.
"""

from __future__ import annotations

from core_sdk._ground.importing import needing_torch

with needing_torch("core_sdk.sgd"):
    from core_sdk.sgd._operator import NUM_SAMPLES, TrainingOperator
    from core_sdk.sgd._runner import Runner
    from core_sdk.sgd._torch_trainer import TorchTrainer
    from core_sdk.sgd._trainer import PyTorchTrainer
    from core_sdk.sgd._tuning import tune

__all__ = ["NUM_SAMPLES", "PyTorchTrainer", "Runner", "TorchTrainer", "TrainingOperator", "tune"]
