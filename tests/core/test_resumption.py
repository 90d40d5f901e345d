"""An attempt that counts its steps anew, or trains on beside its checkpoint, is warned of; nobody else is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from interfaces.cli.commands import run_cli

from core_sdk._home import Home
from core_sdk._home.index import Index

# The first attempt ends after step 15 of 30, in the middle of its second epoch.
_SCRIPT = """
    import sys
    from core_sdk import core

    with core.init() as context:
        latest = context.info.latest_checkpoint
        kind, begin = sys.argv[1], 0 if latest is None else 15
        if latest is not None and kind != "forgets to restore":
            with context.checkpoint.restore_path(latest):
                pass
        context.train.report_metrics("setup", 0, {"size": 10})
        if begin:
            context.train.report_validation_metrics(5 if kind == "evaluates" else 15, {"accuracy": 0.5})
        if begin and kind == "evaluates":
            sys.exit()
        is_wrong = begin and kind == "enumerates"
        for step in range(begin + 1, 31):
            context.train.report_training_metrics(step - 5 if is_wrong and step <= 20 else step, {"loss": 1 / step})
            if step == 15:
                with context.checkpoint.store_path({"steps_completed": 15}) as (path, _):
                    (path / "weights").write_text("w")
                sys.exit()
"""


@pytest.mark.parametrize(
    ("kind", "warning"),
    [
        ("counts batches", None),
        (
            "enumerates",
            "steps are counted anew: this attempt went on from the checkpoint of step 15, and reports step 11",
        ),
        ("forgets to restore", "the checkpoint was not read: this attempt was to go on from checkpoint"),
        (
            "evaluates",
            "steps are counted anew: this attempt went on from the checkpoint of step 15, and reports step 5",
        ),
    ],
)
def test_a_resume_that_is_none_is_warned_of_at_once(
    home: Home,
    tmp_path: Path,
    run_script: Callable[..., tuple[int, str, str]],
    kind: str,
    warning: str | None,
) -> None:
    """Counting steps anew after a resume warns in the output, `trial describe` and an alert; correct uses do not."""
    first = run_script(_SCRIPT, kind)
    resumed = run_cli(tmp_path, "trial", "resume", "1", "--again")

    assert (first[0], resumed.status) == (0, 0), resumed.output
    with Index(home) as index:
        index.refresh()
        alerts = index.alerts(1)
        steps = [row.steps_completed for row in index.reports(1, "training")]
    described = json.loads(run_cli(tmp_path, "trial", "describe", "1", "--json").output)
    assert [f"{alert.title}: {alert.description}" for alert in alerts] == [
        f"{alert['title']}: {alert['description']}" for alert in described["alerts"]
    ]
    if warning is None:
        assert (alerts, steps) == ([], list(range(1, 31)))
        assert "warn" not in first[2] + resumed.errors
    else:
        (alert,) = alerts
        assert f"{alert.title}: {alert.description}".startswith(warning)
        assert (alert.level, alert.attempt) == ("warn", 2)
        assert warning in resumed.errors + resumed.output
