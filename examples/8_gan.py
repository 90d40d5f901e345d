"""Step 8: a GAN, whose two models and two optimizers are trained in turn. It learns to draw digits.

How far its digits are from real ones is measured as the Fréchet distance of their pixels. Noise is at about 10; other
real digits are at about 0.2.

python examples/8_gan.py
"""

import argparse
import logging
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import digits
from core_sdk import LOG_FORMAT, pytorch

EXPECTED_DISTANCE = 3.5
NUM_DRAWN = 2000


class GanTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        torch.set_num_threads(1)
        self.context = context
        self.latent_size: int = context.get_hparam("latent_size")
        hidden, learning_rate = context.get_hparam("hidden_units"), context.get_hparam("learning_rate")
        self.generator = context.wrap_model(make_generator(self.latent_size, hidden))
        self.discriminator = context.wrap_model(make_discriminator(hidden))
        self.generator_optimizer, self.discriminator_optimizer = (
            context.wrap_optimizer(torch.optim.Adam(model.parameters(), lr=learning_rate, betas=(0.5, 0.999)))
            for model in (self.generator, self.discriminator)
        )

    def build_training_data_loader(self) -> pytorch.DataLoader:
        train_digits, _ = digits.load()
        batch_size = self.context.get_per_slot_batch_size()
        return pytorch.DataLoader(train_digits.dataset(), batch_size=batch_size, shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        _, test_digits = digits.load()
        return pytorch.DataLoader(test_digits.dataset(), batch_size=64)

    def train_batch(self, batch: list[Tensor], epoch_idx: int, batch_idx: int) -> dict[str, Tensor]:
        real = batch[0].flatten(1)
        fake = self.generator(self.noise(len(real)))

        # One pass for both, since a model on several ranks has one backward pass for each forward pass.
        of_real, of_fake = self.discriminator(torch.cat([real, fake.detach()])).chunk(2)
        discriminator_loss = softplus(-of_real).mean() + softplus(of_fake).mean()
        self.context.backward(discriminator_loss)
        self.context.step_optimizer(self.discriminator_optimizer)

        generator_loss = softplus(-self.discriminator(fake)).mean()
        self.context.backward(generator_loss)
        self.context.step_optimizer(self.generator_optimizer)
        # The generator's loss has left gradients there, too.
        self.discriminator_optimizer.zero_grad()
        return {"generator_loss": generator_loss, "discriminator_loss": discriminator_loss}

    def evaluate_full_dataset(self, data_loader: Iterable[list[Tensor]]) -> dict[str, float]:
        real = torch.cat([images.flatten(1) for images, _ in data_loader]).to(self.context.device)
        return {"distance": frechet_distance(self.generator(self.noise(NUM_DRAWN)), real)}

    def noise(self, num_images: int) -> Tensor:
        return torch.randn(num_images, self.latent_size, device=self.context.device)


def make_generator(latent_size: int, hidden: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(latent_size, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 8 * 8),
        nn.Sigmoid(),
    )


def make_discriminator(hidden: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(8 * 8, hidden),
        nn.LeakyReLU(0.2),
        nn.Dropout(0.3),
        nn.Linear(hidden, hidden),
        nn.LeakyReLU(0.2),
        nn.Dropout(0.3),
        nn.Linear(hidden, 1),
    )


def frechet_distance(these: Tensor, those: Tensor) -> float:
    """Between two sets of images, as if each were normally distributed: of their means, and of their covariances."""
    one, other = (torch.cov(images.double().T) for images in (these, those))
    values, vectors = torch.linalg.eigh(one)
    root = vectors @ torch.diag(values.clamp(min=0).sqrt()) @ vectors.T
    shared = torch.linalg.eigvalsh(root @ other @ root).clamp(min=0).sqrt().sum()
    of_means = (these.mean(dim=0) - those.mean(dim=0)).square().sum()
    return float(of_means + one.trace() + other.trace() - 2 * shared)


def main(args: argparse.Namespace) -> None:
    hparams = {"global_batch_size": 32, "learning_rate": 1e-3, "latent_size": 16, "hidden_units": 128}
    searcher = {"metric": "distance"}
    with pytorch.init(hparams=hparams, exp_conf={"searcher": searcher}, name="digits-gan") as train_context:
        trainer = pytorch.Trainer(GanTrial(train_context), train_context)
        result = trainer.fit(
            max_length=pytorch.Epoch(args.epochs),
            validation_period=pytorch.Epoch(10),
            checkpoint_period=pytorch.Epoch(10),
        )
    if "distance" in result.metrics:
        print(f"distance {result.metrics['distance']:.2f} from real digits (expected: {EXPECTED_DISTANCE} or less)")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=60)
    return parser.parse_args()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    main(parse_arguments())
