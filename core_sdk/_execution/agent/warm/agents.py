"""The warm processes of a master, one for each experiment whose trials it starts on this machine."""

from __future__ import annotations

import contextlib
import logging
import shutil
import site
import tempfile
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from core_sdk._execution.agent.starting import Agent, AgentSpawner
from core_sdk._execution.agent.warm.programs import is_of_one_trial
from core_sdk._ground.environment import agent_variables
from core_sdk._ground.environment.names import IMPORTS_VARIABLE, ROOM_VARIABLE
from core_sdk._ground.typed_lines import from_line
from core_sdk._machine.processes import Forked, Spawner

logger = logging.getLogger("core_sdk.master")

# Each holds the libraries in memory.
_MOST_PROCESSES = 2
_MOST_STARTS = 3
# The room for marks and paths of ours, which other processes look for in the environment of a program.
_ROOM_BYTES = 8192
_AGENT = "core_sdk._execution.agent.__main__"


class WarmSpawner(Spawner):
    """A warm process: the spawner of agents whose commands find their libraries imported."""

    def __init__(self, variables: Mapping[str, str], modules: Collection[str]) -> None:
        """The variables are those of a command."""
        self._libraries = _state_of_libraries()
        self._variables = {name: variables[name] for name in variables if not is_of_one_trial(name)}
        super().__init__(
            f"{_AGENT}:begin_warm",
            {**self._variables, ROOM_VARIABLE: "_" * _ROOM_BYTES},
            [*modules, _AGENT],
            is_adopting=False,
            is_like_script=True,
        )

    def fork(self, request: object, descriptors: Sequence[int]) -> Forked:
        """Forks an agent. Blocks until the libraries are imported. Raises `OSError`."""
        return super().fork(self._request(), descriptors)

    def fork_if_ready(self, request: object, descriptors: Sequence[int]) -> Forked | None:
        return super().fork_if_ready(self._request(), descriptors)

    def _request(self) -> dict[str, Mapping[str, str]]:
        return {"variables": agent_variables(), "imported_with": self._variables}

    @property
    def is_usable(self) -> bool:
        """Whether the process lives, and would import the same libraries again."""
        return self.process.poll() is None and self._libraries == _state_of_libraries()


class WarmAgents:
    """Makes the agents of a machine's trials: warm ones for an experiment of which a trial has ended. Thread-safe."""

    def __init__(self, spawner: AgentSpawner) -> None:
        """Other agents come from the `spawner`."""
        self._cold = spawner
        self._directory = Path(tempfile.mkdtemp(prefix="core-sdk-imports-"))
        self._warm: dict[int, WarmSpawner] = {}
        self._num_starts: dict[int, int] = {}
        self._lock = threading.Lock()

    def agent(self, experiment_id: int) -> Agent:
        """Returns an agent for a trial of the experiment. Blocks only while the cold spawner begins."""
        with self._lock:
            warm = self._warm.get(experiment_id)
            if warm is not None and not warm.is_usable:
                self._end(experiment_id)
                warm = None
        return Agent(self._cold if warm is None else _Either(warm, self._cold))

    def variables(self, experiment_id: int) -> dict[str, str]:
        """Returns what the next trial of the experiment is told, if it is to tell what it has imported."""
        with self._lock:
            is_wanted = experiment_id not in self._warm and self._num_starts.get(experiment_id, 0) < _MOST_STARTS
        return {IMPORTS_VARIABLE: str(self._path(experiment_id))} if is_wanted else {}

    def learn(self, experiment_id: int, variables: Mapping[str, str]) -> None:
        """Starts the warm process of an experiment, if a trial with these variables has told what it has imported."""
        with self._lock, contextlib.suppress(OSError, ValueError):
            if experiment_id in self._warm:
                return
            modules = from_line(self._path(experiment_id).read_bytes(), list[str])
            self._path(experiment_id).unlink()
            if not any("." not in name and name != "core_sdk" for name in modules):
                return
            while len(self._warm) >= _MOST_PROCESSES:
                self._end(next(iter(self._warm)))
            self._num_starts[experiment_id] = self._num_starts.get(experiment_id, 0) + 1
            self._warm[experiment_id] = WarmSpawner(variables, modules)
            libraries = sorted({name.partition(".")[0] for name in modules} - {"core_sdk"})
            logger.info("further trials of experiment %d find imported: %s", experiment_id, ", ".join(libraries))

    def keep(self, experiment_ids: Collection[int]) -> None:
        """Ends the warm processes of all other experiments."""
        with self._lock:
            for experiment_id in self._warm.keys() - set(experiment_ids):
                self._end(experiment_id)

    def close(self) -> None:
        with self._lock:
            for experiment_id in list(self._warm):
                self._end(experiment_id)
        self._cold.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _path(self, experiment_id: int) -> Path:
        return self._directory / f"{experiment_id}.json"

    def _end(self, experiment_id: int) -> None:
        warm = self._warm.pop(experiment_id)
        warm.process.kill()  # it may be importing, which `close` would wait for
        warm.close()


class _Either:
    """Forks an agent from a warm process, or from the cold spawner while the warm one is not ready."""

    def __init__(self, warm: WarmSpawner, cold: AgentSpawner) -> None:
        self._warm = warm
        self._cold = cold

    def fork(self, request: object, descriptors: Sequence[int]) -> Forked:
        """Forks a process. Raises `OSError`."""
        return self._warm.fork_if_ready(request, descriptors) or self._cold.fork(request, descriptors)


def _state_of_libraries() -> list[tuple[str, int]]:
    """Returns what changes when a package is installed into this environment, or removed."""
    directories = [*site.getsitepackages(), site.getusersitepackages()]
    found = []
    for directory in directories:
        with contextlib.suppress(OSError):
            found.append((directory, Path(directory).stat().st_mtime_ns))
    return found
