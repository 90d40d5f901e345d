"""The files by which a lab's server is deployed: what they start exists, and takes the options that they give."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import tomllib
from pathlib import Path

import click

from core_sdk._interfaces.cli._app import app

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "deploy"
INSTRUCTIONS = {
    "FROM", "COPY", "RUN", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD",
}  # fmt: skip


def parsed(words: list[str]) -> dict[str, object]:
    """Returns the parameters of a command of `core-sdk`. Raises `click.UsageError` for a wrong one."""
    assert Path(words[0]).name == "core-sdk"
    context = click.Context(app)
    command: click.Command = app
    rest = words[1:]
    while isinstance(command, click.Group):
        _, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command = found
    return dict(command.make_context("up", rest).params)


def read_unit() -> configparser.RawConfigParser:
    unit = configparser.RawConfigParser(strict=True, delimiters=("=",))
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((FOLDER / "core-sdk-server.service").read_text())
    return unit


def read_containerfile() -> list[tuple[str, str]]:
    lines = [line for line in (FOLDER / "Containerfile").read_text().splitlines() if line and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


def test_the_unit_starts_a_server_that_may_write_only_its_lab() -> None:
    """The unit of systemd starts the command with options that it has, as a user who may write one folder."""
    unit = read_unit()
    service = unit["Service"]

    started = parsed(shlex.split(service["ExecStart"]))

    assert unit.sections() == ["Unit", "Service", "Install"]
    assert all(re.fullmatch(r"[A-Z][A-Za-z]+", key) for section in unit.values() for key in section)
    assert str(started["folder"]).startswith(service["ReadWritePaths"])
    assert service["ProtectSystem"] == "strict"
    assert service["User"] != "root"
    assert float(service["TimeoutStopSec"]) > 10  # requests may take as long when the server is told to end


def test_the_container_starts_a_server_as_nobody_special() -> None:
    """The Containerfile starts the command with options that it has, as a user of its own."""
    found = read_containerfile()
    named = dict(found)

    started = parsed(json.loads(named["ENTRYPOINT"]) + json.loads(named["CMD"]))

    assert {name for name, _ in found} <= INSTRUCTIONS
    assert next(name for name, _ in found) == "FROM"
    assert named["USER"] not in ("root", "0")
    assert str(started["folder"]) in json.loads(named["VOLUME"])
    assert str(started["listen"]).endswith(f":{named['EXPOSE']}")
    assert f":{named['EXPOSE']}/health" in named["HEALTHCHECK"]


def test_the_source_distribution_has_them() -> None:
    """Whoever has the source distribution has the files, too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert "deploy" in project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
