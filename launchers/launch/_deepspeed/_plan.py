"""What DeepSpeed's options mean: the ranks and GPUs of this node, or hosts on which to start launchers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from launch._command_line import UsageError
from launch._deepspeed._options import DeepSpeedOptions
from launch._ssh._hostfile import Host, Ssh, SshLaunch

_HERE = "localhost"


@dataclass(frozen=True)
class Plan:
    torchrun: tuple[str, ...]
    """Options of torchrun, for a launcher that starts ranks."""
    devices: tuple[str, ...] = ()
    """The GPUs that this node's ranks may see; empty for those that the launcher sees."""
    ssh_launch: SshLaunch | None = None
    """The hosts, for a launcher that nothing has placed on them."""


def plan_here(options: DeepSpeedOptions, visible_gpus: Callable[[], Sequence[str]]) -> Plan:
    """Without a hostfile: this node, and others if something starts a launcher on them too. Raises `UsageError`.

    `visible_gpus` gives CUDA's names of them.
    """
    devices, num_ranks = _devices_here(options, visible_gpus)
    torchrun = _torchrun(options, nnodes=options.num_nodes, node_rank=options.node_rank, nproc_per_node=num_ranks)
    return Plan(torchrun, devices)


def plan_hosts(options: DeepSpeedOptions, hosts: Sequence[Host]) -> Plan:
    """The hosts of a hostfile. Raises `UsageError`."""
    chosen = _chosen_hosts(options, hosts)
    if options.no_ssh:
        return _plan_placed(options, chosen)
    if options.node_rank is not None:
        raise UsageError("--node_rank needs --no_ssh: without it this launcher starts the others, by ssh")
    ssh_launch = SshLaunch(tuple(chosen), Ssh(port=options.ssh_port), _for_each_host(options))
    # Of several hosts, whoever starts a launcher there tells it its slots and GPUs.
    here = _plan_single(options, chosen[0]) if len(chosen) == 1 else Plan(_torchrun(options))
    return replace(here, ssh_launch=ssh_launch)


def _for_each_host(options: DeepSpeedOptions) -> tuple[str, ...]:
    """DeepSpeed's options that are left when the hosts are known."""
    binding = ["--bind_cores_to_rank"] if options.bind_cores_to_rank else []
    cores = [f"--bind_core_list={options.bind_core_list}"] if options.bind_core_list else []
    return (*_torchrun(options), *binding, *cores)


def _plan_single(options: DeepSpeedOptions, host: Host) -> Plan:
    return Plan(_torchrun(options, nproc_per_node=host.slots), _names(host.devices))


def _plan_placed(options: DeepSpeedOptions, hosts: Sequence[Host]) -> Plan:
    node_rank = -1 if options.node_rank is None else options.node_rank
    if node_rank not in range(len(hosts)):
        raise UsageError(
            f"which of the {len(hosts)} hosts is this? With --no_ssh give --node_rank=0 on the first, 1 on the next"
        )
    host = hosts[node_rank]
    if len(hosts) == 1:
        return _plan_single(options, host)
    options = replace(options, master_addr=options.master_addr or hosts[0].address)
    torchrun = _torchrun(options, nnodes=len(hosts), node_rank=node_rank, nproc_per_node=host.slots)
    return Plan(torchrun, _names(host.devices))


def _devices_here(
    options: DeepSpeedOptions, visible_gpus: Callable[[], Sequence[str]]
) -> tuple[tuple[str, ...], int | None]:
    """And the number of ranks; empty and None where the machine decides."""
    if options.include or options.exclude:
        return _filtered_here(options, visible_gpus)
    if options.num_gpus is None:
        return (), None
    gpus = visible_gpus()
    # Without as many GPUs, the ranks train on processors.
    return tuple(gpus[: options.num_gpus]) if len(gpus) >= options.num_gpus else (), options.num_gpus


def _filtered_here(
    options: DeepSpeedOptions, visible_gpus: Callable[[], Sequence[str]]
) -> tuple[tuple[str, ...], int | None]:
    named = parse_filter(options.include or options.exclude)
    for name in named:
        if name != _HERE:
            raise UsageError(f"{name} is in no hostfile; without one there is only {_HERE}")
    if options.include:
        # These numbers are the driver's, whatever CUDA_VISIBLE_DEVICES says here.
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
    """`h1@h2:0,2`: slots by host, none for all of them. Raises `UsageError`."""
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
    """torchrun's options; None is left out."""
    given = {**more, "master_addr": options.master_addr, "master_port": options.master_port}
    return tuple(f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value is not None)
