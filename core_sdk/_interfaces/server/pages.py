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

from starlette.datastructures import Headers
from starlette.responses import Response

from core_sdk._interfaces.server.security import FRAME_HEADERS

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
_FRAME = "/frame.html"
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


def answer_with_file(path: str, file: PageFile, headers: Headers, *, is_known: bool) -> Response:
    """Returns the answer with a file of the page to somebody who is known, or not."""
    if path == _FRAME:
        return Response(file.content, media_type=file.media_type, headers=FRAME_HEADERS)
    if file.media_type.startswith("text/html"):
        # Browsers neither list nor suggest an address that was refused, and this one may have the token behind `#`.
        return Response(file.content, 200 if is_known else 401, media_type=file.media_type)
    # A browser asks for the icon again whenever the address changes.
    is_icon = file.media_type == "image/svg+xml"
    kept = {"etag": file.etag, "cache-control": "private, max-age=86400" if is_icon else "no-cache"}
    if file.etag in headers.getlist("if-none-match"):
        return Response(status_code=304, headers=kept)
    return Response(file.content, media_type=file.media_type, headers=kept)


def _read(path: Path, *, is_library: bool) -> PageFile:
    content = path.read_bytes()
    if path.suffix == ".js" and not is_library:
        content = _JSDOC.sub(lambda found: b"\n" * found[0].count(b"\n"), content)
    guessed = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return PageFile(content, guessed, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
