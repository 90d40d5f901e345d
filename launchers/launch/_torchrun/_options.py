"""Which of torchrun's options the user gave, told by torch's own parser."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from core_sdk.environment import torchrun_variables
from launch._command_line import UsageError

_SCRIPT = "SCRIPT"


def given_options(overrides: Sequence[str]) -> dict[str, Any]:
    """Torch's name of each option -> its value, of those that an override or a PET_… variable gives.

    In all spellings and abbreviations that torch understands; what it does not understand it says itself, and raises
    `SystemExit(2)`. Raises `UsageError` for options that a launcher cannot let through. Imports torch.
    """
    values, overridden = _parse(overrides)
    if values.pop("training_script") != _SCRIPT:
        raise UsageError("torchrun's options are followed by something else before `--`; the script comes after it")
    given = overridden | set(torchrun_variables())
    options = {name: value for name, value in values.items() if name in given}
    for name in ("module", "run_path"):
        if options.get(name):
            option = name.replace("_", "-")
            raise UsageError(f"--{option} is no override: write `-- -m MODULE` or `-- SCRIPT.py`, as without torchrun")
    return options


def node_range(nnodes: str) -> tuple[int, int]:
    """The least and the most, of `N` or `MIN:MAX`. Raises `UsageError`."""
    least, _, most = nnodes.partition(":")
    try:
        numbers = int(least), int(most or least)
    except ValueError:
        raise UsageError(f"--nnodes={nnodes} is no number of nodes: give N or MIN:MAX") from None
    if not 1 <= numbers[0] <= numbers[1]:
        raise UsageError(f"--nnodes={nnodes} cannot be: give N or MIN:MAX with 1 <= MIN <= MAX")
    return numbers


def _parse(overrides: Sequence[str]) -> tuple[dict[str, Any], set[str]]:
    """All of torch's values, and the names of those that were overridden."""
    from torch.distributed.run import get_args_parser  # a second, and only torchrun's launcher needs it

    parser = get_args_parser()
    parser.prog = "torchrun"
    arguments = [*overrides, "--no-python", _SCRIPT]
    values = vars(parser.parse_args(arguments))
    # The parser gives defaults to what is unset only: what it has replaced here was on the command line.
    unset = Namespace(**dict.fromkeys(values))
    overridden = {name for name, value in vars(parser.parse_args(arguments, unset)).items() if value is not None}
    return values, overridden
