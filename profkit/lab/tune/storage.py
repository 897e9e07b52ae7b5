"""A storage URL  ->  Optuna's storage."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna

from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from profkit.units import OptunaStorage, SqliteConnection


# Seconds between looks at a storage whose tables somebody else is making.
_WAITS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
JOURNAL = "journal://"


def open_storage(url: str) -> OptunaStorage:
    """Open Optuna's storage at a URL; SQLite files for several writers.

    `journal:///shared/search.log` is a file on a disk that several hosts share, NFS too: appended to
    under a lock that is a symbolic link, which NFS makes atomically, where SQLite's locks do not
    hold. `postgresql+psycopg://user@host/name` is for many GPUs.
    """
    if url.startswith(JOURNAL):
        from optuna.storages.journal import JournalFileBackend

        path = url.removeprefix(JOURNAL)
        Path(path).touch()  # Optuna says nothing of a folder that is not there until it writes
        return optuna.storages.JournalStorage(JournalFileBackend(path))
    opened = _open_database(url)
    if url.startswith("sqlite:"):
        from sqlalchemy import event

        event.listen(opened.engine, "begin", _begin_with_write_lock)
    return opened


def _begin_with_write_lock(connection: Any) -> None:
    """Hold others off from the first look on, not from the first change.

    Optuna reads that a trial waits, then takes it. It asks the database to lock the row meanwhile,
    which SQLite does not know: two searches took the same one.
    """
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _open_database(url: str) -> OptunaStorage:
    """Open the storage and make its tables.

    Optuna makes them without a lock: of several processes that begin a search at once, all but one
    find that a table, or the row with the version, came to be under their hands.
    """
    from sqlalchemy.exc import DatabaseError, IntegrityError

    engine = None
    if url.startswith("sqlite:"):
        engine = {"creator": _make_sqlite_connector(url)}
    for wait in _WAITS:
        try:
            return optuna.storages.RDBStorage(url, engine_kwargs=engine)
        except DatabaseError as error:
            # What was to be made is there: a unique row, a table.
            if not isinstance(error, IntegrityError) and "already exists" not in str(error):
                raise
            time.sleep(wait)
    return optuna.storages.RDBStorage(url, engine_kwargs=engine)


def _make_sqlite_connector(url: str) -> Callable[[], SqliteConnection]:
    """Return what opens a SQLite file: written ahead, so that a commit does not wait for the disk.

    A killed process loses nothing; a machine that loses power may lose the last trials. Others who
    write at the same time are waited for.
    """
    import sqlite3

    from sqlalchemy.engine import make_url

    def open_file() -> SqliteConnection:
        path = make_url(url).database or ":memory:"
        # No isolation level: transactions begin where SQLAlchemy says, and as _immediate says.
        connection = sqlite3.connect(
            path, timeout=60, check_same_thread=False, isolation_level=None
        )
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        return connection

    return open_file


@contextlib.contextmanager
def explain_unreachable_storage(url: str) -> Iterator[None]:
    """Raise a ProfkitError where the block cannot reach a storage."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, ImportError, OSError, optuna.exceptions.OptunaError) as error:
        first = (str(getattr(error, "orig", None) or error).splitlines() or ["?"])[0]
        scheme, separator, rest = url.partition("://")
        # without a password
        if separator:
            shown = f"{scheme}://{rest.rpartition('@')[2]}"
        else:
            shown = url
        raise ProfkitError(
            f"--storage {shown}: {first[:200]}",
            "for example sqlite:///search.db, journal:///shared/search.log, or "
            "postgresql+psycopg://user@host/name with its driver",
        ) from error


def name_this_process() -> str:
    """Return this process as trials keep it: host:pid."""
    return f"{socket.gethostname()}:{os.getpid()}"
