"""What triage counts: how ncu is asked, and how its report is kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from profkit.collect import timeline
from profkit.reports.reader import load_reports
from tests.conftest import ROOT

REPORT = ROOT / "artifacts" / "scalar.B.ncu-rep"


def test_a_packed_report_is_the_same_report(tmp_path: Path) -> None:
    report = Path(shutil.copy(REPORT, tmp_path / "counters.ncu-rep"))
    packed = timeline.compress_report(report)
    assert packed == tmp_path / "counters.ncu-repz"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["counters.ncu-repz"]
    assert packed.stat().st_size < 0.5 * REPORT.stat().st_size
    before, after = load_reports([str(REPORT)]), load_reports([str(packed)])
    own = [c for c in before.columns if c != "report"]
    assert before[own].equals(after[own])


@pytest.mark.parametrize("device", [None, 1])
def test_ncu_is_asked_for_these_kernels_on_one_gpu(
    device: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NCU_LOG", str(tmp_path / "ncu.log"))
    monkeypatch.setenv("FAKE_REPORT", str(REPORT))
    ncu = Path(__file__).parents[1] / "standin" / "ncu"
    monkeypatch.setattr(timeline.tools, "require_tool", lambda _name: ncu)
    timeline.profile_second_of_each_shape(
        ["true"], ["f", "g$1"], tmp_path / "x.ncu-rep", 60, None, device
    )
    said = (tmp_path / "ncu.log").read_text().strip().split("\0")
    assert said[said.index("--kernel-name") + 1] == r"regex:^(f|g\$1)$"
    assert said[said.index("--filter-mode") + 1] == "per-launch-config"
    assert ("--devices" in said) == (device is not None)
