"""The variables by which schedulers, other launchers and users inform a launcher."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from core_sdk._ground.environment.names import HEAD_VARIABLE, MEETING_PORT_VARIABLE
from core_sdk._ground.placement import (
    INDEX_VARIABLE,
    JOB_ID_VARIABLE,
    Placement,
    SlurmJob,
    kubernetes_placement,
    named_gpus,
    named_job,
    slurm_job,
    slurm_job_name,
    slurm_placement,
)

_UNSHARED_VARIABLE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
_CPP_LOG_VARIABLE = "TORCH_CPP_LOG_LEVEL"


def job_placement(variables: Mapping[str, str] = os.environ) -> Placement | None:
    """Returns the place that a scheduler has given this process in its job; None without a scheduler.

    Raises `PlacementError` if the scheduler has not started one launcher on each node.
    """
    if (placement := slurm_placement(variables)) is not None or INDEX_VARIABLE not in variables:
        return placement
    return kubernetes_placement(variables, socket.gethostname(), socket.getfqdn())


def batch_job(variables: Mapping[str, str] = os.environ) -> SlurmJob | None:
    """Returns the job of Slurm to which this process belongs; None outside of one. Raises `PlacementError`."""
    return slurm_job(variables)


def job_id(variables: Mapping[str, str] = os.environ) -> str | None:
    """Returns an id of the scheduler's job that is the same for the launchers on all its nodes; None without one."""
    if named := variables.get(JOB_ID_VARIABLE):
        return named_job(named).name
    return slurm_job_name(variables) if variables.get("SLURM_JOB_ID") else None


def meeting_port(variables: Mapping[str, str] = os.environ) -> int | None:
    """Returns the port at which the nodes meet, if another launcher has set it. Raises `ValueError` for a bad port."""
    text = variables.get(MEETING_PORT_VARIABLE)
    if not text:
        return None
    if not text.isdecimal() or not 0 < int(text) < 1 << 16:
        raise ValueError(f"{MEETING_PORT_VARIABLE} is {text!r}; it must be a port, 1 to 65535")
    return int(text)


def taken_head() -> tuple[str, Path] | None:
    """Returns the mark of this launcher's reports to its head, and its directory; None if no head has started it.

    Removes the variable, which would mean nothing to processes that are started later.
    """
    mark, space, directory = os.environ.pop(HEAD_VARIABLE, "").partition(" ")
    return (mark + space, Path(directory)) if directory else None


def visible_gpus(variables: Mapping[str, str] = os.environ) -> list[str] | None:
    """Returns the GPUs that this process may use, by CUDA's names; None for all."""
    named = variables.get("CUDA_VISIBLE_DEVICES")
    return None if named is None else named_gpus(named)


def torchrun_variables(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns torchrun's options that PET_… variables give, by the option's name, such as `nproc_per_node`."""
    return {name[4:].lower(): value for name, value in variables.items() if name.startswith("PET_")}


def torch_extensions_directory(variables: Mapping[str, str] = os.environ) -> Path:
    """Returns the directory in which torch builds extensions, such as DeepSpeed's."""
    cache = variables.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(variables.get("TORCH_EXTENSIONS_DIR") or Path(cache) / "torch_extensions")


def line_prefix_template(variables: Mapping[str, str] = os.environ) -> str:
    """Returns torchrun's template of what each line of a rank begins with; empty if it is not set."""
    return variables.get("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "")


@contextlib.contextmanager
def unshared_store() -> Iterator[None]:
    """Makes torch's rendezvous look up a new place for the ranks' store in each meeting, inside the block.

    Otherwise it tells nodes that come later of no place at all (seen with torch 2.13). For a process in which nothing
    else uses torch's rendezvous.
    """
    with _setting(_UNSHARED_VARIABLE, "1"):
        yield


@contextlib.contextmanager
def quiet_torch() -> Iterator[None]:
    """Keeps a torch that is imported inside the block from printing C++ warnings, unless the user has said which.

    The processes that this one starts later are not quiet.
    """
    with contextlib.nullcontext() if _CPP_LOG_VARIABLE in os.environ else _setting(_CPP_LOG_VARIABLE, "ERROR"):
        yield


@contextlib.contextmanager
def _setting(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def first_variable(names: Sequence[str], variables: Mapping[str, str] = os.environ) -> str | None:
    """Returns the value of the first of these variables that is set, since launchers name the rank differently."""
    return next((variables[name] for name in names if name in variables), None)


def horovod_variables(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the user's settings of Horovod's library and of NCCL's network."""
    return {name: value for name, value in variables.items() if name.startswith(("HOROVOD_", "NCCL_SOCKET_"))}
