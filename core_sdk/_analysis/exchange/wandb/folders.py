"""The runs of wandb: a folder has the log of one process, and a run that was resumed has several."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from core_sdk._analysis.exchange.run import ForeignRun, Row
from core_sdk._analysis.exchange.wandb.log import read_log
from core_sdk._analysis.exchange.wandb.messages import Record
from core_sdk._analysis.exchange.wandb.values import nested, with_media

_NUM_FIRST_RECORDS = 20
"""The number of records among which the one of the run stands."""


def log_runs(logs: Iterable[Path]) -> Iterator[ForeignRun]:
    """Yields the runs of these logs, `run-ID.wandb`."""
    of_runs: defaultdict[tuple[str, str], list[Path]] = defaultdict(list)
    for path in logs:
        run_id = path.stem.removeprefix("run-")
        first = islice(_records(path, []), _NUM_FIRST_RECORDS)
        project = next((record.run.project for record in first if record.HasField("run")), "")
        of_runs[project, run_id].append(path)
    for (project, run_id), paths in of_runs.items():
        run = ForeignRun(
            key=f"wandb:{project}/{run_id}", where=str(paths[0].parent), experiment=project or "wandb", name=run_id
        )
        run.rows = _Reading(run, paths).rows()
        yield run


def _records(path: Path, losses: list[str]) -> Iterator[Any]:
    num_damaged = 0
    try:
        for message in read_log(path, losses):
            try:
                yield Record.FromString(message)
            except DecodeError:
                num_damaged += 1
    except (OSError, ValueError) as error:
        losses.append(f"{path.name} was not read to its end: {error}")
    if num_damaged:
        losses.append(f"{num_damaged} records of {path.name} are damaged, and were left out")


class _Reading:
    """Reads the logs of a run one after the other, and fills in what they say about the run as a whole."""

    def __init__(self, run: ForeignRun, paths: list[Path]) -> None:
        self._run = run
        self._paths = paths
        self._names: set[str] = set()
        """The metrics that have a curve. What else stands in the summary was set by the script."""
        self._summary: dict[str, Any] = {}
        self._at = 0.0

    def rows(self) -> Iterator[Row]:
        for path in self._paths:
            # Until its log says how the run ended.
            self._run.outcome, self._run.error = "error", "its log has no end: it was killed, or was still running"
            for record in _records(path, self._run.losses):
                try:
                    if record.HasField("history"):
                        yield self._row(record.history, path.parent / "files")
                    else:
                        self._keep(record)
                except ValueError as error:
                    self._lose(f"a record of {path.name} was left out: {error}")
        self._run.metadata |= {name: value for name, value in self._summary.items() if name not in self._names}

    def _row(self, history: Any, files: Path) -> Row:
        values = nested(history.item)
        step, at = values.pop("_step", history.step.num), values.pop("_timestamp", None)
        self._at = float(at) if isinstance(at, (int, float)) else self._at
        for name in [name for name in values if name.startswith("_")]:
            del values[name]
        self._names.update(values)
        return self._at, int(step), with_media(values, files, self._lose)

    def _keep(self, record: Any) -> None:
        run = self._run
        if record.HasField("summary"):
            items = [each for each in record.summary.item if (each.nested_key or [each.key])[0] not in self._names]
            self._summary |= {
                name: value
                for name, value in nested(items).items()
                if not name.startswith("_") and not (isinstance(value, dict) and "_type" in value)
            }
        elif record.HasField("config"):
            self._keep_config(record.config)
        elif record.HasField("run"):
            of = record.run
            self._keep_config(of.config)
            run.experiment = of.project or run.experiment
            run.name, run.notes, run.host = of.display_name or run.name, of.notes, of.host
            groups = {"group": of.run_group, "job_type": of.job_type}
            run.labels = [*of.tags, *(f"{name}={value}" for name, value in groups.items() if value)]
            if of.HasField("start_time") and run.created is None:
                run.created = of.start_time.seconds + of.start_time.nanos / 1e9
            if of.git.commit:
                run.metadata |= {"git.commit": of.git.commit, "git.remote_url": of.git.remote_url}
            self._at = self._at or run.created or 0.0
        elif record.HasField("exit"):
            code = record.exit.exit_code
            run.outcome = "error" if code else "completed"
            run.error = f"it exited with status {code}" if code else None

    def _keep_config(self, config: Any) -> None:
        self._run.hparams |= {name: value for name, value in nested(config.item).items() if name != "_wandb"}

    def _lose(self, loss: str) -> None:
        if loss not in self._run.losses:
            self._run.losses.append(loss)
