"""The database file: connecting, creating, migrating, and telling damage from other trouble.

What only SQLite needs stands here and in `_schema.MetricColumn`.
"""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from core_sdk.errors import IndexTooNewError
from core_sdk.tracking.index._schema import REVISION, metadata, version

logger = logging.getLogger("core_sdk.tracking")

_BUSY_TIMEOUT_S = 60
_PAGE_BYTES = 4096

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


def connect_file(path: Path) -> sa.Engine:
    engine = sa.create_engine(f"sqlite:///{path}", connect_args={"timeout": _BUSY_TIMEOUT_S})
    sa.event.listen(engine, "connect", _configure)
    _begin_transactions(engine)
    return engine


def connect_memory() -> sa.Engine:
    """An index that lives as long as its engine."""
    engine = sa.create_engine("sqlite://", poolclass=sa.StaticPool, connect_args={"check_same_thread": False})
    _begin_transactions(engine)
    create(engine)
    return engine


def remove(path: Path) -> None:
    # In this order: SQLite ignores a rollback journal without a database, but would trust a half-written database.
    path.unlink(missing_ok=True)
    path.with_name(path.name + "-journal").unlink(missing_ok=True)


def remove_damaged(path: Path, problem: Exception) -> None:
    reason = getattr(problem, "orig", problem)  # what SQLite itself says
    logger.warning("the index %s is damaged (%s); it is built again from the journals", path, reason)
    remove(path)


def is_ready(engine: sa.Engine, path: Path) -> bool:
    """Whether nothing needs to be prepared, as almost always."""
    try:
        return path.exists() and _read_revision(engine, path) == REVISION
    except DamagedError:
        return False  # or just being made: to be judged under the lock


def prepare(engine: sa.Engine, path: Path) -> bool:
    """Creates, migrates, or replaces what is damaged; returns whether what it held is gone.

    Raises `IndexTooNewError`.
    """
    if not path.exists() or path.stat().st_size == 0:
        _create_file(engine, path)
        return False
    try:
        found = _read_revision(engine, path)
        if found != REVISION:
            _migrate(engine, path, found)
        return found != REVISION
    except DamagedError as error:
        engine.dispose()
        remove_damaged(path, error)
        _create_file(engine, path)
        return True


def _create_file(engine: sa.Engine, path: Path) -> None:
    path.touch(mode=0o600)  # SQLite would go by the umask; its journal takes the database's mode
    create(engine)


def create(engine: sa.Engine) -> None:
    with engine.connect() as connection:
        metadata.create_all(connection, checkfirst=False)
        connection.execute(sa.insert(version).values(version_num=REVISION))
        connection.commit()


def is_damage(error: sa.exc.DatabaseError | UnicodeDecodeError) -> bool:
    if isinstance(error, UnicodeDecodeError):
        return True  # sqlite3 raises it where SQLite quotes what it stumbled over
    # A ProgrammingError is a mistake of ours, not the file's.
    return not isinstance(error, sa.exc.ProgrammingError) and _code(error) not in _WORLD_CODES


def cannot_write(error: sa.exc.DatabaseError | UnicodeDecodeError) -> bool:
    return isinstance(error, sa.exc.DatabaseError) and _code(error) in _CANNOT_WRITE_CODES


def _read_revision(engine: sa.Engine, path: Path) -> str | None:
    """None before the first migration."""
    if path.stat().st_size % _PAGE_BYTES:
        # SQLite itself notices when whole pages are missing only, and takes half a page for an empty one.
        raise DamagedError("it has been cut off")
    try:
        with engine.connect() as connection:
            return connection.scalar(sa.select(version.c.version_num))
    except (sa.exc.DatabaseError, UnicodeDecodeError) as error:
        if is_damage(error):
            raise DamagedError(str(getattr(error, "orig", error))) from error
        raise


def _code(error: sa.exc.DatabaseError) -> int:
    # The low byte: the rest is detail.
    return getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF


def _configure(connection: sqlite3.Connection, _: Any) -> None:
    # No WAL: its shared memory does not work on network file systems, where homes lie. NORMAL rather than OFF, since
    # after a power cut a wrong index could pass for a right one; the fsyncs come once per batch.
    for pragma in (f"page_size={_PAGE_BYTES}", "journal_mode=TRUNCATE", "synchronous=NORMAL", "cache_size=-65536"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_transactions(engine: sa.Engine) -> None:
    """Left alone, sqlite3 begins one only before an INSERT: a question would see the index change between its queries,
    and a kill could leave half a schema."""
    sa.event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))


def _migrate(engine: sa.Engine, path: Path, found: str | None) -> None:
    # Alembic takes longer to import than most commands take to run.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if found is not None and found not in known:
        raise IndexTooNewError(str(path), found)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
