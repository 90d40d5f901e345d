"""Completes torchrun's options by what is known about the nodes, to the configuration of one node's launcher."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from core_sdk._ground.environment import job_id
from launch._command_line import UsageError
from launch._torchrun._nodes import Nodes, bracketed, is_dynamic, split_endpoint
from launch._torchrun._options import TorchrunOptions, node_range

_NO_ID = "none"
_STATIC = "static"
_DYNAMIC = "c10d"


class RendezvousConfig(msgspec.Struct, frozen=True):
    """A meeting of several nodes, in the words of torch's rendezvous."""

    backend: str
    endpoint: str
    settings: Mapping[str, Any] = {}

    @property
    def is_static(self) -> bool:
        """Whether each node was told its number, so that none may come or go."""
        return self.backend == _STATIC


class LaunchConfig(msgspec.Struct, frozen=True):
    options: TorchrunOptions
    num_local_ranks: int
    min_nodes: int
    max_nodes: int
    run_id: str
    rendezvous: RendezvousConfig | None
    """The rendezvous; None if the node trains alone, and so need not meet others."""
    local_address: str | None
    """The address by which the ranks of all nodes reach this one; None to find it out."""
    port: int
    """The port of the ranks' store if the node trains alone; 0 for any free one."""


def configure(options: TorchrunOptions, nodes: Nodes) -> LaunchConfig:
    """Decides on all that the options leave open. Raises `UsageError`."""
    least, most = node_range(options.nnodes) if "nnodes" in options.given else (nodes.num_nodes, nodes.num_nodes)
    if options.max_restarts < 0:
        raise UsageError(f"--max-restarts={options.max_restarts} cannot be: give 0 or more")
    rendezvous = _rendezvous(options, nodes, most)
    address, port = (None, 0) if rendezvous else _given_place(options)
    return LaunchConfig(
        options,
        num_local_ranks=nodes.slots,
        min_nodes=least,
        max_nodes=most,
        run_id=_run_id(options.rdzv_id, nodes),
        rendezvous=rendezvous,
        local_address=options.local_addr or address,
        port=port,
    )


def _rendezvous(options: TorchrunOptions, nodes: Nodes, max_nodes: int) -> RendezvousConfig | None:
    given = options.given
    backend = given.get("rdzv_backend") or (_DYNAMIC if is_dynamic(given) else _STATIC)
    if given.get("standalone") or (max_nodes == 1 and backend == _STATIC):
        return None
    if max_nodes == 1 and backend == _DYNAMIC and not given.get("rdzv_endpoint"):
        return None
    settings: dict[str, Any] = _settings(options.rdzv_conf)
    endpoint = options.rdzv_endpoint
    if backend == _STATIC:
        settings["rank"] = nodes.node_rank
        address = given.get("master_addr") or bracketed(nodes.chief_address)
        endpoint = endpoint or f"{address}:{given.get('master_port') or nodes.port}"
        if split_endpoint(endpoint)[1] is None:
            raise UsageError(f"the rendezvous endpoint {endpoint!r} has no port: give HOST:PORT")
    elif backend == _DYNAMIC and not endpoint:
        endpoint = f"{bracketed(nodes.chief_address)}:{nodes.port}"
    return RendezvousConfig(backend, endpoint, settings)


def _settings(text: str) -> dict[str, Any]:
    """Returns the settings of `--rdzv-conf`. Raises `UsageError`."""
    settings = {}
    for setting in filter(None, text.strip().split(",")):
        name, _, value = (part.strip() for part in setting.partition("="))
        if not name or not value:
            raise UsageError(f"--rdzv-conf={text} cannot be read: give KEY=VALUE,…")
        settings[name] = value
    return settings


def _run_id(given: str, nodes: Nodes) -> str:
    """Returns the given id, or one of our own.

    torch's default would make one training of all launches that meet at one place. Libraries take it for the job's id.
    """
    if given != _NO_ID:
        return given
    return uuid.uuid4().hex if nodes.num_nodes == 1 else job_id() or _NO_ID


def _given_place(options: TorchrunOptions) -> tuple[str | None, int]:
    """Returns the address and the port that were given for a node that trains alone; None and 0 where none was."""
    given = options.given
    if given.get("standalone"):
        return None, 0
    address, port = split_endpoint(given.get("rdzv_endpoint") or "")
    return address or given.get("master_addr", "").strip("[]") or None, port or given.get("master_port") or 0
