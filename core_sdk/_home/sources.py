"""The sources of a variation, kept in its folder, so that its evidence can show which lines were changed.

`core-sdk run` keeps the text files of the directory in which it starts a variation. The process of each attempt adds
what it has imported, and what is no longer as it was copied. An archive is bounded: what is too large for it is kept
as its size and its digest, so that a change is seen although its lines are not.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import stat
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from core_sdk._ground.files import opened_regular, reading, write_atomically

SUFFIXES = frozenset({".py", ".yaml", ".yml", ".toml", ".json", ".sh", ".cfg", ".ini", ".txt"})
"""What a program is made of, as text."""
_MOST_FILE_BYTES = 256 << 10
_MOST_BYTES = 2 << 20
_MOST_DIGESTED_BYTES = 64 << 20
_MOST_FILES = 2000
_MOST_ARCHIVE_BYTES = _MOST_BYTES + _MOST_FILES * (8 << 10)
"""Contents, and for each file its headers, whose names may be long, and what fills its last block."""
_BEGAN = "core_sdk.began"
_LEFT_OUT = "core_sdk.left_out"


@dataclass(frozen=True)
class KeptFile:
    lines: list[str]
    """The lines of its text, or one line with its size and digest."""
    modified: float
    """When the file was changed last, in seconds since 1970."""


@dataclass(frozen=True)
class Sources:
    files: Mapping[str, KeptFile]
    """By their names, as seen from the directory in which the attempt was started."""
    began: float = 0.0
    """When the process that has imported them began; 0 for a copy of a directory."""
    num_left_out: int = 0


@dataclass
class SourceArchive:
    """Collects files for an archive, as they are when they are added."""

    began: float = 0.0
    _contents: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    _num_left_out: int = 0
    _num_bytes: int = 0
    _num_digested: int = 0

    def add(self, files: Mapping[str, Path]) -> bool:
        """Adds files by their names, unless they were added before. Returns whether there was a new one.

        Python comes first, then the small files. A file that cannot be read is left out.
        """
        new: list[tuple[bool, int, str]] = []
        for name in files.keys() - self._contents.keys():
            with contextlib.suppress(OSError):
                status = files[name].stat()
                if stat.S_ISREG(status.st_mode):
                    new.append((not name.endswith(".py"), status.st_size, name))
        for _, size_bytes, name in sorted(new):
            if len(self._contents) == _MOST_FILES:
                self._num_left_out += 1
                continue
            with contextlib.suppress(OSError):
                self._contents[name] = self._content(files[name], size_bytes), files[name].stat().st_mtime
        return bool(new)

    def write(self, path: Path) -> None:
        """Writes the archive. Raises `OSError`."""
        output = io.BytesIO()
        told = {_BEGAN: repr(self.began), _LEFT_OUT: str(self._num_left_out)}
        with (
            gzip.GzipFile("", "wb", 1, output, mtime=0) as compressed,
            tarfile.open(
                fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT, pax_headers=told if self._contents else None
            ) as archive,
        ):
            for name, (content, modified) in self._contents.items():
                member = tarfile.TarInfo(name)
                member.size, member.mtime = len(content), modified
                archive.addfile(member, io.BytesIO(content))
        write_atomically(path, output.getvalue(), is_durable=False)

    def _content(self, file: Path, size_bytes: int) -> bytes:
        if file.suffix in SUFFIXES and size_bytes <= min(_MOST_FILE_BYTES, _MOST_BYTES - self._num_bytes):
            self._num_bytes += size_bytes
            with opened_regular(file) as descriptor:
                return os.pread(descriptor, size_bytes, 0)
        digest = ""
        if size_bytes <= _MOST_DIGESTED_BYTES - self._num_digested:
            self._num_digested += size_bytes
            with file.open("rb") as opened:
                digest = f", SHA-256 {hashlib.file_digest(opened, 'sha256').hexdigest()}"
        return f"(too large to be kept: {size_bytes:,} bytes{digest})".encode()


def read_sources(path: Path) -> Sources | None:
    """Reads an archive; returns None if there is none, or none that can be read and is as large as one may be."""
    try:
        with reading(path) as file, gzip.open(file) as compressed:
            unpacked = compressed.read(_MOST_ARCHIVE_BYTES + 1)
        if len(unpacked) > _MOST_ARCHIVE_BYTES:
            return None
        with tarfile.open(fileobj=io.BytesIO(unpacked)) as archive:
            files: dict[str, KeptFile] = {}
            for member in archive:
                if member.isfile() and (content := archive.extractfile(member)) is not None:
                    text = content.read(_MOST_FILE_BYTES).decode(errors="replace")
                    files[member.name] = KeptFile(text.splitlines(), float(member.mtime))
            told = archive.pax_headers
            return Sources(files, float(told.get(_BEGAN, 0)), int(told.get(_LEFT_OUT, 0)))
    except (OSError, EOFError, ValueError, tarfile.TarError, zlib.error):
        return None
