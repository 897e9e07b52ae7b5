"""Which single multiplies an add could take in, by the registers of the machine code."""

from __future__ import annotations

import pytest

from profkit.diagnosis.launches import add_source_lines, judge_reports
from profkit.reports.hotlines import LinesRequest, answer_line_requests
from profkit.reports.reader import read_report_files
from tests.conftest import ROOT

COUNTERS = {"unfused": ("instructions unfused",)}


@pytest.mark.parametrize(
    ("report", "launch", "share"),
    [
        # A multiply, then an add of its result, again and again.
        ("probes/probes-3.ncu-repz", 32, 0.5),
        # 39 % adds and 15 % multiplies of FP32, none of whose results is added to anything.
        ("attention/V/champion.ncu-repz", 0, 0.0),
    ],
)
def test_what_adds_could_take_in(report, launch, share):
    request = LinesRequest(str(ROOT / "artifacts" / report), launch, COUNTERS)
    assert answer_line_requests([request])[0].fusable["unfused"] == pytest.approx(share, abs=0.01)


def test_a_finding_is_priced_by_what_could_be_fused():
    """Of 55 % adds and 44 % multiplies 27 % are pairs; counters alone allow 44 %."""
    runs = judge_reports(
        read_report_files([str(ROOT / "artifacts" / "fp8" / "4k" / "sdpa.ncu-repz")])
    )
    (before, after) = (
        next(f for f in run.diagnosis.findings if f.rule == "non-fused-math")
        for run in (runs[0], add_source_lines(runs[:1])[0])
    )
    assert before.gain == pytest.approx(1.28, abs=0.01)
    assert after.gain == pytest.approx(1.12, abs=0.01)
