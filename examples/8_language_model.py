"""Step 8 for models that are too large for one rank: a small language model, split over the ranks by FSDP2.

It learns to continue the English of Python's own reference manual, character by character, and ends with a sample.

python -m launch.torch_distributed --nproc-per-node=2 -- python examples/8_language_model.py
"""

import argparse
import logging
from pydoc_data.topics import topics
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.data import Dataset

from core_sdk import LOG_FORMAT, pytorch

EXPECTED_LOSS = 2.2
LENGTH = 64
"""How many characters the model looks back."""


class Text(Dataset[tuple[Tensor, Tensor]]):
    """Pieces of a text, each with the characters that follow its own."""

    def __init__(self, text: str) -> None:
        self.characters = torch.tensor(list(text.encode("ascii", errors="replace")))

    def __len__(self) -> int:
        return (len(self.characters) - 1) // LENGTH

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * LENGTH
        return self.characters[start : start + LENGTH], self.characters[start + 1 : start + LENGTH + 1]


class Layer(nn.Module):
    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norms = nn.ModuleDict({"attention": nn.LayerNorm(width), "expansion": nn.LayerNorm(width)})
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.expansion = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, inputs: Tensor) -> Tensor:
        heads = self.queries_keys_values(self.norms["attention"](inputs)).unflatten(-1, (3, self.num_heads, -1))
        queries, keys, values = heads.transpose(1, 3).unbind(2)
        attended = scaled_dot_product_attention(queries, keys, values, is_causal=True)
        hidden: Tensor = inputs + self.projection(attended.transpose(1, 2).flatten(2))
        expanded: Tensor = self.expansion(self.norms["expansion"](hidden))
        return hidden + expanded


class LanguageModel(nn.Module):
    def __init__(self, width: int, num_layers: int, num_heads: int = 4) -> None:
        super().__init__()
        self.characters = nn.Embedding(128, width)
        self.positions = nn.Embedding(LENGTH, width)
        self.layers = nn.ModuleList(Layer(width, num_heads) for _ in range(num_layers))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 128))

    def forward(self, characters: Tensor) -> Tensor:
        """For each character, one after another, how likely each of all characters follows it."""
        positions = torch.arange(characters.shape[-1], device=characters.device)
        hidden = self.characters(characters) + self.positions(positions)
        for layer in self.layers:
            hidden = layer(hidden)
        logits: Tensor = self.head(hidden.flatten(0, 1))
        return logits


class LanguageTrial(pytorch.PyTorchTrial):
    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        torch.set_num_threads(1)
        self.context = context
        model = LanguageModel(context.get_hparam("width"), context.get_hparam("num_layers"))
        # Each layer is gathered on all ranks for its part of the computation, and split again.
        self.model = context.wrap_model(model, strategy="fsdp")
        self.optimizer = context.wrap_optimizer(
            torch.optim.AdamW(self.model.parameters(), lr=context.get_hparam("learning_rate"))
        )
        text = "".join(topics.values())
        self.train_text, self.validation_text = Text(text[:400_000]), Text(text[400_000:420_000])

    def build_training_data_loader(self) -> pytorch.DataLoader:
        batch_size = self.context.get_per_slot_batch_size()
        return pytorch.DataLoader(self.train_text, batch_size=batch_size, shuffle=True, drop_last=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(self.validation_text, batch_size=64)

    def train_batch(self, batch: list[Tensor], epoch_idx: int, batch_idx: int) -> dict[str, Tensor]:
        loss = self.loss(batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer, clip_grads=clip)
        return {"loss": loss}

    def evaluate_batch(self, batch: list[Tensor]) -> dict[str, Tensor]:
        return {"validation_loss": self.loss(batch)}

    def loss(self, batch: list[Tensor]) -> Tensor:
        characters, following = batch
        return cross_entropy(self.model(characters), following.flatten())

    @torch.no_grad()
    def sample(self, beginning: str, length: int) -> str:
        """Collective, since each rank has a part of the model. All ranks draw the same characters."""
        generator = torch.Generator().manual_seed(0)
        text = list(beginning.encode())
        for _ in range(length):
            logits = self.model(torch.tensor([text[-LENGTH:]], device=self.context.device))[-1].cpu()
            text.append(int(torch.multinomial((logits / 0.7).softmax(dim=0), 1, generator=generator)))
        return bytes(text).decode()


def clip(parameters: list[nn.Parameter]) -> Any:
    return nn.utils.clip_grad_norm_(parameters, 1.0)


def main(args: argparse.Namespace) -> None:
    hparams = {"global_batch_size": 32, "learning_rate": 3e-3, "width": 64, "num_layers": 2}
    with pytorch.init(hparams=hparams, name="language-model") as train_context:
        trial = LanguageTrial(train_context)
        result = pytorch.Trainer(trial, train_context).fit(
            max_length=pytorch.Epoch(args.epochs),
            validation_period=pytorch.Epoch(1),
            checkpoint_period=pytorch.Epoch(1),
        )
        if result.reason == "completed":
            text = trial.sample("The ", 200)
            if train_context.distributed.is_chief:
                print(text)
                print(f"loss {result.metrics['validation_loss']:.2f} per character (expected: {EXPECTED_LOSS} or less)")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    main(parse_arguments())
