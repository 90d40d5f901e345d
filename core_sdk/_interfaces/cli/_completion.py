"""Completion of the command line in the shell: `core-sdk --install-completion`."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from core_sdk._ground.files import write_atomically

_NAME = "core-sdk"
_VARIABLE = "_CORE_SDK_COMPLETE"
# Where the script of each shell is, below the user's directory, and the lines of which start-up file make it read.
_FILES = {
    "bash": (".bash_completions/core-sdk.sh", ".bashrc", "source '{script}'"),
    "zsh": (".zfunc/_core-sdk", ".zshrc", "fpath+=('{directory}'); autoload -Uz compinit; compinit"),
    "fish": (".config/fish/completions/core-sdk.fish", None, ""),
}


def show_completion() -> None:
    """Prints the script that completes in this shell."""
    click.echo(_script(_shell()))


def install_completion() -> None:
    """Writes the script to where the shell finds it. Done again, it replaces the script."""
    shell = _shell()
    place, start_up, line = _FILES[shell]
    script = Path.home() / place
    script.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(script, _script(shell).encode())
    if start_up is not None:
        line = line.format(script=script, directory=script.parent)
        lines = Path.home() / start_up
        if not lines.exists() or line not in lines.read_text(errors="surrogateescape"):
            with lines.open("a") as file:
                file.write(f"\n{line}\n")
    click.echo(f"{shell} completes `core-sdk` by {script}, from the next start of the shell on.")


def _script(shell: str) -> str:
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"there is no completion for {shell}")
    return found(click.Command(_NAME), {}, _NAME, _VARIABLE).source()


def _shell() -> str:
    shell = Path(os.environ.get("SHELL", "")).name
    if shell not in _FILES:
        raise click.UsageError(f"SHELL names none of {', '.join(_FILES)}: it is {os.environ.get('SHELL', '')!r}")
    return shell
