"""Scripts of Trials of the kinds that people wrote for Determined: only their import line is another one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from core_sdk import client

RunScript = Callable[..., tuple[int, str, str]]

# Metrics over all samples, by a class and by a function, from a loader that repeats, skips and divides by itself.
CUSTOM_REDUCERS = """
    import torch
    from torch import nn
    from core_sdk import pytorch

    CLASSES = 4

    class PerClassAccuracy(pytorch.MetricReducer):
        def __init__(self):
            self.reset()

        def reset(self):
            self.counts, self.hits = [0] * CLASSES, [0] * CLASSES

        def update(self, labels, predictions):
            for label, prediction in zip(labels.tolist(), predictions.tolist()):
                self.counts[label] += 1
                self.hits[label] += label == prediction

        def per_slot_reduce(self):
            return self.counts, self.hits

        def cross_slot_reduce(self, per_slot_metrics):
            counts, hits = (list(map(sum, zip(*each))) for each in zip(*per_slot_metrics))
            return {f"accuracy_{label}": hit / count for label, (count, hit) in enumerate(zip(counts, hits))}

    def largest(batches):
        return max(max(values) for values in batches)

    def data(num_samples):
        inputs = torch.randn(num_samples, 8, generator=torch.Generator().manual_seed(1))
        return torch.utils.data.TensorDataset(inputs, inputs[:, :CLASSES].argmax(dim=1))

    class ReducingTrial(pytorch.PyTorchTrial):
        def __init__(self, context):
            self.context = context
            self.model = context.wrap_model(nn.Linear(8, CLASSES))
            self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters(), lr=0.05))
            self.per_class = context.wrap_reducer(PerClassAccuracy(), for_training=False)
            self.largest = context.wrap_reducer(largest, name="largest_logit", for_validation=False)
            context.experimental.disable_dataset_reproducibility_checks()

        def build_training_data_loader(self):
            dataset, distributed = data(128), self.context.distributed
            batches = torch.utils.data.BatchSampler(
                torch.utils.data.RandomSampler(dataset), self.context.get_per_slot_batch_size(), drop_last=False
            )
            batches = pytorch.adapt_batch_sampler(
                batches, repeat=True, skip=self.context.get_initial_batch(),
                num_replicas=distributed.get_size(), rank=distributed.get_rank(),
            )
            return torch.utils.data.DataLoader(dataset, batch_sampler=batches)

        def build_validation_data_loader(self):
            return pytorch.DataLoader(data(100), batch_size=self.context.get_per_slot_batch_size())

        def train_batch(self, batch, epoch_idx, batch_idx):
            inputs, labels = batch
            outputs = self.model(inputs)
            loss = nn.functional.cross_entropy(outputs, labels)
            self.context.backward(loss)
            self.context.step_optimizer(self.optimizer)
            self.largest.update(outputs.flatten().tolist())
            return {"loss": loss}

        def evaluate_batch(self, batch):
            inputs, labels = batch
            self.per_class.update(labels, self.model(inputs).argmax(dim=1))
            return {}

    with pytorch.init(hparams={"global_batch_size": 16}) as train_context:
        trainer = pytorch.Trainer(ReducingTrial(train_context), train_context)
        trainer.fit(
            max_length=pytorch.Batch(20), reporting_period=pytorch.Batch(10), validation_period=pytorch.Batch(10),
            checkpoint_policy="none",
        )
"""

# Two models, each with an optimizer and a schedule of its own, of which each batch trains both.
GAN = """
    import torch
    from torch import nn
    from core_sdk import pytorch

    class GANTrial(pytorch.PyTorchTrial):
        def __init__(self, context):
            self.context = context
            size = context.get_hparam("latent_dim")
            self.generator = context.wrap_model(nn.Sequential(nn.Linear(size, 16), nn.ReLU(), nn.Linear(16, 2)))
            self.discriminator = context.wrap_model(nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1)))
            betas = (context.get_hparam("b1"), context.get_hparam("b2"))
            self.opt_g = context.wrap_optimizer(torch.optim.Adam(self.generator.parameters(), lr=0.01, betas=betas))
            self.opt_d = context.wrap_optimizer(torch.optim.Adam(self.discriminator.parameters(), lr=0.01, betas=betas))
            self.lr_g = context.wrap_lr_scheduler(
                torch.optim.lr_scheduler.LambdaLR(self.opt_g, lambda epoch: 0.95**epoch),
                step_mode=pytorch.LRScheduler.StepMode.STEP_EVERY_EPOCH,
            )

        def build_training_data_loader(self):
            points = torch.randn(96, 2, generator=torch.Generator().manual_seed(1)) + 3
            loader = pytorch.DataLoader(points, batch_size=self.context.get_per_slot_batch_size(), shuffle=True)
            self.context.experimental.disable_dataset_reproducibility_checks()
            return loader.get_data_loader(repeat=True, skip=self.context.get_initial_batch())

        def build_validation_data_loader(self):
            return pytorch.DataLoader(torch.zeros(8, 2) + 3, batch_size=4)

        def loss(self, points, is_real):
            judged = self.discriminator(points)
            return nn.functional.binary_cross_entropy_with_logits(judged, torch.full_like(judged, float(is_real)))

        def drawn(self, num_points):
            noise = torch.randn(num_points, self.context.get_hparam("latent_dim"))
            return self.generator(self.context.to_device(noise))

        def train_batch(self, batch, epoch_idx, batch_idx):
            for parameter in self.discriminator.parameters():
                parameter.requires_grad_(False)
            g_loss = self.loss(self.drawn(len(batch)), True)
            self.context.backward(g_loss)
            self.context.step_optimizer(self.opt_g)
            for parameter in self.discriminator.parameters():
                parameter.requires_grad_(True)
            d_loss = (self.loss(batch, True) + self.loss(self.drawn(len(batch)).detach(), False)) / 2
            self.context.backward(d_loss)
            self.context.step_optimizer(self.opt_d)
            return {"loss": d_loss, "g_loss": g_loss, "d_loss": d_loss}

        def evaluate_batch(self, batch):
            return {"loss": self.loss(batch, True)}

    with pytorch.init(hparams={"global_batch_size": 16, "latent_dim": 4, "b1": 0.5, "b2": 0.999}) as train_context:
        trainer = pytorch.Trainer(GANTrial(train_context), train_context)
        trainer.fit(max_length=pytorch.Batch(12), reporting_period=pytorch.Batch(6), validation_period=pytorch.Batch(6))
"""


@pytest.mark.parametrize(
    ("source", "training", "validation"),
    [
        pytest.param(
            CUSTOM_REDUCERS,
            {"loss", "largest_logit"},
            {f"accuracy_{label}" for label in range(4)},
            id="custom reducers",
        ),
        pytest.param(GAN, {"loss", "g_loss", "d_loss"}, {"loss"}, id="gan"),
    ],
)
def test_a_script_with_a_trial_runs(
    source: str, training: set[str], validation: set[str], run_script: RunScript
) -> None:
    """A script with a Trial of Determined runs, also with endlessly repeating loaders."""
    status, _, errors = run_script(source)

    assert status == 0, errors
    trial = client.get_trial(1)
    trained, validated = list(trial.iter_metrics("training")), list(trial.iter_metrics("validation"))
    assert len(trained) == len(validated) == 2
    assert training <= trained[-1].metrics.keys()
    assert validation <= validated[-1].metrics.keys()
