"""`Logger` reports dicts in the way in which training repositories log."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from core.rank_processes import Ranks, codes, the_trial

import core_sdk
from core_sdk import core
from core_sdk.client import Tracker
from core_sdk.errors import InvalidMetricError, InvalidNameError, JournalError


@pytest.fixture
def context() -> Iterator[core.Context]:
    with core.init(name="logged") as context:
        yield context


def logged() -> list[tuple[str, int | None, Mapping[str, Any]]]:
    """Returns group, step and metrics of each report of the only trial."""
    groups = ("training", "validation", "optim", "text")
    reports = [report for group in groups for report in the_trial().iter_metrics(group)]
    return [(report.group, report.steps_completed, report.metrics) for report in reports]


def test_slashes_make_groups(context: core.Context) -> None:
    """Names with slashes and nested dicts are split into groups, of which training and validation have short names."""
    logger = core_sdk.Logger(context)

    logger.log({"loss": 1.0, "train/acc": 0.5, "eval/loss": 2.0, "optim": {"lr": {"head": 0.1}, "step": 3}}, step=1)
    logger.log({"loss": 1.5, "val": {"acc": torch.tensor([0.25])}, "optim/lr/head": np.float64(0.2)}, 2)

    assert logged() == [
        ("training", 1, {"loss": 1.0, "acc": 0.5}),
        ("training", 2, {"loss": 1.5}),
        ("validation", 1, {"loss": 2.0}),
        ("validation", 2, {"acc": 0.25}),
        ("optim", 1, {"lr/head": 0.1, "step": 3}),
        ("optim", 2, {"lr/head": 0.2}),
    ]


def test_a_step_is_logged_in_parts(context: core.Context) -> None:
    """Further metrics of a step are another report; of those that are logged again, the later values count."""
    logger = core_sdk.Logger(context)

    logger.log({"val/loss": 2.0, "time": 3.0}, 1)
    logger.log({"train/loss": 1.0, "time": 4.0}, 1)
    logger.log({"time": 4.5}, 1)
    logger.log({"time": 5.0}, 2)

    assert logged() == [
        ("training", 1, {"loss": 1.0}),
        ("training", 1, {"time": 4.5}),
        ("training", 2, {"time": 5.0}),
        ("validation", 1, {"loss": 2.0}),
    ]


@pytest.mark.parametrize("is_stopped", [False, True])
def test_of_what_is_logged_twice_the_later_value_counts_after_a_resume_too(is_stopped: bool) -> None:
    """A script that is stopped between two logs of a step has the values of one that was not."""
    with contextlib.suppress(InterruptedError), core.init(job_id="twice") as context:
        core_sdk.Logger().log({"acc": 0.5}, 1)
        with context.checkpoint.store_path({"steps_completed": 1}):
            pass
        if is_stopped:
            raise InterruptedError
        core_sdk.Logger().log({"acc": 1.0}, 1)
    if is_stopped:
        with (
            core.init(job_id="twice") as context,
            context.checkpoint.restore_path(context.info.latest_checkpoint or ""),
        ):
            core_sdk.Logger().log({"acc": 1.0}, 1)

    assert logged() == [("training", 1, {"acc": 1.0})]


def test_texts_are_kept_beside_the_numbers(context: core.Context) -> None:
    """A text that cannot be a training or a validation metric is kept in the group "text", under its whole name."""
    logger = core_sdk.Logger(context)

    logger.log({"train/loss": 1.0, "train/epoch": "1 of 3", "optim/name": "adam"}, 1)

    assert logged() == [
        ("training", 1, {"loss": 1.0}),
        ("optim", 1, {"name": "adam"}),
        ("text", 1, {"train/epoch": "1 of 3"}),
    ]


@pytest.mark.parametrize(
    ("metrics", "error", "words"),
    [
        ({"loss": 1.0, "train": {"loss": 2.0}}, ValueError, "'loss' and 'train/loss' would both be 'loss' of group"),
        ({"train/loss": 1.0, "train": {"loss": 2.0}}, ValueError, "'train/loss' is given twice"),
        ({"eval/": 1.0}, InvalidNameError, "is empty"),
        ({"/loss": 1.0}, InvalidNameError, "the metric group '' is empty"),
        ({"eval": {3: 1.0}}, TypeError, "the metric name must be a string, not int"),
        ({"eval/loss": torch.zeros(2)}, InvalidMetricError, "'loss' of group 'validation'"),
        ([("loss", 1.0)], TypeError, "metrics must be a dict, not list"),
    ],
)
def test_what_cannot_be_logged_is_refused(
    context: core.Context, metrics: Any, error: type[Exception], words: str
) -> None:
    """Names that would be one metric, and what is no dict of metrics, raise an error that names them."""
    logger = core_sdk.Logger(context)

    with pytest.raises(error, match=words):
        logger.log(metrics, 1)

    assert logged() == []


def test_two_names_of_one_metric_are_refused_in_later_calls(context: core.Context) -> None:
    """Metrics that would be mixed in one curve are refused, also where they are logged at different steps."""
    logger = core_sdk.Logger(context)
    logger.log({"val/loss": 1.0}, 1)

    with pytest.raises(ValueError, match="'val/loss' and 'eval/loss' would both be 'loss' of group 'validation'"):
        logger.log({"eval/loss": 1.0}, 2)


def test_a_function_that_logs_needs_no_context(context: core.Context) -> None:
    """A logger that is made without a Context reports to the open one, and does not close it."""
    logger = core_sdk.Logger()
    logger.log({"loss": 1.0}, 1)
    logger.close()
    core_sdk.Logger().log({"loss": 2.0}, 2)

    assert [steps for _, steps, _ in logged()] == [1, 2]


def test_a_logger_begins_a_trial_where_none_is_open() -> None:
    """If no Context is open, the logger begins a trial with the arguments of `init()`, and ends it at its `close()`."""
    logger = core_sdk.Logger(name="gpt", hparams={"lr": 0.1})
    logger.log({"loss": 1.0}, 1)
    logger.close()
    logger.close()

    assert (the_trial().state.name, the_trial().hparams) == ("COMPLETED", {"lr": 0.1})
    assert logged() == [("training", 1, {"loss": 1.0})]
    with pytest.raises(JournalError, match="is closed"):
        logger.log({"loss": 2.0}, 2)


def test_a_logger_is_given_what_it_can_use(context: core.Context) -> None:
    """Arguments that would have no effect, or that are not known, are refused with what to do instead."""
    with pytest.raises(TypeError, match=r"Logger\(\) was given name while <Context of trial 1"):
        core_sdk.Logger(name="gpt")
    with pytest.raises(TypeError, match=r"takes a Context, not 'gpt'"):
        core_sdk.Logger("gpt")  # type: ignore[arg-type]
    other = core.init()
    with pytest.raises(RuntimeError, match="are open: say which one is meant"):
        core_sdk.Logger()
    other.close()
    context.close()
    with pytest.raises(TypeError, match=r"no argument 'project'; did you mean name"):
        core_sdk.Logger(project="gpt")


@pytest.mark.parametrize("variables", [{"RANK": "1", "LOCAL_RANK": "1"}, {"NODE_RANK": "1", "LOCAL_RANK": "0"}])
def test_of_ranks_without_a_context_the_first_begins_the_trial(
    variables: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 of a launch begins a trial by itself, whether the others make a logger or not; theirs do nothing."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    of_another = core_sdk.Logger(name="gpt")
    of_another.log({"loss": 2.0}, 1)
    of_another.close()
    assert Tracker().list_experiments() == []
    for name in variables:
        monkeypatch.setenv(name, "0")

    logger = core_sdk.Logger(name="gpt")
    logger.log({"loss": 1.0}, 1)
    logger.close()

    assert logged() == [("training", 1, {"loss": 1.0})]


@pytest.mark.parametrize(("option", "ranks_that_report"), [("", [0]), ("all_ranks=True", [0, 1])])
def test_rank_0_reports_unless_all_ranks_shall(ranks: Ranks, option: str, ranks_that_report: list[int]) -> None:
    """In a Context of several ranks the loggers of the others do nothing, unless they are told to report."""
    ended = ranks.run(
        f"""
import core_sdk
with core.init(distributed=distributed):
    core_sdk.Logger({option}).log({{"loss": float(rank)}}, 1)
"""
    )

    assert codes(ended) == [0, 0], ended
    assert [report.rank for report in the_trial().iter_metrics("training", rank="all")] == ranks_that_report
