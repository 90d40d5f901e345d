"""Ranks that start in milliseconds: functions of the tests, run in processes that need not import torch."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from warm import WarmProcess, WarmProgram, warm_program

# The last is imported by the first operation on a tensor that is spread over ranks.
_MODULES = ("torch.distributed.fsdp", "torch.distributed.checkpoint", "core_sdk.pytorch", "torch._dynamo")


@dataclass(frozen=True)
class Ranks:
    """Runs one function on several ranks, which have a process group of gloo."""

    program: WarmProgram
    directory: Path

    def run(self, function: Callable[..., None], num_ranks: int, *arguments: object) -> list[str]:
        """Runs a function of a test's module, with text arguments, on all ranks and returns what each printed."""
        processes = self.start(function, num_ranks, *arguments)
        codes = [process.wait() for process in processes]
        assert not any(codes), "\n".join(process.stderr.read_text() for process in processes)
        return [process.stdout.read_text() for process in processes]

    def start(self, function: Callable[..., None], num_ranks: int, *arguments: object) -> list[WarmProcess]:
        """Starts a function on ranks that may fail."""
        rendezvous = self.directory / f"rendezvous-{uuid.uuid4()}"
        file = Path(function.__code__.co_filename)
        entry = f"{file.parent.name}.{file.stem}:{function.__name__}"
        return [
            self.program.start(
                ["ranks", entry, *map(str, arguments)],
                directory=self.directory,
                output_directory=self.directory,
                variables={**os.environ, **_variables(rank, num_ranks), "TEST_RENDEZVOUS": f"file://{rendezvous}"},
            )
            for rank in range(num_ranks)
        ]


def _variables(rank: int, num_ranks: int) -> dict[str, str]:
    """Returns the variables that torchrun would set."""
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": num_ranks, "LOCAL_WORLD_SIZE": num_ranks}
    return {name: str(number) for name, number in (places | {"GROUP_RANK": 0, "GROUP_WORLD_SIZE": 1}).items()}


@contextlib.contextmanager
def warm_ranks(directory: Path) -> Iterator[Ranks]:
    with warm_program("pytorch.ranks:main", *_MODULES) as program:
        yield Ranks(program, directory)


def main() -> None:
    """Runs the function on one rank."""
    import torch

    _, entry, *arguments = sys.argv
    module, _, function = entry.partition(":")
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=os.environ["TEST_RENDEZVOUS"],
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    getattr(importlib.import_module(module), function)(*arguments)
    torch.distributed.destroy_process_group()
