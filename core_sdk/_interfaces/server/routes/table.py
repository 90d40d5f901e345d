"""All routes."""

from __future__ import annotations

from core_sdk._interfaces.server.route import Action, Route
from core_sdk._interfaces.server.routes import (
    actions,
    checkpoints,
    cluster,
    code,
    experiments,
    home,
    logs,
    media,
    metrics,
    models,
    runs,
    trials,
)
from core_sdk._interfaces.server.routes.comparing import comparison, groups
from core_sdk._interfaces.server.routes.page import markdown, preferences

ROUTES = (
    Route("/home", home.home),
    Route("/columns", runs.columns),
    Route("/runs", runs.runs),
    Route("/trials/{trial_id}", trials.trial),
    Route("/trials/{trial_id}/attempts", trials.attempts),
    Route("/trials/{trial_id}/metrics", metrics.metrics),
    Route("/trials/{trial_id}/system", metrics.system),
    Route("/metrics", metrics.metric_names_of),
    Route("/formula", metrics.formula),
    Route("/trials/{trial_id}/logs", logs.logs),
    Route("/trials/{trial_id}/media", media.media),
    Route("/trials/{trial_id}/media/{file_name}", media.media_file),
    Route("/trials/{trial_id}/configuration", code.trial_configuration),
    Route("/comparison", comparison.comparison),
    Route("/comparison/metrics", comparison.compared_metrics),
    Route("/groups", groups.groups),
    Route("/experiments", experiments.experiments),
    Route("/experiments/{experiment_id}", experiments.experiment),
    Route("/experiments/{experiment_id}/search", experiments.search),
    Route("/experiments/{experiment_id}/curves", experiments.curves),
    Route("/experiments/{experiment_id}/importance", experiments.importance),
    Route("/experiments/{experiment_id}/variations", experiments.variations),
    Route("/experiments/{experiment_id}/retention", checkpoints.retention),
    Route("/experiments/{experiment_id}/configuration", code.configuration),
    Route("/experiments/{experiment_id}/code", code.code),
    Route("/experiments/{experiment_id}/code/file", code.code_file),
    Route("/experiments/{experiment_id}/code/differences", code.code_differences),
    Route("/experiments/{experiment_id}/code/archive", code.code_archive),
    Route("/checkpoints", checkpoints.checkpoints),
    Route("/checkpoints/{storage_id}", checkpoints.checkpoint),
    Route("/checkpoints/{storage_id}/file", checkpoints.download),
    Route("/checkpoints/{storage_id}/lineage", models.lineage),
    Route("/models", models.list_models),
    Route("/models/{model_id}", models.model),
    Route("/queue", cluster.queue),
    Route("/markdown", markdown.markdown, "POST"),
    Route("/slots", cluster.slots),
    Route("/preferences", preferences.preferences),
    Action("/preferences/actions/keep", preferences.keep),
    *actions.ACTIONS,
)
