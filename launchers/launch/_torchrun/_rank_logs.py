"""Where the ranks of torch's agent write: into our pipes, but for what the user sends to files of torch's."""

from __future__ import annotations

import os
from pathlib import Path

from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs

from core_sdk.environment import CHIEF_IP_VARIABLE, GRACE_VARIABLE, LAUNCH_DIR_VARIABLE, RENDEZVOUS_VARIABLE
from core_sdk.processes.output import RankErrors, RankOutput
from launch._directory import LaunchDirectory
from launch._framework import Framework


class RankLogs(LogsSpecs):
    """`files`: torch's own way, if one of `--redirects`, `--tee`, … asks for it."""

    def __init__(
        self,
        output: RankOutput,
        errors: RankErrors,
        directory: LaunchDirectory,
        framework: Framework,
        files: LogsSpecs | None,
        grace_s: float,
    ) -> None:
        super().__init__()
        self._output = output
        self._errors = errors
        self._directory = directory
        self._framework = framework
        self._files = files
        self._grace_s = grace_s
        self.num_restarts = 0
        """As the ranks are to be told it."""

    @property
    def root_log_dir(self) -> str:
        return str(self._files.root_log_dir) if self._files else os.devnull

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Called before each start of the ranks: also completes their environments, given by local rank."""
        destinations = self._files.reify(envs) if self._files else _no_files(envs)
        for local_rank, variables in envs.items():
            self._direct(int(variables["RANK"]), local_rank, destinations)
        common = self._common_variables(is_one_node=envs[0]["GROUP_WORLD_SIZE"] == "1")
        common[CHIEF_IP_VARIABLE] = envs[0]["MASTER_ADDR"]
        for variables in envs.values():
            variables.update(common)
            variables.update(self._framework.variables(variables))
        return destinations

    def _direct(self, rank: int, local_rank: int, destinations: LogsDest) -> None:
        """Into our pipes what is not meant for files."""
        pipes = self._output.open(rank)
        stderr_file = destinations.stderrs.get(local_rank)
        self._errors.write_to(rank, Path(stderr_file) if stderr_file else None)
        for paths, pipe in ((destinations.stdouts, pipes.stdout_path), (destinations.stderrs, pipes.stderr_path)):
            if paths.get(local_rank):
                _end(pipe)
            else:
                paths[local_rank] = pipe

    def _common_variables(self, *, is_one_node: bool) -> dict[str, str]:
        # Without the first, output would appear in blocks, and the last one die with a kill.
        variables = {
            "PYTHONUNBUFFERED": "1",
            LAUNCH_DIR_VARIABLE: str(self._directory.path),
            GRACE_VARIABLE: str(self._grace_s),
            "TORCHELASTIC_RESTART_COUNT": str(self.num_restarts),
        }
        if is_one_node:
            variables[RENDEZVOUS_VARIABLE] = str(self._directory.new_meeting_place())
        return variables


def _no_files(envs: dict[int, dict[str, str]]) -> LogsDest:
    for variables in envs.values():
        variables["TORCHELASTIC_ERROR_FILE"] = ""
    return LogsDest(error_files=dict.fromkeys(envs, os.devnull))


def _end(pipe: str) -> None:
    """Nothing will come through it: its reader need not wait."""
    os.close(os.open(pipe, os.O_WRONLY))
