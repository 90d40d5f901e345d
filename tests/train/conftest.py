"""The engines that trainings are tested on."""

from __future__ import annotations

import textwrap
from dataclasses import replace

import pytest
from distributed.conftest import threads
from execution.workers.programs import Programs

__all__ = ["threads"]

# What each program begins with: `fit()` trains on the engine that is tested.
_BEGINNING = """
import json, os, signal, tempfile, threading, time
from pathlib import Path
from core_sdk import client, train
from core_sdk.train import *
from core_sdk.train.torch import TorchConfig, TorchTrainer

SCALING = {scaling}

def scaling(num_workers, **options):
    return ScalingConfig(num_workers=num_workers, **SCALING, **options)

def fit(function, config=None, num_workers=2, max_failures=0, scaling_options={{}}, **options):
    run = options.pop("run_config", None) or RunConfig(failure_config=FailureConfig(max_failures=max_failures))
    options |= {{"scaling_config": scaling(num_workers, **scaling_options), "run_config": run}}
    return TorchTrainer(function, train_loop_config=config, **options).fit()

def rank():
    return train.get_context().get_world_rank()

def report(step, files=None, **metrics):
    '''Files of this rank make a checkpoint.'''
    with tempfile.TemporaryDirectory() as directory:
        for name, text in (files or {{}}).items():
            Path(directory, name).write_text(text)
        checkpoint = None if files is None else Checkpoint.from_directory(directory)
        train.report({{"step": step, **metrics}}, checkpoint=checkpoint)

def first_step():
    '''Where to go on: each checkpoint has its step in a file.'''
    if (checkpoint := train.get_checkpoint()) is None:
        return 0
    with checkpoint.as_directory() as directory:
        return int(Path(directory, "step").read_text()) + 1
"""


@pytest.fixture
def trainings(programs: Programs) -> Programs:
    """Programs that train on this engine."""
    return programs_that_train(programs)


def programs_that_train(programs: Programs) -> Programs:
    scaling = "{'engine': 'local'}"
    if programs.engine == "ray":
        address = programs.make_engine.partition("RayEngine(")[2].partition(",")[0]
        scaling = f"{{'address': {address}}}"
    return replace(programs, make_engine=textwrap.dedent(_BEGINNING).format(scaling=scaling))
