"""`init()`: begins a run with the arguments that wandb has for it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core_sdk._ground.environment import get_cluster_info, wandb_arguments
from core_sdk.compat.wandb._config import Config, config_mapping, default_config
from core_sdk.compat.wandb._missing import missing
from core_sdk.compat.wandb._resuming import RunIdentity, identify
from core_sdk.compat.wandb._run import Run
from core_sdk.compat.wandb._settings import Settings
from core_sdk.compat.wandb.errors import UsageError
from core_sdk.compat.wandb.util import generate_id
from core_sdk.core import Context, Logger

logger = logging.getLogger("core_sdk.compat")

_MODES = ("online", "offline", "disabled", "shared", "dryrun", "run")
_FINISH_PREVIOUS = (True, "finish_previous")
_HARMLESS = {
    "monitor_gym": "videos that gym writes are not recorded: log them as wandb.Video(path)",
    "save_code": "the commit is recorded instead of the code",
}


def init(
    entity: str | None = None,
    project: str | None = None,
    dir: str | Path | None = None,
    id: str | None = None,
    name: str | None = None,
    notes: str | None = None,
    tags: Sequence[str] | None = None,
    config: Any = None,
    config_exclude_keys: Sequence[str] | None = None,
    config_include_keys: Sequence[str] | None = None,
    allow_val_change: bool | None = None,
    group: str | None = None,
    job_type: str | None = None,
    mode: str | None = None,
    force: bool | None = None,
    reinit: bool | str | None = None,
    resume: bool | str | None = None,
    resume_from: str | None = None,
    fork_from: str | None = None,
    save_code: bool | None = None,
    tensorboard: bool | None = None,
    sync_tensorboard: bool | None = None,
    monitor_gym: bool | None = None,
    settings: Settings | Mapping[str, Any] | None = None,
    anonymous: str | bool | None = None,
) -> Run:
    """Begins a run and returns it, or returns the one that is active.

    It reports to the Context that the process has open, and else begins a trial: of the experiment `project`, with the
    hyperparameters `config` and the labels `tags`, `group:…`, `job_type:…` and `entity:…`. Arguments have precedence
    over `settings`, and these over wandb's variables. In the mode "disabled", and on ranks other than 0, nothing is
    recorded. Values that a search or the command line has chosen have precedence over values in `config`.

    Raises `UsageError` for what cannot be together, and the errors of `core_sdk.core.init()`.
    """
    own = {name: value for name, value in locals().items() if value is not None}
    settings = settings if isinstance(settings, Settings) else Settings(**(settings or {}))
    given = wandb_arguments() | settings.arguments() | own
    for argument in _HARMLESS.keys() & {name for name, value in given.items() if value}:
        logger.warning("init(%s=…) changes nothing: %s", argument, _HARMLESS[argument])
    if fork_from is not None:
        raise UsageError(
            f"{missing('wandb.init(fork_from=…)')}: `core-sdk trial continue` begins one from a checkpoint"
        )
    if (active := Run.active()) is not None:
        if given.get("reinit") not in _FINISH_PREVIOUS:
            if given.get("reinit") == "create_new":
                raise UsageError("init(reinit='create_new'): a process has one run at a time; finish() the other first")
            logger.info("init() returns the run that is active; finish() ends it, so that another one can begin")
            return active
        active.finish()
    if isinstance(given.get("tags"), str):
        given["tags"] = [tag.strip() for tag in given["tags"].split(",")]
    values = _filtered(default_config() | config_mapping(config), config_include_keys, config_exclude_keys)
    run = _begun(given, values, settings, may_change=bool(allow_val_change))
    if given.get("sync_tensorboard") or tensorboard:
        run.sync_tensorboard()
    return run


def _begun(given: Mapping[str, Any], values: Mapping[str, Any], settings: Settings, *, may_change: bool) -> Run:
    mode = given.get("mode", "online")
    if mode not in _MODES:
        raise UsageError(f"init(mode={mode!r}): it must be one of {', '.join(_MODES)}")
    open_context, context, identity = Context.current(), None, RunIdentity(given.get("id") or generate_id())
    chosen = _chosen_hparams()
    if mode != "disabled":
        identity = identity if open_context is not None else identify(given)
        arguments = {} if open_context is not None else _arguments_of_trial(given, {**values, **chosen}, identity)
        if (context := Logger(open_context, **arguments).context) is None:
            logger.warning("this rank records nothing: rank 0 does, for all")
    if context is None:
        return Run(None, identity, given, Config(values, may_change=True), settings)
    recorded = context.info.trial.hparams if identity.has_begun else {}
    config = Config(
        {**recorded, **values},
        chosen=chosen,
        may_change=may_change or identity.has_begun,
        record=lambda changed: context.record_hparams(changed, update=True),
    )
    if open_context is not None or identity.has_begun:
        context.record_hparams(dict(config), update=True)
    if open_context is None:
        (context.profiler.on if settings.has_figures_of_machine else context.profiler.off)()
    return Run(context, identity, given, config, settings, is_own=open_context is None)


def _chosen_hparams() -> Mapping[str, Any]:
    """Returns what a search, the command line or the trial's first attempt has chosen."""
    info = get_cluster_info()
    return info.trial.hparams if info is not None and info.trial_or_none is not None else {}


def _arguments_of_trial(given: Mapping[str, Any], hparams: Mapping[str, Any], identity: RunIdentity) -> dict[str, Any]:
    """Returns the arguments of `core_sdk.core.init()`."""
    labels = [*(given.get("tags") or ())]
    labels += [f"{key}:{given[key]}" for key in ("group", "job_type", "entity") if given.get(key)]
    return {
        "name": given.get("project"),
        "trial_name": given.get("name"),
        "notes": given.get("notes"),
        "labels": labels or None,
        "hparams": None if identity.has_begun else dict(hparams) or None,
        "job_id": identity.job_id,
        "steps_completed": identity.last_step or 0,
    }


def _filtered(
    values: Mapping[str, Any], include: Sequence[str] | None, exclude: Sequence[str] | None
) -> dict[str, Any]:
    if include and exclude:
        raise UsageError("init() takes config_include_keys or config_exclude_keys, not both")
    return {
        key: value for key, value in values.items() if key not in (exclude or ()) and (not include or key in include)
    }
