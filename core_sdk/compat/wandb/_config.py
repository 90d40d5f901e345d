"""The configuration of a run, which is the hyperparameters of its trial."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from core_sdk.compat.wandb._named_values import NamedValues
from core_sdk.compat.wandb.errors import UsageError

logger = logging.getLogger("core_sdk.compat")

_DEFAULTS = Path("config-defaults.yaml")


def config_mapping(config: Any) -> dict[str, Any]:
    """Returns a configuration as a dict: a mapping, an object with fields, absl's flags, or the path of a YAML file."""
    if config is None:
        return {}
    if isinstance(config, (str, Path)):
        return _of_file(Path(config))
    if isinstance(config, Mapping):
        return {str(name): value for name, value in config.items()}
    if hasattr(config, "flag_values_dict"):
        return dict(config.flag_values_dict())
    try:
        return dict(vars(config))
    except TypeError:
        raise TypeError(f"config must be a dict or an object with fields, not {type(config).__name__}") from None


def default_config() -> dict[str, Any]:
    """Returns the configuration in the file config-defaults.yaml of the working directory, if there is one."""
    return _of_file(_DEFAULTS) if _DEFAULTS.is_file() else {}


def _of_file(path: Path) -> dict[str, Any]:
    """Returns the values of one of wandb's files, where each stands alone or, next to a description, under `value`."""
    found = yaml.safe_load(path.read_text())
    if not isinstance(found, dict):
        raise ValueError(f"{path} is no configuration: it must be a YAML mapping of names to values")
    return {
        str(name): value["value"] if isinstance(value, dict) and "value" in value else value
        for name, value in found.items()
        if name not in ("wandb_version", "_wandb")
    }


class Config(NamedValues):
    """Values by name, also as attributes. Each change is recorded when it is made."""

    _called = "config"

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        *,
        chosen: Mapping[str, Any] | None = None,
        may_change: bool = False,
        record: Callable[[Mapping[str, Any]], object] | None = None,
    ) -> None:
        """`chosen` are those that the script cannot change, but only a search or the command line."""
        self._chosen = dict(chosen or {})
        self._values = {**(values or {}), **self._chosen}
        self._may_change = may_change
        self._record = record or (lambda values: None)

    def update(self, values: Any = None, allow_val_change: bool | None = None, **more: Any) -> None:  # type: ignore[override]
        """Adds values. Raises `UsageError` for a value that changes, unless that is allowed, and then changes none."""
        given = {**config_mapping(values), **more}
        kept = {name: value for name, value in given.items() if name not in self._chosen}
        if contradicted := {name for name in given if self._chosen.get(name, given[name]) != given[name]}:
            logger.warning(
                "config: %s keeps the value that a search, the command line or the trial's first attempt has chosen",
                ", ".join(sorted(contradicted)),
            )
        if not (self._may_change if allow_val_change is None else allow_val_change):
            for name, value in kept.items():
                if self._values.get(name, value) != value:
                    raise UsageError(
                        f"config.{name} is {self._values[name]!r}, and cannot become {value!r}: pass "
                        "allow_val_change=True to config.update(), or to wandb.init()"
                    )
        if kept:
            self._record(kept)
        self._values |= kept

    def setdefaults(self, values: Any) -> None:
        """Adds the values of names that have none."""
        self.update({name: value for name, value in config_mapping(values).items() if name not in self._values})

    def as_dict(self) -> dict[str, Any]:
        """Returns a copy as a dict."""
        return dict(self._values)

    def __delitem__(self, name: str) -> None:
        raise UsageError(f"config.{name} is recorded, and cannot be deleted")

    def __reduce__(self) -> tuple[type[Config], tuple[dict[str, Any]]]:
        return Config, (self._values,)

    def __repr__(self) -> str:
        return repr(self._values)
