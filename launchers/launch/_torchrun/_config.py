"""What torchrun's options configure: torch's own reading of them, and the agent's specification."""

from __future__ import annotations

import os
import uuid
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.rendezvous import RendezvousParameters, registry
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.launcher.api import LaunchConfig
from torch.distributed.run import config_from_args, parse_min_max_nnodes

from core_sdk.environment import job_id
from launch._command_line import UsageError

_DEFAULT_PORT = 29500
_NO_ID = "none"

_NEWER_OPTIONS = frozenset(
    {
        "event_log_handler",
        "numa_options",
        "duplicate_stdout_filters",
        "duplicate_stderr_filters",
        "virtual_local_rank",
    }
)


def configure(options: Namespace) -> tuple[LaunchConfig, str, list[str]]:
    """What torch's own launcher makes of its options, but for the files that it would always make."""
    try:
        _choose_rendezvous(options)
        if not wants_files(options):
            options.log_dir = os.devnull
        config, program, arguments = config_from_args(options)
    except (ValueError, AssertionError, RuntimeError) as error:
        raise UsageError(f"torchrun refuses its options: {error}") from error
    return config, str(program), arguments


def _choose_rendezvous(options: Namespace) -> None:
    """One node meets itself on a free port, so that launches never clash."""
    is_open = options.rdzv_backend == "static" and not options.rdzv_endpoint and options.master_port is None
    if options.standalone or (is_open and parse_min_max_nnodes(options.nnodes)[1] == 1):
        options.rdzv_backend, options.rdzv_endpoint = "c10d", "localhost:0"
    if options.rdzv_id == _NO_ID:
        # Launches that meet at one place by torch's default would be one training; libraries take the id for the job's.
        is_one_node = parse_min_max_nnodes(options.nnodes)[1] == 1
        options.rdzv_id = uuid.uuid4().hex if is_one_node else job_id() or _NO_ID
    if options.master_port is None:
        options.master_port = _DEFAULT_PORT


def wants_files(options: Namespace) -> bool:
    wishes = (options.log_dir, options.logs_specs, options.local_ranks_filter)
    return any(wishes) or (options.redirects, options.tee) != ("0", "0")


def worker_spec(config: LaunchConfig, program: str, arguments: Sequence[str]) -> WorkerSpec:
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
    return WorkerSpec(
        role=config.role,
        local_world_size=config.nproc_per_node,
        entrypoint=program,
        args=tuple(arguments),
        rdzv_handler=registry.get_rendezvous_handler(parameters),
        max_restarts=config.max_restarts,
        monitor_interval=config.monitor_interval,
        master_addr=master_addr,
        master_port=master_port,
        local_addr=config.local_addr,
        **_newer_options(config),
    )


def _newer_options(config: LaunchConfig) -> dict[str, Any]:
    """Those that this torch has of what came over its versions."""
    common = {field.name for field in fields(WorkerSpec)} & {field.name for field in fields(LaunchConfig)}
    return {name: getattr(config, name) for name in _NEWER_OPTIONS & common}


def _static_master(config: LaunchConfig) -> tuple[str | None, int | None]:
    """Where rank 0 listens, if the user has said so; else the rendezvous finds out."""
    if config.rdzv_backend != "static":
        return None, None
    address, port = parse_rendezvous_endpoint(config.rdzv_endpoint.strip(), default_port=-1)
    if port == -1:
        raise UsageError(f"the rendezvous endpoint {config.rdzv_endpoint!r} has no port: give HOST:PORT")
    return address, port
