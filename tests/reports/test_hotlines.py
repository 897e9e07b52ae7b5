"""Lines by a counter: of the imported source, of a source that stayed at home, instructions."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from profkit.errors import ProfkitError
from profkit.reports import hotlines, instruction
from profkit.reports.hotlines import COLUMNS, CounterLine, LinesRequest, answer_line_requests
from profkit.reports.instruction import COUNTERS, FAMILIES, MEMORY
from profkit.reports.metrics.warps import SAMPLES, STATES
from profkit.reports.reader import read_raw_frame
from tests.conftest import ROOT, kinds, others, report_of
from tests.reports import made
from tests.reports.child import in_a_child
from tests.reports.lines import hot_lines
from tests.sweeps import take_part

ARTIFACTS = ROOT / "artifacts"
STAGE2 = str(ARTIFACTS / "stage2.B.ncu-rep")
COPY = str(ARTIFACTS / "copy.1GiB.ncu-rep")
PROBES = str(ARTIFACTS / "probes" / "probes-0.ncu-repz")


def _lines(report: str, launch: int, *counters: str, count: int = 3) -> tuple[CounterLine, ...]:
    return answer_line_requests([LinesRequest(report, launch, {"asked": counters}, count)])[
        0
    ].counters["asked"]


@cache
def _stage2() -> pd.DataFrame:
    return read_raw_frame(STAGE2)


def _short(lines: tuple[CounterLine, ...]) -> list[tuple[str, int | None, str, float]]:
    return [(Path(x.file or "").name, x.line, x.opcode, round(x.share, 2)) for x in lines]


def test_bank_conflicts_are_where_they_are_counted() -> None:
    lines = _lines(STAGE2, 0, "excess-wavefronts")
    assert _short(lines) == [
        ("ptx.cuh", 57, "LDSM", 0.47),
        ("stage.cuh", 97, "STS", 0.21),
        ("ptx.cuh", 65, "LDSM", 0.16),
    ]
    assert lines[0].value == 2_031_616
    assert lines[0].source == ': "r"(shared_address(row))'
    assert (lines[0].stall, lines[0].producer_pc) == ("", None)


# What a notebook does whose pool of workers forks after it has asked for a layout.
FORKS = """
import os, sys
from dataclasses import asdict
from profkit.reports.hotlines import LinesRequest, answer_line_requests, answer_requests_of_report
request = LinesRequest(sys.argv[1], 0, {"asked": ("excess-wavefronts",)})
here = answer_line_requests([request])[0].layouts["asked"]
child = os.fork()
if child == 0:
    (there,) = answer_requests_of_report([request.report, [asdict(request)]])
    os._exit(int(there.layouts["asked"] != here))
assert os.waitpid(child, 0)[1] == 0
print(len(here.found))
"""


def test_a_fork_can_ask_for_layouts_as_well() -> None:
    """The library starts a thread to write machine code as text; forks of its process have none."""
    command = [sys.executable, "-c", FORKS, STAGE2]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False
    )
    assert (done.stdout, done.stderr) == ("2\n", "")


# What a fork that reads does: it ends without the interpreter's own end, which would clean up.
READS = """
import gc, os, sys
from dataclasses import asdict
from profkit.reports.hotlines import LinesRequest, answer_requests_of_report
gc.disable()
request = LinesRequest(sys.argv[1], 0, {"asked": ("stalls",)}, sampled=3)
answer_requests_of_report([sys.argv[1], [asdict(request)]])
os._exit(0)
"""


def test_nothing_unpacked_is_left_in_the_folder_for_temporary_files(tmp_path: Path) -> None:
    """The library unpacks a .ncu-repz there: 20,000 files, 40 GB, were found after a few weeks."""
    command = [sys.executable, "-c", READS, str(report_of("stage2swizzle", "B"))]
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=environment, timeout=120, check=True)
    assert command[-1].endswith(".ncu-repz")
    assert list(tmp_path.iterdir()) == []
    killed = (
        "import os, sys; from profkit.reports import reader; kept = reader.open_report(sys.argv[1])"
    )
    command[2:3] = [f"{killed}; os.kill(os.getpid(), 9)"]
    assert subprocess.run(command, env=environment, timeout=120, check=False).returncode == -9
    assert list(tmp_path.iterdir()) == []


def test_a_wait_leads_to_the_load() -> None:
    (top, *_) = _lines(COPY, 0, "stall long_scoreboard")
    assert (top.source, top.opcode, top.stall) == ("out[i] = in[i];", "STG", "long_scoreboard")
    assert (top.producer_opcode, top.producer_line) == ("LDG", top.line)
    assert top.share > 0.99


def test_a_barrier_wait_leads_to_the_barrier() -> None:
    lines = _lines(STAGE2, 0, "stall barrier")
    assert [(x.line, x.producer_line, x.producer_opcode) for x in lines] == [
        (64, 58, "BAR"),
        (41, 55, "BAR"),
        (55, 67, "BAR"),
    ]
    assert Path(lines[2].file or "").name == "attention.cuh"  # it waits there for a barrier here:
    assert Path(lines[2].producer_file or "").name == "stage2_tensor_pv.cu"


@pytest.mark.forks
def test_an_atomic_is_the_callers() -> None:
    """The library's line of an atomicAdd is in a header of the toolkit."""
    main = next(i for i, name in enumerate(_kernels(PROBES)) if name == "atomic_same")
    (only,) = _lines(PROBES, main, "instructions atomics")
    assert (Path(only.file or "").name, only.opcode) == ("atomic-same_one_address.cu", "REDG")
    assert only.line == 17


def _kernels(report: str) -> list[str]:
    from profkit.reports.reader import iterate_actions

    return [action.name(action.NameBase_FUNCTION) for action in iterate_actions(report)]


def test_the_first_counter_that_is_there_answers() -> None:
    assert _lines(STAGE2, 0, "local-sectors") == ()  # no local memory: zero, and no line
    (top, *_) = _lines(STAGE2, 0, "local-sectors", "instructions local", "instructions xu")
    assert (top.counter, top.opcode) == ("instructions xu", "MUFU")


def test_what_was_not_collected_has_no_line(tmp_path: Path) -> None:
    path = tmp_path / "made.ncu-rep"
    path.write_bytes(made.report())
    (answer,) = answer_line_requests(
        [LinesRequest(str(path), 0, {name: (name,) for name in COUNTERS})]
    )
    assert answer.counters == dict.fromkeys(COUNTERS, ())
    assert list(hot_lines(path, 0).columns) == list(COLUMNS)
    assert len(hot_lines(path, 0)) == 0


@pytest.mark.slow
@in_a_child
def test_every_counter_adds_up() -> None:
    asked = {name: (name,) for name in COUNTERS}
    every, first = (
        answer_line_requests([LinesRequest(STAGE2, 0, asked, count)])[0].counters
        for count in (1_000_000, 2)
    )
    collected = _stage2().iloc[0]
    for name, counter in COUNTERS.items():
        lines = every[name]
        if lines:
            assert sum(x.share for x in lines) == pytest.approx(1), name
            assert all(x.value > 0 for x in lines), name
            assert [x.value for x in lines] == sorted((x.value for x in lines), reverse=True), name
            assert first[name] == lines[:2], name
        if counter.states:
            assert set(counter.states) <= set(STATES), name
            known = [
                n for n, state in SAMPLES.items() if state in counter.states and n in collected
            ]
            assert sum(x.value for x in lines) == pytest.approx(collected[known].sum()), name
        else:
            assert counter.alternatives, name
    assert sum(map(bool, every.values())) > len(COUNTERS) / 3


@pytest.mark.slow
@in_a_child
def test_each_counter_is_found_somewhere() -> None:
    """A misspelt metric or opcode would never be found: each is in one committed report."""
    rare = {
        "stall misc",
        "stall sleeping",
        "stall imc_miss",
    }  # no committed report of these has any
    reports = [
        STAGE2,
        COPY,
        PROBES,
        *(str(ARTIFACTS / "probes" / f"probes-{n}.ncu-repz") for n in (1, 2, 3)),
    ]
    missing = set(COUNTERS) - rare
    for report in reports:
        wishes = [
            LinesRequest(report, n, {c: (c,) for c in missing}, 1)
            for n in range(len(_kernels(report)))
        ]
        for answer in answer_line_requests(wishes):
            missing -= {c for c, lines in answer.counters.items() if lines}
    assert missing == set()
    assert set(MEMORY) <= set(STATES)
    assert {f"instructions {family}" for family in FAMILIES} <= set(COUNTERS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", take_part([*kinds()[::4], *others()], one_of=3), ids=lambda path: path.name[:40]
)
@in_a_child
def test_samples_are_all_there(path: Path) -> None:
    every = hot_lines(path, 0, 1_000_000)
    assert list(every.columns) == list(COLUMNS)
    collected = read_raw_frame(path).iloc[0].reindex(list(SAMPLES)).sum()
    assert every.value.sum() == collected
    if len(every):
        assert every.share.sum() == pytest.approx(1)
        assert every.value.is_monotonic_decreasing
        assert every.stall_share.between(0, 1, inclusive="right").all()
        assert set(every.stall) <= set(STATES)
        assert hot_lines(path, 0, 3).equals(every.head(3))


def test_no_source_is_instructions() -> None:
    lines = hot_lines(ARTIFACTS / "sdpa-cudnn.C.ncu-rep", 0, 5)
    assert len(lines) == 5
    assert lines[["file", "line", "source"]].isna().all(axis=None)
    assert (lines.opcode != "").all()
    assert lines.pc.is_unique


def test_volta_has_lines_though_the_library_disassembles_it_no_longer() -> None:
    path = next((p for p in others() if p.name.startswith("cc70")), None)
    if path is None:
        pytest.skip("no report of a V100 beside the project (../shared/corpus)")
    (top, *_) = _lines(str(path), 0, "stall long_scoreboard")
    assert top.opcode != ""
    assert top.producer_opcode == "LDG"


@pytest.mark.forks
def test_code_that_has_no_name_is_named_by_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a GPU newer than the table: the control fields say who waits, the library who that is."""
    exact = _short(_lines(COPY, 0, "stall long_scoreboard"))
    monkeypatch.setattr(instruction, "OPCODES", {})
    asked = vars(LinesRequest(COPY, 0, {"asked": ("stall long_scoreboard",)}))
    (line,) = hotlines.answer_requests_of_report([COPY, [asked]])
    assert _short(line.counters["asked"]) == exact
    assert line.counters["asked"][0].producer_opcode == "LDG"


def test_around() -> None:
    (answer,) = answer_line_requests([LinesRequest(COPY, 0, sampled=1, around=2)])
    top, *near = answer.sampled
    assert (top.value > 0, top.source) == (True, "    out[i] = in[i];")
    assert [x.line - (top.line or 0) for x in near if x.line] == [-2, -1, 1, 2]
    assert {(x.value, x.stall, x.pc) for x in near} == {(0.0, "", None)}


def test_many_at_once() -> None:
    path = str(report_of("sdpa-flash", "B"))
    found = answer_line_requests(
        [LinesRequest(*x, sampled=4) for x in ((path, 1), (COPY, 0), (path, 0), (path, 1))]
    )
    assert [len(answer.sampled) for answer in found] == [4, 4, 4, 4]
    assert found[0] == found[3]
    assert found[0] != found[2]


@pytest.mark.parametrize(
    ("data", "launch", "said"),
    [
        (made.report(), 1, "has no launch 1"),
        (made.report(), -1, "has no launch -1"),
        (b"text", 0, "not an Nsight Compute report"),
        (b"", 0, "has no launch 0"),
    ],
)
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


def test_overwritten_machine_code_is_an_error_not_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "made.ncu-rep"
    path.write_bytes(made.report())
    monkeypatch.setattr(hotlines, "__name__", "tests.reports.crashing")
    with pytest.raises(ProfkitError, match="exit status"):
        hot_lines(path, 0)
    (answer,) = answer_line_requests(
        [LinesRequest(str(path), 0, sampled=3)], is_unread_code_an_error=False
    )
    assert answer.sampled == ()
