"""`core-sdk trial describe` says how to make room for the checkpoints that are to come."""

from __future__ import annotations

from core_sdk import core
from core_sdk._home import Home
from core_sdk._home.finding.storage_forecast import StorageForecast
from core_sdk._interfaces.cli.trial.description import _freed_by_policy, _storage


def test_what_the_usual_policy_frees_is_counted(home: Home) -> None:
    """Of a trial that has ended the newest checkpoint stays; of one that runs all do."""
    for _ in range(2):
        with core.init() as context:
            for step in (1, 2, 3):
                with context.checkpoint.store_path({"steps_completed": step}) as (path, _):
                    (path / "weights").write_bytes(bytes(100_000))
            freed = _freed_by_policy(home)

    assert freed // 100_000 == 2
    assert _freed_by_policy(home) // 100_000 == 4


def test_the_advice_names_the_policy_and_what_it_frees() -> None:
    forecast = StorageForecast(10**10, 3 * 10**9, 1800.0, 0, ends=50_000.0, full=7200.0, fitting_interval_s=18_000.0)

    told = _storage(forecast, 5 * 2**30)

    policy = "`core-sdk checkpoint gc --save-trial-best 1 --save-trial-latest 1` frees 5.0 GiB"
    assert told.endswith(f": save every 5 h, or make room: {policy}")
    assert _storage(forecast, 0).endswith(": save every 5 h, or make room")
