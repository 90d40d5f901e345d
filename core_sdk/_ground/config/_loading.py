"""Turns a configuration file into a checked configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core_sdk._ground.config._document import Document, parse
from core_sdk._ground.config._reader import Reader
from core_sdk._ground.config._short_forms import SHORT_FORMS
from core_sdk._ground.config.entrypoint import trains_class
from core_sdk._ground.config.experiment import FIT_ARGUMENTS, ExperimentConfig
from core_sdk._ground.config.hyperparameters import Const, near_misses
from core_sdk._ground.config.searchers import CustomSearcher, SingleSearcher
from core_sdk._ground.records import from_json, to_json
from core_sdk.errors import ConfigProblem, InvalidConfigError


@dataclass(frozen=True)
class Loaded:
    """A configuration, with the warnings that its author should see: what is ignored, without effect or suspicious."""

    config: ExperimentConfig
    warnings: tuple[str, ...]


def load(text: str, *, source: str, overrides: Sequence[str] = ()) -> Loaded:
    """Reads the YAML of an experiment's configuration.

    `source` names the file in errors and warnings. Each of `overrides` is an `a.b=VALUE`, whose value is YAML; values
    with commas between them are a list. Raises `InvalidConfigError`, which lists all problems of the file.
    """
    return _checked(parse(text, source), overrides, is_new=True)


def from_mapping(
    values: Mapping[str, Any],
    *,
    source: str = "the configuration",
    overrides: Sequence[str] = (),
    is_new: bool = False,
) -> Loaded:
    """Reads a configuration from a mapping, like `load`. Also raises `TypeError` for values that a file cannot hold.

    Only a configuration that `is_new` is searched for slips that an older version has accepted.
    """
    return _checked(Document(source, from_json(to_json(values, source))), overrides, is_new=is_new)


def _checked(document: Document, overrides: Sequence[str], *, is_new: bool) -> Loaded:
    for assignment in overrides:
        document.override(assignment)
    reader = Reader(document, ExperimentConfig, SHORT_FORMS)
    config = reader.read(ExperimentConfig, document.values, ())
    if is_new and not document.problems and not isinstance(config.searcher, SingleSearcher | CustomSearcher):
        for path, problem in near_misses(document.values.get("hyperparameters") or {}):
            document.add_problem(("hyperparameters", *path), problem)
        if all(isinstance(leaf, Const) for _, leaf in config.hyperparameters.leaves()):
            document.add_warning(("hyperparameters",), "have nothing to choose from: trials differ in their seeds only")
    if document.problems:
        raise InvalidConfigError(sorted(document.problems, key=_line))
    for key, argument in FIT_ARGUMENTS.items():
        if getattr(config, key) is not None and not trains_class(config.entrypoint):
            document.add_warning((key,), f"is for Trial classes without a script: pass `{argument}` to `Trainer.fit()`")
    return Loaded(config, tuple(str(warning) for warning in sorted(document.warnings, key=_line)))


def _line(problem: ConfigProblem) -> int:
    return problem.line or 0
