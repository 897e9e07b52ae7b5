"""Reading real reports: one row per launch, and a status for every file."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.reports.reader import load, read

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
REPORTS = sorted(CORPUS.glob("*.ncu-rep"))


@pytest.mark.skipif(not REPORTS, reason="no corpus")
def test_corpus_is_read_whole() -> None:
    reports = read(REPORTS)
    assert {file.status for file in reports.files} == {"ok"}
    assert len(reports.launches) == sum(file.launches for file in reports.files)


def test_missing_file_beside_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProfkitError, match=r"gone\.ncu-rep"):
        load(tmp_path / "gone.ncu-rep")
