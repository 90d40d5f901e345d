"""The files into which torch's agent has the ranks write, and the variables that it adds to their environments."""

from __future__ import annotations

import os
from pathlib import Path

from core_sdk.environment.names import CHIEF_IP_VARIABLE, GRACE_VARIABLE, RENDEZVOUS_VARIABLE
from core_sdk.processes.output import RankOutput
from launch._directory import LaunchDirectory
from launch._framework import Framework
from launch._torchrun._torch_internals import LogsDest, LogsSpecs


class RankLogs(LogsSpecs):
    """Gives the ranks our pipes, except for what `--redirects`, `--tee` and the like send to files of torch."""

    def __init__(
        self,
        output: RankOutput,
        directory: LaunchDirectory,
        framework: Framework,
        files: LogsSpecs | None,
        grace_s: float,
        handled_signals: str | None,
    ) -> None:
        """`files` is torch's own implementation, if an option asks for files. `handled_signals` are those that torch's
        agent is told to handle; None for a torch without that option."""
        super().__init__()
        self._output = output
        self._directory = directory
        self._framework = framework
        self._files = files
        self._grace_s = grace_s
        self._handled_signals = handled_signals
        self.num_restarts = 0
        """The number of restarts that the ranks are told."""

    @property
    def root_log_dir(self) -> str:
        return str(self._files.root_log_dir) if self._files else os.devnull

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Returns the ranks' files, and completes their environments, both by local rank. Called before each start."""
        destinations = self._files.reify(envs) if self._files else self._no_files(envs)
        for local_rank, variables in envs.items():
            self._redirect(int(variables["RANK"]), local_rank, destinations)
        common = {
            # Otherwise output would appear in blocks, and the last block of a killed rank would be lost.
            "PYTHONUNBUFFERED": "1",
            **self._directory.variables,
            GRACE_VARIABLE: str(self._grace_s),
            CHIEF_IP_VARIABLE: envs[0]["MASTER_ADDR"],
            "TORCHELASTIC_RESTART_COUNT": str(self.num_restarts),
        }
        if self._handled_signals is not None:
            common["TORCHELASTIC_SIGNALS_TO_HANDLE"] = self._handled_signals
        if envs[0]["GROUP_WORLD_SIZE"] == "1":
            common[RENDEZVOUS_VARIABLE] = str(self._directory.new_meeting_place())
        for variables in envs.values():
            variables.update(common)
            variables.update(self._framework.variables(variables))
        return destinations

    def _no_files(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Returns no files except those into which torch's `record` writes a rank's exception, as under torchrun."""
        for variables in envs.values():
            path = self._directory.error_path(int(variables["RANK"]))
            path.unlink(missing_ok=True)
            variables["TORCHELASTIC_ERROR_FILE"] = str(path)
        return LogsDest(error_files={rank: each["TORCHELASTIC_ERROR_FILE"] for rank, each in envs.items()})

    def _redirect(self, rank: int, local_rank: int, destinations: LogsDest) -> None:
        """Redirects output that is not meant for files into our pipes."""
        stderr_file = destinations.stderrs.get(local_rank)
        pipes = self._output.open(rank, Path(stderr_file) if stderr_file else None)
        for paths, pipe in ((destinations.stdouts, pipes.stdout_path), (destinations.stderrs, pipes.stderr_path)):
            if paths.get(local_rank):
                _end(pipe)
            else:
                paths[local_rank] = pipe


def _end(pipe: str) -> None:
    """Ends a pipe through which nothing will come, so that its reader need not wait."""
    os.close(os.open(pipe, os.O_WRONLY))
