"""The callback for the Trainer of Hugging Face Transformers as scripts for the predecessor use it.

with core_sdk.core.init(name="digits") as core_context:
    trainer = Trainer(model, arguments, train_dataset=data)
    trainer.add_callback(DetCallback(core_context, arguments))
    trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)

Scripts of your own do better with `core_sdk.integrations.transformers`, which reads a checkpoint where it lies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core_sdk.core import Context
from core_sdk.integrations.transformers import CoreSDKCallback, checkpoint_directory

if TYPE_CHECKING:
    from transformers import TrainingArguments

_USER_DATA = "my_data.json"


class DetCallback(CoreSDKCallback):
    """Reports, stores and stops as `CoreSDKCallback` does; metrics keep the names that the Trainer gives them.

    Of the metrics, only those are reported whose name contains one of `filter_metrics`, if it is given. `user_data` is
    stored with each checkpoint as my_data.json. A trial that goes on finds its checkpoint below `args.output_dir`, and
    its path in `args.resume_from_checkpoint`, unless the arguments say `overwrite_output_dir`. All ranks make it.
    """

    def __init__(
        self,
        core_context: Context,
        args: TrainingArguments,
        filter_metrics: Sequence[str] | None = None,
        user_data: Mapping[str, Any] | None = None,
    ) -> None:
        latest = core_context.info.latest_checkpoint
        if latest is not None and not getattr(args, "overwrite_output_dir", False):
            core_context.checkpoint.download(latest, args.output_dir)
            steps_completed = core_context.checkpoint.get_metadata(latest)["steps_completed"]
            args.resume_from_checkpoint = str(checkpoint_directory(args, steps_completed))
        super().__init__(core_context)
        args.restore_callback_states_from_checkpoint = True  # the Trainer's `add_callback()` comes too late for that
        self._filter_metrics = filter_metrics
        self._user_data = user_data

    def _shown(self, metrics: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
        parts = self._filter_metrics
        return {name: value for name, value in metrics.items() if not parts or any(part in name for part in parts)}

    def _upload(self, directory: Path, metadata: dict[str, Any] | None) -> str:
        """Uploads a directory. Its name begins the files' names, so that scripts find them below `output_dir`."""
        if metadata is not None and self._user_data is not None:
            (directory / _USER_DATA).write_text(json.dumps(self._user_data))
        root = directory.parent
        return self._core_context.checkpoint.upload(
            root if root.exists() else None,
            metadata,
            shard=True,
            selector=lambda name: name.startswith((f"{directory.name}/", "runs/")),
        )
