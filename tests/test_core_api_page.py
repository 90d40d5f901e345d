"""The references of `core_sdk.core` and `core_sdk.loop` are made from docstrings, and nothing is missing in them."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core_sdk import core, loop

DOCS = Path(__file__).resolve().parent.parent / "docs"

sys.path.append(str(DOCS))
import core_api_page  # noqa: E402 - it is a program beside the pages


def test_the_pages_are_what_the_docstrings_say(tmp_path: Path) -> None:
    """The API pages are what `docs/core_api_page.py` generates from the docstrings."""
    subprocess.run([sys.executable, str(DOCS / "core_api_page.py"), str(tmp_path)], check=True)

    for page in core_api_page.PAGES:
        assert (tmp_path / page.file_name).read_text() == (DOCS / page.file_name).read_text()


@pytest.mark.parametrize(("module", "file_name"), [(core, "core-api.md"), (loop, "loop.md")])
def test_each_public_name_has_a_section(module: Any, file_name: str) -> None:
    """Each public name has a section on its page."""
    headings = set((DOCS / file_name).read_text().splitlines())

    assert [name for name in module.__all__ if f"## `{name}`" not in headings] == []


@pytest.mark.parametrize(
    "described", [pytest.param(each, id=name) for page in core_api_page.PAGES for name, each in page.documented.items()]
)
def test_nothing_is_without_a_description(described: Any) -> None:
    """Each public class, method, property and attribute has a description."""
    members = core_api_page.members(described) if inspect.isclass(described) else {}
    attributes = core_api_page.attributes(described) if inspect.isclass(described) else {}

    assert inspect.getdoc(described)
    assert [each for each in members if not inspect.getdoc(getattr(described, each))] == []
    assert [each for each, (_, text) in attributes.items() if not text] == []


def test_each_argument_of_init_is_described() -> None:
    """Each argument of init() is described."""
    text = inspect.getdoc(core.init) or ""

    assert [each for each in inspect.signature(core.init).parameters if f"`{each}`" not in text] == []
