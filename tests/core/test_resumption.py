"""An attempt that counts its steps again, or does not load its checkpoint, is warned of; nobody else is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from interfaces.cli.commands import run_cli

from core_sdk._ground.records import Alert, AttemptStarted
from core_sdk._home import Home
from core_sdk._home.index import Index
from core_sdk._home.journal import JournalWriter, read_records
from core_sdk.core._resumption import Resumption

# The first attempt ends after step 15 of 30, in the middle of its second epoch.
_SCRIPT = """
    import sys
    from core_sdk import core

    with core.init() as context:
        latest = context.info.latest_checkpoint
        begin = 0 if latest is None else 15
        if latest is not None:
            with context.checkpoint.restore_path(latest):
                pass
        context.train.report_metrics("setup", 0, {"size": 10})
        if begin:
            context.train.report_validation_metrics(15, {"accuracy": 0.5})
        is_wrong = begin and sys.argv[1] == "enumerates"
        for step in range(begin + 1, 31):
            context.train.report_training_metrics(step - 5 if is_wrong and step <= 20 else step, {"loss": 1 / step})
            if step == 15:
                with context.checkpoint.store_path({"steps_completed": 15}) as (path, _):
                    (path / "weights").write_text("w")
                sys.exit()
"""


_STARTED = AttemptStarted(
    time=1.0,
    format=1,
    trial_id=1,
    attempt=2,
    host="a",
    pid=1,
    sdk_version="1",
    latest_checkpoint="of-15",
    resumed_steps=15,
)
_GONE_BACK = "the steps have gone back: this attempt went on from the checkpoint of step 15, and reports step"


@pytest.mark.parametrize(
    ("is_read", "reports", "warning"),
    [
        (True, [("setup", 0), ("validation", 15), ("training", 16)], None),
        (True, [("training", 16), ("training", 11)], None),  # it has gone on
        (True, [("setup", 0), ("validation", 15), ("training", 11), ("training", 12)], f"{_GONE_BACK} 11"),
        (True, [("training", 15), ("training", 16)], None),  # it saves a step before it trains on its batch
        (True, [("training", 14)], f"{_GONE_BACK} 14"),
        (True, [("validation", 5)], f"{_GONE_BACK} 5"),
        (False, [("setup", 0)], None),
        (
            False,
            [("setup", 0), ("validation", 15), ("training", 16)],
            "the checkpoint was not read: this attempt was to go on from checkpoint of-15 of step 15",
        ),
    ],
)
def test_only_a_report_that_no_resume_makes_is_warned_of(
    tmp_path: Path, is_read: bool, reports: list[tuple[str, int]], warning: str | None
) -> None:
    """The first report tells; a script that counts on from the checkpoint that it has read is right."""
    journal = JournalWriter(tmp_path / "1.journal")
    resumption = Resumption(_STARTED, journal)

    if is_read:
        resumption.note_read()
    for group, steps_completed in reports:
        resumption.heed_report(group, steps_completed)
    journal.close()

    alerts = [record for record in read_records(journal.path) if isinstance(record, Alert)]
    warnings = [f"{alert.title}: {alert.description}" for alert in alerts]
    assert len(warnings) == (warning is not None)
    assert all(text.startswith(warning or "") for text in warnings)
    assert {alert.level for alert in alerts} <= {"warn"}


@pytest.mark.parametrize(("kind", "warning"), [("counts batches", None), ("enumerates", f"{_GONE_BACK} 11")])
def test_a_resume_that_is_none_is_warned_of_at_once(
    home: Home,
    tmp_path: Path,
    run_script: Callable[..., tuple[int, str, str]],
    kind: str,
    warning: str | None,
) -> None:
    """The warning is in the output, in `trial describe` and among the alerts."""
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
