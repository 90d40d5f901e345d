"""Functions that tests of several folders set the stage with, and look at it."""

from __future__ import annotations

import io
import os
import traceback
from pathlib import Path
from typing import Any

from saving import checkpoint_ids

from core_sdk._home import Home
from core_sdk._home.attempts.starting import AttemptStart
from core_sdk._home.storage import DirectoryStorage


def stored_ids(home: Home) -> list[str]:
    """Returns the checkpoints whose files the home keeps."""
    return checkpoint_ids(DirectoryStorage(home.checkpoints))


def staged(storage: DirectoryStorage) -> list[Path]:
    """Returns everything that is left where checkpoints are written and removed."""
    return sorted((storage.root / ".staging").rglob("*"))


def read_back(content: Any) -> Any:
    """Stores the content as a checkpoint would, and reads it back."""
    import torch

    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def flip(content: bytes, bit: int) -> bytes:
    """Returns the content with this bit flipped."""
    flipped = bytearray(content)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


def replace(path: Path, content: bytes) -> None:
    """Replaces a file by renaming another over it, as rsync does."""
    temporary = path.with_name("temporary")
    temporary.write_bytes(content)
    temporary.rename(path)


def told_of(error: BaseException) -> str:
    """Returns all that is printed of an error."""
    return "".join(traceback.format_exception(error)) + repr(error)


def execute(start: AttemptStart) -> None:
    """Makes the next scripts execute this attempt."""
    start.lock.release()
    os.environ["CORE_SDK_RUN_INFO"] = str(start.folder.run_info_path(start.number))
