"""The process's environment, read here and nowhere else.

| variable            | meaning                                                                     |
|---------------------|-----------------------------------------------------------------------------|
| `CORE_SDK_HOME`     | the directory of all records; default: the platform's user data directory    |
| `CORE_SDK_RUN_INFO` | a JSON file (mode 0600) with what `get_cluster_info()` returns                |
| `CORE_SDK_LAUNCH_DIR` | from a launcher to its ranks: the private directory of this launch          |
| `CORE_SDK_RENDEZVOUS` | from a launcher to the ranks of a single node: the directory where they meet |
| `CORE_SDK_CHANNEL_KEY` | what ranks on several nodes know in common, where no store tells them      |
| `CORE_SDK_PASS_VARIABLES` | what a launcher brings to other hosts beside its own list: `NAME,OTHER,PREFIX_*` |
| `CORE_SDK_MEETING_PORT` | to the launchers of several nodes: the port at which they meet, on the first one |
| `CORE_SDK_ENDING`   | to a launcher: the pid of the parent that is meant, and the file for its last words |
| `CORE_SDK_LEFT_JOB` | from a process to itself: its pid, and the job whose training it has begun       |
| `CORE_SDK_GRACE_S`  | how long a launcher, which tells its ranks, waits for their end after SIGTERM; default: 3600 |
| `CORE_SDK_STORAGE_DEADLINE_S` | for how long a request to a bucket is tried again; default: 300 |
| `CORE_SDK_JOB_ID`   | names a training: each start with this name goes on with its trial; empty: none does |
| `CORE_SDK_NUM_NODES` | how many pods of an indexed Job of Kubernetes train together               |
| `CORE_SDK_STOP_NOTICES` | clouds whose notice of a machine's end is a stop: `gce`, `ec2`, or both with a comma |

Where those clouds' metadata servers are, say their own variables `GCE_METADATA_HOST` and
`AWS_EC2_METADATA_SERVICE_ENDPOINT`. Slurm sets `SLURM_JOB_ID`: with it SIGUSR1 is a stop as SIGTERM is.

Azure's own variables say where checkpoints lie if a storage names no account, and who we are:
`AZURE_STORAGE_CONNECTION_STRING`, or `AZURE_STORAGE_ACCOUNT` with `AZURE_STORAGE_KEY` or `AZURE_STORAGE_SAS_TOKEN`.

Slurm's `SLURM_…` and the `JOB_COMPLETION_INDEX` of Kubernetes' indexed Jobs tell a launcher its place among the nodes.

torchrun tells each process that it starts its place in `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`,
`GROUP_RANK` and `GROUP_WORLD_SIZE`; DeepSpeed's launcher in `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_SIZE`,
`CROSS_RANK` and `CROSS_SIZE`. Both tell where torch's store is in `MASTER_ADDR` and `MASTER_PORT`.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from core_sdk.errors import HomeNotWritableError, RunInfoError
from core_sdk.placement import (
    INDEX_VARIABLE,
    JOB_ID_VARIABLE,
    Job,
    Placement,
    kubernetes_placement,
    scheduled_job,
    slurm_placement,
)
from core_sdk.records import PLACED, ClusterInfo, from_json

HOME_VARIABLE = "CORE_SDK_HOME"
RUN_INFO_VARIABLE = "CORE_SDK_RUN_INFO"
LAUNCH_DIR_VARIABLE = "CORE_SDK_LAUNCH_DIR"
RENDEZVOUS_VARIABLE = "CORE_SDK_RENDEZVOUS"
CHANNEL_KEY_VARIABLE = "CORE_SDK_CHANNEL_KEY"
PASS_VARIABLES_VARIABLE = "CORE_SDK_PASS_VARIABLES"
MEETING_PORT_VARIABLE = "CORE_SDK_MEETING_PORT"
ENDING_VARIABLE = "CORE_SDK_ENDING"
LEFT_JOB_VARIABLE = "CORE_SDK_LEFT_JOB"
GRACE_VARIABLE = "CORE_SDK_GRACE_S"
STORAGE_DEADLINE_VARIABLE = "CORE_SDK_STORAGE_DEADLINE_S"
STOP_NOTICES_VARIABLE = "CORE_SDK_STOP_NOTICES"

_DEFAULT_GRACE_S = 3600.0
_DEFAULT_STORAGE_DEADLINE_S = 300.0

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
_RECORDED_PREFIXES = ("DEEPSPEED_", "DS_", "GLOO_", "NCCL_", "PYTORCH_", "TORCH_")
_NEVER_RECORDED = ("TOKEN", "SECRET", "PASSW", "KEY", "CREDENTIAL")

# What a training needs on another host beside what is recorded. Secrets go only to where the user names them.
_PASSED_NAMES = _RECORDED_NAMES | {"LOGLEVEL", "XDG_DATA_HOME", CHANNEL_KEY_VARIABLE}
# They name the job, so that it is gone on with after a requeue. Those of a step would say that srun has placed us.
_PASSED_NAMES |= {
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_CLUSTER_NAME",
    "SLURM_JOB_ID",
    "SLURM_RESTART_COUNT",
}
_PASSED_PREFIXES = (
    "CORE_SDK_",
    "CUDA_",
    "DEEPSPEED_",
    "DS_",
    "GLOO_",
    "HF_",
    "HOROVOD_",
    "LC_",
    "MKL_",
    "NCCL_",
    "OMP_",
    "PET_",
    "PYTORCH_",
    "TORCH_",
)
# They speak of this host, or of the launch which the launcher may itself be a part of.
_NEVER_PASSED = frozenset(
    {
        RUN_INFO_VARIABLE,
        LAUNCH_DIR_VARIABLE,
        RENDEZVOUS_VARIABLE,
        MEETING_PORT_VARIABLE,
        ENDING_VARIABLE,
        LEFT_JOB_VARIABLE,
        "PET_NODE_RANK",
    }
)
# It counts this host's devices.
_PASSED_IF_NAMED = frozenset({"CUDA_VISIBLE_DEVICES"})
# What a login gives a process beside what is passed.
_LOGIN_NAMES = ("HOME", "LOGNAME", "SHELL", "TMPDIR", "USER")


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
class LaunchSettings:
    """What a launcher was told from outside."""

    grace_s: float
    """How long ranks may take to end after a stop was asked for."""
    log_level: str | None
    """torchrun's LOGLEVEL."""
    has_num_threads: bool
    """Whether the user chose OMP_NUM_THREADS."""
    is_usr1_stop: bool = False
    """SIGUSR1 asks for an end as SIGTERM does."""

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> LaunchSettings:
        """Raises `ValueError` for a grace that is no length of time."""
        variables = os.environ if variables is None else variables
        return cls(
            grace_s=_grace_s(variables.get(GRACE_VARIABLE) or str(_DEFAULT_GRACE_S)),
            log_level=variables.get("LOGLEVEL"),
            has_num_threads="OMP_NUM_THREADS" in variables,
            is_usr1_stop=is_usr1_stop(variables),
        )


@dataclass(frozen=True)
class StopNoticeSettings:
    """Which clouds are asked for notices of a machine's end, and where."""

    clouds: tuple[str, ...]
    """As somebody has written them."""
    gce_host: str
    """With a port, if it is not 80."""
    ec2_endpoint: str
    """A URL."""

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> StopNoticeSettings:
        variables = os.environ if variables is None else variables
        clouds = variables.get(STOP_NOTICES_VARIABLE, "").split(",")
        return cls(
            clouds=tuple(cloud.strip() for cloud in clouds if cloud.strip()),
            gce_host=variables.get("GCE_METADATA_HOST") or "metadata.google.internal",
            ec2_endpoint=variables.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or "http://169.254.169.254",
        )


@dataclass(frozen=True)
class AzureSettings:
    """What Azure's own variables say of an account of its storage."""

    connection_string: str | None = field(repr=False)
    account: str | None
    key: str | None = field(repr=False)
    sas_token: str | None = field(repr=False)

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> AzureSettings:
        variables = os.environ if variables is None else variables
        names = ("CONNECTION_STRING", "ACCOUNT", "KEY", "SAS_TOKEN")
        return cls(*(variables.get(f"AZURE_STORAGE_{name}") or None for name in names))


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
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
        return cls(*_numbers(variables, names, "torchrun"))

    @classmethod
    def from_deepspeed(cls, variables: Mapping[str, str] | None = None) -> RankPlace:
        """Raises `KeyError` where DeepSpeed's launcher did not start this process, `ValueError` likewise."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
        return cls(*_numbers(variables, names, "DeepSpeed's launcher"))


@dataclass(frozen=True)
class Meeting:
    """What a launcher has told this process about where the ranks meet."""

    directory: Path | None
    key: bytes | None
    master_address: str | None
    master_port: int | None
    generation: str
    """Differs between jobs and between the restarts of one."""

    @classmethod
    def read(cls, variables: Mapping[str, str] | None = None) -> Meeting:
        """Raises `ValueError` for a MASTER_PORT that is not a number."""
        variables = os.environ if variables is None else variables
        directory = variables.get(RENDEZVOUS_VARIABLE)
        key = variables.get(CHANNEL_KEY_VARIABLE)
        has_port = bool(variables.get("MASTER_PORT"))
        return cls(
            directory=Path(directory) if directory else None,
            key=key.encode(errors="surrogateescape") if key else None,
            master_address=variables.get("MASTER_ADDR") or None,
            master_port=_numbers(variables, ("MASTER_PORT",), "torchrun")[0] if has_port else None,
            generation="/".join(
                variables.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")
            ),
        )


def known_grace_s(variables: Mapping[str, str] | None = None) -> float | None:
    """How long this process may take to end after a stop was asked for; None if nobody has said.

    Raises `ValueError` for what is no length of time.
    """
    variables = os.environ if variables is None else variables
    text = variables.get(GRACE_VARIABLE)
    return _grace_s(text) if text else None


def _grace_s(text: str) -> float:
    return _seconds(GRACE_VARIABLE, text)


def _seconds(name: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds < float("inf"):
        raise ValueError(f"{name} is {text!r}; it must be a number of seconds, at least 0")
    return seconds


def storage_deadline_s() -> float:
    """How long to try again what fails at a bucket. Raises `ValueError` for what is no length of time."""
    text = os.environ.get(STORAGE_DEADLINE_VARIABLE)
    return _seconds(STORAGE_DEADLINE_VARIABLE, text) if text else _DEFAULT_STORAGE_DEADLINE_S


def is_usr1_stop(variables: Mapping[str, str] | None = None) -> bool:
    """Whether SIGUSR1 asks for an end: Slurm's users have it sent before the time is over (`--signal=USR1@120`)."""
    variables = os.environ if variables is None else variables
    return bool(variables.get("SLURM_JOB_ID"))


def job_placement(variables: Mapping[str, str] | None = None) -> Placement | None:
    """Where a scheduler has placed this process among those of its job; None where none has.

    Raises `PlacementError` where it has not started one launcher on each node.
    """
    variables = os.environ if variables is None else variables
    if (placement := slurm_placement(variables)) is not None or INDEX_VARIABLE not in variables:
        return placement
    return kubernetes_placement(variables, socket.gethostname(), socket.getfqdn())


def job() -> Job | None:
    """The scheduler's job that this process is a training of."""
    return scheduled_job(os.environ, _script_and_arguments())


def leave_job() -> None:
    """From now on what this process begins, and what processes do that it starts, is none of the job's training."""
    if (left := job()) is not None:
        os.environ[JOB_ID_VARIABLE] = ""
        os.environ[LEFT_JOB_VARIABLE] = f"{os.getpid()}:{left.name}"


def left_job() -> str | None:
    """The name of the job that this very process has left; processes that it starts have left none."""
    pid, _, name = os.environ.get(LEFT_JOB_VARIABLE, "").partition(":")
    return name if name and pid == str(os.getpid()) else None


def visible_gpus(variables: Mapping[str, str] | None = None) -> list[str] | None:
    """Those that this process may use, by CUDA's names; None for all."""
    variables = os.environ if variables is None else variables
    named = variables.get("CUDA_VISIBLE_DEVICES")
    return None if named is None else [name.strip() for name in named.split(",") if name.strip()]


def launch_directory() -> Path | None:
    """The private directory of the launch that started this process; None without one of our launchers."""
    directory = os.environ.get(LAUNCH_DIR_VARIABLE)
    return Path(directory) if directory else None


def num_restarts() -> int:
    """How often torchrun has started this training's ranks anew after a failure."""
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return int(count) if count.isdigit() else 0


def torchrun_launch() -> str:
    """Tells torchrun's launches apart on one host, not their restarts; empty if nothing does.

    Its run id does not: that is "none" unless the user has chosen one, and often the job's then. Each launch has a
    directory of its own, with `attempt_0/RANK/error.json` in it.
    """
    file = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
    return f"{socket.gethostname()}:{Path(file).parent.parent.parent}" if file else ""


def num_ranks_started() -> int:
    """How many ranks a launcher says that it has started; 1 without a launcher."""
    for name in ("WORLD_SIZE", "HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE"):
        if (size := os.environ.get(name, "")).isdigit() and (name != "WORLD_SIZE" or "RANK" in os.environ):
            return int(size)
    return 1


def _numbers(variables: Mapping[str, str] | None, names: Sequence[str], starter: str) -> list[int]:
    variables = os.environ if variables is None else variables
    return [_number(variables, name, starter) for name in names]


def torchrun_variables(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """What PET_… variables say in place of torchrun's options, by the option's name: `nproc_per_node`."""
    variables = os.environ if variables is None else variables
    return {name[4:].lower(): value for name, value in variables.items() if name.startswith("PET_")}


def horovod_variables(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """What the user has set for Horovod's library and for NCCL's network."""
    variables = os.environ if variables is None else variables
    return {name: value for name, value in variables.items() if name.startswith(("HOROVOD_", "NCCL_SOCKET_"))}


def _number(variables: Mapping[str, str], name: str, starter: str) -> int:
    if name not in variables:
        reason = f"{starter} did not start this process"
        if "RANK" in variables:
            reason = f"but RANK is: start the script with {starter}, or set all that it sets"
        raise KeyError(f"{name} is not set: {reason}")
    try:
        return int(variables[name])
    except ValueError:
        raise ValueError(f"{name} is {variables[name]!r}; {starter} gives it a number") from None


def get_cluster_info() -> ClusterInfo | None:
    """What started this script says about it; None where nothing has begun its trial: on a plain `python train.py`.

    Raises `RunInfoError` if CORE_SDK_RUN_INFO names a file that cannot be read.
    """
    info = run_info()
    return None if info is None or info.task_type == PLACED else info


def run_info() -> ClusterInfo | None:
    """Also what is known of the nodes only: launchers know it, and `init()`. Raises likewise."""
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


def use_run_info(path: Path) -> None:
    """From now on `get_cluster_info()`, here and in processes that this one starts, speaks of another attempt."""
    os.environ[RUN_INFO_VARIABLE] = str(path)


def recorded_variables(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that are kept with a trial, by allow-list, for starting its script again."""
    variables = os.environ if variables is None else variables
    return {name: value for name, value in sorted(variables.items()) if _is_recorded(name) and _is_text(value)}


def passed_variables(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a launcher brings to the other hosts of its training: an allow-list, and what the user names beside it."""
    variables = os.environ if variables is None else variables
    wishes = [wish.strip() for wish in variables.get(PASS_VARIABLES_VARIABLE, "").split(",")]
    return {name: value for name, value in sorted(variables.items()) if _is_passed(name, wishes)}


def _is_passed(name: str, wishes: Sequence[str]) -> bool:
    if name in _NEVER_PASSED:
        return False
    is_wished = any(name.startswith(wish[:-1]) if wish.endswith("*") else name == wish for wish in wishes)
    has_prefix = name.startswith(_PASSED_PREFIXES) and not any(word in name.upper() for word in _NEVER_RECORDED)
    is_usual = (name in _PASSED_NAMES or has_prefix) and name not in _PASSED_IF_NAMED
    return is_wished or is_usual


def login_variables() -> dict[str, str]:
    """What a process has from its login, so that one that we start here has no more than one on another host."""
    return {name: os.environ[name] for name in _LOGIN_NAMES if name in os.environ}


def meeting_port(variables: Mapping[str, str] | None = None) -> int | None:
    """Where the nodes meet, if another launcher has placed this one there. Raises `ValueError` for no port."""
    variables = os.environ if variables is None else variables
    text = variables.get(MEETING_PORT_VARIABLE)
    if not text:
        return None
    if not text.isdecimal() or not 0 < int(text) < 1 << 16:
        raise ValueError(f"{MEETING_PORT_VARIABLE} is {text!r}; it must be a port, 1 to 65535")
    return int(text)


def ending_path() -> Path | None:
    """Where this launcher is to leave its last words; None to say them itself.

    A launcher that one of its ranks starts is not meant, though it inherits the variable.
    """
    pid, _, path = os.environ.get(ENDING_VARIABLE, "").partition(":")
    return Path(path) if path and pid == str(os.getppid()) else None


def child_variables(recorded: Mapping[str, str], **added: str) -> dict[str, str]:
    """The environment of a script that we start: ours, overlaid by what was recorded, overlaid by `added`."""
    inherited = {name: value for name, value in os.environ.items() if name != RUN_INFO_VARIABLE}
    return inherited | dict(recorded) | added


def unmarked_variables() -> dict[str, str]:
    """The environment of a process of ours that must not count as part of the launch which we may run in."""
    return {name: value for name, value in os.environ.items() if name != LAUNCH_DIR_VARIABLE}


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


def _script_and_arguments() -> list[str]:
    """The same each time that a job starts this script."""
    return list(sys.argv if _is_of_multiprocessing() else sys.orig_argv[1:])


def _is_of_multiprocessing() -> bool:
    """Then the command names pipes; the arguments are still those of the script that began the process."""
    if "multiprocessing" not in sys.modules:
        return False
    from multiprocessing import parent_process  # only where something else has imported it: that takes a while

    return parent_process() is not None


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
