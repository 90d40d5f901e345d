"""A complete configuration, written down, loads as the same configuration."""

from __future__ import annotations

import json
import string
import time
from typing import Any

import pytest
import yaml
from ground.config.configurations import SINGLE, loaded
from hypothesis import given, settings
from hypothesis import strategies as st

from core_sdk._ground.config import from_mapping, load, masked, to_mapping, to_yaml
from core_sdk.errors import InvalidConfigError

names = st.text(string.ascii_letters + "_ .é", min_size=1, max_size=8).filter(lambda name: name != "loguniform")
finite = st.floats(-1e6, 1e6)
texts = st.one_of(
    st.sampled_from(
        ["on", "1e-5", "010", "1_0", "null", "~", "", ".inf", "0x1", "<<", "1:30", "2026-11-22", "a: b", "#"]
    ),
    st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=20),
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), texts)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
counts = st.none() | st.integers(1, 9)


@st.composite
def ranges(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["int", "double", "log"]))
    numbers = st.integers(-30, 30) if kind == "int" else st.floats(-30, 30)
    low, high = sorted(draw(st.lists(numbers, min_size=2, max_size=2, unique=True)))
    return {"type": kind, "minval": low, "maxval": high, "count": draw(counts)} | ({"base": 2} if kind == "log" else {})


hyperparameters = st.recursive(
    st.one_of(
        scalars,
        st.lists(values, max_size=3),
        st.builds(lambda val: {"type": "const", "val": val}, values),
        st.builds(lambda vals: {"type": "categorical", "vals": vals}, st.lists(values, min_size=1, max_size=3)),
        ranges(),
        st.builds(lambda low, factor: {"loguniform": [low, low * factor]}, st.floats(1e-9, 1e9), st.floats(2, 1e9)),
    ),
    lambda inner: st.dictionaries(names.filter(lambda name: name != "type"), inner, min_size=1, max_size=3),
    max_leaves=6,
)
lengths = st.integers(1, 99) | st.dictionaries(
    st.sampled_from(["batches", "records", "epochs"]), st.integers(1, 99), min_size=1, max_size=1
)
forms = st.builds(lambda n: {"time_metric": "epochs", "max_time": n}, st.integers(1, 99)) | st.builds(
    lambda length: {"max_length": length}, lengths
)
searchers = st.one_of(
    st.fixed_dictionaries({"name": st.just("single")}, optional={"max_length": lengths}),
    st.fixed_dictionaries({"name": st.just("random"), "max_trials": st.integers(1, 99)}),
    st.builds(lambda form: {"name": "asha", "max_trials": 9, "num_rungs": 3} | form, forms),
    st.builds(
        lambda form, rungs: {"name": "adaptive_asha", "max_trials": 9, "divisor": 3, "bracket_rungs": rungs} | form,
        forms,
        st.lists(st.integers(1, 5), max_size=3),
    ),
    st.fixed_dictionaries({"name": st.just("custom")}, optional={"unit": st.just("epochs")}),
).map(lambda searcher: searcher | {"metric": "loss"})
configurations = st.fixed_dictionaries(
    {
        "entrypoint": st.just("python3 train.py") | st.just(["python3", "train.py"]),
        "searcher": searchers,
        "hyperparameters": st.dictionaries(names, hyperparameters, max_size=4),
    },
    optional={
        "name": texts,
        "labels": st.lists(texts, max_size=3),
        "data": st.dictionaries(texts, values, max_size=3),
        "max_restarts": st.integers(0, 9),
        "min_validation_period": st.integers(0, 9) | lengths,
        "reproducibility": st.fixed_dictionaries({"experiment_seed": st.integers(0, 2**31 - 1)}),
        "environment": st.fixed_dictionaries({"environment_variables": st.lists(st.just("A=1"), max_size=2)}),
        "checkpoint_storage": st.just("s3://b") | st.just({"type": "directory", "container_path": "/c"}),
        "log_policies": st.just([{"name": "CUDA OOM", "pattern": None}, {"name": "x", "pattern": "x"}]),
    },
)


@given(configurations)
@settings(max_examples=60, deadline=None)
def test_any_configuration_survives_being_written(values: dict[str, Any]) -> None:
    """Any configuration is the same after it was written and read, as YAML and as plain values."""
    config = from_mapping(values).config

    written = to_yaml(config)

    assert load(written, source="").config == config
    assert from_mapping(to_mapping(config)).config == config
    assert to_yaml(load(written, source="").config) == written


def test_a_written_configuration_is_the_same_for_readers_of_yaml_1_1() -> None:
    """Written YAML is read the same by YAML 1.1, since strings such as `on` and `1e-5` are quoted."""
    config = loaded(f"{SINGLE}data: {{on: yes, b: '1e-5', c: 1e-5, d: 2026-11-22, e: 010, f: 1:30}}\n")

    assert yaml.safe_load(to_yaml(config)) == to_mapping(config)


def test_a_configuration_without_infinities_is_json() -> None:
    """A configuration without infinities can be written as JSON and read as YAML."""
    config = loaded(SINGLE)

    assert loaded(json.dumps(to_mapping(config))) == config


def test_a_mapping_may_hold_what_python_programs_have() -> None:
    """A mapping may hold tuples, which become lists; types that a file cannot hold are refused."""
    values = {"entrypoint": ("python3", "train.py"), "searcher": {"name": "single", "metric": "loss"}}

    assert from_mapping(values).config.entrypoint == ("python3", "train.py")
    with pytest.raises(TypeError, match=r"the configuration\['data'\] is a set"):
        from_mapping(values | {"data": {1, 2}})
    with pytest.raises(InvalidConfigError, match=r"^the configuration: searcher is missing"):
        from_mapping({"entrypoint": "x"})


def test_secrets_are_not_shown() -> None:
    """Secrets in the data and in a storage are masked when a configuration is shown."""
    storage = "{type: s3, bucket: b, access_key: a, secret_key: b}"
    config = loaded(f"{SINGLE}data: {{a: 1, secrets: {{token: x}}}}\ncheckpoint_storage: {storage}\n")

    shown = masked(to_mapping(config))

    assert shown["data"] == {"a": 1, "secrets": {"token": "********"}}
    assert shown["checkpoint_storage"] == {
        "type": "s3",
        "bucket": "b",
        "access_key": "********",
        "secret_key": "********",
    }
    assert masked(to_mapping(loaded(SINGLE))) == to_mapping(loaded(SINGLE))


def test_the_seed_is_the_time_where_none_is_given() -> None:
    """Without a seed, the current time is the seed, and it is part of the complete configuration."""
    before = int(time.time())

    seed = loaded("entrypoint: a\nsearcher: {name: single, metric: loss}").reproducibility.experiment_seed

    assert before <= seed <= time.time()


def test_loading_costs_milliseconds() -> None:
    """A configuration of a hundred hyperparameters is loaded within 50 milliseconds."""
    ranges = "".join(f"  x{n}: {{type: double, minval: 1e-5, maxval: 3.5, count: 3}}\n" for n in range(100))
    text = f"{SINGLE}hyperparameters:\n{ranges}"
    loaded(text)

    def once() -> float:
        start = time.perf_counter()
        loaded(text)
        return time.perf_counter() - start

    assert min(once() for _ in range(10)) < 0.05
