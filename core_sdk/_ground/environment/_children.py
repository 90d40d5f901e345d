"""The variables of processes that we start: for resuming, on other hosts, and as children."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set

from core_sdk._ground.environment._marks import marks
from core_sdk._ground.environment.names import (
    CHANNEL_KEY_VARIABLE,
    CHIEF_IP_VARIABLE,
    HEAD_VARIABLE,
    HOME_VARIABLE,
    LAUNCH_DIR_VARIABLE,
    LEFT_JOB_VARIABLE,
    MEETING_PORT_VARIABLE,
    PASS_VARIABLES_VARIABLE,
    RENDEZVOUS_VARIABLE,
    RUN_INFO_VARIABLE,
    SIGNS_VARIABLE,
)
from core_sdk._ground.masking import is_secret_name, masked_text

# What a resumed script needs to find its code, libraries and devices again. Other variables may hold secrets.
_RECORDED_NAMES = frozenset(
    {
        "CUBLAS_WORKSPACE_CONFIG",
        "CUDA_DEVICE_ORDER",
        "CUDA_VISIBLE_DEVICES",
        "DS_ACCELERATOR",
        "DS_IGNORE_CUDA_DETECTION",
        "DS_SKIP_CUDA_CHECK",
        "GLOO_DEVICE_TRANSPORT",
        "HF_HOME",
        "HF_HUB_OFFLINE",
        "LANG",
        "LC_ALL",
        "LD_LIBRARY_PATH",
        "MKL_NUM_THREADS",
        "NCCL_IB_PKEY",  # the index of a partition
        "OMP_NUM_THREADS",
        "PATH",
        "PYTHONHASHSEED",
        "PYTHONPATH",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
        "TOKENIZERS_PARALLELISM",
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
        "TORCH_CPP_LOG_LEVEL",
        "TORCH_EXTENSIONS_DIR",
        "TORCH_HOME",
        "TORCH_LOGS",
        "TORCH_SHOW_CPP_STACKTRACES",
        "TZ",
        "VIRTUAL_ENV",
        HOME_VARIABLE,
    }
)
# Families whose known variables are all settings.
_RECORDED_PREFIXES = (
    "DEEPSPEED_",
    "DS_BUILD_",
    "GLOO_SOCKET_",
    "NCCL_",
    "TORCH_COMPILE_",
    "TORCH_CUDA_",
    "TORCH_CUDNN_",
    "TORCH_DISTRIBUTED_",
    "TORCH_NCCL_",
)
# What a training needs on another host besides the recorded variables. Secrets are passed only if the user names them.
_PASSED_NAMES = _RECORDED_NAMES | {"LOGLEVEL", "XDG_DATA_HOME", CHANNEL_KEY_VARIABLE, PASS_VARIABLES_VARIABLE}
# They name the job, so that it continues after a requeue. Those of a step would say that srun has placed us.
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
# These describe this host, or the launch to which the launcher itself may belong.
_NEVER_PASSED = frozenset(
    {
        RUN_INFO_VARIABLE,
        LAUNCH_DIR_VARIABLE,
        RENDEZVOUS_VARIABLE,
        MEETING_PORT_VARIABLE,
        HEAD_VARIABLE,
        LEFT_JOB_VARIABLE,
        "PET_NODE_RANK",
    }
)
# It counts this host's devices.
_PASSED_IF_NAMED = frozenset({"CUDA_VISIBLE_DEVICES"})
# The variables in which launchers tell a rank its place, and where ranks meet.
_OF_LAUNCH = frozenset({"MASTER_ADDR", "MASTER_PORT", CHIEF_IP_VARIABLE, RENDEZVOUS_VARIABLE, LAUNCH_DIR_VARIABLE})
# What a process has from its login besides the passed variables.
_LOGIN_NAMES = ("HOME", "LOGNAME", "SHELL", "TMPDIR", "USER")


def recorded_variables(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the variables that are recorded with a trial, for starting its script again, by an allow-list.

    Leaves out values that look like secrets, and names that do unless the list has the whole name.
    """
    return {
        name: value
        for name, value in sorted(variables.items())
        if _is_of(name, _RECORDED_NAMES, _RECORDED_PREFIXES) and _is_text(value) and masked_text(value) == value
    }


def passed_variables(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the variables that a launcher passes to the other hosts: an allow-list, and those that the user names."""
    wishes = [wish.strip() for wish in variables.get(PASS_VARIABLES_VARIABLE, "").split(",")]
    return {name: value for name, value in sorted(variables.items()) if _is_passed(name, wishes)}


def child_variables(added: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a script that we start: `defaults`, updated by ours, updated by `added`."""
    return {**defaults, **agent_variables(), **added}


def login_variables() -> dict[str, str]:
    """Returns the variables of a login, so that a process started here gets no more than one on another host.

    Adds only our marks, so that the process is ended with us.
    """
    return {name: os.environ[name] for name in _LOGIN_NAMES if name in os.environ} | marks()


def agent_variables() -> dict[str, str]:
    """Returns the environment of an agent or a server, which must not belong to the attempt that we may run in."""
    left = {RUN_INFO_VARIABLE, SIGNS_VARIABLE, *marks()}
    return {name: value for name, value in os.environ.items() if name not in left}


def worker_variables(added: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a worker of this program: ours, without what a launcher has told us about our rank."""
    kept = {name: value for name, value in os.environ.items() if not _is_of_launch(name)}
    # As torchrun does: the ranks of a node share its cores.
    return {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **kept, **added}


def add_variables(added: Mapping[str, str]) -> None:
    """Adds to the environment of this process, which is a worker that another program has started."""
    os.environ.update(added)


def replace_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Replaces the environment of this process, which another program has forked. Returns the environment before."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    return before


def _is_of_launch(name: str) -> bool:
    return name in _OF_LAUNCH or name.startswith("TORCHELASTIC_")


def _is_passed(name: str, wishes: Sequence[str]) -> bool:
    if name in _NEVER_PASSED:
        return False
    is_wished = any(name.startswith(wish[:-1]) if wish.endswith("*") else name == wish for wish in wishes)
    return is_wished or (_is_of(name, _PASSED_NAMES, _PASSED_PREFIXES) and name not in _PASSED_IF_NAMED)


def _is_of(name: str, names: Set[str], prefixes: tuple[str, ...]) -> bool:
    # Of a family, leaving a setting out is better than recording a password.
    return name in names or (name.startswith(prefixes) and not is_secret_name(name) and "KEY" not in name.upper())


def _is_text(value: str) -> bool:
    """Returns whether JSON can hold the value. A variable may hold any bytes."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def rank_variables(added: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a rank that a launcher starts: `defaults`, updated by ours, updated by `added`."""
    return {**defaults, **os.environ, **added}
