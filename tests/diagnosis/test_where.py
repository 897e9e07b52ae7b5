"""Which lines findings name: every rule has its choice, and the lines are those that are to blame."""

from __future__ import annotations

from pathlib import Path

import pytest

import profkit as pk
from profkit.diagnosis.launches import LINES, judged, launch_lines, with_lines
from profkit.diagnosis.rules import ALL, BY_ID
from profkit.errors import ProfkitError
from profkit.reports.instruction import COUNTERS
from profkit.reports.reader import read_report
from tests.conftest import ROOT
from tests.reports import made

CHOICES = {rule.id: rule.lines for rule in ALL}
STAGE2 = ROOT / "artifacts" / "stage2.B.ncu-rep"


def test_choices_are_counters() -> None:
    assert {name for names in CHOICES.values() for name in names} <= set(COUNTERS)


def test_a_stall_rule_counts_the_stall_that_it_explains() -> None:
    for rule, names in CHOICES.items():
        if len(names) == 1 and names[0].startswith("stall "):
            assert names[0].removeprefix("stall ") in BY_ID[rule].explains


def test_launch_shapes_and_doubts_happen_at_no_line() -> None:
    assert {rule for rule, names in CHOICES.items() if not names} == {
        "grid-too-small",
        "tail-effect",
        "workload-imbalance",
        "short-kernel",
        "cache-resident",
        "operations-mismatch",
        "clocks-unsteady",
        "replay-unsteady",
        "hidden-tail",
        "debug-build",
        "partial-warps",
        "short-blocks",
        "nothing-stands-out",
    }


def test_findings_of_stage2() -> None:
    (run,) = with_lines(judged(read_report([STAGE2])))
    where = {f.rule: f.where for f in run.diagnosis.findings}
    assert [
        (Path(x.file).name, x.line, round(x.share, 2)) for x in where["shared-bank-conflicts"]
    ] == [
        ("ptx.cuh", 57, 0.47),
        ("stage.cuh", 97, 0.21),
        ("ptx.cuh", 65, 0.16),
    ]
    exponentials = where["redundant-exp"][0]
    assert (exponentials.opcode, exponentials.counter) == ("MUFU", "instructions exponential")
    assert where["clocks-unsteady"] == ()
    assert all(len(lines) <= LINES for lines in where.values())
    assert all(not x for f in run.diagnosis.findings if f.status != "fires" for x in [f.where])
    assert run.lines == ()


def test_more_lines_and_the_launchs_own() -> None:
    (run,) = with_lines(judged(read_report([STAGE2])), 5, listed=2)
    assert len(run.top.where) == 5  # type: ignore[union-attr]
    assert [x.stall for x in run.lines] == ["short_scoreboard", "short_scoreboard"]


def test_frame() -> None:
    frame = pk.lines(STAGE2)
    conflicts = frame[frame.rule == "shared-bank-conflicts"]
    assert list(conflicts.line[:3]) == [57, 97, 65]
    assert conflicts.share.sum() == pytest.approx(1, abs=0.01)
    assert frame.columns[:7].tolist() == [
        "rule",
        "counter",
        "file",
        "line",
        "pc",
        "opcode",
        "share",
    ]
    waits = frame[frame.rule == "fixed-latency"]
    assert waits.producer_opcode.ne("").all()
    assert waits.producer_pc.lt(waits.pc).all()
    assert len(launch_lines(STAGE2, 0, count=1)) == frame.rule.nunique()


def test_frame_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "made.ncu-rep"
    path.write_bytes(made.report())
    assert len(launch_lines(path)) == 0
    with pytest.raises(ProfkitError, match="has no launch 7"):
        launch_lines(STAGE2, 7)
    with pytest.raises(ProfkitError, match="not an Nsight Compute report"):
        launch_lines(Path(__file__))
