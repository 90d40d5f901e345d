"""Loads a trial from its checkpoint without training it, to look at it or to predict with it."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.utils import consume_prefix_in_state_dict_if_present

from core_sdk._distributed import DistributedContext
from core_sdk._ground.importing import import_from_path
from core_sdk._runtime.strategies import UntouchedStrategy
from core_sdk._runtime.torch_runtime import TorchRuntime, load_all
from core_sdk.pytorch._context import PyTorchTrialContext, run_of
from core_sdk.pytorch._fitting.checkpoint import (
    CODE_DIRECTORY,
    LOAD_DATA_FILE,
    STATE_FILE,
    checked_file,
    read_content,
)
from core_sdk.pytorch._run import TrialRun
from core_sdk.pytorch._trial import PyTorchTrial
from core_sdk.pytorch._trial_class import load_trial_class

_ADVICE = "Download the checkpoint of a Trainer, and pass its directory"


class CheckpointLoadContext(PyTorchTrialContext):
    """A context to build a trial without training. Wrapped objects do not change; they stay on the CPU."""

    def __init__(self, hparams: Mapping[str, Any] | None = None, exp_conf: Mapping[str, Any] | None = None) -> None:
        ranks, device = DistributedContext(), torch.device("cpu")
        runtime = TorchRuntime(ranks, device, UntouchedStrategy())
        hparams = None if hparams is None else dict(hparams)
        exp_conf = None if exp_conf is None else dict(exp_conf)
        super().__init__(TrialRun(None, ranks, device, hparams, exp_conf, runtime))


def load_trial_from_checkpoint_path(
    path: str | os.PathLike[str],
    trial_class: type[PyTorchTrial] | None = None,
    trial_kwargs: Mapping[str, Any] | None = None,
    torch_load_kwargs: Mapping[str, Any] | None = None,
    **deprecated_load_kwargs: Any,
) -> PyTorchTrial:
    """Builds the trial of a downloaded checkpoint, and loads its models' weights.

    Its class is imported from the code in the checkpoint, unless `trial_class` is given. It gets a
    `CheckpointLoadContext` with the checkpoint's hyperparameters, and `trial_kwargs`. `torch_load_kwargs` are those of
    `torch.load`; the checkpoints of `determined` need `{"weights_only": False}`.

    Raises `StateMismatchError` if this is not a Trainer's checkpoint or the models do not fit, `ValueError` if the
    class cannot be imported, and whatever the code raises.
    """
    if deprecated_load_kwargs:
        if torch_load_kwargs:
            raise ValueError(f"pass {', '.join(deprecated_load_kwargs)} in torch_load_kwargs, beside the others")
        warnings.warn("pass the arguments of torch.load as torch_load_kwargs={…}", FutureWarning, stacklevel=2)
        torch_load_kwargs = deprecated_load_kwargs
    directory = Path(path)
    description = json.loads(checked_file(directory, LOAD_DATA_FILE, str(path), _ADVICE).read_text())
    kind = trial_class or _stored_class(directory, description["trial_cls_spec"])
    context = CheckpointLoadContext(description["hparams"], description["experiment_config"])
    trial = kind(context, **(trial_kwargs or {}))
    file = checked_file(directory, STATE_FILE, str(path), _ADVICE)
    states = read_content(run_of(context).runtime, file, **(torch_load_kwargs or {}))["models_state_dict"]
    for model, state in zip(context.models, states, strict=False):
        if not any(name.startswith("module.") for name in model.state_dict()):
            # Determined keeps the prefix that torch's DistributedDataParallel adds to names.
            consume_prefix_in_state_dict_if_present(state, "module.")
    load_all("model", context.models, states)
    return trial


def _stored_class(directory: Path, spec: str) -> type[PyTorchTrial]:
    """Imports the class `module:Class`, from the checkpoint's own code if it has any."""
    code = directory / CODE_DIRECTORY
    try:
        with import_from_path(code) if code.is_dir() else contextlib.nullcontext():
            return load_trial_class(spec)
    except Exception as error:
        error.add_note("load_trial_from_checkpoint_path(…, trial_class=MyTrial) takes the class from elsewhere")
        raise
