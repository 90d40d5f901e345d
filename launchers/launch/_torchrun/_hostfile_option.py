"""`--hostfile FILE` among torchrun's options, and what those of them mean that are about hosts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from core_sdk.environment import torchrun_variables
from launch._command_line import UsageError
from launch._ssh._hostfile import Host, Spread
from launch._torchrun._options import node_range

_OPTION = "--hostfile"
_PLACES = ("node_rank", "standalone")


def split_hostfile(overrides: Sequence[str]) -> tuple[Path | None, tuple[str, ...]]:
    """The file, if one is given, and torchrun's options. Raises `UsageError`."""
    files: list[str] = []
    rest: list[str] = []
    words = iter(overrides)
    for word in words:
        option, equals, value = word.partition("=")
        if option != _OPTION:
            rest.append(word)
        elif file := value if equals else next(words, ""):
            files.append(file)
        else:
            raise UsageError(f"{_OPTION} needs a file")
    return (Path(files[-1]) if files else None), tuple(rest)


def spread_over(hosts: Sequence[Host], options: Sequence[str]) -> Spread:
    """Pure, but for torchrun's variables. Raises `UsageError`."""
    given = _given(options)
    for name in _PLACES:
        if getattr(given, name):
            raise UsageError(f"--{name.replace('_', '-')} is for a launcher that was started by hand on this node")
    least, most = node_range(given.nnodes or str(len(hosts)))
    if most > len(hosts):
        raise UsageError(f"--nnodes={given.nnodes} needs {most} hosts, and the hostfile names {len(hosts)}")
    used = tuple(hosts[:most])
    return Spread(
        used,
        overrides=with_slots(options, used[0]) if most == 1 else tuple(options),
        # Without restarts the loss of a node is the end.
        min_hosts=least if least < most and given.max_restarts > 0 else None,
    )


def with_slots(options: Sequence[str], host: Host) -> tuple[str, ...]:
    """For a single host, unless an option counts the ranks."""
    is_given = _given(options).nproc_per_node is not None
    return tuple(options) if is_given else (*options, f"--nproc-per-node={host.slots}")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"torchrun's options: {message}")


def _given(options: Sequence[str]) -> argparse.Namespace:
    """Of torchrun's options, those that concern us, whose parser would take a second to import."""
    parser = _Parser(add_help=False)
    variables = torchrun_variables()
    parser.add_argument("--nnodes", default=variables.get("nnodes"))
    parser.add_argument("--nproc-per-node", "--nproc_per_node", default=variables.get("nproc_per_node"))
    parser.add_argument("--node-rank", "--node_rank", default=variables.get("node_rank"))
    parser.add_argument("--max-restarts", "--max_restarts", type=int, default=int(variables.get("max_restarts", "0")))
    parser.add_argument("--standalone", action="store_true")
    return parser.parse_known_args(options)[0]
