"""`python -m launch.tensorflow [--port PORT] [--] SCRIPT…`: a process per node, which finds the others in TF_CONFIG.

On a single node TF_CONFIG is not set, since TensorFlow needs none there.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from typing import NoReturn

from launch._command_line import OptionParser, UsageError
from launch._framework import Framework, LaunchOptions, Start
from launch._launcher import run
from launch._network import ipv4_of, own_address_towards


class TensorFlow(Framework):
    module = "launch.tensorflow"
    overridden = "this launcher: --port PORT, where each node's worker listens; by default a free one"
    own_options = {"--port": 1}

    def __init__(self) -> None:
        self._port: int | None = None
        self._workers: list[str] = []
        self._held_port: socket.socket | None = None

    def plan(self, overrides: Sequence[str]) -> LaunchOptions:
        self._port = _parse(overrides)
        return LaunchOptions(("--nproc-per-node=1",))

    def meet(self, start: Start, rank_counts: Sequence[int]) -> None:
        """Exchanges the addresses at which the nodes' workers will listen."""
        keys = [f"worker/{node}" for node in range(start.num_nodes)]
        if start.num_nodes > 1:
            is_first = start.node_rank == 0
            address = start.chief_address if is_first else own_address_towards(ipv4_of(start.chief_address))
            start.store.set(keys[start.node_rank], f"{address}:{self._port or self._free_port()}")
            self._workers = [start.store.get(key).decode() for key in keys]

    def variables(self, rank: Mapping[str, str]) -> Mapping[str, str]:
        self.close()  # the worker is about to listen there
        if not self._workers:
            return {}
        task = {"type": "worker", "index": int(rank["GROUP_RANK"])}
        return {"TF_CONFIG": json.dumps({"cluster": {"worker": self._workers}, "task": task})}

    def close(self) -> None:
        if self._held_port is not None:
            self._held_port.close()

    def _free_port(self) -> int:
        """Reserves a port until the worker starts, and returns it."""
        self.close()
        self._held_port = socket.socket()
        self._held_port.bind(("", 0))
        port: int = self._held_port.getsockname()[1]
        return port


def _parse(overrides: Sequence[str]) -> int | None:
    parser = OptionParser(prog="launch.tensorflow", add_help=False, allow_abbrev=False)
    parser.add_argument("--port", type=int)
    port: int | None = parser.parse_args(overrides).port
    if port is not None and not 0 < port < 1 << 16:
        raise UsageError(f"--port={port} is no port: give 1 to 65535")
    return port


def main() -> NoReturn:
    run(TensorFlow())


if __name__ == "__main__":
    main()
