"""Reading is what is tested here: every report is read, those that other rooms' tests have had too."""

from __future__ import annotations

import pytest

from profkit.reports import reader


@pytest.fixture(autouse=True)
def every_report_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tests/conftest.py keeps a worker long is not looked at."""
    monkeypatch.setattr(reader, "read_part", getattr(reader.read_part, "__wrapped__"))  # noqa: B009
