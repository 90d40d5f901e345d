"""Sends the output of each rank to the launcher's own, to torchrun's log files, or to both."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from string import Template
from typing import Any

from core_sdk.processes.output import Copy, FileCopy, MatchingLines, RankOutput
from launch._command_line import UsageError
from launch._directory import LaunchDirectory
from launch._torchrun._config import LogSettings


@dataclass(frozen=True)
class RankFiles:
    """The paths into which a rank writes: pipes, files, or the null device."""

    stdout: str
    stderr: str


class RankLogs:
    """Opens the files of each start. Without an option of torchrun about files, all output goes into our pipes."""

    def __init__(self, output: RankOutput, directory: LaunchDirectory, settings: LogSettings) -> None:
        """Imports torch if there are log files. Raises `UsageError`."""
        self._output = output
        self._directory = directory
        self._settings = settings
        self._specs = _specs_of(settings) if settings.wants_files else None

    def open(self, variables: Mapping[int, dict[str, str]]) -> dict[int, RankFiles]:
        """Opens the ranks' files. Both mappings are by local rank.

        Adds the file into which torch's `record` writes a rank's exception to its variables, as torchrun does.
        """
        places = _Places() if self._specs is None else _Places.of(self._specs.reify(dict(variables)))
        files = {}
        for local_rank, of_rank in variables.items():
            rank = int(of_rank["RANK"])
            if not of_rank.get("TORCHELASTIC_ERROR_FILE"):
                path = self._directory.error_path(rank)
                path.unlink(missing_ok=True)
                of_rank["TORCHELASTIC_ERROR_FILE"] = str(path)
            files[local_rank] = self._open_rank(rank, local_rank, places, self._prefix(of_rank))
        return files

    def _prefix(self, of_rank: Mapping[str, str]) -> str | None:
        """Returns what each line of the rank begins with, if the user has chosen it."""
        if not self._settings.line_prefix:
            return None
        return Template(self._settings.line_prefix).safe_substitute(
            role_name=of_rank["ROLE_NAME"],
            rank=of_rank["RANK"],
            local_rank=of_rank["LOCAL_RANK"],
            hostname=socket.gethostname(),
        )

    def _open_rank(self, rank: int, local_rank: int, places: _Places, prefix: str | None) -> RankFiles:
        stdout, stderr = places.stdouts.get(local_rank), places.stderrs.get(local_rank)
        is_stdout_shown = not stdout or places.shown_stdouts.get(local_rank) == stdout
        is_stderr_shown = not stderr or places.shown_stderrs.get(local_rank) == stderr
        pipes = self._output.open(
            rank,
            prefix=prefix,
            stderr_file=None if is_stderr_shown else Path(stderr or os.devnull),
            stdout_copies=_copies(stdout, places.filtered_stdout, self._settings.stdout_filters)
            if is_stdout_shown
            else (),
            stderr_copies=_copies(stderr, places.filtered_stderr, self._settings.stderr_filters)
            if is_stderr_shown
            else (),
        )
        return RankFiles(
            pipes.stdout_path if is_stdout_shown else _instead_of(pipes.stdout_path, stdout),
            pipes.stderr_path if is_stderr_shown else _instead_of(pipes.stderr_path, stderr),
        )


@dataclass(frozen=True)
class _Places:
    """The decisions of torch's `LogsSpecs`, by local rank. An empty path is no file."""

    stdouts: Mapping[int, str] = field(default_factory=dict)
    stderrs: Mapping[int, str] = field(default_factory=dict)
    shown_stdouts: Mapping[int, str] = field(default_factory=dict)
    """Those files whose content is also shown."""
    shown_stderrs: Mapping[int, str] = field(default_factory=dict)
    filtered_stdout: str = ""
    filtered_stderr: str = ""

    @classmethod
    def of(cls, destinations: Any) -> _Places:
        return cls(
            destinations.stdouts,
            destinations.stderrs,
            destinations.tee_stdouts,
            destinations.tee_stderrs,
            _filtered(destinations, "stdout"),
            _filtered(destinations, "stderr"),
        )


def _specs_of(settings: LogSettings) -> Any:
    """Returns torch's object that decides about log files. Raises `UsageError`."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std

    specs: Any = DefaultLogsSpecs
    if settings.specs_name is not None:
        found = entry_points(group="torchrun.logs_specs", name=settings.specs_name)
        if not found:
            raise UsageError(f"--logs-specs={settings.specs_name}: no package registers it as torchrun.logs_specs")
        specs = next(iter(found)).load()
    shown = settings.local_ranks_shown
    try:
        return specs(
            log_dir=settings.directory,
            redirects=Std.from_str(settings.redirects),
            tee=Std.from_str(settings.tee),
            local_ranks_filter=None if shown is None else set(shown),
        )
    except (ValueError, KeyError, OSError) as error:
        raise UsageError(f"torchrun refuses its options about log files: {error}") from error


def _filtered(destinations: Any, name: str) -> str:
    """Returns the path of the lines of all ranks that a filter finds; empty if no rank has a file."""
    if path := getattr(destinations, f"filtered_{name}", ""):
        return str(path)
    # This torch has no such option; newer ones put the file there.
    paths = [path for path in getattr(destinations, f"{name}s").values() if path and path != os.devnull]
    return str(Path(paths[0]).parents[1] / f"filtered_{name}.log") if paths else ""


def _copies(path: str | None, filtered: str, filters: tuple[str, ...]) -> list[Copy]:
    """Returns the files to which shown output is copied, too."""
    if not path:
        return []
    matching = [MatchingLines(FileCopy(filtered), [text.encode() for text in filters])] if filters and filtered else []
    return [FileCopy(path), *matching]


def _instead_of(pipe: str, path: str | None) -> str:
    """Ends a pipe through which nothing will come, so that its reader need not wait, and returns the path."""
    os.close(os.open(pipe, os.O_WRONLY))
    return path or os.devnull
