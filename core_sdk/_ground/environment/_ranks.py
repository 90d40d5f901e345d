"""The variables by which a launcher tells a rank its numbers, and where the ranks meet."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from core_sdk._ground.environment.names import (
    CHANNEL_KEY_VARIABLE,
    CHIEF_IP_VARIABLE,
    LAUNCH_DIR_VARIABLE,
    RENDEZVOUS_VARIABLE,
)

_HOW_TO_START = {
    "torchrun": ". Type `python -m launch.torch_distributed --nproc-per-node=2 -- python SCRIPT`, say",
    "DeepSpeed's launcher": ". Type `python -m launch.deepspeed -- python SCRIPT`, say",
}


class RankPlace(msgspec.Struct, frozen=True):
    """The six numbers of a rank, as `DistributedContext` names them."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int

    @classmethod
    def from_torchrun(cls, variables: Mapping[str, str] = os.environ) -> RankPlace:
        """Reads torchrun's variables. Raises `KeyError` if torchrun did not start this process.

        Raises `ValueError` for anything but a number.
        """
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
        return cls(*_numbers(variables, names, "torchrun"))

    @classmethod
    def from_deepspeed(cls, variables: Mapping[str, str] = os.environ) -> RankPlace:
        """Reads the variables of DeepSpeed's launcher. Raises `KeyError` if that did not start this process.

        Raises `ValueError` for anything but a number.
        """
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
        return cls(*_numbers(variables, names, "DeepSpeed's launcher"))

    def variables(self) -> dict[str, str]:
        """Returns the variables by which torchrun would tell this rank its place."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_size),
            "GROUP_RANK": str(self.cross_rank),
            "GROUP_WORLD_SIZE": str(self.cross_size),
            "NODE_RANK": str(self.cross_rank),
        }


class MeetingPlace(msgspec.Struct, frozen=True):
    """The place where the ranks meet, as a launcher has told this process."""

    directory: Path | None
    key: bytes | None
    master_address: str | None
    master_port: int | None
    generation: str
    """Differs between the restarts of a job, and between jobs to which the user has given an id."""

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> MeetingPlace:
        """Reads the variables. Raises `ValueError` for a MASTER_PORT that is not a number."""
        directory = variables.get(RENDEZVOUS_VARIABLE)
        key = variables.get(CHANNEL_KEY_VARIABLE)
        run_id = variables.get("TORCHELASTIC_RUN_ID", "")
        has_port = bool(variables.get("MASTER_PORT"))
        return cls(
            directory=Path(directory) if directory else None,
            key=key.encode(errors="surrogateescape") if key else None,
            master_address=variables.get("MASTER_ADDR") or None,
            master_port=_numbers(variables, ("MASTER_PORT",), "torchrun")[0] if has_port else None,
            # "none" is torchrun's default, which names no job.
            generation=f"{'' if run_id == 'none' else run_id}/{variables.get('TORCHELASTIC_RESTART_COUNT', '')}",
        )


def launched_chief_ip() -> str | None:
    """Returns the address of rank 0's node, if the launcher has set it, as Determined's launchers do."""
    return os.environ.get(CHIEF_IP_VARIABLE) or None


def num_ranks_started() -> int:
    """Returns the number of ranks that a launcher has started; 1 without a launcher.

    Lightning starts ranks with LOCAL_RANK and NODE_RANK, without RANK.
    """
    for name in ("WORLD_SIZE", "HOROVOD_SIZE", "OMPI_COMM_WORLD_SIZE"):
        is_ours = name != "WORLD_SIZE" or "RANK" in os.environ or "LOCAL_RANK" in os.environ
        if (size := os.environ.get(name, "")).isdigit() and is_ours:
            return int(size)
    return 1


def is_first_rank() -> bool:
    """Returns whether this is rank 0 of those that a launcher has started; True without a launcher."""
    names = ("RANK", "LOCAL_RANK", "NODE_RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK")
    return all(os.environ.get(name, "0") == "0" for name in names)


def name_local_rank_of_one() -> None:
    """Sets LOCAL_RANK for a rank that no launcher has started: DeepSpeed does not work without it."""
    os.environ.setdefault("LOCAL_RANK", "0")


def is_horovod_launch() -> bool:
    """Returns whether Horovod's launcher, or ours for it, has started this process."""
    return "HOROVOD_RANK" in os.environ


def num_restarts() -> int:
    """Returns how often torchrun has restarted the ranks after a failure."""
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return int(count) if count.isdigit() else 0


def torchrun_launch() -> str:
    """Returns an id of torchrun's launch on this host, which is the same after restarts; empty without torchrun.

    torchrun's run id cannot be used: it is "none", or chosen by the user, who often takes the job's id. But each launch
    has its own directory, with `attempt_0/RANK/error.json` in it.
    """
    file = os.environ.get("TORCHELASTIC_ERROR_FILE", "")
    return f"{socket.gethostname()}:{Path(file).parent.parent.parent}" if file else ""


def launch_directory() -> Path | None:
    """Returns the private directory of the launch that started this process; None without one of our launchers."""
    directory = os.environ.get(LAUNCH_DIR_VARIABLE)
    return Path(directory) if directory else None


def _numbers(variables: Mapping[str, str], names: Sequence[str], starter: str) -> list[int]:
    return [_number(variables, name, starter) for name in names]


def _number(variables: Mapping[str, str], name: str, starter: str) -> int:
    if name not in variables:
        reason = f"{starter} did not start this process{_HOW_TO_START.get(starter, '')}"
        if "RANK" in variables:
            reason = f"but RANK is: start the script with {starter}, or set all that it sets"
        raise KeyError(f"{name} is not set: {reason}")
    try:
        return int(variables[name])
    except ValueError:
        raise ValueError(f"{name} is {variables[name]!r}; {starter} gives it a number") from None
