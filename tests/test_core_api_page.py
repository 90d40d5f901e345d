"""The reference of the Core API is made from its docstrings, and nothing is missing in it."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from core_sdk import core

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGE = DOCS / "core-api.md"

sys.path.append(str(DOCS))
import core_api_page  # noqa: E402 - it is a program beside the page


def test_the_page_is_what_the_docstrings_say(tmp_path: Path) -> None:
    """`python docs/core_api_page.py` writes it."""
    page = tmp_path / "core-api.md"

    subprocess.run([sys.executable, str(DOCS / "core_api_page.py"), str(page)], check=True)

    assert page.read_text() == PAGE.read_text()


def test_each_public_name_has_a_section() -> None:
    """A name that is added to `core_sdk.core` appears by itself."""
    headings = set(PAGE.read_text().splitlines())

    assert [name for name in core.__all__ if f"## `{name}`" not in headings] == []


@pytest.mark.parametrize("name", core_api_page.DOCUMENTED)
def test_nothing_is_without_a_description(name: str) -> None:
    """Each class, method, property and attribute says what it is."""
    described = core_api_page.DOCUMENTED[name]
    members = core_api_page.members(described) if inspect.isclass(described) else {}
    attributes = core_api_page.attributes(described) if inspect.isclass(described) else {}

    assert inspect.getdoc(described)
    assert [each for each, member in members.items() if not inspect.getdoc(member)] == []
    assert [each for each, (_, text) in attributes.items() if not text] == []


def test_each_argument_of_init_is_described() -> None:
    """What it does, its default, and what has precedence over it."""
    text = inspect.getdoc(core.init) or ""

    assert [each for each in inspect.signature(core.init).parameters if f"`{each}`" not in text] == []
