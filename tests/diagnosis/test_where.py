"""Which lines findings name: every rule has its choice, and the lines are those that are to blame."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import profkit as pk
from profkit.diagnosis import launches
from profkit.diagnosis.launches import (
    LINES,
    JudgedLaunch,
    add_source_lines,
    group_and_rank_launches,
    judge_reports,
    make_launch_lines_frame,
)
from profkit.diagnosis.rule import LaunchFinding, SourceShare
from profkit.diagnosis.rules import ALL, BY_ID
from profkit.errors import ProfkitError
from profkit.reports.hotlines import LinesRequest, answer_line_requests
from profkit.reports.instruction import COUNTERS
from profkit.reports.reader import read_report_files
from tests.conftest import ROOT
from tests.found import find_files
from tests.reports import made

CHOICES = {rule.id: rule.lines for rule in ALL}
STAGE2 = ROOT / "artifacts" / "stage2.B.ncu-rep"
TRITON = ROOT / "artifacts" / "layernorm" / "LN4096" / "tritonln.ncu-repz"


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
    (run,) = add_source_lines(judge_reports(read_report_files([STAGE2])))
    where = {f.rule: f.where for f in run.diagnosis.findings}
    assert [
        (Path(x.file).name, x.line, round(x.share, 2)) for x in where["shared-bank-conflicts"]
    ] == [
        ("ptx.cuh", 57, 0.47),
        ("stage.cuh", 97, 0.21),
        ("ptx.cuh", 65, 0.16),
    ]
    assert where["clocks-unsteady"] == ()
    assert all(len(lines) <= LINES for lines in where.values())
    assert all(not x for f in run.diagnosis.findings if f.status != "fires" for x in [f.where])
    assert run.lines == ()


def test_more_lines_and_the_launchs_own() -> None:
    (run,) = add_source_lines(judge_reports(read_report_files([STAGE2])), 5, most_sampled_lines=2)
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
    assert waits.producer_opcode.ne("").any()
    assert not waits.producer_opcode.isin(["LDG", "LDS", "LDSM", "MUFU"]).any()
    assert waits.producer_pc.lt(waits.pc).all()
    assert len(make_launch_lines_frame(STAGE2, 0, most_lines=1)) == frame.rule.nunique()


def test_frame_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "made.ncu-rep"
    path.write_bytes(made.report())
    assert len(make_launch_lines_frame(path)) == 0
    with pytest.raises(ProfkitError, match="has no launch 7"):
        make_launch_lines_frame(STAGE2, 7)
    with pytest.raises(ProfkitError, match="not an Nsight Compute report"):
        make_launch_lines_frame(Path(__file__))


def test_a_triton_kernel_has_its_own_lines_and_is_told_in_its_own_words():
    """Its cubin says nothing of who called tl.sum: the barrier is in the library's line."""
    (run,) = add_source_lines(judge_reports(read_report_files([TRITON])))
    # Its barriers are worth too little for a finding: their lines are asked for by themselves.
    request = LinesRequest(str(TRITON), 0, {"barrier-wait": BY_ID["barrier-wait"].lines}, 3)
    lines = answer_line_requests([request])[0].counters["barrier-wait"]
    assert [(Path(str(x.file)).name, x.line) for x in lines] == [
        ("tritonln_program_a_row.py", 28),
        ("tritonln_program_a_row.py", 30),
    ]
    assert "tl.sum" in (lines[0].source or "")
    assert run.top is not None
    assert run.top.advice == BY_ID[run.top.rule].triton
    assert not any(
        word in f.advice
        for f in run.diagnosis.findings
        if f.status == "fires"
        for word in ("cp.async", "launch bounds", "-maxrregcount", "ldmatrix")
    )


def test_a_cuda_kernel_is_told_in_cudas_words():
    (run,) = add_source_lines(judge_reports(read_report_files([STAGE2])))
    fired = [f for f in run.diagnosis.findings if f.status == "fires"]
    assert fired
    assert all(f.advice != BY_ID[f.rule].triton for f in fired)


@pytest.mark.parametrize(
    ("kernel", "file", "triton"),
    [
        ("softmax", "k.py", True),
        ("softmax", "k.cu", False),
        ("_ZN6cudapy8__main__4add", "k.py", False),  # Numba
        ("kernel_cutlass_gemm", "k.py", False),  # CuTe
        ("void f<int>(int*)", "k.py", False),
    ],
)
def test_what_is_tritons(kernel, file, triton):
    line = SourceShare(file, 3, "", 1.0)
    finding = LaunchFinding(rule="barrier-wait", cause="cause", where=(line,), advice="CUDA")
    assert launches._is_triton(kernel, (finding,)) == triton


def test_launches_of_one_name_with_other_code_are_not_alike():
    run = judge_reports(read_report_files([STAGE2]))[0]
    other = replace(run, values={**run.values, "registers": run.values["registers"] + 8})
    assert len(group_and_rank_launches([run, run])) == 1
    assert len(group_and_rank_launches([run, other])) == 2


PROBES = ROOT / "artifacts" / "probes"


@cache
def _judge_probes(path: Path) -> list[JudgedLaunch]:
    return judge_reports(read_report_files([path]))


def _probe(name: str):
    reports = find_files(PROBES, "probes-*.ncu-repz")
    runs = (run for path in reports for run in _judge_probes(path))
    return next(run for run in runs if run.variant == name and run.case == "main")


@pytest.mark.parametrize(
    ("probe", "least", "most"),
    [
        ("gather-dram", 0.8, 1.0),  # x[index[i]]; the rest are the indices' own
        ("spmv", 0.05, 0.2),  # values and columns by rows, which a warp a row mends; and x[column]
        ("transpose-naive", 0.0, 0.0),
        ("sector-eighth", 0.0, 0.0),
    ],
)
def test_gathers_are_told_from_what_a_layout_fixes(probe, least, most):
    run = _probe(probe)
    (lined,) = add_source_lines([run])
    before, after = (
        next(f for f in of.diagnosis.findings if f.rule == "uncoalesced-access")
        for of in (run, lined)
    )
    request = LinesRequest(run.report, run.index, {"x": ("excess-sectors",)})
    share = answer_line_requests([request])[0].gathered["x"]
    assert least <= share <= most
    assert ("gathers" in after.cause) == (share > 0)
    if share > 0.8:
        assert after.expect is None
        assert "indices" in after.advice
    elif share > 0:
        assert 1 < after.expect.gain < before.expect.gain
    else:
        assert (after.expect, after.gain) == (before.expect, before.gain)
