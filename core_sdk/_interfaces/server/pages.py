"""The files of the web page, read once: what is asked for is a key of a dict, never a path.

A browser gets our modules without their JSDoc, which is a fifth of them and says nothing to it. Their lines keep their
numbers, so that an error that a browser reports is found in the file.
"""

from __future__ import annotations

import hashlib
import mimetypes
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".woff2": "font/woff2",
}
_FOLDER = Path(__file__).with_name("page")
_LIBRARIES = "vendor"
"""The folder of libraries, which stay as they are."""
_JSDOC = re.compile(rb"/\*\*[^/].*?\*/", re.DOTALL)


@dataclass(frozen=True)
class PageFile:
    content: bytes
    media_type: str
    etag: str


def read_page(folder: Path = _FOLDER) -> Mapping[str, PageFile]:
    """Returns each file by its address: `/` is `index.html`, and the others have their path in the folder.

    Types of libraries, which only a checkout has, are left out.
    """
    files = {
        f"/{path.relative_to(folder).as_posix()}": _read(path, is_library=_LIBRARIES in path.relative_to(folder).parts)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix not in (".py", ".pyc", ".ts")
    }
    return files | ({"/": files["/index.html"]} if "/index.html" in files else {})


def _read(path: Path, *, is_library: bool) -> PageFile:
    content = path.read_bytes()
    if path.suffix == ".js" and not is_library:
        content = _JSDOC.sub(lambda found: b"\n" * found[0].count(b"\n"), content)
    guessed = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return PageFile(content, guessed, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
