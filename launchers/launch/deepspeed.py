"""`python -m launch.deepspeed [DEEPSPEED OVERRIDES --] SCRIPT…`: ranks that use DeepSpeed.

The options of the `deepspeed` program may stand before the `--`. A rank finds its local rank in LOCAL_RANK, as with
DeepSpeed's `--no_local_rank`. For a script that wants it as an argument, write `'--local_rank=${local_rank}'`, in these
very letters: each rank gets its number there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from msgspec.structs import replace

from core_sdk._ground.environment import LaunchSettings, meeting_port, visible_gpus
from launch._command_line import Command, UsageError
from launch._deepspeed._core_binding import cores_to_share, share
from launch._deepspeed._options import DeepSpeedOptions, parse_options, plan_here, plan_hosts
from launch._framework import Framework, LaunchOptions, Start
from launch._launcher import run
from launch._ssh._hostfile import read_hostfile

# The path at which DeepSpeed itself looks for a hostfile.
_USUAL_HOSTFILE = Path("/job/hostfile")


class DeepSpeed(Framework):
    module = "launch.deepspeed"
    overridden = "deepspeed"

    def __init__(self) -> None:
        self._devices: tuple[str, ...] = ()
        self._cores: list[int] = []
        self._has_num_threads = False

    def command(self, arguments: Sequence[str]) -> Command:
        command = super().command(arguments)
        is_module = parse_options(command.overrides).module and command.script[0] != "-m"
        return replace(command, script=("-m", *command.script)) if is_module else command

    def plan(self, overrides: Sequence[str]) -> LaunchOptions:
        options = parse_options(overrides)
        plan = _plan(options)
        self._devices = plan.devices
        self._cores = cores_to_share(options.bind_core_list) if options.bind_cores_to_rank else []
        self._has_num_threads = LaunchSettings.read().has_num_threads
        return plan

    def meet(self, start: Start, rank_counts: Sequence[int]) -> None:
        num_ranks = rank_counts[start.node_rank]
        if self._cores and num_ranks > len(self._cores):
            raise UsageError(
                f"--bind_cores_to_rank: {num_ranks} ranks cannot share {len(self._cores)} cores of this node"
            )

    def cores(self, local_rank: int, local_size: int) -> list[int]:
        return share(self._cores, local_rank, local_size)

    def variables(self, rank: Mapping[str, str]) -> Mapping[str, str]:
        """Returns the variables in which DeepSpeed's launcher tells a rank its place."""
        place = {
            "LOCAL_SIZE": rank["LOCAL_WORLD_SIZE"],
            "CROSS_RANK": rank["GROUP_RANK"],
            "CROSS_SIZE": rank["GROUP_WORLD_SIZE"],
            "USE_DEEPSPEED": "1",
        }
        if self._cores and not self._has_num_threads:
            place["OMP_NUM_THREADS"] = str(len(self._cores) // int(rank["LOCAL_WORLD_SIZE"]))
        return place | ({"CUDA_VISIBLE_DEVICES": ",".join(self._devices)} if self._devices else {})


def _plan(options: DeepSpeedOptions) -> LaunchOptions:
    hostfile = options.hostfile or _usual_hostfile()
    return plan_here(options, _visible_gpus) if hostfile is None else plan_hosts(options, read_hostfile(hostfile))


def _usual_hostfile() -> Path | None:
    """Returns the hostfile at DeepSpeed's usual path; None if a head has started this launcher and read its own."""
    return _USUAL_HOSTFILE if meeting_port() is None and _USUAL_HOSTFILE.is_file() else None


def _visible_gpus() -> list[str]:
    if (named := visible_gpus()) is not None:
        return named
    import torch  # a second, and only where the GPUs have to be counted

    return [str(index) for index in range(torch.cuda.device_count())]


def main() -> NoReturn:
    run(DeepSpeed())


if __name__ == "__main__":
    main()
