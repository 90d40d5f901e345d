"""`python -m launch.deepspeed [DEEPSPEED OVERRIDES --] SCRIPT…`: ranks that use DeepSpeed.

The options of the `deepspeed` program may stand before the `--`. A rank finds its local rank in LOCAL_RANK, as with
DeepSpeed's `--no_local_rank`. A script that wants it as an argument is given `'--local_rank=${local_rank}'`, in just
these letters: torchrun's agent puts each rank's number there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from core_sdk.environment import meeting_port, visible_gpus
from launch._deepspeed._options import DeepSpeedOptions, parse_options
from launch._deepspeed._plan import Plan, plan_here, plan_hosts
from launch._framework import Framework
from launch._launching import run
from launch._over_hosts._hosts import Spread, read_hostfile

# Where DeepSpeed looks without being told to.
_USUAL_HOSTFILE = Path("/job/hostfile")


class DeepSpeed(Framework):
    module = "launch.deepspeed"
    overridden = "deepspeed"

    def __init__(self) -> None:
        self._devices: tuple[str, ...] = ()

    def torchrun_options(self, overrides: Sequence[str]) -> tuple[str, ...]:
        plan = _plan(parse_options(overrides))
        self._devices = plan.devices
        return plan.torchrun

    def spread(self, overrides: Sequence[str]) -> Spread | None:
        return _plan(parse_options(overrides)).spread

    def variables(self, rank: Mapping[str, str]) -> Mapping[str, str]:
        """As DeepSpeed's launcher tells a rank its place."""
        place = {
            "LOCAL_SIZE": rank["LOCAL_WORLD_SIZE"],
            "CROSS_RANK": rank["GROUP_RANK"],
            "CROSS_SIZE": rank["GROUP_WORLD_SIZE"],
        }
        return place | ({"CUDA_VISIBLE_DEVICES": ",".join(self._devices)} if self._devices else {})


def _plan(options: DeepSpeedOptions) -> Plan:
    hostfile = options.hostfile or _usual_hostfile()
    return plan_here(options, _visible_gpus) if hostfile is None else plan_hosts(options, read_hostfile(hostfile))


def _usual_hostfile() -> Path | None:
    """None for a launcher that a head has sent here, and told what the head's own hostfile says."""
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
