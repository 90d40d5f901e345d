"""What `trial describe` tells."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from typing import Any

from core_sdk.cli.render.json import encode
from core_sdk.cli.render.text import format_number, format_time
from core_sdk.records import CommandRecord, Metric
from core_sdk.tracking.rows import RankRow, TrialRow

Summary = dict[str, dict[str, dict[str, Metric | None]]]


@dataclass(frozen=True)
class TrialDescription(TrialRow):
    summary: Summary
    """Group -> metric -> figures, over all reports that are not superseded."""
    command: list[str] | None
    working_directory: str | None

    @classmethod
    def of(cls, row: TrialRow, summary: Summary, command: CommandRecord | None) -> TrialDescription:
        fields = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
        return cls(
            **fields,
            summary=summary,
            command=command.argv if command else None,
            working_directory=command.cwd if command else None,
        )


def properties(trial: TrialDescription) -> dict[str, str]:
    named = {
        "Trial": str(trial.trial_id),
        "Experiment": f"{trial.experiment_name} ({trial.experiment_id})",
        "State": trial.state,
        "Reason": trial.reason,
        "Status": trial.status,
        "Progress": _percentage(trial.progress),
        "Ranks": ", ".join(map(_rank, trial.ranks)),
        "Steps": str(trial.steps_completed),
        "Attempts": str(trial.num_attempts),
        "Started": format_time(trial.created),
        "Ended": format_time(trial.ended),
        "Hyperparameters": _free_form(trial.hparams),
        "Metadata": _free_form(trial.metadata),
        "Latest checkpoint": trial.latest_checkpoint or "",
        "Continued from": trial.continued_from or "",
        "Command": shlex.join(trial.command or []),
        "Directory": trial.working_directory or "",
        "Lost records": f"{trial.num_dropped} (the disk refused them)" if trial.num_dropped else "",
        "Damaged lines": str(trial.num_bad_lines) if trial.num_bad_lines else "",
    }
    return named | _figures(trial.summary)


def _rank(row: RankRow) -> str:
    progress = f" {_percentage(row.progress)}" if row.progress is not None else ""
    return f"{row.rank} ({row.host}){progress}"


def _percentage(progress: float | None) -> str:
    return "" if progress is None else f"{progress:.0%}"


def _free_form(value: dict[str, Any] | None) -> str:
    return encode(value) if value else ""


def _figures(summary: Summary) -> dict[str, str]:
    return {
        # A series of NaN only has neither minimum nor mean.
        f"{group} {name}": ", ".join(
            f"{what} {format_number(value)}" for what, value in figures.items() if value is not None
        )
        for group, metrics in summary.items()
        for name, figures in metrics.items()
    }
