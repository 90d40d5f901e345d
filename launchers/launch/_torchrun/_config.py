"""The configuration of torch's agent: torchrun's options, completed by what is known about the nodes."""

from __future__ import annotations

import os
import uuid
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from core_sdk.environment import job_id
from launch._command_line import UsageError
from launch._torchrun._nodes import Nodes, meeting_options
from launch._torchrun._options import TorchrunOptions
from launch._torchrun._torch_internals import (
    LaunchConfig,
    RendezvousParameters,
    WorkerSpec,
    config_from_args,
    parse_rendezvous_endpoint,
    registry,
)

_NO_ID = "none"


def configure(options: TorchrunOptions, nodes: Nodes, program: Sequence[str]) -> LaunchConfig:
    """Makes torchrun's configuration for these options, but without its log files if no option asks for them.

    Raises `UsageError`.
    """
    values = vars(options.values) | _completion(options, nodes)
    if not wants_files(options):
        values["log_dir"] = os.devnull
    values |= {"no_python": True, "training_script": program[0], "training_script_args": [*program[1:]]}
    try:
        return config_from_args(Namespace(**values))[0]
    except (ValueError, AssertionError, RuntimeError) as error:
        raise UsageError(f"torchrun refuses its options: {error}") from error


def wants_files(options: TorchrunOptions) -> bool:
    values = options.values
    wishes = (values.log_dir, values.logs_specs, values.local_ranks_filter)
    return any(wishes) or (values.redirects, values.tee) != ("0", "0")


def worker_spec(config: LaunchConfig, program: Sequence[str]) -> WorkerSpec:
    parameters = RendezvousParameters(
        backend=config.rdzv_backend,
        endpoint=config.rdzv_endpoint,
        run_id=config.run_id,
        min_nodes=config.min_nodes,
        max_nodes=config.max_nodes,
        local_addr=config.local_addr,
        **config.rdzv_configs,
    )
    master_addr, master_port = _static_master(config)
    # A field that both have means the same in both; which fields there are differs between torch's versions.
    common = {field.name for field in fields(WorkerSpec)} & {field.name for field in fields(LaunchConfig)}
    return WorkerSpec(
        local_world_size=config.nproc_per_node,
        entrypoint=program[0],
        args=tuple(program[1:]),
        rdzv_handler=registry.get_rendezvous_handler(parameters),
        master_addr=master_addr,
        master_port=master_port,
        **{name: getattr(config, name) for name in common},
    )


def _completion(options: TorchrunOptions, nodes: Nodes) -> dict[str, Any]:
    """Returns values for options that were not given and for which our defaults differ from torch's."""
    defaults: dict[str, Any] = {"nnodes": str(nodes.num_nodes), "max_restarts": 0}
    if nodes.slots is not None:
        defaults["nproc_per_node"] = str(nodes.slots)
    completion = {name: value for name, value in defaults.items() if name not in options.given}
    if options.values.rdzv_id == _NO_ID:
        # torch's default would make one training of all launches that meet at one place. Libraries take it for the
        # job's id.
        completion["rdzv_id"] = uuid.uuid4().hex if nodes.num_nodes == 1 else job_id() or _NO_ID
    return completion | meeting_options(options.given, nodes)


def _static_master(config: LaunchConfig) -> tuple[str | None, int | None]:
    """Returns rank 0's address and port for a static rendezvous; None and None for others, which find them out.

    Raises `UsageError` for an endpoint without a port.
    """
    if config.rdzv_backend != "static":
        return None, None
    address, port = parse_rendezvous_endpoint(config.rdzv_endpoint.strip(), default_port=-1)
    if port == -1:
        raise UsageError(f"the rendezvous endpoint {config.rdzv_endpoint!r} has no port: give HOST:PORT")
    return address, port
