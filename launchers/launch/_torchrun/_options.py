"""torchrun's options, read once, by torch's own parser."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core_sdk.environment import torchrun_variables
from launch._command_line import OptionParser, UsageError

_SCRIPT = "SCRIPT"


@dataclass(frozen=True)
class TorchrunOptions:
    values: Namespace
    """All of torchrun's options, by torch's names for them."""
    given: Mapping[str, Any]
    """The values that come from an override or a PET_… variable."""


def parse_options(overrides: Sequence[str]) -> TorchrunOptions:
    """Parses torchrun's options, in all spellings and abbreviations that torch understands. Imports torch.

    torch prints what it does not understand, and raises `SystemExit(2)`. Raises `UsageError` for options that a
    launcher cannot accept.
    """
    from launch._torchrun._torch_internals import get_args_parser  # a second, which `--help` does not need

    parser = get_args_parser()
    parser.prog = "torchrun"
    arguments = [*overrides, "--no-python", _SCRIPT]
    values = parser.parse_args(arguments)
    if values.training_script != _SCRIPT:
        raise UsageError("torchrun's options are followed by something else before `--`; the script comes after it")
    for name in ("module", "run_path"):
        if getattr(values, name):
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is no override: write `-- -m MODULE` or `-- SCRIPT.py`, as without torchrun")
    # The parser gives defaults only to what is unset. What it has replaced here was on the command line.
    unset = Namespace(**dict.fromkeys(vars(values)))
    overridden = {name for name, value in vars(parser.parse_args(arguments, unset)).items() if value is not None}
    names = (overridden | set(torchrun_variables())) - {"training_script", "training_script_args", "no_python"}
    return TorchrunOptions(values, {name: value for name, value in vars(values).items() if name in names})


def split_hostfile(overrides: Sequence[str]) -> tuple[Path | None, tuple[str, ...]]:
    """Returns the file of `--hostfile`, which torchrun lacks, or None; and torchrun's options. Raises `UsageError`."""
    parser = OptionParser(prog="launch.torch_distributed", add_help=False, allow_abbrev=False)
    parser.add_argument("--hostfile", type=Path)
    given, options = parser.parse_known_args(overrides)
    return given.hostfile, tuple(options)


def node_range(nnodes: str) -> tuple[int, int]:
    """Returns the least and the highest number of nodes, from `N` or `MIN:MAX`. Raises `UsageError`."""
    least, _, most = nnodes.partition(":")
    try:
        numbers = int(least), int(most or least)
    except ValueError:
        raise UsageError(f"--nnodes={nnodes} is no number of nodes: give N or MIN:MAX") from None
    if not 1 <= numbers[0] <= numbers[1]:
        raise UsageError(f"--nnodes={nnodes} cannot be: give N or MIN:MAX with 1 <= MIN <= MAX")
    return numbers
