"""What is wrong with a configuration is said with file, line, path and the nearest key."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from ground.config.configurations import SINGLE, loaded, problems_of, warnings_of
from hypothesis import given, settings
from hypothesis import strategies as st

from core_sdk._ground.config import ExperimentConfig, from_mapping
from core_sdk._ground.config._short_forms import SEARCHERS
from core_sdk._ground.config.hyperparameters import Const
from core_sdk._ground.records import STORAGE_KEYS
from core_sdk.errors import ConfigProblem, InvalidConfigError


def test_all_that_is_wrong_is_said_at_once() -> None:
    """All errors of a configuration are reported at once, each with its line."""
    problems = problems_of(
        textwrap.dedent("""\
        name: 123
        max_trials: 3
        hyperparameters:
          lr: {type: double, minval: 3, maxval: 1}
          opt:
            width: {type: intt, minval: 1, maxval: 3}
        searcher:
          name: adaptive_asha
          metrics: loss
          max_trials: ten
          mode: standart
        resources:
          priority: 100
        labels: [a, 3]
        pbs: {slots_per_node: 2}
        """)
    )

    assert problems == [
        "const.yaml: entrypoint is missing: the command of each trial, or the Trial class that it trains",
        "const.yaml:1: name must be a string, and is 123",
        "const.yaml:2: max_trials is unknown here; did you mean searcher.max_trials?",
        "const.yaml:4: hyperparameters.lr.minval must be less than maxval, 1, and is 3",
        "const.yaml:6: hyperparameters.opt.width.type is 'intt', which does not exist; did you mean int?",
        "const.yaml:7: searcher.metric is missing: the validation metric by which one trial is better than another",
        "const.yaml:7: searcher.max_time is missing: give time_metric and max_time, or max_length",
        "const.yaml:9: searcher.metrics is unknown here; did you mean metric?",
        "const.yaml:10: searcher.max_trials must be an int of at least 1, and is 'ten'",
        "const.yaml:11: searcher.mode must be one of aggressive, standard, conservative, and is 'standart'",
        "const.yaml:13: resources.priority must be an int from 1 to 99, and is 100",
        "const.yaml:14: labels[1] must be a string, and is 3",
        "const.yaml:15: pbs cannot be honoured: submit a batch job that runs the experiment",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("resource: {}", "resource is unknown here; did you mean resources?"),
        ("slots_per_trial: 2", "slots_per_trial is unknown here; did you mean resources.slots_per_trial?"),
        ("resources: {slots_per_tril: 2}", "resources.slots_per_tril is unknown here; did you mean slots_per_trial?"),
        (
            "resources: {zzz: 2}",
            "resources.zzz is unknown here; there are slots_per_trial, max_slots, priority, engine, address, "
            "slurm, ray, is_single_node",
        ),
        ("resources: 3", "resources must be a map, and is 3"),
        ("resources: {slots_per_trial: true}", "resources.slots_per_trial must be an int of at least 0, and is true"),
        ("resources: {slots_per_trial: 1.5}", "resources.slots_per_trial must be an int of at least 0, and is 1.5"),
        (
            "resources: {engine: slurm, slots_per_trial: 3, slurm: {nodes: 2}}",
            "resources.slots_per_trial cannot be divided over 2 nodes (slurm.nodes): give a multiple",
        ),
        (
            "resources: {engine: ray, slots_per_trial: 3, ray: {nodes: 2}}",
            "resources.slots_per_trial cannot be divided over 2 nodes (ray.nodes): give a multiple",
        ),
        (
            "resources: {ray: {autoscaling: true}}",
            "resources.ray is about Ray clusters: write `engine: ray`, too",
        ),
        (
            "resources: {engine: ray, ray: {runtime_env: {working_dir: .}}}",
            "resources.ray.runtime_env has a working_dir that is no URI of a zip file, such as s3://…: to bring a "
            "directory along, submit the experiment with it",
        ),
        (
            "resources: {engine: ray, ray: {accelerator: A100}}",
            "resources.ray.accelerator is unknown here; did you mean accelerator_type?",
        ),
        (
            "resources: {slurm: {nodes: 2}, slots_per_trial: 2}",
            "resources.slurm is about jobs of Slurm: write `engine: slurm`, too",
        ),
        ("resources: {slots_per_trial: -1}", "resources.slots_per_trial must be an int of at least 0, and is -1"),
        (
            "resources: {address: 'node7:6379'}",
            "resources.address names a Ray cluster: write `engine: ray`, too",
        ),
        ("debug: yes", "debug must be true or false, and is 'yes'"),
        ("max_restarts: [1]", "max_restarts must be an int of at least 0, and is a list"),
        ("name: {a: 1}", "name must be a string, and is a map"),
        ("labels: mnist", "labels must be a list, and is 'mnist'"),
        ("data: [1]", "data must be a map, and is a list"),
        (f"name: [{'x' * 80}]", "name must be a string, and is a list"),
        (f"debug: {'x' * 80}", f"debug must be true or false, and is '{'x' * 58}…"),
        ("checkpoint_policy: bets", "checkpoint_policy must be one of best, all, none, and is 'bets'"),
        ("workspace: vision", "project is missing: give both workspace and project, or neither"),
        ("project: mnist", "workspace is missing: give both workspace and project, or neither"),
        ("hyperparameters: [1]", "hyperparameters must be a map of hyperparameters by name"),
        ("checkpoint_storage: ''", "checkpoint_storage must be a string that is not empty, and is ''"),
        (
            "checkpoint_storage: {type: hdfs}",
            f"checkpoint_storage.type must be one of {', '.join(STORAGE_KEYS)}, and is 'hdfs'",
        ),
        (
            "checkpoint_storage: {keep_every: {epochs: 2}}",
            "checkpoint_storage.keep_every must be {steps: N} with a whole number, or {hours: N}, N above 0, and is "
            "{'epochs': 2}",
        ),
        (
            "checkpoint_storage: {save_trial_best: -1}",
            "checkpoint_storage.save_trial_best must be an int of at least 0, and is -1",
        ),
        (
            "environment: {environment_variables: [PATH]}",
            "environment.environment_variables[0] must be a string such as NAME=VALUE, and is 'PATH'",
        ),
        (
            "environment: {environment_variables: {cpus: [A=1]}}",
            "environment.environment_variables.cpus is unknown here; did you mean cpu?",
        ),
        ("log_policies: {}", "log_policies must be a list of policies"),
        ("log_policies: [oom]", "log_policies[0] must be a map, and is 'oom'"),
        (
            "log_policies: [{name: oom, pattern: '('}]",
            "log_policies[0].pattern is not a regular expression of Python: missing ), unterminated subpattern at "
            "position 0",
        ),
        (
            "log_policies: [{name: oom, pattern: a}, {name: oom, pattern: b}]",
            "log_policies has 2 policies of the name 'oom'",
        ),
        (
            "log_policies: [{name: oom, pattern: a, action: retry}]",
            "log_policies[0].action must be one of cancel_retries, exclude_node, and is 'retry'",
        ),
        (
            "min_validation_period: {epoch: 1}",
            "min_validation_period.epoch is unknown here; did you mean epochs?",
        ),
        (
            "min_validation_period: {epochs: -1}",
            "min_validation_period.epochs must be an int of at least 0, and is -1",
        ),
        (
            "min_checkpoint_period: {epochs: 1, batches: 3}",
            "min_checkpoint_period must have one unit, such as {epochs: 20}, and has 2",
        ),
        ("min_checkpoint_period: 1.5", "min_checkpoint_period must be an int of at least 0, and is 1.5"),
    ],
)
def test_a_bad_value_is_named(text: str, problem: str) -> None:
    """The error for a bad value has its key, and its line where there is one."""
    assert problems_of(f"{SINGLE}{text}\n") in ([f"const.yaml:4: {problem}"], [f"const.yaml: {problem}"])


@pytest.mark.parametrize(
    ("searcher", "problem"),
    [
        ("single", "must be a map, and is 'single'"),
        ("{metric: loss}", f".name is missing: one of {', '.join(SEARCHERS)}"),
        ("{name: adaptive_ahsa, metric: loss}",
         ".name is 'adaptive_ahsa', which does not exist; did you mean adaptive_asha?"),
        ("{name: [single], metric: loss}", ".name is a list, which does not exist; did you mean single?"),
        ("{name: single, metric: ''}", ".metric must be a string that is not empty, and is ''"),
        ("{name: single, metric: loss, max_trials: 3}", ".max_trials is unknown here; there are metric, "
         "smaller_is_better, writer, source_trial_id, source_checkpoint_uuid, max_length"),
        ("{name: random, metric: loss}", ".max_trials is missing: the number of trials"),
        ("{name: random, metric: loss, max_trials: 3, max_length: {epochs: 0}}",
         ".max_length.epochs must be an int of at least 1, and is 0"),
        ("{name: single, metric: loss, source_trial_id: 3, source_checkpoint_uuid: a}",
         ".source_trial_id cannot be given together with source_checkpoint_uuid"),
        ("{name: asha, metric: loss, max_trials: 3, num_rungs: 2}",
         ".max_time is missing: give time_metric and max_time, or max_length"),
        ("{name: asha, metric: loss, max_trials: 3, num_rungs: 2, max_time: 9}",
         ".time_metric is missing: max_time is a value of the metric that it names, such as epochs"),
        ("{name: asha, metric: loss, max_trials: 3, num_rungs: 2, time_metric: epochs}",
         ".max_time is missing: give time_metric and max_time, or max_length"),
        ("{name: asha, metric: loss, max_trials: 3, num_rungs: 2, time_metric: epochs, max_time: 9, max_length: 9}",
         ".max_length cannot be given together with time_metric and max_time"),
        ("{name: adaptive_asha, metric: loss, max_trials: 3, max_length: 9, divisor: 1}",
         ".divisor must be a number greater than 1, and is 1"),
        ("{name: adaptive_asha, metric: loss, max_trials: 3, max_length: 9, bracket_rungs: [2, 0]}",
         ".bracket_rungs[1] must be an int of at least 1, and is 0"),
    ],
)  # fmt: skip
def test_a_bad_searcher_is_named(searcher: str, problem: str) -> None:
    """The error for a bad searcher names its key; each kind has its own keys and rules across keys."""
    problems = problems_of(f"entrypoint: python3 train.py\nsearcher: {searcher}\n")

    assert problems == [f"const.yaml:2: searcher{problem if problem[0] == '.' else f' {problem}'}"]


@pytest.mark.parametrize(
    ("hyperparameter", "problem"),
    [
        ("{type: int, minval: 1}", ".maxval is missing: the largest value"),
        ("{type: int, minval: 1, maxval: 2.5}", ".maxval must be an int, and is 2.5"),
        ("{type: int, minval: 3, maxval: 3}", ".minval must be less than maxval, 3, and is 3"),
        ("{type: int, minval: 3, maxval: 4, count: 0}", ".count must be an int of at least 1, and is 0"),
        ("{type: double, minval: 3, maxval: .inf}", ".maxval must be finite, and is inf"),
        ("{type: categorical, vals: []}", ".vals must be a list that is not empty, and is a list"),
        ("{type: const}", ".val is missing: any value; a map must be given in this form"),
        ("{type: log, base: 0, minval: 1, maxval: 2}", ".base must be a number greater than 0, and is 0"),
        ("{type: log, base: 10, minval: 32, maxval: 512}",
         ".maxval is an exponent, and 10**512 is too large; `loguniform` takes values"),
        ("{loguniform: 3}", ".loguniform must be a list of two numbers, such as [1e-5, 0.1]"),
        ("{loguniform: [0, 1]}", ".loguniform[0] must be a number greater than 0, and is 0"),
        ("{loguniform: [1e-1, 1e-5]}", ".loguniform must have the smaller number first, and is [0.1, 1e-05]"),
        ("{loguniform: [1e-5, 1e-1], counts: 3}", ".counts is unknown here; did you mean count?"),
        ("{loguniform: [1e-5, 1e-1], count: a}", ".count must be an int of at least 1, and is 'a'"),
        ("{type: gaussian, mean: 3}", ".type is 'gaussian', which does not exist; there are const, categorical, int, "
         "double, log"),
    ],
)  # fmt: skip
def test_a_bad_hyperparameter_is_named(hyperparameter: str, problem: str) -> None:
    """The error for a bad hyperparameter in a nested group names its full path."""
    problems = problems_of(f"{SINGLE}hyperparameters:\n  optimizer:\n    lr: {hyperparameter}\n")

    assert problems == [f"const.yaml:6: hyperparameters.optimizer.lr{problem}"]


GRID = "entrypoint: python3 train.py\nsearcher: {name: grid, metric: loss}\n"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("[0.1, 0.2]", "is a list, of which nothing is chosen: `{type: categorical, vals: [0.1, 0.2]}`"),
        ("{vals: [a, b]}", "has vals, but no type: `{type: categorical, vals: [a, b]}` is searched"),
        ("{values: [1, 2, 3, 4, 5]}", "has values, but no type: `{type: categorical, vals: [1, 2, 3, 4, ...]}`"),
        ("{choice: [1, 2]}", "has choice, but no type: `{type: categorical, vals: [1, 2]}`"),
        ("{min: 1, max: 8}", "has min, max, but no type: `{type: int, minval: 1, maxval: 8}`"),
        ("{minval: 0, maxval: 0.5, count: 3}", "has minval, maxval, count, but no type: `{type: double, minval: 0,"),
        ("{distribution: uniform, min: 0, max: 1}", "has distribution, min, max, but no type"),
        ("{val: 3}", "has val, but no type"),
    ],
)
@pytest.mark.parametrize("searcher", ["grid", "random, max_trials: 2", "adaptive_asha, max_trials: 2, max_length: 4"])
def test_a_constant_that_was_meant_to_be_searched_is_refused(searcher: str, value: str, words: str) -> None:
    """In a search, a constant that looks like a range is refused with the probable intention."""
    begin = f"entrypoint: python3 train.py\nsearcher: {{name: {searcher}, metric: loss}}\nhyperparameters:\n"
    x = "  x: {type: int, minval: 1, maxval: 2, count: 2}\n"

    [flat] = problems_of(f"{begin}{x}  lr: {value}\n")
    [nested] = problems_of(f"{begin}{x}  optimizer: {{lr: {value}, name: sgd}}\n")

    assert flat.startswith(f"const.yaml:5: hyperparameters.lr {words}")
    assert nested.startswith(f"const.yaml:5: hyperparameters.optimizer.lr {words}")
    loaded(f"{begin}{x}  lr: {{type: const, val: {value}}}\n")
    loaded(f"{SINGLE}hyperparameters: {{lr: {value}}}")


def test_a_stored_configuration_of_an_older_version_can_be_read() -> None:
    """A stored configuration that older versions accepted, such as a list in a grid, can still be read."""
    values = {"entrypoint": "x", "searcher": {"name": "grid", "metric": "loss"}, "hyperparameters": {"lr": [1, 2]}}

    assert from_mapping(values).config.hyperparameters.members == {"lr": Const([1, 2])}


@pytest.mark.parametrize("space", ["{}", "{lr: 0.1}"])
def test_a_search_that_has_nothing_to_choose_from_is_told(space: str) -> None:
    """A search without hyperparameters to choose from is accepted with a warning."""
    warnings = warnings_of(f"{GRID}hyperparameters: {space}")

    assert warnings == ["const.yaml:3: hyperparameters have nothing to choose from: trials differ in their seeds only"]


def test_a_grid_needs_counts() -> None:
    """A grid refuses every range without a count, by name and line."""
    problems = problems_of(
        f"{GRID}hyperparameters:\n"
        "  lr: {type: double, minval: 0, maxval: 1}\n"
        "  group: {width: {type: int, minval: 1, maxval: 8}, depth: {type: int, minval: 1, maxval: 8, count: 3}}\n"
    )

    missing = "is missing: a grid needs the number of values of each range"
    assert problems == [
        f"const.yaml:4: hyperparameters.lr.count {missing}",
        f"const.yaml:5: hyperparameters.group.width.count {missing}",
    ]


def test_a_large_grid_is_refused_unless_it_is_meant() -> None:
    """A grid of more than 10,000 points is refused, unless searcher.max_points allows it."""
    ranges = "".join(f"  {name}: {{type: double, minval: 0, maxval: 1, count: 100}}\n" for name in "abc")
    text = f"{GRID}hyperparameters:\n{ranges}"

    assert problems_of(text) == [
        "const.yaml:3: hyperparameters make a grid of 1,000,000 points, more than 10,000: give smaller counts, or a "
        "larger searcher.max_points"
    ]
    loaded(text, "searcher.max_points=1000000")


def test_a_grid_counts_only_the_ints_that_exist() -> None:
    """The size of a grid counts only the ints that exist in a range, even if its count is larger."""
    loaded(f"{GRID}hyperparameters: {{n: {{type: int, minval: 1, maxval: 8, count: 2000000}}}}")


KEYS = sorted({*ExperimentConfig.__struct_fields__, *ExperimentConfig.ignored, *ExperimentConfig.refused})
INNER_KEYS = [
    "name",
    "type",
    "val",
    "vals",
    "minval",
    "maxval",
    "base",
    "count",
    "loguniform",
    "metric",
    "max_trials",
    "action",
    "pattern",
    "epochs",
    "environment_variables",
    "gpu",
    "slots_per_trial",
    "save_trial_best",
    "secrets",
]
words = st.sampled_from([*INNER_KEYS, "single", "grid", "asha", "int", "log", "categorical", "best", "a", ""])
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(INNER_KEYS), inner, max_size=4),
)


@given(st.dictionaries(st.sampled_from(KEYS), anything, max_size=6), st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_other_value_is_refused_with_its_path(values: dict[str, Any], is_complete: bool) -> None:
    """Any other bad value is refused with an InvalidConfigError that has a path, and never with another error."""
    complete = {"entrypoint": "a", "searcher": {"name": "grid", "metric": "a"}} if is_complete else {}

    try:
        from_mapping(complete | values)
    except InvalidConfigError as error:
        assert error.problems and all(problem.path for problem in error.problems)


def test_the_error_has_its_problems_as_values() -> None:
    """The error has its problems as values with file, line, key and text."""
    with pytest.raises(InvalidConfigError) as caught:
        loaded(f"{SINGLE}debug: 3\n")

    assert caught.value.problems == (ConfigProblem("const.yaml", 4, "debug", "must be true or false, and is 3"),)


def test_a_tab_is_called_a_tab() -> None:
    """The error for a tab used as indentation says so and names its line."""
    assert problems_of("name: a\nsearcher:\n\tname: single\n") == [
        "const.yaml:3: this is not YAML: here is a tab; indent with spaces"
    ]
    (problem,) = problems_of("name: a\n  labels: [b]\n")
    assert problem.endswith("the indentation may be wrong, here or in the line before")


def test_a_search_by_halving_names_all_that_it_needs() -> None:
    """A halving search names all missing keys at once, also those for the length of its trials."""
    assert problems_of("entrypoint: python3 train.py\nsearcher: {name: asha, metric: loss}\n") == [
        "const.yaml:2: searcher.max_trials is missing: the number of trials",
        "const.yaml:2: searcher.num_rungs is missing: the number of rungs",
        "const.yaml:2: searcher.max_time is missing: give time_metric and max_time, or max_length",
    ]
