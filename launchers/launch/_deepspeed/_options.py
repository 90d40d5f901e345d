"""The options of the `deepspeed` program, and which of them mean something here. DeepSpeed itself is not needed."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from launch._command_line import OptionParser, UsageError

_LOG_LEVELS = ("debug", "info", "warning", "error", "critical")

_REFUSED: Mapping[str, str] = {
    "launcher": "launchers on several hosts are started by ssh, by `srun python -m launch.deepspeed …` under Slurm, or "
    "by yourself with --no_ssh and --node_rank",
    "launcher_args": "what ssh is to do differently belongs into ~/.ssh/config",
    "force_multi": "a host of the hostfile that is not this machine is reached by ssh, a single one too",
    "module": "write `-- -m MODULE` instead",
    "autotuning": "tune with the `deepspeed` program itself",
    "save_pid": "the process to signal is the launcher itself, `$!` in the shell that started it",
    "enable_each_rank_log": "each line begins with [rank=N] here, and of what `core-sdk run` has started "
    "`core-sdk trial logs ID --rank N` shows one rank's output",
    "venv_script": "the ranks run in the launcher's own environment: start the launcher there",
}
# Their defaults are what is done here.
_UNREFUSED = frozenset({("launcher", "pdsh"), ("enable_each_rank_log", "none")})


@dataclass(frozen=True)
class DeepSpeedOptions:
    """By DeepSpeed's names. What was not given is None, "" or False."""

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
    """A launcher is started on each node by other means."""
    ssh_port: int | None = None
    bind_cores_to_rank: bool = False
    bind_core_list: str = ""


def parse_options(overrides: Sequence[str]) -> DeepSpeedOptions:
    """Pure. All spellings and abbreviations that DeepSpeed's own parser knows, and dashes for its underscores.

    Raises `UsageError`, also for what only DeepSpeed's launcher can do.
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


def _parser() -> ArgumentParser:
    """With all options of DeepSpeed's parser, so that abbreviations are as ambiguous as they are there."""
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
    # The first three ask for what is so here in any case.
    flags = ("no_python", "no_local_rank", "no_ssh_check", "no_ssh", "force_multi")
    for name in (*flags, "module", "save_pid", "bind_cores_to_rank"):
        parser.add_argument(f"--{name}", action="store_true")
    # They are about messages of DeepSpeed's launcher. Ours only says how a training ended.
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
