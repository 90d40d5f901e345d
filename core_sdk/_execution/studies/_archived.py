"""Reads the code of tries from the archives in the home, and compares it."""

from __future__ import annotations

import difflib
import gzip
import hashlib
import tarfile
from collections.abc import Mapping

from core_sdk._ground.records import CodeRecord
from core_sdk._home import Home
from core_sdk.errors import CodeDamagedError


def archived_files(home: Home, sha256: str) -> dict[str, bytes]:
    """Returns the contents of the files of an archive, by name. Raises `CodeDamagedError`."""
    path = home.code_archive(sha256)
    found = {}
    try:
        with path.open("rb") as file, gzip.open(file) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                if member.isfile() and (content := archive.extractfile(member)) is not None:
                    found[member.name] = content.read()
                elif member.issym():
                    found[member.name] = f"-> {member.linkname}".encode()
    except FileNotFoundError as error:
        raise CodeDamagedError(path, "is missing") from error
    except (OSError, EOFError, tarfile.TarError) as error:
        raise CodeDamagedError(path, f"cannot be unpacked: {error}") from error
    return found


def diff_of(home: Home, before: CodeRecord, after: CodeRecord, context_lines: int = 3) -> dict[str, list[str]]:
    """Returns the lines of a unified diff of each file that differs. Raises `CodeDamagedError`."""
    if before.sha256 == after.sha256:
        return {}
    old, new = archived_files(home, before.sha256), archived_files(home, after.sha256)
    return {name: lines for name in sorted(old.keys() | new.keys()) if (lines := _diff(name, old, new, context_lines))}


def change_digest(diff: Mapping[str, list[str]]) -> str:
    """Returns the SHA-256 of the lines that a diff adds and removes, without their spaces; empty if there are none."""
    digest = hashlib.sha256()
    is_empty = True
    for name, lines in diff.items():
        for line in lines:
            if line[:1] in "+-" and line[:3] not in ("+++", "---") and line[1:].strip():
                is_empty = False
                digest.update(f"{name}\0{line[0]}{''.join(line[1:].split())}\n".encode(errors="replace"))
    return "" if is_empty else digest.hexdigest()


def _diff(name: str, old: Mapping[str, bytes], new: Mapping[str, bytes], context_lines: int) -> list[str]:
    before, after = old.get(name), new.get(name)
    if before == after:
        return []
    if any(each is not None and b"\0" in each for each in (before, after)):
        return [f"+++ {name} (binary)"]
    old_lines, new_lines = ((each or b"").decode(errors="replace").splitlines() for each in (before, after))
    old_name = "/dev/null" if before is None else f"a/{name}"
    new_name = "/dev/null" if after is None else f"b/{name}"
    return list(difflib.unified_diff(old_lines, new_lines, old_name, new_name, lineterm="", n=context_lines))
