"""The process's environment, read here and nowhere else.

| variable            | meaning                                                                     |
|---------------------|-----------------------------------------------------------------------------|
| `CORE_SDK_HOME`     | the directory of all records; default: the platform's user data directory    |
| `CORE_SDK_RUN_INFO` | a JSON file (mode 0600) with what `get_cluster_info()` returns                |

torchrun tells each process that it starts its place in `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`,
`GROUP_RANK` and `GROUP_WORLD_SIZE`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from core_sdk.errors import HomeNotWritableError, RunInfoError
from core_sdk.records import ClusterInfo, from_json

HOME_VARIABLE = "CORE_SDK_HOME"
RUN_INFO_VARIABLE = "CORE_SDK_RUN_INFO"

# What a resumed script needs to find its code, libraries and devices again. Anything else may hold a secret.
_RECORDED_NAMES = frozenset(
    {
        "CUBLAS_WORKSPACE_CONFIG",
        "CUDA_DEVICE_ORDER",
        "CUDA_VISIBLE_DEVICES",
        "HF_HOME",
        "HF_HUB_OFFLINE",
        "LANG",
        "LC_ALL",
        "LD_LIBRARY_PATH",
        "MKL_NUM_THREADS",
        "OMP_NUM_THREADS",
        "PATH",
        "PYTHONHASHSEED",
        "PYTHONPATH",
        "TOKENIZERS_PARALLELISM",
        "TORCH_HOME",
        "TZ",
        "VIRTUAL_ENV",
        HOME_VARIABLE,
    }
)
_RECORDED_PREFIXES = ("GLOO_", "NCCL_", "PYTORCH_", "TORCH_")
_NEVER_RECORDED = ("TOKEN", "SECRET", "PASSW", "KEY", "CREDENTIAL")


@dataclass(frozen=True)
class Environment:
    """What the process was told from outside."""

    home: Path
    """Absolute; need not exist."""
    run_info: Path | None

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> Environment:
        variables = os.environ if variables is None else variables
        home = variables.get(HOME_VARIABLE)
        run_info = variables.get(RUN_INFO_VARIABLE)
        return cls(
            home=_absolute(Path(home)) if home else _default_home(),
            run_info=Path(run_info) if run_info else None,
        )


@dataclass(frozen=True)
class RankPlace:
    """A process's place among those of its training, in the words of `DistributedContext`."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int

    @classmethod
    def from_torchrun(cls, variables: Mapping[str, str] | None = None) -> RankPlace:
        """Raises `KeyError` where torchrun did not start this process, `ValueError` for what is not a number."""
        variables = os.environ if variables is None else variables
        return cls(
            rank=_number(variables, "RANK"),
            size=_number(variables, "WORLD_SIZE"),
            local_rank=_number(variables, "LOCAL_RANK"),
            local_size=_number(variables, "LOCAL_WORLD_SIZE"),
            cross_rank=_number(variables, "GROUP_RANK"),
            cross_size=_number(variables, "GROUP_WORLD_SIZE"),
        )


def _number(variables: Mapping[str, str], name: str) -> int:
    if name not in variables:
        raise KeyError(f"{name} is not set: torchrun did not start this process")
    try:
        return int(variables[name])
    except ValueError:
        raise ValueError(f"{name} is {variables[name]!r}; torchrun gives it a number") from None


def get_cluster_info() -> ClusterInfo | None:
    """What started this script says about it; None on a plain `python train.py`.

    Raises `RunInfoError` if CORE_SDK_RUN_INFO names a file that cannot be read.
    """
    path = Environment.read().run_info
    if path is None:
        return None
    try:
        info = msgspec.json.decode(path.read_bytes(), type=ClusterInfo)
    except (OSError, msgspec.DecodeError) as error:
        raise RunInfoError(path, str(error)) from error
    info._user_data = from_json(info._user_data)
    if info._trial_info is not None:
        info._trial_info.hparams = from_json(info._trial_info.hparams)
    return info


def recorded_variables(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that are kept with a trial, by allow-list, for starting its script again."""
    variables = os.environ if variables is None else variables
    return {name: value for name, value in sorted(variables.items()) if _is_recorded(name) and _is_text(value)}


def child_variables(recorded: Mapping[str, str], **added: str) -> dict[str, str]:
    """The environment of a script that we start: ours, overlaid by what was recorded, overlaid by `added`."""
    inherited = {name: value for name, value in os.environ.items() if name != RUN_INFO_VARIABLE}
    return inherited | dict(recorded) | added


def main_script() -> str:
    """The name by which a person knows the running script: its file name, the module's after `-m`, or "notebook"."""
    if "ipykernel" in sys.modules:
        return "notebook"
    arguments = list(sys.orig_argv[1:])
    if "-m" in arguments and arguments.index("-m") + 1 < len(arguments):
        before = arguments[: arguments.index("-m")]
        if all(argument.startswith("-") for argument in before):
            return arguments[arguments.index("-m") + 1]
    return Path(sys.argv[0]).name if sys.argv and sys.argv[0] not in ("", "-", "-c") else "interactive"


def command_of_this_process() -> list[str] | None:
    """The argument vector that starts this process's script again, with the interpreter's own path.

    None for what cannot be started again: a notebook, and lines that a person types or pipes.
    """
    if "ipykernel" in sys.modules or not sys.argv or sys.argv[0] in ("", "-"):
        return None
    return [sys.executable, *sys.orig_argv[1:]]


def _is_recorded(name: str) -> bool:
    if name in _RECORDED_NAMES:
        return True
    return name.startswith(_RECORDED_PREFIXES) and not any(word in name.upper() for word in _NEVER_RECORDED)


def _is_text(value: str) -> bool:
    """A variable may hold any bytes; JSON keeps those that are UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _default_home() -> Path:
    import platformdirs  # a tenth of our import time, and needed only without CORE_SDK_HOME

    return _absolute(Path(platformdirs.user_data_dir("core-sdk", appauthor=False)))


def _absolute(home: Path) -> Path:
    try:
        return home.expanduser().absolute()
    except RuntimeError as error:
        raise HomeNotWritableError(home, "no home directory is known for the user that it names") from error
    except FileNotFoundError as error:
        raise HomeNotWritableError(home, "it is relative to the working directory, which is gone") from error
