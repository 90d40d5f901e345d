"""Sends the output of each rank to the launcher's own, to torchrun's log files, or to both."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from string import Template
from typing import Any

from core_sdk.processes.output import Copy, FileCopy, MatchingLines, RankOutput, RankPipes
from launch._command_line import UsageError
from launch._directory import LaunchDirectory
from launch._torchrun._config import LogSettings


class RankLogs:
    """Opens the files of each start. Without an option of torchrun about files, all output goes into our pipes."""

    def __init__(self, output: RankOutput, directory: LaunchDirectory, settings: LogSettings) -> None:
        """Imports torch if there are log files. Raises `UsageError`."""
        self._output = output
        self._directory = directory
        self._settings = settings
        self._specs = _specs_of(settings) if settings.wants_files else None

    def open(self, variables: Mapping[int, dict[str, str]]) -> dict[int, RankPipes]:
        """Opens the ranks' outputs: pipes, or files in their place. Both mappings are by local rank.

        Adds the file into which torch's `record` writes a rank's exception to its variables, as torchrun does.
        """
        decided = None if self._specs is None else self._specs.reify(dict(variables))
        files = {}
        for local_rank, of_rank in variables.items():
            rank = int(of_rank["RANK"])
            if not of_rank.get("TORCHELASTIC_ERROR_FILE"):
                path = self._directory.error_path(rank)
                path.unlink(missing_ok=True)
                of_rank["TORCHELASTIC_ERROR_FILE"] = str(path)
            files[local_rank] = self._open_rank(rank, local_rank, decided, self._prefix(of_rank))
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

    def _open_rank(self, rank: int, local_rank: int, decided: Any, prefix: str | None) -> RankPipes:
        stdout = _Way.of(decided, "stdout", local_rank, self._settings.stdout_filters)
        stderr = _Way.of(decided, "stderr", local_rank, self._settings.stderr_filters)
        pipes = self._output.open(
            rank,
            prefix=prefix,
            stderr_file=None if stderr.is_shown else Path(stderr.path),
            stdout_copies=stdout.copies,
            stderr_copies=stderr.copies,
        )
        return RankPipes(stdout.taken_from(pipes.stdout_path), stderr.taken_from(pipes.stderr_path))


@dataclass(frozen=True)
class _Way:
    """The way of a rank's stdout or stderr."""

    path: str = ""
    """The file to which it goes; empty for none."""
    is_shown: bool = True
    copies: Sequence[Copy] = ()
    """The files to which shown output is copied."""

    @classmethod
    def of(cls, decided: Any, stream: str, local_rank: int, filters: Sequence[str]) -> _Way:
        """Reads the decisions of torch's `LogsSpecs`, if any. Opens the copies. Raises `OSError`."""
        path = decided and getattr(decided, f"{stream}s").get(local_rank)
        if not path:
            return cls()
        if getattr(decided, f"tee_{stream}s").get(local_rank) != path:
            return cls(path, is_shown=False)
        copies: list[Copy] = [FileCopy(path)]
        if filters and (filtered := _filtered(decided, stream)):
            copies.append(MatchingLines(FileCopy(filtered), [text.encode() for text in filters]))
        return cls(path, copies=copies)

    def taken_from(self, pipe: str) -> str:
        """Returns the path into which the rank writes: the pipe, if the output is shown.

        Otherwise ends the pipe, so that its reader does not wait.
        """
        if self.is_shown:
            return pipe
        os.close(os.open(pipe, os.O_WRONLY))
        return self.path


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


def _filtered(decided: Any, stream: str) -> str:
    """Returns the path of the lines of all ranks that a filter finds; empty if no rank has a file."""
    if path := getattr(decided, f"filtered_{stream}", ""):
        return str(path)
    # This torch has no such option; newer ones put the file there.
    paths = [path for path in getattr(decided, f"{stream}s").values() if path and path != os.devnull]
    return str(Path(paths[0]).parents[1] / f"filtered_{stream}.log") if paths else ""
