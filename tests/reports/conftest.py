"""Reading is what is tested here: every report is read, those that other rooms' tests have had too."""

from __future__ import annotations

import pytest

from profkit.reports import hotlines, reader

KEPT = (
    (reader, "read_report_unless_large"),
    (reader, "read_raw_rows"),
    (reader, "_read_each_file"),
    (reader, "read_large_reports"),
    (hotlines, "answer_requests_of_report"),
    (hotlines, "_needs_disassembly"),
    (hotlines, "_answer_in_process"),
)


@pytest.fixture(autouse=True)
def every_report_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What tests/conftest.py keeps a worker long is not looked at."""
    for module, name in KEPT:
        monkeypatch.setattr(module, name, getattr(module, name).__wrapped__)
