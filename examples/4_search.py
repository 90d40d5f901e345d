"""Step 4: a training that is cheap enough to search its hyperparameters on a laptop, without PyTorch.

core-sdk experiment create examples/4_search.yaml examples -f
"""

import argparse

import joblib
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from core_sdk import core, get_cluster_info

PASSES_PER_EPOCH = 10
"""One pass over the images lasts some milliseconds, too short to watch."""


def main(args: argparse.Namespace, core_context: core.Context) -> None:
    hparams = core_context.info.trial.hparams
    images, labels = load_digits(return_X_y=True)
    train_images, test_images, train_labels, test_labels = train_test_split(
        images / 16, labels, test_size=0.2, random_state=0
    )
    model = MLPClassifier(
        [hparams["hidden_units"]],
        solver="sgd",
        learning_rate_init=hparams["learning_rate"],
        momentum=hparams["momentum"],
        batch_size=32,
        random_state=core_context.info.trial.trial_seed,
    )

    epochs_completed = 0
    if core_context.info.latest_checkpoint is not None:
        with core_context.checkpoint.restore_path(core_context.info.latest_checkpoint) as path:
            model, epochs_completed = joblib.load(path / "state.joblib")
    for epoch in range(epochs_completed + 1, args.epochs + 1):
        for _ in range(PASSES_PER_EPOCH):
            model.partial_fit(train_images, train_labels, classes=range(10))
        core_context.train.report_training_metrics(steps_completed=epoch, metrics={"loss": model.loss_})
        core_context.train.report_validation_metrics(
            steps_completed=epoch, metrics={"accuracy": model.score(test_images, test_labels), "epochs": epoch}
        )
        core_context.train.report_progress(epoch / args.epochs)
        should_stop = core_context.preempt.should_preempt()
        if should_stop or epoch == args.epochs:
            with core_context.checkpoint.store_path({"steps_completed": epoch}) as (path, _storage_id):
                joblib.dump((model, epoch), path / "state.joblib")
        if should_stop:
            return


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=27)
    return parser.parse_args()


if __name__ == "__main__":
    hparams = {"hidden_units": 64, "learning_rate": 0.01, "momentum": 0.9}
    cluster_info = get_cluster_info()
    if cluster_info is not None:
        # The values of the search replace the script's defaults.
        hparams |= cluster_info.trial.hparams
    with core.init(name="digits", hparams=hparams) as core_context:
        main(parse_arguments(), core_context)
