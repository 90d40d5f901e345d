"""Finds packages that are installed in editable mode: a try must import its own copy of them, and not the work tree."""

from __future__ import annotations

import json
from importlib.metadata import distributions
from pathlib import Path
from urllib.parse import unquote, urlsplit


def editable_directories(root: Path) -> list[Path]:
    """Returns the directories below `root` from which this environment imports packages in editable mode.

    That is the directory `src` of a project that has one, or else the project itself.
    """
    projects = (_project(each.read_text("direct_url.json")) for each in distributions())
    found = {project for project in projects if project is not None and project.is_relative_to(root)}
    return sorted(project / "src" if (project / "src").is_dir() else project for project in found)


def _project(direct_url: str | None) -> Path | None:
    """Returns the directory of a project that is installed in editable mode, by its `direct_url.json` (PEP 610)."""
    try:
        told = json.loads(direct_url or "{}")
        is_editable = bool(told.get("dir_info", {}).get("editable"))
        return Path(unquote(urlsplit(told["url"]).path)) if is_editable else None
    except (ValueError, AttributeError, KeyError):
        return None
