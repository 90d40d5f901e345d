"""Keeps the generators over the saves of Transformers' Trainer."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from core_sdk.loop import _rng as rng


class CallbackOfSaves(TrainerCallback):
    """A callback whose Trainer's saves leave no trace in the generators, nor in the file in which it keeps them.

    A save may draw, as a `save_pretrained()` that builds a model does, and a stop saves once more.
    """


def _keep_generators_over_saves() -> None:
    """Wraps the Trainer's method, since no callback is called before a save."""
    save_checkpoint = Trainer._save_checkpoint

    @functools.wraps(save_checkpoint)
    def save(trainer: Trainer, *args: Any, **options: Any) -> None:
        handler = trainer.callback_handler
        if not any(isinstance(each, CallbackOfSaves) for each in handler.callbacks):
            save_checkpoint(trainer, *args, **options)
            return
        if "on_save" not in vars(handler):
            handler.on_save = rng.kept()(handler.on_save)
        generators = rng.GeneratorStates()
        save_checkpoint(trainer, *args, **options)
        if not generators.is_current():
            generators.restore()
            directory = Path(trainer.args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{trainer.state.global_step}")
            if not trainer.args.save_only_model and directory.exists():
                trainer._save_rng_state(str(directory))

    Trainer._save_checkpoint = save


_keep_generators_over_saves()
