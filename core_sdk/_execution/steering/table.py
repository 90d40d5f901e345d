"""All verbs."""

from __future__ import annotations

from typing import Any

from core_sdk._execution.steering import checkpoints, experiments, models, trials
from core_sdk._execution.steering.verb import Verb

VERBS: tuple[Verb[..., Any], ...] = tuple(
    one
    for module in (trials, experiments, checkpoints, models)
    for one in vars(module).values()
    if isinstance(one, Verb)
)
