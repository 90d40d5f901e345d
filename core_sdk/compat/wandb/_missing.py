"""Says what to use instead of what wandb has and Core SDK has not."""

from __future__ import annotations

_CALLBACKS = (
    "Lightning, Transformers and Accelerate have callbacks of ours (docs/integrations.md); with other libraries, call "
    "wandb.log() in a callback of your own"
)
_INSTEAD = {
    "wandb.Api": "read trials with core_sdk.client: docs/client.md",
    "wandb.agent": "a search of `core-sdk experiment create` runs the script once for each trial: docs/search.md",
    "wandb.apis": "read trials with core_sdk.client: docs/client.md",
    "wandb.controller": "a search of `core-sdk experiment create` does it: docs/search.md",
    "wandb.integration": _CALLBACKS,
    "wandb.keras": _CALLBACKS,
    "wandb.link_artifact": "log_artifact() makes a version of a model: docs/moving-from-wandb.md",
    "wandb.link_model": "log_model() makes a version of a model: docs/moving-from-wandb.md",
    "wandb.plot_table": "log the wandb.Table itself",
    "wandb.restore": "read files with `core-sdk checkpoint download`, or use_artifact()",
    "wandb.sklearn": "log what it draws as figures of Matplotlib, or with wandb.plot.confusion_matrix()",
    "wandb.sweep": "a search of `core-sdk experiment create` takes its place: docs/search.md",
    "wandb.xgboost": _CALLBACKS,
}


def missing(name: str) -> str:
    """Returns the message for a name, such as "wandb.sweep" or "wandb.plot.bar"."""
    known = next((_INSTEAD[start] for start in _prefixes(name) if start in _INSTEAD), None)
    instead = (
        known
        or "docs/moving-from-wandb.md lists what there is; leave the call out, or report the values with wandb.log()"
    )
    return f"core_sdk.compat.wandb has no {name}: {instead}"


def _prefixes(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
