"""`core_sdk.experimental.core_v2`: one Context per process, whose parts stand in the module."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core_sdk import client
from core_sdk._home import Home
from core_sdk.experimental import core_v2

RunScript = Callable[..., tuple[int, str, str]]

# What a script that can be continued prints is where it begins.
CONTINUED = """
    import sys
    from core_sdk.experimental import core_v2

    core_v2.init(
        defaults=core_v2.DefaultConfig(name="counting"),
        unmanaged=core_v2.UnmanagedConfig(external_experiment_id=sys.argv[1], external_trial_id=sys.argv[2]),
    )
    count = 0
    if core_v2.info.latest_checkpoint is not None:
        with core_v2.checkpoint.restore_path(core_v2.info.latest_checkpoint) as path:
            count = int((path / "count").read_text())
    print("from", count, "in trial", core_v2.info.trial.trial_id)
    for count in range(count + 1, count + 4):
        core_v2.train.report_training_metrics(steps_completed=count, metrics={"count": count})
        with core_v2.checkpoint.store_path({"steps_completed": count}) as (path, uuid):
            (path / "count").write_text(str(count))
    core_v2.close()
"""


@pytest.fixture(autouse=True)
def closed_again() -> Iterator[None]:
    """Closes the Context after each test."""
    yield
    core_v2.close()


def test_the_parts_of_the_context_stand_in_the_module() -> None:
    """init() puts the Context's parts into the module, and close() removes them."""
    core_v2.init(config=core_v2.Config(name="digits", hparams={"lr": 0.1}, labels=["first"], description="how"))
    assert core_v2.train is not None and core_v2.info is not None and core_v2.preempt is not None
    core_v2.train.report_training_metrics(steps_completed=1, metrics={"loss": 0.5})
    stopped, hparams = core_v2.preempt.should_preempt(), core_v2.info.trial.hparams
    core_v2.close()

    assert not stopped
    assert hparams == {"lr": 0.1}
    assert {getattr(core_v2, part) for part in ("train", "info", "preempt")} == {None}
    experiment = client.get_experiment("digits")
    assert (experiment.labels, experiment.description) == ({"first"}, "how")
    assert [(report.steps_completed, report.metrics) for report in client.get_trial(1).iter_metrics("training")] == [
        (1, {"loss": 0.5})
    ]
    assert client.get_trial(1).state is client.TrialState.COMPLETED


def test_a_second_init_closes_the_context_before() -> None:
    """A second init() closes the first Context."""
    for learning_rate in (0.1, 0.2):
        core_v2.init(config=core_v2.Config(name="sweep", hparams={"lr": learning_rate}))

    assert client.get_trial(1).state is client.TrialState.COMPLETED
    assert client.get_trial(2).state is client.TrialState.ACTIVE
    assert client.get_trial(2).hparams == {"lr": 0.2}


def test_the_context_can_be_had_for_a_with_block() -> None:
    """init_context() gives a Context for a with block and leaves the module's parts unset."""
    with core_v2.init_context(config=core_v2.Config(name="digits")) as context:
        context.train.report_validation_metrics(steps_completed=1, metrics={"loss": 1})
        assert core_v2.train is None

    assert client.get_trial(1).steps_completed == 1


def test_a_start_with_the_same_external_ids_goes_on_with_the_trial(run_script: RunScript) -> None:
    """A start with the same external ids continues the trial, and other ids begin a new one."""
    first = run_script(CONTINUED, "search", "one")
    again = run_script(CONTINUED, "search", "one", name="renamed.py")
    other = run_script(CONTINUED, "search", "two")
    elsewhere = run_script(CONTINUED, "search2", "one")

    assert [run[1].strip() for run in (first, again, other, elsewhere)] == [
        "from 0 in trial 1",
        "from 3 in trial 1",
        "from 0 in trial 2",
        "from 0 in trial 3",
    ], [run[2] for run in (first, again, other, elsewhere)]
    steps = [(report.trial_run_id, report.steps_completed) for report in client.get_trial(1).iter_metrics("training")]
    assert steps == [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5), (2, 6)]
    assert [(experiment.name, experiment.num_trials) for experiment in client.list_experiments()] == [
        ("counting/search", 2),
        ("counting/search2", 1),
    ]


def test_external_ids_are_not_mixed_up() -> None:
    """A slash in an external id does not mix up the two ids."""
    for experiment_id, trial_id in (("a/b", "c"), ("a", "b/c")):
        core_v2.init(config=core_v2.Config(external_experiment_id=experiment_id, external_trial_id=trial_id))

    assert client.get_trial(2).num_attempts == 1


@pytest.mark.parametrize(
    ("config", "error", "words"),
    [
        (core_v2.Config(external_trial_id="one"), ValueError, "without external_experiment_id"),
        (core_v2.Config(external_experiment_id=3), TypeError, "external_experiment_id must be a string"),  # type: ignore[arg-type]
        (core_v2.Config(external_experiment_id="a", external_trial_id=3), TypeError, "external_trial_id must be"),  # type: ignore[arg-type]
    ],
)
def test_ids_that_cannot_be_kept_are_refused(
    config: core_v2.Config, error: type[Exception], words: str, home: Home
) -> None:
    """Invalid external ids are refused before anything is recorded."""
    with pytest.raises(error, match=words):
        core_v2.init(config=config)

    assert not home.runs.exists()


def test_the_searcher_of_a_config_names_the_metric_of_the_experiment(home: Home) -> None:
    """The searcher in a config sets the experiment's metric."""
    searcher = {"name": "single", "metric": "accuracy", "smaller_is_better": False, "max_length": {"epochs": 2}}

    with core_v2.init_context(config=core_v2.Config(searcher=searcher)) as context:
        for operation in context.searcher.operations():
            length = operation.length
            operation.report_completed(1)
        for step, accuracy in enumerate((0.5, 0.9, 0.7)):
            context.train.report_validation_metrics(step, {"accuracy": accuracy, "loss": 1 - accuracy})
        best = context.train.get_experiment_best_validation()

    metric = home.experiment(1).read().searcher_metric
    assert metric is not None
    assert (metric.name, metric.smaller_is_better) == ("accuracy", False)
    assert (length, best) == (2, 0.9)


def test_a_workspace_is_said_to_mean_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A warning says that workspace and project are not recorded."""
    core_v2.init(config=core_v2.Config(workspace="vision", project="digits"))

    assert "workspace and project are not recorded" in caplog.text


def test_a_client_of_another_home_is_refused(tmp_path: Path) -> None:
    """A client of another home is refused."""
    core_v2.init(client=client.Tracker())
    with pytest.raises(ValueError, match="choose the home with CORE_SDK_HOME"):
        core_v2.init(client=client.Tracker(tmp_path / "other"))


def test_the_url_of_the_experiment_is_that_of_its_folder(home: Home) -> None:
    """The URL of the experiment is its folder's."""
    with pytest.raises(RuntimeError, match="no experiment yet"):
        core_v2.url_reverse_webui_exp_view()
    core_v2.init()

    assert core_v2.url_reverse_webui_exp_view() == home.experiment(1).path.as_uri()


def test_a_context_that_nobody_closes_ends_with_the_interpreter(run_script: RunScript) -> None:
    """A Context that is not closed ends with the interpreter and its error."""
    run_script("from core_sdk.experimental import core_v2\ncore_v2.init()\nraise ValueError('too far')")

    trial = client.get_trial(1)
    assert (trial.state, trial.reason) == (client.TrialState.ERROR, "ValueError: too far")


def test_importing_experimental_is_light() -> None:
    """Importing `experimental` loads neither the client nor the core until their names are used."""
    program = (
        "import sys; from core_sdk import experimental; assert 'core_sdk.client' not in sys.modules;"
        "from core_sdk import client; assert experimental.client is client;"
        "assert experimental.Trial is client.Trial; assert 'core_sdk.core' not in sys.modules;"
        "assert experimental.core_v2.train is None"
    )

    subprocess.run([sys.executable, "-c", program], check=True)
