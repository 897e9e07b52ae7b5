"""Where warps wait: lines of the imported source, of a source that stayed at home, instructions."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.reports import hotlines as source
from profkit.reports.hotlines import COLUMNS, hot_lines, hot_lines_each
from profkit.reports.metrics.warps import SAMPLES, STATES
from profkit.reports.reader import raw
from tests.conftest import ROOT, kinds, others, report_of
from tests.reports import made

ARTIFACTS = ROOT / "artifacts"


def test_imported_source() -> None:
    lines = hot_lines(ARTIFACTS / "copy.1GiB.ncu-rep", 0)
    top = lines.iloc[0]
    assert top.text == "out[i] = in[i];"
    assert top.sass.startswith("STG")  # where it waits for what was loaded
    assert top.stall == "long_scoreboard"
    assert top.share > 0.9
    assert top.stall_share > 0.9


def test_no_source_is_instructions() -> None:
    lines = hot_lines(ARTIFACTS / "sdpa-cudnn.C.ncu-rep", 0, 5)
    assert len(lines) == 5
    assert lines[["file", "line", "text"]].isna().all(axis=None)
    assert lines.sass.notna().all()


@pytest.mark.parametrize("path", [*kinds(), *others()], ids=lambda path: path.name[:40])
def test_samples_are_all_there(path: Path) -> None:
    every = hot_lines(path, 0, 1_000_000)
    assert list(every.columns) == list(COLUMNS)
    collected = raw(path).iloc[0].reindex(list(SAMPLES)).sum()
    assert every.samples.sum() == collected
    if len(every):
        assert every.share.sum() == pytest.approx(1)
        assert every.samples.is_monotonic_decreasing
        assert every.stall_share.between(0, 1, inclusive="right").all()
        assert set(every.stall) <= set(STATES)
        assert hot_lines(path, 0, 3).equals(every.head(3))


def test_many_at_once() -> None:
    path = report_of("sdpa-flash", "B")
    wanted = [(path, 1), (ARTIFACTS / "copy.1GiB.ncu-rep", 0), (path, 0), (path, 1)]
    found = hot_lines_each(wanted, 4)
    assert [len(lines) for lines in found] == [4, 4, 4, 4]
    assert found[0].equals(found[3])
    assert not found[0].equals(found[2])


def test_not_collected(tmp_path: Path) -> None:
    path = tmp_path / "made.ncu-rep"
    path.write_bytes(made.report())
    lines = hot_lines(path, 0)
    assert (len(lines), list(lines.columns)) == (0, list(COLUMNS))


@pytest.mark.parametrize(
    ("data", "launch", "said"),
    [(made.report(), 1, "has no launch 1"), (made.report(), -1, "has no launch -1"),
     (b"text", 0, "not an Nsight Compute report"), (b"", 0, "has no launch 0")],
)  # fmt: skip
def test_nothing_to_look_at(tmp_path: Path, data: bytes, launch: int, said: str) -> None:
    path = tmp_path / "made.ncu-rep"
    path.write_bytes(data)
    with pytest.raises(ProfkitError, match=said):
        hot_lines(path, launch)


def test_of_a_damaged_report(tmp_path: Path) -> None:
    whole = ARTIFACTS / "copy.1GiB.ncu-rep"
    cut = tmp_path / "cut.ncu-rep"
    cut.write_bytes(whole.read_bytes()[:-100_000])
    assert hot_lines(cut, 0, 1).stall[0] == "long_scoreboard"


def test_overwritten_machine_code_is_an_error_not_a_crash(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "made.ncu-rep"
    path.write_bytes(made.report())
    monkeypatch.setattr(source, "__name__", "tests.reports.crashing")
    with pytest.raises(ProfkitError, match="exit status"):
        hot_lines(path, 0)
