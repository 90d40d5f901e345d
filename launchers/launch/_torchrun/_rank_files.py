"""Sends the output of each rank to the launcher's own, to torchrun's log files, or to both."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from core_sdk._ground.environment import line_prefix_template
from core_sdk._machine.processes.output import FileCopy, MatchingLines, RankOutput, RankPipes, default_prefix
from launch._command_line import UsageError
from launch._directory import LaunchDirectory
from launch._torchrun._log_files import LogDirectory
from launch._torchrun._options import TorchrunOptions


class RankLogs:
    """Opens the files of each start. Without an option of torchrun about files, all output goes into our pipes."""

    def __init__(self, output: RankOutput, directory: LaunchDirectory, options: TorchrunOptions) -> None:
        """Imports torch with `--logs-specs` only. Raises `UsageError`."""
        self._output = output
        self._directory = directory
        self._options = options
        self._line_prefix = options.log_line_prefix_template or line_prefix_template()
        self._specs = _specs_of(options)

    def open(self, variables: Mapping[int, dict[str, str]]) -> dict[int, RankPipes]:
        """Opens the ranks' outputs: pipes, or files in their place. Both mappings are by local rank.

        Adds the file into which torch's `record` writes a rank's exception to its variables, as torchrun does.
        """
        decided = None if self._specs is None else self._specs.reify(dict(variables))
        files = {}
        for local_rank, of_rank in variables.items():
            rank = int(of_rank["RANK"])
            path = self._directory.statements.error_path(rank)
            path.unlink(missing_ok=True)
            if own := of_rank.get("TORCHELASTIC_ERROR_FILE"):
                path.symlink_to(Path(own).absolute())
            else:
                of_rank["TORCHELASTIC_ERROR_FILE"] = str(path)
            files[local_rank] = self._open_rank(rank, local_rank, decided, self._prefix(of_rank))
        return files

    def _prefix(self, of_rank: Mapping[str, str]) -> str | None:
        """Returns what each line of the rank begins with, if the user has chosen it."""
        if not self._line_prefix:
            return None
        return Template(self._line_prefix).safe_substitute(
            role_name=of_rank["ROLE_NAME"],
            rank=of_rank["RANK"],
            local_rank=of_rank["LOCAL_RANK"],
            hostname=socket.gethostname(),
        )

    def _open_rank(self, rank: int, local_rank: int, decided: Any, prefix: str | None) -> RankPipes:
        start = default_prefix(rank) if prefix is None else prefix
        stdout_file, stdout_copies = _files(
            decided, "stdout", local_rank, self._options.duplicate_stdout_filters, start
        )
        stderr_file, stderr_copies = _files(
            decided, "stderr", local_rank, self._options.duplicate_stderr_filters, start
        )
        pipes = self._output.open(
            rank,
            prefix=prefix,
            stderr_file=Path(stderr_file) if stderr_file else None,
            stdout_copies=stdout_copies,
            stderr_copies=stderr_copies,
        )
        return RankPipes(_chosen(pipes.stdout_path, stdout_file), _chosen(pipes.stderr_path, stderr_file))


def _files(
    decided: Any, stream: str, local_rank: int, filters: Sequence[str], prefix: str
) -> tuple[str, list[FileCopy]]:
    """Returns the file into which a rank's stdout or stderr goes, if it is not shown, and the copies of what is shown.

    `decided` is a `LogFiles`, or what a class of `--logs-specs` has decided, if any. Opens the copies. Raises
    `OSError`.
    """
    path = decided and getattr(decided, f"{stream}s").get(local_rank)
    if not path:
        return "", []
    if getattr(decided, f"tee_{stream}s").get(local_rank) != path:
        return path, []
    copies = [FileCopy(path)]
    if filters and (filtered := _filtered(decided, stream)):
        copies.append(MatchingLines(filtered, [text.encode() for text in filters], prefix.encode()))
    return "", copies


def _chosen(pipe: str, file: str) -> str:
    """Returns where the rank writes: the file if there is one, or else the pipe.

    A pipe that is not used is ended, so that its reader does not wait.
    """
    if file:
        os.close(os.open(pipe, os.O_WRONLY))
    return file or pipe


def _specs_of(options: TorchrunOptions) -> Any:
    """Returns the object that decides about log files; None if no option asks for one. Raises `UsageError`."""
    shown = _local_ranks(options.local_ranks_filter)
    if not (options.log_dir or options.logs_specs or shown) and (options.redirects, options.tee) == ("0", "0"):
        return None
    if options.logs_specs is None:
        return LogDirectory(options.log_dir, options.redirects, options.tee, shown)
    from importlib.metadata import entry_points  # slow to import

    found = entry_points(group="torchrun.logs_specs", name=options.logs_specs)
    if not found:
        raise UsageError(f"--logs-specs={options.logs_specs}: no package registers it as torchrun.logs_specs")
    from torch.distributed.elastic.multiprocessing import Std

    specs: Any = next(iter(found)).load()
    try:
        return specs(
            log_dir=options.log_dir,
            redirects=Std.from_str(options.redirects),
            tee=Std.from_str(options.tee),
            local_ranks_filter=shown,
        )
    except (ValueError, KeyError, OSError) as error:
        raise UsageError(f"torchrun refuses its options about log files: {error}") from error


def _local_ranks(text: str) -> set[int] | None:
    if not text:
        return None
    try:
        return set(map(int, text.split(",")))
    except ValueError:
        raise UsageError(f"--local-ranks-filter={text} cannot be: give local ranks, as in 0,1,2") from None


def _filtered(decided: Any, stream: str) -> str:
    """Returns the path of the lines of all ranks that a filter finds; empty if no rank has a file."""
    if path := getattr(decided, f"filtered_{stream}", ""):
        return str(path)
    # This torch has no such option; newer ones put the file there.
    paths = [path for path in getattr(decided, f"{stream}s").values() if path and path != os.devnull]
    return str(Path(paths[0]).parents[1] / f"filtered_{stream}.log") if paths else ""
