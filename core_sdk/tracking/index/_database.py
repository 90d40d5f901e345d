"""The database: in a file, verified and mended, or in memory; and telling damage from other trouble.

What only SQLite needs stands here and in `_schema.MetricColumn`.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from filelock import FileLock

from core_sdk.tracking.index._schema import REVISION, metadata
from core_sdk.tracking.index._seal import SealedFile, seal_path

logger = logging.getLogger("core_sdk.tracking")

_BUSY_TIMEOUT_S = 60

# Trouble that says nothing about the file's content. Our statements are fixed, so that any other error means that the
# content is not what we wrote.
_WORLD_CODES = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}
_CANNOT_WRITE_CODES = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY}


class DamagedError(Exception):
    """The file is no index, or no longer."""


class MissingError(DamagedError):
    """There is no file."""


class UnusableError(Exception):
    """The file can neither be read nor made."""


class Database(ABC):
    """Where the index is kept."""

    @abstractmethod
    def lock(self) -> contextlib.AbstractContextManager[object]:
        """To be held by who writes; waits for another writer."""

    @abstractmethod
    def connect(self, *, verify_anew: bool = False) -> contextlib.AbstractContextManager[sa.Connection]:
        """A transaction. Raises `DamagedError` unless every byte is known to be what was written, and `UnusableError`.

        With `verify_anew` all of it is read for that; else only what has changed since it was last verified.
        """

    @abstractmethod
    def commit(self, connection: sa.Connection) -> None: ...

    @abstractmethod
    def replace(self, problem: Exception) -> None:
        """Makes an empty one in its place, under the lock."""

    @abstractmethod
    def close(self) -> None: ...


class FileDatabase(Database):
    """Readers and writers may be many processes; one writes at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file_lock = file_lock(path)
        self._file: SealedFile | None = None
        # Not by a URL in text: there a home's name may hold what URLs give a meaning.
        self._engine = sa.create_engine(
            sa.URL.create("sqlite", database=str(path)), connect_args={"timeout": _BUSY_TIMEOUT_S}
        )
        sa.event.listen(self._engine, "connect", _configure)
        _begin_transactions(self._engine)

    def lock(self) -> contextlib.AbstractContextManager[object]:
        return self._file_lock

    @contextlib.contextmanager
    def connect(self, *, verify_anew: bool = False) -> Iterator[sa.Connection]:
        file = self._opened_file()
        with contextlib.ExitStack() as stack:
            try:
                connection = stack.enter_context(self._engine.connect())
                # From this question on, until the transaction ends, no other process writes.
                revision = connection.exec_driver_sql("PRAGMA user_version").scalar()
            except (sa.exc.DatabaseError, UnicodeDecodeError) as error:
                # sqlite3 raises a UnicodeDecodeError where SQLite quotes what it stumbled over.
                if isinstance(error, sa.exc.DatabaseError) and not is_damage(error):
                    raise
                raise DamagedError(reason(error)) from error
            if not _is_whole(file, verify_anew):
                raise DamagedError("its checksum is wrong, or a process that wrote to it was killed")
            if revision != REVISION:
                raise DamagedError(f"it is of revision {revision}, and this version needs {REVISION}")
            yield connection

    def commit(self, connection: sa.Connection) -> None:
        try:
            connection.commit()
        finally:  # also on Ctrl-C
            if self._file is not None:
                self._file.seal()

    def replace(self, problem: Exception) -> None:
        self.close()
        if not isinstance(problem, MissingError):
            message = "the index %s cannot be used (%s); it is built again from the journals"
            logger.warning(message, self._path, reason(problem))
        remove(self._path)
        self._path.touch(mode=0o600)  # SQLite would go by the umask; its journal takes the database's mode
        file = self._opened_file()
        create(self._engine)
        file.seal()

    def close(self) -> None:
        self._engine.dispose()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened_file(self) -> SealedFile:
        if self._file is not None and not self._file.is_at_its_place():
            self.close()
        if self._file is None:
            try:
                self._file = SealedFile(self._path)
            except FileNotFoundError as error:
                raise MissingError("there is none") from error
            except OSError as error:
                raise UnusableError(str(error)) from error
        return self._file


def _is_whole(file: SealedFile, verify_anew: bool) -> bool:
    try:
        return file.is_whole(read_anew=verify_anew)
    except OSError as error:
        raise UnusableError(str(error)) from error


class MemoryDatabase(Database):
    """An index that lives as long as this object."""

    def __init__(self) -> None:
        self._engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool, connect_args={"check_same_thread": False})
        _begin_transactions(self._engine)
        create(self._engine)

    def lock(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()

    def connect(self, *, verify_anew: bool = False) -> contextlib.AbstractContextManager[sa.Connection]:
        return self._engine.connect()

    def commit(self, connection: sa.Connection) -> None:
        connection.commit()

    def replace(self, problem: Exception) -> None:
        raise problem

    def close(self) -> None:
        self._engine.dispose()


def create(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        metadata.create_all(connection, checkfirst=False)
        connection.exec_driver_sql(f"PRAGMA user_version = {REVISION}")
        connection.commit()


def file_lock(path: Path) -> FileLock:
    return FileLock(path.with_name(path.name + ".lock"), mode=0o600)


def remove(path: Path) -> None:
    """Under the lock."""
    # In this order: SQLite ignores a rollback journal without a database, but would trust a half-written database.
    path.unlink(missing_ok=True)
    path.with_name(path.name + "-journal").unlink(missing_ok=True)
    seal_path(path).unlink(missing_ok=True)


def is_damage(error: Exception) -> bool:
    if isinstance(error, DamagedError):
        return True
    # A ProgrammingError is a mistake of ours, not the file's.
    is_of_database = isinstance(error, sa.exc.DatabaseError) and not isinstance(error, sa.exc.ProgrammingError)
    return is_of_database and _code(error) not in _WORLD_CODES


def cannot_write(error: Exception) -> bool:
    if isinstance(error, sa.exc.DatabaseError):
        return _code(error) in _CANNOT_WRITE_CODES
    return isinstance(error, (UnusableError, OSError))


def reason(error: Exception) -> object:
    """What SQLite itself says."""
    return getattr(error, "orig", error)


def _code(error: Exception) -> int:
    # The low byte: the rest is detail.
    return getattr(reason(error), "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF


def _configure(connection: sqlite3.Connection, _: Any) -> None:
    # No WAL: its shared memory does not work on network file systems, where homes lie. NORMAL rather than OFF, so that
    # after a power cut the index is seldom to be built again; the fsyncs come once per batch.
    for pragma in ("page_size=4096", "journal_mode=TRUNCATE", "synchronous=NORMAL", "cache_size=-65536"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_transactions(engine: sa.Engine) -> None:
    """Left alone, sqlite3 begins one only before an INSERT: a question would see the index change between its queries,
    and a kill could leave half a schema."""
    sa.event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
