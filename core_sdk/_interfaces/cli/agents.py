"""`core-sdk skill` and `core-sdk mcp`: for coding agents."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

import click

from core_sdk._interfaces.cli._group import command_group
from core_sdk._interfaces.signatures import Option

skill_app = command_group()
# Where agents look: most at the first, as the Agent Skills standard says, and Claude Code at the second.
_PLACES = (".agents", ".claude")


@skill_app.command("show")
def show_skill() -> None:
    """Print the skill: a page of Markdown that tells coding agents how to use these commands."""
    click.echo(_skill(), nl=False)


@skill_app.command("install")
def install_skill(
    for_user: Annotated[bool, Option("--user", help="In your home directory, and not in this one.")] = False,
) -> None:
    """Write the skill where coding agents look for it: below .agents/skills and .claude/skills."""
    for place in _PLACES:
        path = (Path.home() if for_user else Path()) / place / "skills" / "core-sdk" / "SKILL.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_skill(), "utf-8")
        click.echo(path)


def mcp(
    write: Annotated[bool, Option("--write", help="Also tools that start trainings and record verdicts.")] = False,
) -> None:
    """Serve the home's trials over stdin and stdout, by the Model Context Protocol, until the client closes them.

    Needs the library mcp. A client starts it as: core-sdk mcp
    """
    from core_sdk._analysis.evidence.mcp import make_server
    from core_sdk._interfaces.cli._home import make_home

    make_server(make_home(), can_write=write).run("stdio")


def _skill() -> str:
    return resources.files("core_sdk._analysis.evidence").joinpath("skill.md").read_text("utf-8")
