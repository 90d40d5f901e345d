"""The index's database, in a file or in memory, and the errors that mean damage."""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from core_sdk._ground.alive import file_lock
from core_sdk._ground.files import opened
from core_sdk._ground.ownership import give_to_owner_of
from core_sdk._home.index._holders import PATIENCE_S, Waiting
from core_sdk._home.index._schema import REVISION, SCHEMA

logger = logging.getLogger("core_sdk.tracking")

_BUSY_TIMEOUT_S = 60

# Errors that say nothing about the file's content. Our statements are fixed, so any other error means that the content
# is not what we wrote.
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
    """The file is not an index, or is damaged."""


class MissingError(DamagedError):
    """The file does not exist."""


class UnusableError(Exception):
    """The file can neither be read nor made."""


class Database:
    """The index's SQLite database. Many processes may read it, and one may write at a time.

    Without a path it is kept in memory.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        if path is None:
            self._connection = _open(":memory:")
            _create_tables(self._connection)

    def lock(self) -> contextlib.AbstractContextManager[object]:
        """Returns the lock for the process that writes. Entering it blocks while another process holds it.

        Raises `SuspendedError` if that process is suspended.
        """
        return contextlib.nullcontext() if self._path is None else database_lock(self._path)

    @contextlib.contextmanager
    def connect(self) -> Iterator[sqlite3.Connection]:
        """Begins a transaction, and rolls back at the end what was not committed.

        Raises `DamagedError` where SQLite notices damage, and `UnusableError`.
        """
        with contextlib.ExitStack() as stack:
            try:
                connection = self._opened()
                stack.enter_context(_transaction(connection))
                # From this query until the end of the transaction, no other process can write.
                cursor = self._patiently(lambda: connection.execute("PRAGMA user_version"))
                (revision,) = cursor.fetchone()
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                if not is_damage(error):
                    raise
                raise DamagedError(error) from error
            if revision != REVISION:
                raise DamagedError(f"it is of revision {revision}, and this version needs {REVISION}")
            yield connection

    def commit(self, connection: sqlite3.Connection) -> None:
        """Commits, and begins another transaction."""
        self._patiently(lambda: connection.execute("COMMIT"))
        connection.execute("BEGIN")

    def replace(self, problem: Exception) -> None:
        """Replaces the file with an empty database, unless another process has done so since it was opened.

        The caller holds the lock. Raises `problem` for one in memory.
        """
        if self._path is None:
            raise problem
        if self._connection is not None and self._path.exists() and _identity(self._path) != self._identity:
            return
        self.close()
        if not isinstance(problem, MissingError):
            message = "the index %s cannot be used (%s); it is built again from the journals"
            logger.warning(message, self._path, problem)
        remove(self._path)
        # SQLite would apply the umask; its journal gets the database's mode, and its owner.
        with opened(self._path, os.O_WRONLY | os.O_CREAT, mode=0o600) as descriptor:
            give_to_owner_of(self._path.parent, self._path, descriptor)
        _create_tables(self._opened())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _patiently(self, execute: Callable[[], sqlite3.Cursor]) -> sqlite3.Cursor:
        """Executes a statement again as long as another process locks the file, but only for a minute.

        Raises `SuspendedError` if that process is suspended.
        """
        waiting = Waiting(() if self._path is None else (self._path, lock_path(self._path)))
        deadline = time.monotonic() + _BUSY_TIMEOUT_S
        while True:
            try:
                return execute()
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                waiting.go_on()

    def _opened(self) -> sqlite3.Connection:
        """Returns the connection to the file that is at the path now: another process may have built it again."""
        identity = None if self._path is None else _identity(self._path)
        if self._connection is not None and identity != self._identity:
            self.close()
        if self._connection is None:
            connection = _open(str(self._path))
            try:
                _configure(connection)
            except BaseException:
                connection.close()
                raise
            self._connection, self._identity = connection, identity
        return self._connection


@contextlib.contextmanager
def database_lock(path: Path) -> Iterator[None]:
    """Holds the lock of a database file for the length of the block.

    Raises `OSError` if its file cannot be made, and `SuspendedError` if the process that holds the lock is suspended.
    """
    waiting = Waiting((lock_path(path),))
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(file_lock(lock_path(path), PATIENCE_S))
                break
            except TimeoutError:
                waiting.go_on()
        yield


def lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def remove(path: Path) -> None:
    """Removes the database file with its journal. The caller holds the lock."""
    # In this order: SQLite ignores a rollback journal without a database, but would trust a half-written database.
    path.unlink(missing_ok=True)
    path.with_name(path.name + "-journal").unlink(missing_ok=True)


def is_damage(error: Exception) -> bool:
    # sqlite3 raises a UnicodeDecodeError if SQLite's message quotes damaged text; msgspec has its own for damaged JSON.
    if isinstance(error, (DamagedError, UnicodeDecodeError, msgspec.MsgspecError)):
        return True
    # A ProgrammingError is a mistake of ours, not the file's.
    is_of_database = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.ProgrammingError)
    return is_of_database and _code(error) not in _WORLD_CODES


def cannot_write(error: Exception) -> bool:
    if isinstance(error, sqlite3.DatabaseError):
        return _code(error) in _CANNOT_WRITE_CODES
    return isinstance(error, (UnusableError, OSError))


def _code(error: Exception) -> int:
    # The low byte is the kind of error, the rest is detail.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF


def _identity(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise MissingError("there is none") from error
    except OSError as error:
        raise UnusableError(str(error)) from error
    return status.st_dev, status.st_ino


def _open(path: str) -> sqlite3.Connection:
    # By default, sqlite3 begins a transaction only before an INSERT. The index could then change between two queries of
    # one question, and a kill could leave half a schema.
    connection = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    return connection


def _configure(connection: sqlite3.Connection) -> None:
    # No WAL: its shared memory does not work on network file systems, where homes lie. NORMAL rather than OFF, so that
    # the index seldom has to be built again after a power cut; there are few fsyncs, once per batch.
    pragmas = "page_size=4096", "journal_mode=TRUNCATE", "synchronous=NORMAL", "cache_size=-16384", "temp_store=MEMORY"
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}")


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Begins a transaction, and rolls back at the end what was not committed."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.DatabaseError):
                connection.execute("ROLLBACK")


def _create_tables(connection: sqlite3.Connection) -> None:
    with _transaction(connection):
        for statement in SCHEMA.split(";\n"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {REVISION}")
        connection.execute("COMMIT")
