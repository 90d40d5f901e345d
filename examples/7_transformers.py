"""The same training with the Trainer of Hugging Face Transformers, on one rank or on several.

python -m launch.torch_distributed --nproc-per-node=2 -- python examples/7_transformers.py
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import StackDataset
from transformers import EvalPrediction, Trainer, TrainingArguments, set_seed

import digits
from core_sdk import core
from core_sdk.integrations.transformers import CoreSDKCallback


class DigitsModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = digits.make_model()

    def forward(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.model(images)
        return {"loss": functional.cross_entropy(logits, labels), "logits": logits}


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(axis=1) == prediction.label_ids).mean())}


def main(args: argparse.Namespace, core_context: core.Context) -> None:
    torch.set_num_threads(1)
    train_digits, test_digits = digits.load()
    arguments = TrainingArguments(
        output_dir=args.output_dir,
        num_train_epochs=args.epochs,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=len(test_digits.labels),
        learning_rate=1e-3,
        logging_steps=5,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=2,
        use_cpu=not torch.cuda.is_available(),  # otherwise ranks on a CPU train alone
        report_to="none",
        disable_tqdm=True,
        seed=1,
    )
    set_seed(arguments.seed)  # the Trainer does it too, but after the model was made
    callback = CoreSDKCallback(core_context)
    trainer = Trainer(
        DigitsModel(),
        arguments,
        train_dataset=StackDataset(**train_digits._asdict()),
        eval_dataset=StackDataset(**test_digits._asdict()),
        compute_metrics=accuracy,
        callbacks=[callback],
    )
    trainer.train(resume_from_checkpoint=callback.latest_checkpoint())


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--output-dir", default="trainer_output")
    return parser.parse_args()


if __name__ == "__main__":
    args = parse_arguments()
    distributed_context = core.DistributedContext.from_torch_distributed()
    with core.init(distributed=distributed_context, name="digits-transformers") as core_context:
        main(args, core_context)
