"""The Core API in the style of one Context per process, which need not be passed around.

    from core_sdk.experimental import core_v2

    core_v2.init(config=core_v2.Config(name="digits"))
    core_v2.train.report_training_metrics(steps_completed=1, metrics={"loss": 0.5})
    core_v2.close()

Names and arguments come from Determined's `core_v2`. `init()` sets `train`, `checkpoint`, `preempt` and the other
parts in this module; before, they are None.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec

from core_sdk import core
from core_sdk._ground.records import ClusterInfo, SearcherMetric, check_name
from core_sdk.client import Tracker
from core_sdk.core import DistributedContext, PreemptMode, TensorboardMode

__all__ = [
    "Config",
    "DefaultConfig",
    "DistributedContext",
    "PreemptMode",
    "TensorboardMode",
    "UnmanagedConfig",
    "checkpoint",
    "close",
    "distributed",
    "info",
    "init",
    "init_context",
    "preempt",
    "searcher",
    "train",
    "url_reverse_webui_exp_view",
]

logger = logging.getLogger("core_sdk.core")
_P = ParamSpec("_P")

train: core.TrainContext | None = None
checkpoint: core.CheckpointContext | None = None
distributed: DistributedContext | None = None
preempt: core.PreemptContext | None = None
searcher: core.SearcherContext | None = None
info: ClusterInfo | None = None

_PARTS = ("train", "checkpoint", "distributed", "preempt", "searcher", "info")
_context: core.Context | None = None


@dataclasses.dataclass
class Config:
    """The description of the training, which `core.init()` takes as single arguments.

    The experiment's name is `name`, followed by a slash and the `external_experiment_id` if one is given. With an
    `external_trial_id`, each start with the same two ids goes on with the same trial.

    `searcher` is read for "metric", "smaller_is_better" and "max_length". `workspace` and `project` are ignored.
    """

    name: str | None = None
    hparams: Mapping[str, Any] | None = None
    data: Mapping[str, Any] | None = None
    description: str | None = None
    labels: Sequence[str] | None = None
    workspace: str | None = None
    project: str | None = None
    checkpoint_storage: str | Mapping[str, Any] | None = None
    searcher: Mapping[str, Any] | None = None
    external_experiment_id: str | None = None
    external_trial_id: str | None = None
    seed: int | None = None
    trial_name: str | None = None
    notes: str | None = None


DefaultConfig = UnmanagedConfig = Config


def init_context(
    *,
    config: Config | None = None,
    defaults: Config | None = None,
    unmanaged: Config | None = None,
    client: Tracker | None = None,
    distributed: DistributedContext | None = None,
    checkpoint_storage: str | Mapping[str, Any] | None = None,
    preempt_mode: PreemptMode = PreemptMode.WorkersAskChief,
    tensorboard_mode: TensorboardMode = TensorboardMode.AUTO,
) -> core.Context:
    """Returns a Context, to be entered with `with`.

    `defaults` and `unmanaged` are older names of `config`; a value in `defaults` overrides one in `unmanaged`.
    `checkpoint_storage` overrides the config's.

    Raises what `core.init()` raises. Also raises `ValueError` for an `external_trial_id` without an
    `external_experiment_id`, or for a `client` that reads a home other than the one this process records in.
    """
    _check_home(client)
    chosen = config or _merged(defaults, unmanaged)
    if chosen.workspace is not None or chosen.project is not None:
        logger.warning("workspace and project are not recorded: there are none here")
    search = dict(chosen.searcher or {})
    context = core.init(
        distributed=distributed,
        checkpoint_storage=checkpoint_storage or chosen.checkpoint_storage,
        preempt_mode=preempt_mode,
        tensorboard_mode=tensorboard_mode,
        name=_experiment_name(chosen),
        hparams=chosen.hparams,
        trial_name=chosen.trial_name,
        labels=chosen.labels,
        notes=chosen.notes,
        description=chosen.description,
        data=chosen.data,
        max_length=search.get("max_length"),
        seed=chosen.seed,
        job_id=_job_id(chosen),
    )
    if context.distributed.is_chief and (metric := SearcherMetric.configured(chosen.searcher)) is not None:
        with Tracker().home.experiment(context.info.trial.experiment_id).edit() as experiment:
            experiment.searcher_metric = metric
    return context


def _in_this_module(make_context: Callable[_P, core.Context]) -> Callable[_P, None]:
    """`init()`, with the arguments of `init_context()`."""

    def init(*args: _P.args, **kwargs: _P.kwargs) -> None:
        """Opens this process's Context, after closing the previous one, and sets the parts in this module.

        `close()` or the interpreter's exit ends it. Arguments and errors are the same as of `init_context()`.
        """
        global _context
        close()
        _context = make_context(*args, **kwargs).__enter__()
        globals().update({part: getattr(_context, part) for part in _PARTS})

    init.__signature__ = inspect.signature(make_context).replace(return_annotation=None)  # type: ignore[attr-defined]
    return init


init = _in_this_module(init_context)


def close() -> None:
    """Ends the Context of this process, if there is one, and takes its parts out of this module."""
    global _context
    context, _context = _context, None
    globals().update(dict.fromkeys(_PARTS))
    if context is not None:
        context.close()


def url_reverse_webui_exp_view() -> str:
    """Returns the URL of the folder in which the experiment is recorded: there is no web page."""
    if info is None:
        raise RuntimeError("there is no experiment yet: call core_v2.init() first")
    return (Tracker().home.experiments / str(info.trial.experiment_id)).as_uri()


def _check_home(client: Tracker | None) -> None:
    own = Tracker().home.root
    if client is not None and client.home.root != own:
        raise ValueError(
            f"the client reads the home {client.home.root}, and this process records in {own}. Leave client out, and "
            "choose the home with CORE_SDK_HOME."
        )


def _merged(defaults: Config | None, unmanaged: Config | None) -> Config:
    given = [vars(config) for config in (unmanaged, defaults) if config is not None]
    return Config(**{key: value for config in given for key, value in config.items() if value is not None})


def _experiment_name(config: Config) -> str | None:
    given = {"name": config.name, "external_experiment_id": config.external_experiment_id}
    return "/".join(check_name(what, text) for what, text in given.items() if text is not None) or None


def _job_id(config: Config) -> str | None:
    """Returns an id that all starts of one trial share, and no other trial has."""
    if config.external_trial_id is None:
        return None
    if config.external_experiment_id is None:
        raise ValueError("external_trial_id was given without external_experiment_id: give both, or neither")
    return json.dumps([config.external_experiment_id, check_name("external_trial_id", config.external_trial_id)])
