"""Executes a training function in a worker. The driver calls `run` on all workers."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from core_sdk import core
from core_sdk._execution.workers import this_worker
from core_sdk._ground.environment import add_variables, get_cluster_info, path_here, use_home, use_run_info
from core_sdk._ground.records import recorded_config, with_given
from core_sdk.core import Context, DistributedContext
from core_sdk.errors import InvalidHP
from core_sdk.train._program import Program, Returned
from core_sdk.train._worker.session import Session, Stopped


def run(program: Program) -> Returned:
    """Executes the program in a worker whose torch process group is set up."""
    logging.getLogger("core_sdk").setLevel(program.training.run.logging_config.log_level)
    _tell_accelerate(program)
    return execute(_see_home(program), DistributedContext.from_torch_distributed())


def execute(program: Program, distributed: DistributedContext) -> Returned:
    """Executes the training function within a Context, as the attempt that this process was started for.

    The functions of `core_sdk.train` work while it runs.
    """
    info, training = get_cluster_info(), program.training
    config = with_given(dict(training.config or {}), {} if info is None else info.trial.hparams)
    trial_id, invalid_hp = 0, None
    try:
        with core.init(
            distributed=distributed,
            checkpoint_storage=training.run.storage_path,
            name=training.run.name,
            trial_name=training.run.trial_name,
            labels=training.run.labels,
            notes=training.run.notes,
            hparams=recorded_config(config),
            seed=training.run.seed,
        ) as context:
            trial_id = context.info.trial.trial_id
            from core_sdk.loop import _rng as rng  # loads torch, which workers have loaded anyway

            rng.seed_all(context.info.trial.trial_seed)
            try:
                return _call(program, config, context)
            except InvalidHP as error:
                invalid_hp = str(error)
                raise
    except SystemExit:
        # After an `InvalidHP`, the Context records it and exits the script.
        if invalid_hp is None:
            raise
        return Returned(trial_id, invalid_hp=invalid_hp)


def _tell_accelerate(program: Program) -> None:
    """Tells Accelerate the device of this worker.

    Accelerate would guess it from the local rank, but on Ray a worker sees only its own GPUs.
    """
    from core_sdk._runtime.devices import devices  # loads torch, as the workers have

    own = devices(this_worker().place.local_rank, program.training.num_gpus)
    add_variables({"ACCELERATE_TORCH_DEVICE": str(own[0])})


def _see_home(program: Program) -> Program:
    """Makes this process record in the driver's home, or in the spool of a node that does not see the home."""
    use_home(program.home, program.spools.get(this_worker().place.cross_rank))
    if program.run_info is not None:
        use_run_info(path_here(program.run_info))
    return replace(program, home=path_here(program.home))


def _call(program: Program, config: dict[str, Any], context: Context) -> Returned:
    session = Session(context, program)
    with session.as_current():
        try:
            function = program.training.function
            value = function(config) if takes_config(function) else function()
        except Stopped:
            return Returned(context.info.trial.trial_id, is_stopped=True)
        except SystemExit as error:
            if error.code not in (None, 0):
                raise
            value = None
        session.end()
    is_stopped = context.preempt.is_acknowledged
    return Returned(context.info.trial.trial_id, value if context.distributed.is_chief else None, is_stopped)


def takes_config(function: Callable[..., Any]) -> bool:
    """Returns whether the training function takes its configuration. Raises `ValueError` if it takes more. Pure."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # of C
        return True
    attempts: list[list[dict[str, Any]]] = [[{}], []]
    for arguments in attempts:
        with contextlib.suppress(TypeError):
            signature.bind(*arguments)
            return bool(arguments)
    raise ValueError(f"the training function takes {signature}; it must take nothing, or one dictionary, the config")
