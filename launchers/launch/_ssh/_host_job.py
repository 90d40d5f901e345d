"""What a host is told of its part of a training: one line of JSON over its standard input, so that no argv shows it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import msgspec

from core_sdk.environment.names import MEETING_PORT_VARIABLE
from core_sdk.placement import MEETING_PORTS
from core_sdk.records import PLACED, ClusterInfo, encode_file
from launch._command_line import UsageError
from launch._ssh._hostfile import Host, is_loopback

_DEVICES_VARIABLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class HostJob:
    """The same on all hosts but for the host's run info, and its devices."""

    module: str
    arguments: tuple[str, ...]
    directory: str
    variables: Mapping[str, str]
    mark: str
    """Begins what the host tells the head, among what its ranks write. Nobody else knows it."""

    def line(self, info: ClusterInfo, devices: Sequence[int]) -> bytes:
        own = {_DEVICES_VARIABLE: ",".join(map(str, devices))} if devices else {}
        job = asdict(self) | {"variables": {**self.variables, **own}, "run_info": encode_file(info).decode()}
        return json.dumps(job).encode() + b"\n"


def host_run_infos(hosts: Sequence[Host], info: ClusterInfo | None) -> list[ClusterInfo]:
    """A run info per host, from that of the head if it has one. Raises `UsageError` for a host such as localhost."""
    for host in hosts:
        if len(hosts) > 1 and is_loopback(host):
            raise UsageError(f"{host.name} means another machine on each of the hosts: give it by its name")
    info = info or ClusterInfo(task_type=PLACED)
    return [
        msgspec.structs.replace(
            info,
            container_addrs=[host.address for host in hosts],
            container_rank=rank,
            container_slot_counts=[host.slots for host in hosts],
            _slot_ids=list(host.devices),
            gpu_uuids=[],
        )
        for rank, host in enumerate(hosts)
    ]


def with_meeting_port(variables: Mapping[str, str]) -> dict[str, str]:
    """A random port, so that two trainings on the same hosts do not meet each other."""
    return {**variables, MEETING_PORT_VARIABLE: str(random.SystemRandom().choice(MEETING_PORTS))}
