"""The options of horovodrun, read by Horovod's own parser, and translated.

All are understood. Those that this launcher cannot honour are refused, with what to do instead.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from msgspec.structs import replace

from launch._command_line import CommandLineError, UsageError
from launch._framework import LaunchOptions
from launch._ssh._hostfile import Host, Ssh, SshLaunch, parse_hosts, read_hostfile

NOT_GIVEN = -(1 << 62)
"""Stands for a number of processes that was not given: Horovod's parser requires one."""

_MPI = (
    "the ranks are started here, and meet through Gloo. Under MPI start the script by mpirun itself: "
    "DistributedContext.from_horovod(hvd) is at home there too"
)
_ELASTIC = (
    "the ranks of this launcher stay as many as they were. PET_MAX_RESTARTS=N in the environment starts all of them "
    "anew after a failure, and they go on from the newest checkpoint; nodes that come and go are "
    "launch.torch_distributed's (--nnodes=MIN:MAX)"
)
_FILES = "set PET_LOG_DIR=DIRECTORY and PET_TEE=3 in the environment, which torchrun's files obey"
_TIMESTAMPS = "each line begins with [rank=N] here; let a pipe add the time: … | ts"
_BINDING = "set the ranks' processors in the script, or bind the launcher: taskset, numactl"

_REFUSED = {
    "use_mpi": ("--mpi", _MPI),
    "use_jsrun": ("--jsrun", _MPI),
    "mpi_args": ("--mpi-args", _MPI),
    "binding_args": ("--binding-args", _BINDING),
    "host_discovery_script": ("--host-discovery-script", _ELASTIC),
    "min_num_proc": ("--min-np", _ELASTIC),
    "max_num_proc": ("--max-np", _ELASTIC),
    "slots": ("--slots-per-host", _ELASTIC),
    "elastic_timeout": ("--elastic-timeout", _ELASTIC),
    "reset_limit": ("--reset-limit", _ELASTIC),
    "cooldown_range": ("--blacklist-cooldown-range", _ELASTIC),
    "output_filename": ("--output-filename", _FILES),
    "prefix_output_with_timestamp": ("--prefix-output-with-timestamp", _TIMESTAMPS),
}


@dataclass(frozen=True)
class HorovodOptions:
    """The values of horovodrun's options. `--gloo` and `--disable-cache` are accepted, since they always apply here."""

    num_ranks: int | None = None
    """The number of ranks on all nodes."""
    hosts: str | None = None
    hostfile: Path | None = None
    ssh: Ssh = field(default_factory=Ssh)
    interfaces: frozenset[str] = frozenset()
    start_timeout_s: int | None = None
    is_verbose: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    """The variables of each rank into which Horovod turns its tuning options."""

    @property
    def names_hosts(self) -> bool:
        return self.hosts is not None or self.hostfile is not None


def parse(overrides: Sequence[str]) -> tuple[Namespace, dict[str, str]]:
    """Returns the values of Horovod's options, by its names, and the variables that tune the ranks.

    The parser prints what it does not understand, and raises `SystemExit(2)`; `--version` and `--check-build` print
    their answer and raise `SystemExit(0)`. Raises `UsageError` for impossible values, and `ImportError` if Horovod is
    missing.
    """
    from horovod.runner.common.util import config_parser  # half a second, and only options need it
    from horovod.runner.launch import parse_args

    # Horovod's parser reads the arguments of the process only.
    own_argv, sys.argv = sys.argv, ["horovodrun", f"--num-proc={NOT_GIVEN}", *overrides]
    try:
        values = parse_args()
        variables: dict[str, str] = config_parser.set_env_from_args({}, values)
    except FileNotFoundError as error:
        raise UsageError(f"--config-file: {error.filename} does not exist") from error
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise UsageError(f"Horovod refuses its options: {error}") from error
    finally:
        sys.argv = own_argv
    return values, variables


def options_of(values: Namespace, variables: Mapping[str, str]) -> HorovodOptions:
    """Makes the options of what Horovod's parser returns. Raises `UsageError`."""
    if values.command:
        raise UsageError(
            f"horovodrun's options are followed by {values.command[0]!r} before `--`; the script comes after it"
        )
    for name, (option, instead) in _REFUSED.items():
        value = getattr(values, name)
        if value is not None and value is not False:
            raise UsageError(f"{option} is not for this launcher: {instead}")
    if values.num_proc != NOT_GIVEN and values.num_proc < 1:
        raise UsageError(f"-np {values.num_proc} would start nothing: give 1 or more")
    return HorovodOptions(
        num_ranks=None if values.num_proc == NOT_GIVEN else values.num_proc,
        hosts=values.hosts,
        hostfile=_path(values.hostfile),
        ssh=Ssh(values.ssh_port, _path(values.ssh_identity_file)),
        interfaces=frozenset(name.strip() for name in values.nics or ()),
        start_timeout_s=values.start_timeout,
        is_verbose=values.verbose,
        variables=variables,
    )


def hosts_of(options: HorovodOptions) -> tuple[Host, ...]:
    """Returns the named hosts with the slots that get a rank. The first hosts are filled first.

    Reads the hostfile. Raises `UsageError`.
    """
    hosts = read_hostfile(options.hostfile) if options.hostfile is not None else parse_hosts(options.hosts or "")
    return filled(hosts, options.num_ranks)


def filled(hosts: Sequence[Host], num_ranks: int | None) -> tuple[Host, ...]:
    """Returns the hosts and slots that `num_ranks` ranks need. Raises `UsageError` if there are too few."""
    num_slots = sum(host.slots for host in hosts)
    remaining = num_slots if num_ranks is None else num_ranks
    if remaining > num_slots:
        raise UsageError(f"-np {remaining} are more than the {num_slots} slots of the hosts")
    used = []
    for host in hosts:
        slots = min(host.slots, remaining)
        remaining -= slots
        if slots > 0:
            used.append(replace(host, slots=slots))
    return tuple(used)


def plan_of(options: HorovodOptions, num_nodes: Callable[[], int], *, is_placed: bool = False) -> LaunchOptions:
    """Plans the launch. Asks for the number of nodes if no hosts are named. Raises `UsageError`.

    `is_placed`: this launcher was told its place among several nodes, and its slots. Then the hosts are not read, since
    a hostfile need not be there.
    """
    if options.names_hosts:
        if is_placed:
            return LaunchOptions(_torchrun(options, None))
        hosts = hosts_of(options)
        return LaunchOptions(
            _torchrun(options, hosts[0].slots if len(hosts) == 1 else None), SshLaunch(hosts, options.ssh)
        )
    if options.num_ranks is None or options.num_ranks % (count := num_nodes()) != 0:
        return LaunchOptions(_torchrun(options, None))
    return LaunchOptions(_torchrun(options, options.num_ranks // count))


def check_number(rank_counts: Sequence[int], wanted: int | None) -> None:
    """Refuses nodes that have another number of ranks than `-np` wants. Raises `CommandLineError`."""
    if wanted is not None and sum(rank_counts) != wanted:
        counts = " + ".join(map(str, rank_counts))
        raise CommandLineError(
            f"-np {wanted} cannot be had: the nodes have {counts} slots. Leave it out to use them all, give a number "
            "that the nodes divide, or say each host's with -H"
        )


def _torchrun(options: HorovodOptions, slots: int | None) -> tuple[str, ...]:
    timeout_s = options.start_timeout_s
    return (
        *([] if slots is None else [f"--nproc-per-node={slots}"]),
        *([] if timeout_s is None else [f"--rdzv-conf=timeout={timeout_s},join_timeout={timeout_s}"]),
    )


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
