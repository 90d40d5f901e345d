"""Submits experiments: new ones, forks, and continuations of others.

An experiment's folder is complete before the master is told of it, and is removed if the master refuses it. Lists show
an experiment only after the master has begun it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from msgspec.structs import replace

from core_sdk._execution.experiments._program import check_arguments, check_program
from core_sdk._execution.experiments.calling import call
from core_sdk._execution.experiments.code import MAX_SIZE_BYTES, PackedCode, check_archive, pack
from core_sdk._execution.experiments.following import FollowedExperiment
from core_sdk._execution.experiments.protocol import Continue, Submit
from core_sdk._ground.config import ExperimentConfig, Loaded, from_mapping, load, to_mapping, to_yaml
from core_sdk._ground.environment import recorded_variables
from core_sdk._ground.files import explained, write_atomically
from core_sdk._ground.records import ExperimentRecord, SearcherMetric, SubmissionRecord, from_json, to_json
from core_sdk._home import open_view
from core_sdk._home.attempts.command import script_name
from core_sdk._home.attempts.continuation import newest_good_checkpoint
from core_sdk._home.folders import ExperimentFolder, Home
from core_sdk._home.storage import check_storage
from core_sdk.errors import (
    ConfigProblem,
    CoreSDKError,
    ExperimentError,
    ExperimentNotFoundError,
    HomeNotWritableError,
    InvalidConfigError,
    RecordDamagedError,
    StorageError,
)


@dataclass(frozen=True)
class Submitted:
    """An experiment that a master has begun."""

    experiment_id: int
    warnings: tuple[str, ...]
    """Warnings for the author of the configuration."""


def read_config(config: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[str, str]:
    """Returns the text of a configuration, which is a mapping or a YAML file's path, and its name in messages.

    Raises `OSError`, or `TypeError` for a value that YAML does not have.
    """
    if not isinstance(config, Mapping):
        return Path(config).read_text(errors="surrogateescape"), os.fspath(config)
    try:
        return yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True), "the configuration"
    except yaml.representer.RepresenterError as error:
        raise TypeError(f"the configuration holds {error.args[-1]!r}, which YAML cannot write") from error


def submit(
    home: Home,
    text: str,
    *,
    source: str,
    overrides: Sequence[str] = (),
    model_dir: Path | None = None,
    includes: Sequence[Path] = (),
    max_code_bytes: int = MAX_SIZE_BYTES,
    is_paused: bool = False,
    key: str = "",
    variables: Mapping[str, str] = {},
) -> Submitted:
    """Submits the experiment that the configuration `text` describes; `source` names it in messages.

    Its trials run in copies of `model_dir` and `includes`; without either, in the current directory itself. With a
    `key`, `find_submitted` finds the experiment even if the process that submitted it was killed. The trials get
    `variables` in addition to the recorded variables of this environment. Raises `InvalidConfigError`,
    `CodeDirectoryError`, `ExperimentError` or `MasterError`, and then leaves no experiment.
    """

    def packed() -> PackedCode | None:
        has_code = model_dir is not None or bool(includes)
        return pack(home, model_dir, includes, max_size_bytes=max_code_bytes) if has_code else None

    loaded = load(text, source=source, overrides=overrides)
    check_arguments(loaded.config, source)
    _check_storage(home, loaded.config, source)
    with _writing(home):
        code = packed()
    warnings = check_program(loaded.config, code, source)
    loaded = dataclasses.replace(loaded, warnings=(*loaded.warnings, *warnings))
    submission = SubmissionRecord(
        code=code.sha256 if code else None,
        cwd=str(Path.cwd()),
        environment=recorded_variables() | dict(variables),
        warm_start=_warm_start(home, loaded.config, source),
        overrides=list(overrides),
        key=key,
    )
    return _begin(home, loaded, text, submission, is_paused=is_paused, pack_again=packed)


def find_submitted(home: Home, key: str) -> int | None:
    """Returns the experiment that was submitted with this `key`, or None. Completes a submission that was cut off."""
    for experiment_id in home.experiment_ids():
        folder = home.experiment(experiment_id)
        with contextlib.suppress(ExperimentNotFoundError, RecordDamagedError):
            if folder.read_submission().key == key:
                if folder.read().search is None:
                    call(home.root, Submit(experiment_id=experiment_id))
                return experiment_id
    return None


def fork(
    home: Home,
    experiment_id: int,
    text: str | None = None,
    *,
    source: str = "",
    overrides: Sequence[str] = (),
    is_paused: bool = False,
) -> Submitted:
    """Submits another experiment with the same code. Its configuration is `text`, by default the first one's.

    Raises the errors of `submit`, and `ExperimentNotFoundError`.
    """
    folder = home.experiment(experiment_id)
    parent = folder.read_submission()
    if text is None:
        text, source = folder.read_original_config().decode(errors="surrogateescape"), str(folder.config_path)
        overrides = [*parent.overrides, *overrides]
    loaded = load(text, source=source, overrides=overrides)
    check_arguments(loaded.config, source)
    submission = replace(parent, warm_start=_warm_start(home, loaded.config, source), overrides=list(overrides), key="")
    return _begin(home, loaded, text, submission, parent=experiment_id, is_paused=is_paused)


def continue_as_new(home: Home, trial_id: int, *, overrides: Sequence[str] = (), is_paused: bool = False) -> Submitted:
    """Submits an experiment of one trial, which begins with the newest checkpoint of `trial_id` and has its
    hyperparameters, code and configuration.

    Raises the errors of `submit`, `TrialNotFoundError`, and `ExperimentNotFoundError` if the trial's experiment was not
    submitted.
    """
    trial = home.trial(trial_id).read_record()
    folder = home.experiment(trial.experiment_id)
    parent = folder.read_submission()
    config = continued_config(from_json(folder.read_config()), trial_id, from_json(trial.told_hparams))
    source = f"the configuration of trial {trial_id}"
    loaded = from_mapping(config, source=source, overrides=overrides)
    check_arguments(loaded.config, source)
    submission = replace(parent, warm_start=_warm_start(home, loaded.config, source), overrides=[], key="")
    text = to_yaml(loaded.config)
    return _begin(home, loaded, text, submission, parent=trial.experiment_id, is_paused=is_paused)


def continue_in_place(home: Home, experiment_id: int, *, overrides: Sequence[str] = (), by: str = "") -> Submitted:
    """Continues the trials of an experiment that has ended from their checkpoints.

    Completed trials are not continued, except the trial of a `single` searcher. A halving search goes on only if
    somebody has canceled or killed it. Only a `single` searcher takes overrides.

    Raises `ExperimentError` if the experiment cannot go on, and the errors of `submit`.
    """
    folder = home.experiment(experiment_id)
    search, path = folder.read_own().search, folder.completed_config_path
    if search is None or not search.has_ended:
        raise ExperimentError.of(experiment_id, "has not ended: `core-sdk experiment activate` lets it go on")
    before = folder.read_config()
    loaded = from_mapping(from_json(before), source=str(path), overrides=overrides)
    _check_kept(experiment_id, from_mapping(from_json(before)).config, loaded.config)
    followed = FollowedExperiment(home, experiment_id)
    for _ in followed.read():
        pass
    if obstacle := followed.experiment.obstacle:
        raise ExperimentError.of(
            experiment_id,
            f"cannot go on: {obstacle}. `core-sdk experiment continue --new {experiment_id}` begins an experiment that "
            "goes on with its best trial, or with --trial ID",
        )
    if overrides and search.searcher != "single":
        raise ExperimentError.of(experiment_id, "has several trials, whose configuration cannot change any more")
    folder.write_config(_values(loaded.config))
    try:
        call(home.root, Continue(experiment_id=experiment_id, by=by))
    except CoreSDKError:
        folder.write_config(before)
        raise
    return Submitted(experiment_id, loaded.warnings)


def _check_kept(experiment_id: int, before: ExperimentConfig, after: ExperimentConfig) -> None:
    """Raises `ExperimentError` if a part of the configuration differs on which the recorded events depend."""
    for name in ("searcher", "hyperparameters", "reproducibility"):
        if getattr(before, name) != getattr(after, name):
            problem = f"keeps its {name}: `core-sdk experiment continue --new` begins another one, which may change it"
            raise ExperimentError.of(experiment_id, problem)


def continued_config(config: Mapping[str, Any], trial_id: int, hparams: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the configuration of an experiment with one trial, which begins with the weights of another trial."""
    searcher = config["searcher"]
    kept = {key: searcher[key] for key in ("metric", "smaller_is_better", "writer", "max_length") if key in searcher}
    return {
        **config,
        "hyperparameters": {name: _constant(value) for name, value in hparams.items()},
        "searcher": {"name": "single", "source_trial_id": trial_id, **kept},
    }


def _constant(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "type" in value or not value:
        return {"type": "const", "val": value}
    return {name: _constant(member) for name, member in value.items()}


def _begin(
    home: Home,
    loaded: Loaded,
    text: str,
    submission: SubmissionRecord,
    *,
    parent: int | None = None,
    is_paused: bool = False,
    pack_again: Callable[[], object] = lambda: None,
) -> Submitted:
    config, folder = loaded.config, home.allot_experiment()
    with _writing(home), contextlib.ExitStack() as undo:
        undo.callback(_withdraw, folder)
        original = text.encode()
        write_atomically(folder.config_path, original)
        folder.write_config(_values(config))
        folder.write_submission(replace(submission, config_sha256=hashlib.sha256(original).hexdigest()))
        # This comes last, since the record makes the folder an experiment.
        folder.write(
            ExperimentRecord(
                experiment_id=folder.experiment_id,
                name=config.name or script_name(_words(config)),
                created=time.time(),
                labels=list(config.labels),
                description=config.description,
                retention=config.retention,
                searcher_metric=SearcherMetric(
                    name=config.searcher.metric,
                    smaller_is_better=config.searcher.smaller_is_better,
                    group="validation",
                    writer=config.searcher.writer,
                ),
                is_submitted=True,
                parent=parent,
            )
        )
        if submission.code is not None:
            if not home.code_archive(submission.code).exists():
                pack_again()  # the last experiment with this code has just been deleted
            check_archive(home, submission.code)
        call(home.root, Submit(experiment_id=folder.experiment_id, is_paused=is_paused))
        undo.pop_all()
    return Submitted(folder.experiment_id, loaded.warnings)


@contextlib.contextmanager
def _writing(home: Home) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise  # the message names the file
        raise HomeNotWritableError(home.root, explained(error).strerror or str(error)) from error


def _check_storage(home: Home, config: ExperimentConfig, source: str) -> None:
    """Raises `InvalidConfigError` if the trials of this machine cannot use the storage. Asks no bucket."""
    if config.resources.engine == "ray":
        return  # another machine may have it
    try:
        check_storage(to_mapping(config).get("checkpoint_storage") or {}, home.checkpoints)
    except (ValueError, StorageError) as error:
        problem = str(error).removeprefix("checkpoint_storage ")
        raise InvalidConfigError([ConfigProblem(source, None, "checkpoint_storage", problem)]) from None


def _withdraw(folder: ExperimentFolder) -> None:
    """Removes an experiment unless a master has begun it, which a master that died before its answer may have done."""
    if not folder.events_path.exists() or folder.events_path.stat().st_size == 0:
        folder.discard()


def _values(config: ExperimentConfig) -> dict[str, Any]:
    values: dict[str, Any] = to_json(to_mapping(config), "the configuration")
    return values


def _warm_start(home: Home, config: ExperimentConfig, source: str) -> str | None:
    """Returns the id of the checkpoint that all trials begin with, or None."""
    trial_id, storage_id = config.searcher.source_trial_id, config.searcher.source_checkpoint_uuid
    if trial_id is not None:
        found = newest_good_checkpoint(home.trial(trial_id)).storage_id
        if found is None:
            problem = f"names trial {trial_id}, which has no checkpoint that can be read"
            raise InvalidConfigError([ConfigProblem(source, None, "searcher.source_trial_id", problem)])
        return found
    if storage_id is not None:
        with open_view(home) as view:
            return view.checkpoint(storage_id).storage_id
    return None


def _words(config: ExperimentConfig) -> Sequence[str]:
    """Returns the words of the entrypoint, as far as they can be told without a shell."""
    entrypoint = config.entrypoint
    if not isinstance(entrypoint, str):
        return entrypoint
    try:
        return shlex.split(entrypoint)
    except ValueError:
        return entrypoint.split()
