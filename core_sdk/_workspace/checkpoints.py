"""The files of a checkpoint of a workspace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from core_sdk._home.pushes import find_login
from core_sdk._home.storage import check_file_name
from core_sdk._workspace.connection import WorkspaceConnection


def download_checkpoint(address: str, storage_id: str, resources: Mapping[str, int], directory: Path) -> None:
    """Copies the files, which the server verifies, into a directory. Those that are there already stay.

    Raises `WorkspaceError` if the files were not sent along, `UnsafePathError` or `OSError`.
    """
    found = find_login(address)
    directory.mkdir(parents=True, exist_ok=True)
    with WorkspaceConnection(found.url, found.token) as connection:
        for name, size_bytes in resources.items():
            path = directory / check_file_name(name)
            if name.endswith("/"):
                path.mkdir(parents=True, exist_ok=True)
                continue
            if path.is_file() and path.stat().st_size == size_bytes:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_name(f".{path.name}.part")
            unfinished.unlink(missing_ok=True)
            connection.download(f"checkpoints/{quote(storage_id, safe='')}/file?name={quote(name)}", unfinished)
            unfinished.replace(path)
