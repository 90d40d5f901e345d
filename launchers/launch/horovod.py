"""`python -m launch.horovod [HOROVODRUN OVERRIDES --] SCRIPT…`: ranks that use `horovod.torch`.

The options of horovodrun may stand before the `--`; `-np` may be left out. The ranks start as under torchrun, and
Horovod's own server brings them together, by Gloo. With `--autohorovod` a single rank is started without Horovod.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from core_sdk._ground.environment import horovod_variables
from core_sdk.errors import MissingDependencyError
from launch._command_line import CommandLineError
from launch._framework import Framework, LaunchOptions, Start
from launch._horovod._options import HorovodOptions, check_number, options_of, parse, plan_of
from launch._horovod._rendezvous import HorovodRendezvous, meet
from launch._launcher import run
from launch._result import say
from launch._ssh._head import is_placed

if TYPE_CHECKING:
    from launch._torchrun._nodes import Nodes

# Horovod's 30 seconds are too short for ranks that import from a slow disk, or wait for one that prepares the data.
_GLOO_TIMEOUT_S = 240
_AUTO = "--autohorovod"


class Horovod(Framework):
    module = "launch.horovod"
    overridden = "horovodrun"
    own_options = {_AUTO: 0}

    def __init__(self) -> None:
        self._options = HorovodOptions()
        self._is_without_horovod = False
        self._rank_counts: Sequence[int] = ()
        self._rendezvous: HorovodRendezvous | None = None

    def plan(self, overrides: Sequence[str]) -> LaunchOptions:
        is_auto = _AUTO in overrides
        self._options = options = _parsed([override for override in overrides if override != _AUTO])
        if is_auto and not options.names_hosts and _has_one_rank(options, _nodes()):
            self._is_without_horovod = True
            return LaunchOptions(("--nproc-per-node=1",))
        with _needing_horovod():
            # So that a missing Horovod is noticed before the start.
            from launch._horovod import _rendezvous_server  # noqa: F401
        return plan_of(options, lambda: _nodes().num_nodes, is_placed=is_placed())

    def meet(self, start: Start, rank_counts: Sequence[int]) -> None:
        if self._is_without_horovod:
            return
        from launch._horovod._rendezvous_server import RendezvousServer  # needs Horovod

        self.close()
        check_number(rank_counts, self._options.num_ranks)
        self._rank_counts = rank_counts
        self._rendezvous = meet(start, rank_counts, self._interfaces(), RendezvousServer)
        if self._options.is_verbose:
            say([f"Horovod: {self._rendezvous}"])

    def variables(self, rank: Mapping[str, str]) -> Mapping[str, str]:
        if (meeting := self._rendezvous) is None:  # without Horovod
            return {}
        from launch._horovod._rendezvous_server import rank_variables  # needs Horovod

        return {
            "HOROVOD_GLOO_TIMEOUT_SECONDS": str(_GLOO_TIMEOUT_S),
            **self._nccl_variables(meeting),
            **horovod_variables(),
            **self._options.variables,
            **rank_variables(self._rank_counts, int(rank["RANK"])),
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": meeting.address,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(meeting.port),
            "HOROVOD_GLOO_IFACE": meeting.interface,
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            # If this were inherited from another launch, the ranks would wait for a driver that they do not have.
            "HOROVOD_ELASTIC": "0",
            "USE_HOROVOD": "1",
        }

    def close(self) -> None:
        if self._rendezvous is not None and self._rendezvous.server is not None:
            self._rendezvous.server.close()
        self._rendezvous = None

    def _interfaces(self) -> frozenset[str]:
        if self._options.interfaces:
            return self._options.interfaces
        chosen = horovod_variables().get("HOROVOD_GLOO_IFACE")
        return frozenset([chosen] if chosen else [])

    def _nccl_variables(self, meeting: HorovodRendezvous) -> dict[str, str]:
        if len(self._rank_counts) == 1:
            return {}
        return {"NCCL_SOCKET_IFNAME": ",".join(sorted(self._options.interfaces)) or meeting.interface}


def main() -> NoReturn:
    run(Horovod())


def _parsed(overrides: Sequence[str]) -> HorovodOptions:
    if not overrides:
        return HorovodOptions()
    with _needing_horovod():
        return options_of(*parse(overrides))


def _has_one_rank(options: HorovodOptions, nodes: Nodes) -> bool:
    return nodes.num_nodes == 1 and (options.num_ranks or nodes.slots) == 1


def _nodes() -> Nodes:
    """Returns the nodes, as the run info, the placement and torchrun's variables describe them."""
    from launch._torchrun._nodes import find_nodes
    from launch._torchrun._options import parse_options

    return find_nodes(parse_options(()))


@contextlib.contextmanager
def _needing_horovod() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        missing = MissingDependencyError("Horovod", "horovod", f"launch.horovod with {sys.executable}")
        raise CommandLineError(
            f"{missing} ({error}). pip builds it, with cmake and a C++ compiler; a build that asks for a newer C++ "
            'needs CMAKE_CXX_STANDARD 20 in two of its files, as docs/distributed-reference.md shows under "Horovod"'
        ) from error


if __name__ == "__main__":
    main()
