"""Step 3: the same script takes its hyperparameters and its length from outside, as a search needs it."""

import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset

import digits
from core_sdk import core, get_cluster_info, loop


def main(args: argparse.Namespace, core_context: core.Context) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    train_digits, test_digits = digits.load()
    hparams = core_context.info.trial.hparams
    loader = loop.resumable(
        DataLoader(TensorDataset(*train_digits), hparams["batch_size"], shuffle=True), seed=args.seed
    )
    model = digits.make_model(hparams["num_filters"])
    optimizer = torch.optim.Adam(model.parameters(), lr=hparams["learning_rate"])
    state = loop.State(model=model, optimizer=optimizer, loader=loader)
    state.restore(core_context)

    for operation in core_context.searcher.operations():
        for epoch in range(loader.epoch, operation.length):
            for batch in loader:
                loss = digits.train_step(model, optimizer, batch)
                if loader.batches % 15 == 0:
                    core_context.train.report_training_metrics(steps_completed=loader.batches, metrics={"loss": loss})
                if core_context.preempt.should_preempt():
                    state.save(core_context)
                    return
            test_loss, accuracy = digits.evaluate(model, test_digits)
            print(
                f"epoch {epoch + 1}, step {loader.batches}: loss {test_loss:.3f}, accuracy {accuracy:.3f}", flush=True
            )
            core_context.train.report_validation_metrics(
                steps_completed=loader.batches,
                metrics={"loss": test_loss, "accuracy": accuracy, "epochs": epoch + 1},
            )
            operation.report_progress(epoch + 1)
            state.save(core_context)

        _, accuracy = digits.evaluate(model, test_digits)
        print(f"accuracy {accuracy:.3f} on the test images (expected: {digits.EXPECTED_ACCURACY} or more)")
        operation.report_completed(accuracy)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--num-filters", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    args = parse_arguments()
    hparams = {name: getattr(args, name) for name in ("batch_size", "learning_rate", "num_filters")}
    cluster_info = get_cluster_info()
    if cluster_info is not None:
        # The values of a search or of `core-sdk run --hparam` replace the script's defaults.
        hparams |= cluster_info.trial.hparams
    with core.init(name="digits", hparams=hparams, max_length={"epochs": args.epochs}) as core_context:
        main(args, core_context)
