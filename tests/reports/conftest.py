"""Reading is what is tested here: every report is read, those that other rooms' tests have had too."""

from __future__ import annotations

import pytest

from profkit.reports import hotlines, reader

KEPT = (
    (reader, "read_one_report"),
    (reader, "read_raw_rows"),
    (hotlines, "answer_requests_of_report"),
    (hotlines, "_needs_disassembly"),
)


@pytest.fixture(autouse=True)
def every_report_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tests/conftest.py keeps a worker long is not looked at."""
    for module, name in KEPT:
        monkeypatch.setattr(module, name, getattr(module, name).__wrapped__)
