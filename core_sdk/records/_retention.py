"""The policy for keeping checkpoints: keys of an experiment configuration's `checkpoint_storage`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import msgspec


class RetentionPolicy(msgspec.Struct, kw_only=True, frozen=True):
    """The numbers of checkpoints to keep. The defaults are those of an experiment configuration.

    Use `checked` for values from outside.
    """

    save_experiment_best: int = 0
    save_trial_best: int = 1
    save_trial_latest: int = 1

    @classmethod
    def checked(cls, config: Mapping[str, Any]) -> Self:
        """Returns the policy in `config`, which may have other keys, too. A value of None means the default.

        Raises `ValueError` or `TypeError` naming the bad key.
        """
        given = {key: config[key] for key in RETENTION_KEYS if config.get(key) is not None}
        for key, value in given.items():
            _check_number(key, value)
        return cls(**given)


class SearcherMetric(msgspec.Struct, kw_only=True, frozen=True):
    """The validation metric by which one checkpoint is better than another."""

    name: str
    smaller_is_better: bool = True

    @classmethod
    def configured(cls, searcher: Any) -> Self | None:
        """Returns the metric in the `searcher` of an experiment configuration, or None if it names none."""
        if not isinstance(searcher, Mapping) or not isinstance(name := searcher.get("metric"), str):
            return None
        return cls(name=name, smaller_is_better=bool(searcher.get("smaller_is_better", True)))


RETENTION_KEYS = RetentionPolicy.__struct_fields__


def _check_number(key: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"checkpoint_storage has {key} {value!r}; it must be an int, at least 0")
    if value < 0:
        raise ValueError(f"checkpoint_storage has {key} {value}; it must be at least 0")
