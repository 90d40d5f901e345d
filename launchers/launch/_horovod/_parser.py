"""horovodrun's own parser, and the variables that Horovod makes of its tuning options."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence

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
