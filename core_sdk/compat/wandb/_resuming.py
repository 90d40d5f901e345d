"""Finds the earlier run that a run continues, and the step after which it does."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core_sdk import client
from core_sdk._ground.environment import Environment, main_script
from core_sdk._ground.placement import named_job
from core_sdk._home import Home
from core_sdk._home.attempts.jobs import noted_trial
from core_sdk.compat.wandb.errors import UsageError
from core_sdk.compat.wandb.util import generate_id

_AUTO = (True, "auto", "True", "true")


@dataclass(frozen=True)
class RunIdentity:
    """The id of a run, and where it goes on."""

    id: str
    job_id: str = ""
    """The name of the run among all jobs of the home."""
    has_begun: bool = False
    """Whether there is a run of this id."""
    last_step: int | None = None
    """The step after which it goes on; None to begin at 0, which supersedes what the id has reported before."""


def identify(given: Mapping[str, Any]) -> RunIdentity:
    """Returns the identity that `id`, `resume` and `resume_from` of `init()` mean.

    Raises `UsageError` if "must" finds no run of the id, and "never" finds one.
    """
    project, resume = str(given.get("project") or ""), given.get("resume")
    if (rewound := given.get("resume_from")) is not None:
        rewound_id, separator, step = str(rewound).partition("?_step=")
        if not separator or not step.isdecimal():
            raise UsageError(f"init(resume_from={rewound!r}): it must be ID?_step=NUMBER")
        return _found(project, rewound_id, "must", int(step))
    run_id = given.get("id")
    if run_id is None:
        run_id = _unfinished(project) if resume in _AUTO else generate_id()
    return _found(project, str(run_id), resume, None)


def _found(project: str, run_id: str, resume: object, step: int | None) -> RunIdentity:
    job_id = _job_id(project, run_id)
    earlier = _trial(job_id)
    if earlier is None and resume == "must":
        raise UsageError(f"init(resume='must'): the project {project!r} has no run with the id {run_id!r} in this home")
    if earlier is not None and resume == "never":
        raise UsageError(f"init(resume='never'): trial {earlier.id} is the run {run_id!r} of the project {project!r}")
    if earlier is None or resume not in (*_AUTO, "allow", "must"):
        return RunIdentity(run_id, job_id, earlier is not None)
    return RunIdentity(run_id, job_id, True, earlier.steps_completed if step is None else step)


def _unfinished(project: str) -> str:
    """Returns the id of this script's run in this directory: one that has not completed, or a new one."""
    digest = hashlib.sha256(f"{Path.cwd()}\n{main_script()}".encode()).hexdigest()[:8]
    ids = (digest if number == 1 else f"{digest}-{number}" for number in itertools.count(1))
    return next(run_id for run_id in ids if not _has_completed(_trial(_job_id(project, run_id))))


def _has_completed(trial: client.Trial | None) -> bool:
    return trial is not None and trial.state == client.TrialState.COMPLETED


def _job_id(project: str, run_id: str) -> str:
    return f"wandb/{project}/{run_id}"


def _trial(job_id: str) -> client.Trial | None:
    folder = noted_trial(Home(Environment.read().home), named_job(job_id))
    return client.get_trial(folder.trial_id) if folder is not None and folder.path.is_dir() else None
