"""Copies the folder of a lab into one archive while the server runs, and makes a folder of it again.

Records are appended to journals, and all other files are replaced as a whole. So a copy of each file, as long as it is
when it is opened, has every record that was acknowledged before the backup began. The indexes are left out: they are
built again from the records.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from core_sdk._ground.files import fsync_directory, fsync_tree, opened_regular
from core_sdk._interfaces.lab.folder import Lab
from core_sdk.errors import CoreSDKError

_LEFT_OUT_NAMES = ("tracker.db",)
_LEFT_OUT_ENDS = (".lock", ".tmp")


def back_up(lab: Lab, archive: Path, *, with_checkpoints: bool = True) -> int:
    """Writes all of the lab into a tar archive with the mode 0600, and returns the number of files.

    The archive is there only if it is whole. Raises `OSError`, and `CoreSDKError` if there is one already.
    """
    if archive.exists():
        raise CoreSDKError(f"{archive} exists already")
    unfinished = archive.with_name(f".{archive.name}.{os.getpid()}.tmp")
    number = 0
    try:
        descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
                for path in _files(lab.root, with_checkpoints=with_checkpoints):
                    number += _add(tar, path, path.relative_to(lab.root))
            file.flush()
            os.fsync(file.fileno())
        os.link(unfinished, archive)
    finally:
        unfinished.unlink(missing_ok=True)
    fsync_directory(archive.parent)
    return number


def restore(archive: Path, root: Path) -> Lab:
    """Makes the folder of a lab of an archive. Nothing is left at `root` if the archive is damaged.

    Raises `CoreSDKError` if there is something at `root`, or if this is not the archive of a lab.
    """
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise CoreSDKError(f"{root} exists already, and is not an empty folder")
    unfinished = root.with_name(f".{root.name}.{os.getpid()}.restoring")
    unfinished.mkdir(mode=0o700, parents=True)
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(unfinished, filter="data")
        Lab.open(unfinished)
        fsync_tree(unfinished)
        with suppress(FileNotFoundError):
            root.rmdir()
        unfinished.rename(root)
    except (tarfile.TarError, EOFError) as error:
        raise CoreSDKError(f"{archive} is damaged, or no archive of a lab: {error}") from error
    finally:
        _remove(unfinished)
    fsync_directory(root.parent)
    return Lab.open(root)


def _files(root: Path, *, with_checkpoints: bool) -> Iterator[Path]:
    for directory, names, files in os.walk(root):
        place = Path(directory)
        depth = len(place.relative_to(root).parts)
        is_home = depth == 2 and place.parent.name == "workspaces"
        if is_home and not with_checkpoints:
            names[:] = [name for name in names if name != "checkpoints"]
        names.sort()
        if not names and not files:
            yield place
        for name in sorted(files):
            if not name.startswith(_LEFT_OUT_NAMES) and not name.endswith(_LEFT_OUT_ENDS):
                yield place / name


def _add(tar: tarfile.TarFile, path: Path, name: Path) -> int:
    """Adds a file as it is now, or an empty folder; what is gone meanwhile is left out, and so is what is no file."""
    try:
        if path.is_dir():
            tar.add(path, name, recursive=False)
            return 0
        with opened_regular(path) as descriptor, os.fdopen(os.dup(descriptor), "rb") as file:
            info = tar.gettarinfo(arcname=str(name), fileobj=file)
            tar.addfile(info, file)
    except FileNotFoundError:
        return 0
    return 1


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
