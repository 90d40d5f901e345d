"""`--config a.b=VALUE` changes what the file says."""

from __future__ import annotations

import pytest
from ground.config.configurations import SINGLE, loaded, problems_of

from core_sdk._ground.config import to_mapping


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("name=mnist", "mnist"),
        ("name=a=b", "a=b"),
        ("name='a, b'", "a, b"),
        ("name=", ""),
        ("max_restarts=3", 3),
        ("debug=true", True),
        ("labels=a", ["a"]),
        ("labels=a,b", ["a", "b"]),
        ("labels=[a, b]", ["a", "b"]),
        ("entrypoint=[python3, train.py]", ["python3", "train.py"]),
        ("environment.environment_variables=A=1", {"environment_variables": ["A=1"]}),
        ("hyperparameters.optimizer.lr=1e-3", {"optimizer": {"lr": 1e-3}}),
        ("hyperparameters.lr={type: int, minval: 1, maxval: 3}", {"lr": {"type": "int", "minval": 1, "maxval": 3}}),
        ("searcher={name: single, metric: error}", {"name": "single", "metric": "error", "smaller_is_better": True}),
        (
            "resources.priority=null",
            {"slots_per_trial": 1, "priority": 42, "engine": "local", "address": "", "is_single_node": False},
        ),
    ],
)
def test_an_override_sets_one_value(override: str, value: object) -> None:
    """An override sets one value, which is read as YAML; commas separate the items of a list."""
    config = loaded(SINGLE, override)

    assert to_mapping(config)[override.split("=")[0].split(".")[0]] == value


def test_the_last_override_has_precedence() -> None:
    """The last override has precedence over earlier ones and over the file."""
    assert loaded(SINGLE, "searcher.metric=a", "searcher.metric=b").searcher.metric == "b"


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("name", "name is not of the form a.b=VALUE"),
        ("=3", "is not of the form a.b=VALUE"),
        ("a..b=3", "a..b is not of the form a.b=VALUE"),
        ("nam=x", "nam is unknown here; did you mean name?"),
        ("debug=3", "debug must be true or false, and is 3"),
        ("entrypoint.x=3", "entrypoint.x cannot be set, because entrypoint is not a map"),
        ("name=[a", "this is not YAML: did not find expected ',' or ']'"),
        ("searcher.max_trials=3", "searcher.max_trials is unknown here; there are metric, smaller_is_better, writer, "
         "source_trial_id, source_checkpoint_uuid, max_length"),
        ("resources={slots_per_tril: 3}", "resources.slots_per_tril is unknown here; did you mean slots_per_trial?"),
    ],
)  # fmt: skip
def test_a_bad_override_is_named(override: str, problem: str) -> None:
    """The error for a bad override has it as it was typed, in place of file and line."""
    assert problems_of(SINGLE, override)[0] == f"--config {override}: {problem}"
