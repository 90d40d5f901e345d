"""The options of the `deepspeed` program, translated to ranks and GPUs of this node, or to hosts.

Pure, and without DeepSpeed itself.
"""

from __future__ import annotations

import dataclasses
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from launch._command_line import OptionParser, UsageError
from launch._framework import LaunchOptions
from launch._ssh._hostfile import Host, Ssh, SshLaunch

_HERE = "localhost"
_LOG_LEVELS = ("debug", "info", "warning", "error", "critical")

_REFUSED: Mapping[str, str] = {
    "launcher": "launchers on several hosts are started by ssh, by `srun python -m launch.deepspeed …` under Slurm, or "
    "by yourself with --no_ssh and --node_rank",
    "launcher_args": "what ssh is to do differently belongs into ~/.ssh/config",
    "force_multi": "a host of the hostfile that is not this machine is reached by ssh, a single one too",
    "autotuning": "tune with the `deepspeed` program itself",
    "save_pid": "the process to signal is the launcher itself, `$!` in the shell that started it",
    "enable_each_rank_log": "each line begins with [rank=N] here, and of what `core-sdk run` has started "
    "`core-sdk trial logs ID --rank N` shows one rank's output",
    "venv_script": "the ranks run in the launcher's own environment: start the launcher there",
}
# Defaults of DeepSpeed's options that ask for what this launcher does anyway.
_UNREFUSED = frozenset({("launcher", "pdsh"), ("enable_each_rank_log", "none")})


@dataclass(frozen=True)
class DeepSpeedOptions:
    """The values of DeepSpeed's options, by their names. An option that was not given is None, "" or False."""

    hostfile: Path | None = None
    include: str = ""
    exclude: str = ""
    num_nodes: int | None = None
    num_gpus: int | None = None
    """The number of ranks on each node."""
    master_addr: str | None = None
    master_port: int | None = None
    node_rank: int | None = None
    no_ssh: bool = False
    """Whether a launcher is started on each node by other means."""
    ssh_port: int | None = None
    bind_cores_to_rank: bool = False
    bind_core_list: str = ""
    module: bool = False
    """Whether the script is a module's name, as behind `python -m`."""


def parse_options(overrides: Sequence[str]) -> DeepSpeedOptions:
    """Parses the options, in all spellings and abbreviations of DeepSpeed's own parser, or with dashes. Pure.

    Raises `UsageError`, also for options that only DeepSpeed's launcher can honour.
    """
    given = _parser().parse_args([_underscored(argument) for argument in overrides])
    if given.rest:
        raise UsageError("deepspeed's options are followed by something else before `--`; the script comes after it")
    _refuse(given)
    for name in ("num_nodes", "num_gpus", "node_rank", "master_addr"):
        if getattr(given, name) in (-1, ""):  # DeepSpeed's ways to say nothing
            setattr(given, name, None)
    options = DeepSpeedOptions(**{field.name: getattr(given, field.name) for field in fields(DeepSpeedOptions)})
    _check(options)
    return options


def plan_here(options: DeepSpeedOptions, visible_gpus: Callable[[], Sequence[str]]) -> LaunchOptions:
    """Plans a launch without a hostfile: on this node, and on others on which a launcher is started by other means.

    `visible_gpus` returns CUDA's names of the GPUs. Raises `UsageError`.
    """
    devices, num_ranks = _devices_here(options, visible_gpus)
    torchrun = _torchrun(options, nnodes=options.num_nodes, node_rank=options.node_rank, nproc_per_node=num_ranks)
    return LaunchOptions(torchrun, devices=devices)


def plan_hosts(options: DeepSpeedOptions, hosts: Sequence[Host]) -> LaunchOptions:
    """Plans a launch on the hosts of a hostfile. Raises `UsageError`."""
    chosen = _chosen_hosts(options, hosts)
    if options.no_ssh:
        return _plan_placed(options, chosen)
    if options.node_rank is not None:
        raise UsageError("--node_rank needs --no_ssh: without it this launcher starts the others, by ssh")
    ssh_launch = SshLaunch(tuple(chosen), Ssh(port=options.ssh_port), _for_each_host(options))
    # A launcher on one of several hosts is told its slots and GPUs when it is started.
    here = _plan_single(options, chosen[0]) if len(chosen) == 1 else LaunchOptions(_torchrun(options))
    return replace(here, ssh_launch=ssh_launch)


def _parser() -> ArgumentParser:
    """Returns a parser with all options of DeepSpeed's parser, so that the same abbreviations are ambiguous."""
    parser = OptionParser(prog="deepspeed's options", add_help=False)
    parser.add_argument("-H", "--hostfile", type=Path)
    parser.add_argument("-i", "--include", default="")
    parser.add_argument("-e", "--exclude", default="")
    for name in ("num_nodes", "master_port", "node_rank", "ssh_port"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--num_gpus", "--num_accelerators", type=int)
    parser.add_argument("--master_addr")
    for name in ("launcher", "launcher_args", "enable_each_rank_log", "autotuning", "venv_script", "bind_core_list"):
        parser.add_argument(f"--{name}", default="")
    # The first three ask for what this launcher does in any case.
    flags = ("no_python", "no_local_rank", "no_ssh_check", "no_ssh", "force_multi")
    for name in (*flags, "module", "save_pid", "bind_cores_to_rank"):
        parser.add_argument(f"--{name}", action="store_true")
    # These are about messages of DeepSpeed's launcher. Ours only says how a training ended.
    parser.add_argument("--log_level", choices=_LOG_LEVELS)
    parser.add_argument("-q", "--quiet", action="store_true")
    parser.add_argument("rest", nargs="*")
    return parser


def _underscored(argument: str) -> str:
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument[2:].partition("=")
    return f"--{name.replace('-', '_')}{equals}{value}"


def _refuse(given: Namespace) -> None:
    for name, instead in _REFUSED.items():
        value: Any = getattr(given, name)
        if value and (name, str(value).lower()) not in _UNREFUSED:
            raise UsageError(f"--{name} is not understood by this launcher: {instead}")


def _check(options: DeepSpeedOptions) -> None:
    for name, number in (("num_nodes", options.num_nodes), ("num_gpus", options.num_gpus)):
        if number is not None and number < 1:
            raise UsageError(f"--{name}={number} would start nothing: give 1 or more")
    if options.include and options.exclude:
        raise UsageError("--include and --exclude cannot stand together: name what to use, or what not to use")
    if options.bind_core_list and not options.bind_cores_to_rank:
        raise UsageError("--bind_core_list says which cores --bind_cores_to_rank shares out: give both")
    if (options.num_nodes or options.num_gpus) and (options.include or options.exclude):
        raise UsageError("--num_nodes and --num_gpus cannot stand beside --include or --exclude, which say it all")


def _for_each_host(options: DeepSpeedOptions) -> tuple[str, ...]:
    """Returns the options of DeepSpeed that each host's launcher still needs."""
    binding = ["--bind_cores_to_rank"] if options.bind_cores_to_rank else []
    cores = [f"--bind_core_list={options.bind_core_list}"] if options.bind_core_list else []
    return (*_torchrun(options), *binding, *cores)


def _plan_single(options: DeepSpeedOptions, host: Host) -> LaunchOptions:
    return LaunchOptions(_torchrun(options, nproc_per_node=host.slots), devices=_names(host.devices))


def _plan_placed(options: DeepSpeedOptions, hosts: Sequence[Host]) -> LaunchOptions:
    node_rank = -1 if options.node_rank is None else options.node_rank
    if node_rank not in range(len(hosts)):
        raise UsageError(
            f"which of the {len(hosts)} hosts is this? With --no_ssh give --node_rank=0 on the first, 1 on the next"
        )
    host = hosts[node_rank]
    if len(hosts) == 1:
        return _plan_single(options, host)
    options = dataclasses.replace(options, master_addr=options.master_addr or hosts[0].address)
    torchrun = _torchrun(options, nnodes=len(hosts), node_rank=node_rank, nproc_per_node=host.slots)
    return LaunchOptions(torchrun, devices=_names(host.devices))


def _devices_here(
    options: DeepSpeedOptions, visible_gpus: Callable[[], Sequence[str]]
) -> tuple[tuple[str, ...], int | None]:
    """Returns the GPUs and the number of ranks; empty and None if the machine determines them."""
    if options.include or options.exclude:
        return _filtered_here(options, visible_gpus)
    if options.num_gpus is None:
        return (), None
    gpus = visible_gpus()
    # With fewer GPUs than ranks, the ranks train on the CPU.
    return tuple(gpus[: options.num_gpus]) if len(gpus) >= options.num_gpus else (), options.num_gpus


def _filtered_here(
    options: DeepSpeedOptions, visible_gpus: Callable[[], Sequence[str]]
) -> tuple[tuple[str, ...], int | None]:
    named = parse_filter(options.include or options.exclude)
    for name in named:
        if name != _HERE:
            raise UsageError(f"{name} is in no hostfile; without one there is only {_HERE}")
    if options.include:
        # These are the driver's numbers, regardless of CUDA_VISIBLE_DEVICES.
        return _names(named[_HERE]), len(named[_HERE]) or None
    gpus = visible_gpus()
    excluded = _names(named[_HERE]) or tuple(gpus)
    if missing := [name for name in excluded if name not in gpus]:
        raise UsageError(f"--exclude={options.exclude}: this node has no GPU {', '.join(missing)} to exclude")
    left = tuple(name for name in gpus if name not in excluded)
    if not left:
        raise UsageError(f"--exclude={options.exclude} leaves no GPU of this node")
    return left, len(left)


def _chosen_hosts(options: DeepSpeedOptions, hosts: Sequence[Host]) -> list[Host]:
    if options.include or options.exclude:
        return _filtered_hosts(options, hosts)
    if options.num_nodes is not None and options.num_nodes > len(hosts):
        raise UsageError(f"--num_nodes={options.num_nodes}, but the hostfile names {len(hosts)} hosts")
    chosen = list(hosts[: options.num_nodes])
    if options.num_gpus is None:
        return chosen
    return [replace(host, slots=options.num_gpus, devices=tuple(range(options.num_gpus))) for host in chosen]


def _filtered_hosts(options: DeepSpeedOptions, hosts: Sequence[Host]) -> list[Host]:
    named = parse_filter(options.include or options.exclude)
    _check_filter(named, hosts)
    chosen = []
    for host in hosts:
        filtered = [slot for slot in range(host.slots) if host.name in named and slot in (named[host.name] or [slot])]
        kept = filtered if options.include else [slot for slot in range(host.slots) if slot not in filtered]
        if kept:
            chosen.append(replace(host, slots=len(kept), devices=tuple(kept)))
    if not chosen:
        raise UsageError("--exclude leaves no host")
    return chosen


def _check_filter(named: Mapping[str, Sequence[int]], hosts: Sequence[Host]) -> None:
    slots = {host.name: host.slots for host in hosts}
    for name, numbers in named.items():
        if name not in slots:
            raise UsageError(f"the hostfile does not name {name}, but {', '.join(slots)}")
        for number in numbers:
            if number >= slots[name]:
                raise UsageError(f"{name} has {slots[name]} slots, which are counted from 0: there is no slot {number}")


def parse_filter(text: str) -> dict[str, list[int]]:
    """Parses a filter such as `h1@h2:0,2` to slots by host; no slots mean all. Raises `UsageError`."""
    named: dict[str, list[int]] = {}
    for part in text.split("@"):
        name, colon, numbers = part.partition(":")
        slots = numbers.split(",") if colon else []
        if not name or not all(slot.isascii() and slot.isdigit() for slot in slots):
            raise UsageError(f"{text!r} names no hosts and slots: write HOST or HOST:0,2, with @ between hosts")
        everything = not slots or named.get(name) == []
        named[name] = [] if everything else sorted({*named.get(name, []), *map(int, slots)})
    return named


def _names(devices: Sequence[int]) -> tuple[str, ...]:
    return tuple(map(str, devices))


def _torchrun(options: DeepSpeedOptions, **more: object) -> tuple[str, ...]:
    """Returns torchrun's options, without those that are None."""
    given = {**more, "master_addr": options.master_addr, "master_port": options.master_port}
    return tuple(f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value is not None)
