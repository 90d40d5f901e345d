"""Step 8: the digits as a Trial. The Trainer orders its data, reports, saves, stops, and goes on with the next sample.

python examples/8_trial.py
python -m launch.torch_distributed --nproc-per-node=2 -- python examples/8_trial.py
"""

import argparse
import logging

import digits
from core_sdk import LOG_FORMAT, pytorch
from digits_trial import DigitsTrial


def main(args: argparse.Namespace) -> None:
    hparams = {"global_batch_size": args.batch_size, "learning_rate": args.learning_rate, "classes": args.classes}
    # By what one validation is better than another.
    searcher = {"metric": "accuracy", "smaller_is_better": False}
    with pytorch.init(hparams=hparams, exp_conf={"searcher": searcher}, name="digits-trial") as train_context:
        trainer = pytorch.Trainer(DigitsTrial(train_context), train_context)
        result = trainer.fit(
            max_length=pytorch.Epoch(args.epochs),
            validation_period=pytorch.Epoch(1),
            checkpoint_period=pytorch.Epoch(1),
            reporting_period=pytorch.Batch(15),
        )
    if "accuracy" in result.metrics:
        accuracy = result.metrics["accuracy"]
        print(f"accuracy {accuracy:.3f} on the test images (expected: {digits.EXPECTED_ACCURACY} or more)")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32, help="over all ranks")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--classes", type=int, nargs="+", default=list(range(10)), help="the digits to tell apart")
    return parser.parse_args()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
    main(parse_arguments())
