"""The libraries of the page, and what the page's own files may hold."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import pytest

import core_sdk._interfaces.server
from core_sdk._interfaces.server.pages import read_page

PAGE = Path(core_sdk._interfaces.server.__file__).with_name("page")
AXE = Path(__file__).with_name("axe")
MAX_PAGE_BYTES = 200_000

OUR_FILES = [path for path in sorted(PAGE.rglob("*.*")) if "vendor" not in path.parts]


@pytest.mark.parametrize("folder", [PAGE / "vendor", AXE], ids=["page", "axe"])
def test_vendored_files_are_those_of_their_packages(folder: Path) -> None:
    """Vendored files are exactly those in SHA256SUMS, with the right hashes."""
    lines = [line.split() for line in (folder / "SHA256SUMS").read_text().splitlines()]
    listed = {name: hash_ for hash_, name in lines}

    found = {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in ("SHA256SUMS", "README.md") and path.suffix != ".ts"
    }

    assert found == listed


def test_each_library_has_its_licence() -> None:
    """Each vendored library has its licence and a line in the README."""
    folders = [path for path in (PAGE / "vendor").iterdir() if path.is_dir()]

    assert all((folder / "LICENSE").exists() for folder in folders)
    readme = (PAGE / "vendor" / "README.md").read_text()
    assert all(f"| `{folder.name}` |" in readme for folder in folders)


def test_the_page_is_light() -> None:
    """All of the page's files together are below the size limit when compressed."""
    sent = {name: file for name, file in read_page().items() if name.endswith((".js", ".css", ".html", ".svg"))}

    assert sum(len(gzip.compress(file.content)) for file in sent.values()) <= MAX_PAGE_BYTES


def test_a_browser_gets_modules_without_their_jsdoc_and_libraries_as_they_are() -> None:
    """Lines keep their numbers, so that an error that a browser reports is found in the file."""
    sent = read_page()

    for path in PAGE.rglob("*.js"):
        text, got = path.read_text(), sent[f"/{path.relative_to(PAGE).as_posix()}"].content.decode()
        assert (got == text) is ("vendor" in path.relative_to(PAGE).parts)
        assert got.count("\n") == text.count("\n")
        assert got == text or "@param" not in got


@pytest.mark.parametrize("path", OUR_FILES, ids=lambda path: path.relative_to(PAGE).as_posix())
def test_a_file_of_the_page_holds_nothing_inline_and_nothing_from_elsewhere(path: Path) -> None:
    """No file of the page has inline code or loads anything from another site."""
    text = path.read_text()
    if path == PAGE / "frame.html":
        text = text.replace("<script>", "", 1).replace("document.write(data)", "", 1)

    assert not re.search(r"\binnerHTML\b|dangerouslySetInnerHTML|\beval\(|new Function|document\.write", text)
    assert not re.search(r"""(src|href|from|import\()\s*=?\s*["'](https?:)?//""", text)
    assert path.suffix != ".html" or not re.search(r"<script>|<style|\sstyle=|\son\w+=", text)


@pytest.mark.parametrize("path", [path for path in OUR_FILES if path.suffix == ".js"], ids=lambda path: path.name)
def test_a_module_begins_with_what_it_is_for(path: Path) -> None:
    """Each module begins with a comment that says what it is for."""
    assert re.match(r"/\*\*\s", path.read_text())
