"""Other programs' SQLite databases, which are only read."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from core_sdk._ground.files import reading

_MAGIC = b"SQLite format 3\x00"


def tables_of(path: Path) -> set[str]:
    """Returns the names of the tables of a database; none if the file is no database.

    Raises `OSError`, also for a link, or `sqlite3.DatabaseError` for one that is damaged.
    """
    with reading(path) as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return set()
    with opened_database(path) as database:
        return {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


@contextlib.contextmanager
def opened_database(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a database to be read. Its rows have names; text that is not UTF-8 is mended."""
    database = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)
    try:
        database.row_factory = sqlite3.Row
        database.text_factory = lambda content: content.decode(errors="replace")
        yield database
    finally:
        database.close()
