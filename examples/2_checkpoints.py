"""Step 2: the same script stores checkpoints, stops when it is asked to, and goes on where it stopped."""

import argparse

import torch

import core_sdk as det
import digits


def main(args: argparse.Namespace, core_context: det.core.Context) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    train_digits, test_digits = digits.load()
    model = digits.make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.learning_rate)

    epochs_completed, steps_completed = load_state(core_context, model, optimizer)
    for epoch in range(epochs_completed, args.epochs):
        for batch in train_digits.batches(args.batch_size):
            loss = digits.train_step(model, optimizer, batch)
            steps_completed += 1
            if steps_completed % 15 == 0:
                core_context.train.report_training_metrics(steps_completed=steps_completed, metrics={"loss": loss})
        test_loss, accuracy = digits.evaluate(model, test_digits)
        print(f"epoch {epoch + 1}, step {steps_completed}: loss {loss:.3f}, accuracy {accuracy:.3f}", flush=True)
        core_context.train.report_validation_metrics(
            steps_completed=steps_completed, metrics={"loss": test_loss, "accuracy": accuracy}
        )
        core_context.train.report_progress((epoch + 1) / args.epochs)
        save_state(core_context, model, optimizer, epoch + 1, steps_completed)
        if core_context.preempt.should_preempt():
            return

    _, accuracy = digits.evaluate(model, test_digits)
    print(f"accuracy {accuracy:.3f} on the test images (expected: {digits.EXPECTED_ACCURACY} or more)")


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
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    with det.core.init(name="digits") as core_context:
        main(parse_arguments(), core_context)
