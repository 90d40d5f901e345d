"""The files of the ranks' output, as torchrun lays them out: `LOG_DIR/RUN/attempt_N/LOCAL_RANK/stdout.log`.

It does what torch's `DefaultLogsSpecs` does, so that torch need not be imported before the ranks start.
"""

from __future__ import annotations

import enum
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from launch._command_line import UsageError

_CHOICE = re.compile(r"(?:(\d+):)?([0-3])")


class Streams(enum.IntFlag):
    NONE = 0
    STDOUT = 1
    STDERR = 2


class LogFiles(msgspec.Struct):
    """The files of one start, by local rank. The names come from torch's `LogsDest`."""

    stdouts: dict[int, str] = {}
    """Empty for stdout that is shown only."""
    stderrs: dict[int, str] = {}
    tee_stdouts: dict[int, str] = {}
    """The files of ranks whose stdout is shown, too."""
    tee_stderrs: dict[int, str] = {}
    filtered_stdout: str = ""
    filtered_stderr: str = ""


class LogDirectory:
    """Decides about the files of each start, and makes their directories."""

    def __init__(self, log_dir: str | None, redirects: str, tee: str, local_ranks: set[int] | None) -> None:
        """`local_ranks` are those whose output is shown; None for all. Raises `UsageError`."""
        self._log_dir = log_dir
        self._redirects = _streams("--redirects", redirects)
        self._tee = _streams("--tee", tee)
        self._local_ranks = local_ranks
        self._run_directory: Path | None = None
        if log_dir and Path(log_dir).is_file():
            raise UsageError(f"--log-dir={log_dir} is a file: give a directory")

    def reify(self, variables: Mapping[int, dict[str, str]]) -> LogFiles:
        """Makes the directories for ranks with these variables, by local rank. Raises `OSError`.

        Adds the file into which torch's `record` writes a rank's exception.
        """
        if self._log_dir == os.devnull:
            return LogFiles()
        directory = self._directory(variables[0])
        files = LogFiles(
            filtered_stdout=str(directory / "filtered_stdout.log"),
            filtered_stderr=str(directory / "filtered_stderr.log"),
        )
        for local_rank, of_rank in variables.items():
            own = directory / str(local_rank)
            own.mkdir()
            of_rank["TORCHELASTIC_ERROR_FILE"] = str(own / "error.json")
            for stream, path, kept, shown in (
                (Streams.STDOUT, own / "stdout.log", files.stdouts, files.tee_stdouts),
                (Streams.STDERR, own / "stderr.log", files.stderrs, files.tee_stderrs),
            ):
                is_shown = not self._local_ranks or local_rank in self._local_ranks
                is_teed = bool(_of_rank(self._tee, local_rank) & stream)
                is_kept = is_teed or bool(_of_rank(self._redirects, local_rank) & stream)
                kept[local_rank] = str(path) if is_kept else "" if is_shown else os.devnull
                if is_teed and is_shown:
                    shown[local_rank] = str(path)
        return files

    def _directory(self, variables: Mapping[str, str]) -> Path:
        """Makes the directory of a start, empty."""
        if self._run_directory is None:
            base = self._log_dir or tempfile.mkdtemp(prefix="torchelastic_")
            Path(base).mkdir(parents=True, exist_ok=True)
            self._run_directory = Path(tempfile.mkdtemp(prefix=f"{variables['TORCHELASTIC_RUN_ID']}_", dir=base))
        directory = self._run_directory / f"attempt_{variables['TORCHELASTIC_RESTART_COUNT']}"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        return directory


def _streams(option: str, text: str) -> Streams | dict[int, Streams]:
    """Returns the value of `--redirects` or `--tee`: the streams of all ranks, or by local rank."""
    choices = [_CHOICE.fullmatch(part) for part in text.split(",")]
    by_rank = {int(choice[1]): Streams(int(choice[2])) for choice in choices if choice and choice[1]}
    if len(by_rank) == len(choices):
        return by_rank
    if len(choices) > 1 or choices[0] is None:
        raise UsageError(f"{option}={text} cannot be: give 0 none, 1 stdout, 2 stderr or 3 both, or RANK:N,…")
    return Streams(int(choices[0][2]))


def _of_rank(streams: Streams | dict[int, Streams], local_rank: int) -> Streams:
    return streams.get(local_rank, Streams.NONE) if isinstance(streams, dict) else streams
