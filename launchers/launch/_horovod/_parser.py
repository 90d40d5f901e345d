"""horovodrun's own parser, and the variables that Horovod makes of its tuning options."""

from __future__ import annotations

import contextlib
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence

import yaml
from horovod.runner.common.util import config_parser
from horovod.runner.launch import parse_args

from launch._command_line import UsageError
from launch._horovod._options import NOT_GIVEN


def parse(overrides: Sequence[str]) -> tuple[Namespace, dict[str, str]]:
    """The values of Horovod's options, by its names; and the variables that tune the ranks.

    The parser prints what it does not understand, and raises `SystemExit(2)`; `--version` and `--check-build` print
    their answer and raise `SystemExit(0)`. Raises `UsageError` for values that cannot be.
    """
    try:
        with _command_line([f"--num-proc={NOT_GIVEN}", *overrides]):
            values = parse_args()
        variables: dict[str, str] = config_parser.set_env_from_args({}, values)
    except FileNotFoundError as error:
        raise UsageError(f"--config-file: {error.filename} does not exist") from error
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise UsageError(f"Horovod refuses its options: {error}") from error
    return values, variables


@contextlib.contextmanager
def _command_line(arguments: Sequence[str]) -> Iterator[None]:
    """Horovod's parser reads the arguments of the process only."""
    ours = sys.argv
    sys.argv = ["horovodrun", *arguments]
    try:
        yield
    finally:
        sys.argv = ours
