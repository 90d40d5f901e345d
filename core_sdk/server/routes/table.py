"""All routes."""

from __future__ import annotations

from core_sdk.server.route import Route
from core_sdk.server.routes import home, metrics, runs, trials

ROUTES = (
    Route("/home", home.home),
    Route("/columns", runs.columns),
    Route("/runs", runs.runs),
    Route("/trials/{trial_id}", trials.trial),
    Route("/trials/{trial_id}/attempts", trials.attempts),
    Route("/trials/{trial_id}/metrics", metrics.metrics),
    Route("/trials/{trial_id}/system", metrics.system),
)
