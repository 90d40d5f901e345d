"""The parts of a Lightning training that its checkpoints lack, captured and restored between two batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from core_sdk.loop import ResumableLoader
from core_sdk.loop import _rng as rng
from core_sdk.loop._state import restore_random_numbers

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

# What `ModelCheckpoint` knows of its saves besides its state: whether one waits for a validation, and the last one.
_SAVES = ("_defer_save_until_validation", "_last_global_step_saved", "_last_checkpoint_saved")


def capture(trainer: Trainer) -> dict[str, Any]:
    """Returns the parts that all ranks have alike: the metrics that callbacks read, and the saves that are due."""
    return {
        "metrics": {name: value.clone() for name, value in trainer.callback_metrics.items()},
        "saves": [
            {name: vars(each)[name] for name in _SAVES if name in vars(each)} for each in trainer.checkpoint_callbacks
        ],
    }


def withhold_last_saves(trainer: Trainer) -> None:
    """Keeps `ModelCheckpoint(save_last=True)` from saving at the end of a stopped training, which is not the end."""
    for callback in trainer.checkpoint_callbacks:
        if not vars(callback).get("_last_checkpoint_saved", True):
            vars(callback).update(_last_checkpoint_saved="none")


def capture_rank(trainer: Trainer) -> dict[str, Any]:
    """Returns the parts that differ by rank: random numbers, positions in the data, and the epoch's sums so far."""
    return {
        "random": rng.capture(),
        "loaders": [each.state_dict() for each in resumable_loaders(trainer)],
        "torchmetrics": {
            name: {"state": metric.metric_state, "update_count": metric.update_count}
            for name, metric in _torchmetrics(trainer)
            if metric.update_called
        },
        "sums": {
            key: each.metric_state
            for key, each in _results(trainer).items()
            if each.is_tensor and each.meta.on_epoch and not each.has_reset
        },
    }


def restore(trainer: Trainer, shared: dict[str, Any], ranks: list[dict[str, Any]], rank: int) -> dict[str, Any]:
    """Restores what was captured, other than the epoch's sums. Returns those, which Lightning does not know yet."""
    own = ranks[rank] if len(ranks) == trainer.world_size else {**ranks[0], "torchmetrics": {}, "sums": {}}
    trainer.callback_metrics.update(shared["metrics"])
    for callback, saves in zip(trainer.checkpoint_callbacks, shared["saves"], strict=False):
        vars(callback).update(saves)
    for loader, state in zip(resumable_loaders(trainer), own["loaders"], strict=False):
        loader.load_state_dict(state)
    for name, metric in _torchmetrics(trainer):
        if stored := own["torchmetrics"].get(name):
            vars(metric).update(_on(metric.device, stored["state"]), _update_count=stored["update_count"])
    restore_random_numbers([each["random"] for each in ranks], rank)
    sums: dict[str, Any] = own["sums"]
    return sums


def add_sums(trainer: Trainer, sums: dict[str, Any]) -> None:
    """Adds the sums of an epoch's earlier batches to those values that are logged again, and removes them from `sums`.

    To be called after the first batch, so that the values are added up in the same order as without a stop.
    """
    results = _results(trainer)
    for key in sums.keys() & results.keys():
        result = results[key]
        for name, value in _on(result.value.device, sums.pop(key)).items():
            reduce = (
                result.meta.reduce_fx if result.meta.is_max_reduction or result.meta.is_min_reduction else torch.add
            )
            setattr(result, name, reduce(value, getattr(result, name)))


def combined_loader(trainer: Trainer) -> Any:
    """Returns Lightning's loader of all loaders of the training."""
    return trainer.fit_loop._combined_loader


def resumable_loaders(trainer: Trainer) -> list[ResumableLoader]:
    return [each for each in combined_loader(trainer).flattened if isinstance(each, ResumableLoader)]


def _results(trainer: Trainer) -> dict[str, Any]:
    """Returns the values that the epoch's batches have logged, each with its sum so far."""
    results: dict[str, Any] = trainer.fit_loop.epoch_loop._results
    return results


def _torchmetrics(trainer: Trainer) -> Iterator[tuple[str, Any]]:
    for name, module in trainer.lightning_module.named_modules():
        if hasattr(type(module), "metric_state"):
            yield name, module


def _on(device: torch.device, state: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [each.to(device) for each in value] if isinstance(value, list) else value.to(device)
        for name, value in state.items()
    }
