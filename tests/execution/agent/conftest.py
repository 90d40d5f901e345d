"""The command line's fixtures."""

from interfaces.cli.conftest import cli, start_cli, write_script

__all__ = ["cli", "start_cli", "write_script"]
