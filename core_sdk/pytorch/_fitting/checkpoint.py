"""The checkpoints of a trial: writes and reads their content."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

import torch

from core_sdk._ground.records import Keep
from core_sdk._ground.version import __version__
from core_sdk._runtime.gradients import GRADIENT_FILES
from core_sdk._runtime.runtime import PARTS as WRAPPED
from core_sdk._runtime.runtime import Runtime
from core_sdk.errors import StateMismatchError
from core_sdk.loop import _rng as rng
from core_sdk.loop._keeping import kept_parts
from core_sdk.loop._plain import from_plain, to_plain
from core_sdk.loop._saving import SHARDED_FILES, Held, StateSaver
from core_sdk.loop._state import restore_random_numbers
from core_sdk.pytorch._fitting.callbacks import TrialCallbacks
from core_sdk.pytorch._fitting.data import Data
from core_sdk.pytorch._fitting.progress import FitProgress
from core_sdk.pytorch._fitting.sources import entrypoint, imported_sources
from core_sdk.pytorch._run import BatchPosition, TrialRun
from core_sdk.pytorch._trial import PyTorchTrial

STATE_FILE = "state_dict.pth"
LOAD_DATA_FILE = "load_data.json"
CODE_DIRECTORY = "code"


def read_state(run: TrialRun[Any], storage_id: str) -> dict[str, Any]:
    """Reads the content of a trial's checkpoint, for its models and optimizers here. Collective within a node."""

    selected = (STATE_FILE, SHARDED_FILES, GRADIENT_FILES)
    with run.core.checkpoint.restore_path(storage_id, selector=lambda name: name.startswith(selected)) as directory:
        advice = f"Pass the checkpoint of a {run.trial_type} as latest_checkpoint, or begin a new trial"
        return read_content(run.runtime, checked_file(directory, STATE_FILE, storage_id, advice))


def checked_file(directory: Path, name: str, checkpoint: str, advice: str) -> Path:
    """Returns the path of a file that each Trainer's checkpoint has. Raises `StateMismatchError` if it is missing."""
    file = directory / name
    if not file.exists():
        raise StateMismatchError("a trial", [f"{checkpoint} has no {name}: no Trainer has stored it"], advice)
    return file


def read_content(runtime: Runtime, file: Path, **options: Any) -> dict[str, Any]:
    """Returns the content of a checkpoint's state file, with the tensors of the files next to it.

    `options` go to `torch.load`.
    """
    content = cast(dict[str, Any], torch.load(file, **{"map_location": "cpu", "weights_only": True, **options}))
    return cast(dict[str, Any], from_plain(runtime.read_parts(content, file.parent)))


def is_own(run: TrialRun[Any], content: dict[str, Any]) -> bool:
    """Returns whether this is a checkpoint of this trial, and not of another one."""
    return bool(content["trainer_state"]["trial_id"] == run.trial_id)


PARTS = (*WRAPPED, "callbacks", "training")
"""The parts of a checkpoint that can be kept. "training": the progress, the place in the data, the random numbers."""


def parts_to_keep(keep: Keep | None, is_own: bool) -> frozenset[str]:
    """Returns the parts that a training keeps of a checkpoint, which is its trial's own or another trial's."""
    if keep is None:
        keep = "all" if is_own else [*WRAPPED, "callbacks"]
    return kept_parts(keep, PARTS, models=["models"])


def position_in(content: dict[str, Any]) -> BatchPosition:
    """Returns the position of a training that goes on from the content of a checkpoint, before its first batch."""
    trainer_state = content["trainer_state"]
    batches = trainer_state["training"]["driver"]["counters"]["batches"]
    return BatchPosition(batches, batches - 1, **trainer_state["last_batch"]) if batches else BatchPosition()


_OF_LAST_BATCH = ("epoch", "is_epoch_start", "is_epoch_end")
_HOOKS_OF_FILES = ("on_checkpoint_end", "on_checkpoint_write_end", "on_checkpoint_upload_end")


class TrialState:
    """The whole state of a training, saved and loaded as one checkpoint."""

    def __init__(
        self, trial: PyTorchTrial, run: TrialRun[Any], callbacks: TrialCallbacks, progress: FitProgress, data: Data
    ) -> None:
        """Collective, since all ranks must store in the same way."""
        self._trial = trial
        self._run = run
        self._callbacks = callbacks
        self._progress = progress
        self._data = data
        self._saver = StateSaver()
        # Hooks that run once the files are written or stored are called before the training goes on.
        waits = not run.runtime.writes_in_background or any(map(callbacks.hooks, _HOOKS_OF_FILES))
        self._waits = any(run.distributed.allgather(waits))

    def save(self) -> str:
        """Saves a checkpoint, and returns its storage id on every rank. Collective.

        It is stored in the background, unless a hook wants its files. Random draws of hooks do not change the training.
        """
        runtime, definition = self._run.runtime, self._definition()

        def hold(directory: Path) -> Held:
            rest, shards = content, None
            if runtime.is_sharding:
                rest, shards = self._saver.take_out(content, self._run.distributed.channel)
            files = runtime.own_files(directory)
            if self._run.distributed.is_chief:
                self._callbacks.call("on_checkpoint_save_start", rest)
                files[STATE_FILE] = {name: to_plain(value, name) for name, value in rest.items()}
            return files, shards

        with rng.kept():
            content = self._content()
            storage_id = self._saver.save(
                self._run.core,
                self._metadata(),
                hold,
                shard=runtime.writes_on_all_ranks,
                wait=self._waits,
                finish=lambda directory: self._write_definition(definition, directory),
            )
            self._callbacks.call("on_checkpoint_upload_end", storage_id)
        return storage_id

    def wait(self) -> None:
        """Blocks until the last checkpoint is stored. Raises its failure, on every rank. Collective."""
        self._run.distributed.channel.allgather_outcome(self._run.core.checkpoint.wait, is_patient=True)

    def load(self, content: dict[str, Any], kept: Collection[str]) -> None:
        """Loads the parts `kept` of the content of a checkpoint."""
        self._callbacks.call("on_checkpoint_load_start", content)
        self._run.runtime.load_state_dict(content, kept)
        if "callbacks" in kept:
            self._callbacks.load_state_dict(content["callbacks"])
        if "training" not in kept:
            return
        trainer_state, rank = content["trainer_state"], self._run.distributed.rank
        self._progress.load_state_dict(trainer_state["training"])
        ranks = trainer_state["ranks"]
        self._data.load_state_dict(ranks[rank if rank < len(ranks) else 0]["data"])
        self._run.runtime.load_gradients(content)
        restore_random_numbers([each["random"] for each in ranks], rank)

    def _content(self) -> dict[str, Any]:
        """Returns the content of a checkpoint. Collective; complete on the chief only."""
        own = {"random": rng.capture(), "data": self._data.state_dict()}
        return {
            **self._run.runtime.state_dict(),
            "callbacks": self._callbacks.state_dict(),
            "trainer_state": {
                "trial_id": self._run.trial_id,
                "training": self._progress.state_dict(),
                "last_batch": {name: getattr(self._run.position, name) for name in _OF_LAST_BATCH},
                "ranks": self._run.distributed.gather(own),
            },
        }

    def _write_definition(self, definition: str, directory: Path) -> None:
        """Writes what is needed to build the trial again, on the chief."""
        if not self._run.distributed.is_chief:
            return
        (directory / LOAD_DATA_FILE).write_text(definition)
        for name, source in imported_sources(type(self._trial)).items():
            target = directory / CODE_DIRECTORY / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        if self._waits:
            self._callbacks.call("on_checkpoint_end", str(directory))
            self._callbacks.call("on_checkpoint_write_end", str(directory))

    def _metadata(self) -> dict[str, Any]:
        counters = self._progress.counters
        return {
            "steps_completed": counters.batches,
            "epochs": counters.epochs,
            "records": counters.records,
            "framework": f"torch-{torch.__version__}",
            "format": "pickle",
            "core_sdk_version": __version__,
        }

    def _definition(self) -> str:
        """Returns the class of the trial and its hyperparameters, as JSON."""
        load_data = {
            "trial_type": self._run.trial_type,
            "experiment_config": self._run.exp_conf,
            "hparams": self._run.hparams,
            "trial_cls_spec": entrypoint(type(self._trial)),
            "is_trainer": True,
        }
        return json.dumps(load_data, default=str)
