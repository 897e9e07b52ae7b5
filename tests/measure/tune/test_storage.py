"""A storage that several processes open at once."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

optuna = pytest.importorskip("optuna")
exc = pytest.importorskip("sqlalchemy.exc")


def fails(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> list[str]:
    """The next openings fail so; what was opened."""
    left, opened, real = list(errors), [], optuna.storages.RDBStorage

    def open_it(url: str, **words: Any) -> Any:
        opened.append(url)
        if left:
            raise left.pop(0)
        return real(url, **words)

    monkeypatch.setattr(optuna.storages, "RDBStorage", open_it)
    return opened


def wrapped(kind: str, said: str) -> Exception:
    """As SQLAlchemy hands on what a driver said."""
    error = getattr(exc, kind)("statement", {}, getattr(sqlite3, kind)(said))
    assert isinstance(error, Exception)
    return error


def test_tables_that_another_process_makes_meanwhile_are_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from profkit.measure.tune import storage

    opened = fails(
        monkeypatch,
        wrapped("OperationalError", "table studies already exists"),
        wrapped("IntegrityError", "UNIQUE constraint failed: alembic_version.version_num"),
    )
    made = storage.storage(f"sqlite:///{tmp_path}/a.db")
    assert made.get_all_studies() == []
    assert len(opened) == 3


def test_a_storage_that_cannot_be_opened_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from profkit.errors import ProfkitError
    from profkit.measure.tune import storage

    opened = fails(monkeypatch, *[wrapped("OperationalError", "unable to open database file")] * 9)
    url = f"sqlite:///{tmp_path}/a.db"
    with pytest.raises(ProfkitError, match="unable to open"):
        storage.reached(url, lambda: storage.storage(url))
    assert len(opened) == 1
