"""The variables of wandb, for a script that was written for it."""

from __future__ import annotations

import os
from collections.abc import Mapping

_VARIABLES = {
    "dir": "WANDB_DIR",
    "entity": "WANDB_ENTITY",
    "group": "WANDB_RUN_GROUP",
    "id": "WANDB_RUN_ID",
    "job_type": "WANDB_JOB_TYPE",
    "mode": "WANDB_MODE",
    "name": "WANDB_NAME",
    "notes": "WANDB_NOTES",
    "project": "WANDB_PROJECT",
    "resume": "WANDB_RESUME",
    "tags": "WANDB_TAGS",
}


def wandb_arguments(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the arguments of `wandb.init()` that wandb's variables give, by name."""
    given = {argument: variables[name] for argument, name in _VARIABLES.items() if variables.get(name)}
    if variables.get("WANDB_DISABLED", "").lower() in ("1", "true", "yes"):
        given["mode"] = "disabled"
    return given
