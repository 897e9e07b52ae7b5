"""A storage URL  ->  Optuna's storage, and whether a search that wrote in it is still running."""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna

from profkit.errors import ProfkitError

_WAITS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Seconds between looks at a storage whose tables somebody else is making."""


JOURNAL = "journal://"


def storage(url: str) -> Any:
    """Optuna's storage at a URL; SQLite files are opened for several writers.

    `journal:///shared/search.log` is a file on a disk that several hosts share, NFS too: appended to
    under a lock that is a symbolic link, which NFS makes atomically, where SQLite's locks do not
    hold. `postgresql+psycopg://user@host/name` is for many GPUs.
    """
    if url.startswith(JOURNAL):
        return _journal(url.removeprefix(JOURNAL))
    opened = _opened(url)
    if url.startswith("sqlite:"):
        from sqlalchemy import event

        event.listen(opened.engine, "begin", _immediate)
    return opened


def _journal(path: str) -> Any:
    """A journal in a file.

    Raises:
        OSError: Its folder is not there, or it may not be written.
    """
    from optuna.storages.journal import JournalFileBackend

    Path(path).touch()  # Optuna says nothing of a folder that is not there until it writes
    return optuna.storages.JournalStorage(JournalFileBackend(path))


def _immediate(connection: Any) -> None:
    """Hold others off from the first look on, not from the first change.

    Optuna reads that a trial waits, then takes it. It asks the database to lock the row meanwhile,
    which SQLite does not know: two searches took the same one.
    """
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _opened(url: str) -> Any:
    """The storage, with its tables.

    Optuna makes them without a lock: of several processes that begin a search at once, all but one
    find that a table, or the row with the version, came to be under their hands.
    """
    from sqlalchemy.exc import DatabaseError

    engine = {"creator": _sqlite(url)} if url.startswith("sqlite:") else None
    for wait in _WAITS:
        try:
            return optuna.storages.RDBStorage(url, engine_kwargs=engine)
        except DatabaseError as error:
            if not _made_meanwhile(error):
                raise
            time.sleep(wait)
    return optuna.storages.RDBStorage(url, engine_kwargs=engine)


def _made_meanwhile(error: Exception) -> bool:
    """Whether an error says that what was to be made is there (a table, a unique row)."""
    from sqlalchemy.exc import IntegrityError

    return isinstance(error, IntegrityError) or "already exists" in str(error)


def _sqlite(url: str) -> Callable[[], Any]:
    """How to open a SQLite file: written ahead, so that a commit does not wait for the disk.

    A killed process loses nothing; a machine that loses power may lose the last trials. Others who
    write at the same time are waited for.
    """
    import sqlite3

    from sqlalchemy.engine import make_url

    def connect() -> Any:
        path = make_url(url).database or ":memory:"
        # No isolation level: transactions begin where SQLAlchemy says, and as _immediate says.
        connection = sqlite3.connect(
            path, timeout=60, check_same_thread=False, isolation_level=None
        )
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        return connection

    return connect


def reached(url: str, opened: Callable[[], Any]) -> Any:
    """What `opened` gives.

    Raises:
        ProfkitError: The storage cannot be reached, or is something else.
    """
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return opened()
    except (SQLAlchemyError, ImportError, OSError, optuna.exceptions.OptunaError) as error:
        first = (str(getattr(error, "orig", None) or error).splitlines() or ["?"])[0]
        raise ProfkitError(
            f"--storage {without_password(url)}: {first[:200]}",
            "for example sqlite:///search.db, journal:///shared/search.log, or "
            "postgresql+psycopg://user@host/name with its driver",
        ) from error


def without_password(url: str) -> str:
    """A URL that may be shown."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}" if separator else url


def studies(url: str) -> list[str]:
    """Names of the studies in a storage."""

    def names() -> list[str]:
        opened = storage(url)
        try:
            return list(optuna.get_all_study_names(opened))
        finally:
            if hasattr(opened, "engine"):  # a server counts its connections
                opened.engine.dispose()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known: list[str] = reached(url, names)
    return known


def owner() -> str:
    """This process, as trials keep it: host:pid."""
    return f"{socket.gethostname()}:{os.getpid()}"


def alive(pid: str) -> bool:
    """Whether a process of this host is there."""
    if not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # somebody else's
    return True
