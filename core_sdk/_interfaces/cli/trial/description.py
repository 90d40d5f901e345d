"""Collects what `trial describe` shows."""

from __future__ import annotations

import contextlib
import shlex
from typing import Any

from core_sdk._analysis.machine_use import read_machine_use
from core_sdk._ground.masking import masked_arguments, masked_text
from core_sdk._ground.records import CommandRecord, EnvironmentRecord, fields_of, format_number, strict_json
from core_sdk._home import Home, TrialFolder, open_view
from core_sdk._home.attempts.ending import read_end
from core_sdk._home.finding.facts import first_values
from core_sdk._home.finding.storage_forecast import StorageForecast, read_storage_forecast
from core_sdk._home.finding.time_ledger import brief_duration
from core_sdk._home.opening import HomeElsewhere
from core_sdk._home.rows import AlertRow, RankRow, Summary, TrialRow, WriterRow
from core_sdk._interfaces.cli._home import hear_of_slurm
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.render.rows import properties_of
from core_sdk._interfaces.render.text import MOST_LISTED, format_size, format_time, more_than
from core_sdk.errors import CoreSDKError, RecordDamagedError

_NUM_ALERTS = 10
_NUM_LINES = 30
_USUAL_POLICY = {"save_trial_best": 1, "save_trial_latest": 1}
_GC = "`core-sdk checkpoint gc --save-trial-best 1 --save-trial-latest 1`"


def describe_trial(home: Home, trial_id: int) -> tuple[dict[str, Any], dict[str, object]]:
    """Returns what is known of the trial, for programs and for people."""
    with open_view(home, trial_id=trial_id) as view:
        found = view.trial(trial_id)
        if hear_of_slurm(home, [found]) or found.state == "ACTIVE":  # what it will store depends on others
            view.refresh()
        row, summary, alerts, media = (
            view.trial(trial_id),
            view.summary(trial_id),
            [alert for alert in view.alerts(trial_id) if not alert.is_superseded][-_NUM_ALERTS:],
            view.media(trial_id, rank="all", superseded=True),
        )
        # The storage of a workspace's trial may be a path of another machine, and somebody else's is not ours to clear.
        forecast = (
            None if isinstance(home, HomeElsewhere) or home.is_gathered else read_storage_forecast(view, trial_id)
        )
        use = read_machine_use(view, trial_id)
    freed = _freed_by_policy(home) if forecast is not None and forecast.full is not None else 0
    command = failure = None
    if not isinstance(home, HomeElsewhere):
        try:
            command = home.trial(trial_id).read_command()
        except RecordDamagedError as error:
            say(str(error))
        failure = _error_of(home.trial(trial_id)) if row.state == "ERROR" else None
    sizes = {found.file.name: found.file.size_bytes for found in media if not found.file.problem}
    value = fields_of(row) | {
        "summary": summary,
        "alerts": [fields_of(alert) for alert in alerts],
        "num_media_files": len(sizes),
        "media_size_bytes": sum(sizes.values()),
        "command": masked_arguments(command.argv) if command else None,
        "working_directory": command.cwd if command else None,
        "error": failure,
        "storage_forecast": None if forecast is None else forecast.as_values() | {"freed_by_policy_bytes": freed},
        "machine_use": None if use is None else use.as_values(),
    }
    media_size = {"Media": f"{len(sizes)} files, {format_size(sum(sizes.values()))}" if sizes else ""}
    told = {"Alerts": [_alert(alert) for alert in alerts], "Error": (failure or "").splitlines()[-_NUM_LINES:]}
    storage = {
        "Storage": _storage(forecast, freed) if forecast else "",
        "Use of the machine": use.words() if use else "",
    }
    return value, _properties(row, command) | told | media_size | storage | _figures(summary)


def _freed_by_policy(home: Home) -> int:
    """Returns the size of the checkpoints in directories that the usual policy would not keep, of all trials.

    Those of running trials are kept by every policy.
    """
    from core_sdk._home.deletion.collection import Collector, Request  # storages, which are slow to import

    with Collector(home, Request(policy=_USUAL_POLICY)) as collector, contextlib.suppress(CoreSDKError):
        condemned = collector.plan().condemned
        return sum(verdict.size_bytes for verdict in condemned if verdict.storage.startswith("file:"))
    return 0


def _storage(forecast: StorageForecast, freed_bytes: int) -> str:
    """Says whether the checkpoints that the training will store fit, and what to do if they do not."""
    each = f"{format_size(forecast.size_bytes)} every {brief_duration(forecast.interval_s)}"
    others = f", beside {forecast.num_others} other trials" if forecast.num_others else ""
    needs = f"{each}{others}, {format_size(forecast.free_bytes)} free"
    if forecast.full is None:
        return needs if forecast.ends is None else f"has room until the training ends ({needs})"
    if forecast.ends is None:
        room = f": {_GC} frees {format_size(freed_bytes)}" if freed_bytes else ""
        return f"full at {format_time(forecast.full)}, if it still trains then ({needs}){room}"
    rather = forecast.fitting_interval_s
    room = "make room" + (f": {_GC} frees {format_size(freed_bytes)}" if freed_bytes else "")
    advice = f": save every {brief_duration(rather)}, or {room}" if rather else f": {room}"
    return f"full at {format_time(forecast.full)}, before it ends at {format_time(forecast.ends)} ({needs}){advice}"


def _error_of(folder: TrialFolder) -> str | None:
    """Returns the error that the newest attempt has recorded, with its traceback; None if it has recorded none."""
    error = read_end(folder, None).error if folder.attempts() else None
    return None if error is None else masked_text(error)


def _properties(trial: TrialRow, command: CommandRecord | None) -> dict[str, object]:
    started_by = {"Command": shlex.join(masked_arguments(command.argv)), "Directory": command.cwd} if command else {}
    because = f": {trial.verdict_reason}" if trial.verdict_reason else ""
    special = {
        "trial_id": {"Trial": trial.trial_id},
        "experiment_id": {},
        "experiment_name": f"{trial.experiment_name} ({trial.experiment_id})",
        "progress": _percentage(trial.progress),
        "ranks": ", ".join(map(_rank, trial.ranks)),
        "writers": ", ".join(map(_writer, trial.writers)),
        "hparams": _free_form(trial.hparams),
        "metadata": _free_form(trial.metadata),
        "latest_checkpoint": {"Latest checkpoint": trial.latest_checkpoint},
        "parent": {"Varies trial": trial.parent},
        "verdict": f"{trial.verdict}{because}",
        "environment": started_by | (_environment(trial.environment) if trial.environment else {}),
        "num_dropped": f"{trial.num_dropped}; all others are kept" if trial.num_dropped else "",
        "num_bad_lines": trial.num_bad_lines or "",
    }
    return properties_of(trial, special)


def _environment(row: EnvironmentRecord) -> dict[str, str]:
    changes = {True: " (with changes that were not committed)", False: " (nothing uncommitted)", None: ""}
    commit = f"{row.git_commit}{changes[row.git_is_dirty]}"
    parts = [row.host, f"{row.num_cpus} CPUs", format_size(row.memory_bytes), *row.gpus]
    return {
        "Git commit": f"{commit or 'unknown'} ({row.git_problem})" if row.git_problem else commit,
        "Python": row.python,
        "Packages": ", ".join(f"{name} {version}" for name, version in row.packages.items()),
        "Machine": ", ".join(parts),
    }


def _rank(row: RankRow) -> str:
    progress = f" {_percentage(row.progress)}" if row.progress is not None else ""
    return f"{row.rank} ({row.host}){progress}"


def _writer(row: WriterRow) -> str:
    because = f": {row.reason}" if row.reason else ""
    since = f"; not seen since {format_time(row.last_time)}" if row.state == "UNKNOWN" else ""
    return f"{row.name} ({row.host}, {row.state}{because}{since})"


def _alert(row: AlertRow) -> str:
    return f"{row.level} at step {row.steps_completed}: {row.title}: {row.description}"


def _percentage(progress: float | None) -> str:
    return "" if progress is None else f"{progress:.0%}"


def _free_form(value: dict[str, Any] | None) -> str:
    kept, total = first_values(value or {}, MOST_LISTED)
    return f"{strict_json(kept)}{more_than(total)}" if kept else ""


def _figures(summary: Summary) -> dict[str, str]:
    pairs = [(group, name) for group, metrics in summary.items() for name in metrics]
    more = {"Metrics": f"the first {MOST_LISTED}{more_than(len(pairs))}"} if len(pairs) > MOST_LISTED else {}
    return more | {
        # A series that holds nothing but NaN has neither minimum nor mean.
        f"{group} {name}": ", ".join(
            f"{what} {format_number(value)}" for what, value in summary[group][name].items() if value is not None
        )
        for group, name in pairs[:MOST_LISTED]
    }
