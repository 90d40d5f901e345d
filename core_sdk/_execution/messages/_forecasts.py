"""Posts the forecast that the storage of a trial will be full before the trial ends.

It needs the index, which an agent imports only if somebody wants to hear of it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time

from core_sdk._execution.messages._posting import post_of_trial
from core_sdk._home import Home, open_view
from core_sdk._home.finding.storage_forecast import StorageForecast, read_storage_forecast
from core_sdk._home.finding.time_ledger import brief_duration
from core_sdk._home.folders import TrialFolder
from core_sdk.errors import CoreSDKError

_SOON_S = 86400.0


def post_forecast(folder: TrialFolder) -> None:
    """Posts a storage that will be full, once for each attempt."""
    with contextlib.suppress(CoreSDKError, OSError, ValueError, sqlite3.Error):
        with open_view(Home(folder.home_root)) as view:
            forecast = read_storage_forecast(view, folder.trial_id)
        if forecast is not None and (words := words_of(forecast, time.time())):
            post_of_trial(folder, "disk", str(max(folder.attempts())), words)


def words_of(forecast: StorageForecast, now: float) -> str:
    """Says when the storage will be full, and what would do; empty if it will not be, or not within a day. Pure.

    A training that does not say when it ends fills every storage some day.
    """
    if forecast.full is None or (forecast.ends is None and forecast.full - now > _SOON_S):
        return ""
    saves = f"{forecast.size_bytes / 1e9:.2g} GB every {brief_duration(forecast.interval_s)}"
    told = f"its storage will be full in {brief_duration(max(0.0, forecast.full - now))}: it saves {saves}"
    others = f", and {forecast.num_others} other trials save there, too" if forecast.num_others else ""
    rather = forecast.fitting_interval_s
    return f"{told}{others}" + ("" if rather is None else f". With a save every {brief_duration(rather)} all fit")
