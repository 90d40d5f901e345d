"""Step 3: the same script takes its hyperparameters and its length from outside, as a search needs it."""

import argparse

import torch

import core_sdk as det
import digits


def main(args: argparse.Namespace, core_context: det.core.Context) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    train_digits, test_digits = digits.load()
    hparams = core_context.info.trial.hparams
    model = digits.make_model(hparams["num_filters"])
    optimizer = torch.optim.Adam(model.parameters(), lr=hparams["learning_rate"])

    epochs_completed, steps_completed = load_state(core_context, model, optimizer)
    for operation in core_context.searcher.operations():
        for epoch in range(epochs_completed, operation.length):
            for batch in train_digits.batches(hparams["batch_size"]):
                loss = digits.train_step(model, optimizer, batch)
                steps_completed += 1
                if steps_completed % 15 == 0:
                    core_context.train.report_training_metrics(steps_completed=steps_completed, metrics={"loss": loss})
            test_loss, accuracy = digits.evaluate(model, test_digits)
            print(f"epoch {epoch + 1}, step {steps_completed}: loss {loss:.3f}, accuracy {accuracy:.3f}", flush=True)
            core_context.train.report_validation_metrics(
                steps_completed=steps_completed,
                metrics={"loss": test_loss, "accuracy": accuracy, "epochs": epoch + 1},
            )
            operation.report_progress(epoch + 1)
            save_state(core_context, model, optimizer, epoch + 1, steps_completed)
            if core_context.preempt.should_preempt():
                return

        _, accuracy = digits.evaluate(model, test_digits)
        print(f"accuracy {accuracy:.3f} on the test images (expected: {digits.EXPECTED_ACCURACY} or more)")
        operation.report_completed(accuracy)


def save_state(
    core_context: det.core.Context,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    epochs_completed: int,
    steps_completed: int,
) -> None:
    state = {
        "trial_id": core_context.info.trial.trial_id,
        "epochs_completed": epochs_completed,
        "steps_completed": steps_completed,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
    }
    with core_context.checkpoint.store_path({"steps_completed": steps_completed}) as (path, _storage_id):
        torch.save(state, path / "state.pt")


def load_state(
    core_context: det.core.Context, model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[int, int]:
    """The numbers of epochs and steps that are completed."""
    latest_checkpoint = core_context.info.latest_checkpoint
    if latest_checkpoint is None:
        return 0, 0
    with core_context.checkpoint.restore_path(latest_checkpoint) as path:
        state = torch.load(path / "state.pt")
    model.load_state_dict(state["model"])
    if state["trial_id"] != core_context.info.trial.trial_id:
        # `trial continue`: this trial begins with what another has learned, and counts its own steps from 0.
        return 0, 0
    # `trial resume`: the same trial goes on as if nothing had happened.
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    return state["epochs_completed"], state["steps_completed"]


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
    cluster_info = det.get_cluster_info()
    if cluster_info is not None:
        # The values of a search or of `core-sdk run --hparam` replace the script's defaults.
        hparams |= cluster_info.trial.hparams
    with det.core.init(name="digits", hparams=hparams, max_length={"epochs": args.epochs}) as core_context:
        main(args, core_context)
