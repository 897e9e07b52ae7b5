"""What is made of one launch of the library: a stand-in of it has every field set by hand."""

from __future__ import annotations

import hashlib
import json
import struct
from array import array
from dataclasses import dataclass, field
from math import isnan, nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from profkit.errors import ProfkitError
from profkit.records.record import SCHEMA
from profkit.reports import frame, hotlines
from profkit.reports.addresses import STATEMENT, LaunchedCode
from profkit.reports.cubin import Function, LineRow, LineTable
from profkit.reports.instruction import COUNTERS, RAW_SAMPLES
from profkit.reports.metrics import CATALOGUE, IDENTITY
from tests.reports import made

FILE = frame.ReportFile("x", None, "ok", "", 2, None)


@dataclass
class Metric:
    """IMetric: a value, or instances by id."""

    held: Any = None
    instances: dict[Any, float] = field(default_factory=dict)

    def has_value(self) -> bool:
        return self.held is not None

    def value(self) -> Any:
        return self.held

    def kind(self) -> int:
        return 2 if isinstance(self.held, str) else 5

    def as_string(self, n: int = 0) -> str:
        return self.held if isinstance(self.held, str) else list(self.instances)[n]

    def as_double(self, n: int | None = None) -> float:
        return self.held if n is None else list(self.instances.values())[n]

    def as_uint64(self, n: int) -> int:
        return list(self.instances)[n]

    def has_correlation_ids(self) -> bool:
        return bool(self.instances)

    def correlation_ids(self) -> Metric:
        return self

    def num_instances(self) -> int:
        return len(self.instances)


class Action:
    """IAction: metrics, ranges, sources."""

    NameBase_DEMANGLED, NameBase_MANGLED = 1, 2

    def __init__(self, metrics: dict[str, Any] | None = None, **about: Any) -> None:
        given = metrics or {}
        self.metrics = {n: m if isinstance(m, Metric) else Metric(m) for n, m in given.items()}
        self.about = {
            "workload": 0,
            "ranges": None,
            "names": {1: "void k()", 2: "_Zk"},
            "lines": {},
            "sources": {},
            "sass": {},
            **about,
        }

    def metric_by_name(self, name: str) -> Metric | None:
        return self.metrics.get(name)

    def metric_names(self) -> list[str]:
        return list(self.metrics)

    def name(self, base: int = 0) -> str:
        return self.about["names"].get(base, "k")

    def workload_type(self) -> int:
        return self.about["workload"]

    def nvtx_state(self) -> Any:
        ranges = self.about["ranges"]
        if ranges is None:
            return None
        domain = [SimpleNamespace(push_pop_ranges=lambda r=r: r) for r in ranges]
        return SimpleNamespace(domains=lambda: range(len(ranges)), domain_by_id=domain.__getitem__)

    def source_info(self, pc: int) -> Any:
        if pc not in self.about["lines"]:
            return None
        file, line = self.about["lines"][pc]
        return SimpleNamespace(line=lambda: line, file_name=lambda: file)

    def source_files(self) -> dict[str, str]:
        return self.about["sources"]

    def sass_by_pc(self, pc: int) -> str | None:
        return self.about["sass"].get(pc)


WHO = dict(zip(IDENTITY, ("H200", 9, 0, 1.0, 2.0, 3.0, 128, 1, 1), strict=True))


def identity(time: float = 1e-6, record: Any = None, **about: Any) -> dict[str, Any]:
    metrics = about.pop("metrics", WHO)
    found = frame.read_launch_identity(Action(metrics, **about), record, time)
    return dict(zip(frame.IDENTIFIED, found, strict=True))


def test_identity() -> None:
    assert identity() == {
        "kernel": "void k()",
        "workload": "kernel",
        "device": "H200",
        "cc": "9.0",
        "grid": (1, 2, 3),
        "block": (128, 1, 1),
        "variant": None,
        "case": None,
        "nvtx": None,
        "status": "ok",
    }


@pytest.mark.parametrize(
    ("number", "word"),
    [(0, "kernel"), (1, "range"), (2, "cmdlist"), (3, "graph"), (4, "subgrid"), (5, "unknown")],
)
def test_kinds_of_workload(number: int, word: str) -> None:
    assert identity(workload=number)["workload"] == word
    # Without a duration only what has a shape can have run: and that is a kernel.
    assert identity(nan, workload=number)["status"] == ("ok" if number == 0 else "failed")


@pytest.mark.parametrize("lost", IDENTITY)
def test_what_is_not_there_is_none(lost: str) -> None:
    found = identity(metrics={n: v for n, v in WHO.items() if n != lost})
    empty = {key for key in ("device", "cc", "grid", "block") if found[key] is None}
    word = next(w for w in ("name", "compute", "grid", "block") if w in lost)
    assert empty == {{"name": "device", "compute": "cc"}.get(word, word)}
    failed = identity(nan, metrics={n: v for n, v in WHO.items() if n != lost})["status"]
    assert failed == ("failed" if word == "grid" else "ok")


def test_names_and_marks() -> None:
    record = SimpleNamespace(variant="v", case="c")
    assert identity(names={})["kernel"] == "k"
    assert identity(names={1: "a\udcffb"})["kernel"] == "a\\xffb"
    assert identity(record=record)["variant"] == "v"
    ranges = [["out", "profkit:one:A"], ["profkit:two:B:x", "in"]]
    found = identity(record=record, ranges=ranges)
    assert (found["variant"], found["case"]) == ("two", "B:x")
    assert found["nvtx"] == "out/profkit:one:A/profkit:two:B:x/in"
    assert identity(ranges=[])["nvtx"] is None


# --- an instruction by its address

TOOLKIT = "/usr/local/cuda-13.0/include/sm_20.hpp"
CODE = b"".join((0x7918).to_bytes(16, "little") for _ in range(4))  # four NOPs
EXITS = b"".join((0x794D).to_bytes(16, "little") for _ in range(2))


def _function(name: str, start: int | None, code: bytes, *rows: LineRow) -> Function:
    table = {name: LineTable(rows)} if rows else {}
    return Function(name, start, code, SimpleNamespace(line_tables=table))  # type: ignore[arg-type]


def _kernel(functions: tuple[Function, ...] = (), **about: Any) -> LaunchedCode:
    metrics = {
        "device__attribute_compute_capability_major": 9.0,
        "device__attribute_compute_capability_minor": 0.0,
        **about.pop("metrics", {}),
    }
    return LaunchedCode(Action(metrics, **about), lambda: list(functions))


def test_sums_of_metrics_by_address() -> None:
    held = {
        "a": Metric(None, {16: 1.0, 32: 2.0, 48: 0.0}),
        "b": Metric(None, {32: 5.0}),
        "none": Metric(None, {16: 0.0}),
        "plain": 3.0,
    }
    kernel = _kernel(metrics=held)
    assert kernel.sum_metrics_by_address({"a": 1.0}) == {16: 1.0, 32: 2.0}
    assert kernel.sum_metrics_by_address({"a": 2.0, "b": -1.0}) == {16: 2.0, 32: -1.0}
    assert kernel.sum_metrics_by_address({"a": 1.0, "absent": 1.0}) is None
    assert kernel.sum_metrics_by_address({"plain": 1.0}) is None
    assert kernel.sum_metrics_by_address({"none": 1.0}) == {}
    assert kernel.sum_metrics_by_address({}) == {}


def test_places() -> None:
    lines = {0: ("a.cu", 7), 16: ("a.cu", 0), 32: ("", 5), 64: ("b\udcff.cu", 1)}
    kernel = _kernel(lines=lines)
    assert [kernel.place(pc) for pc in (0, 16, 32, 48, 64)] == [
        ("a.cu", 7),
        (None, 16),
        (None, 32),
        (None, 48),
        ("b\\xff.cu", 1),
    ]


def test_the_toolkit_s_lines_are_the_callers() -> None:
    rows = (LineRow(0, "mine.cu", 12, 0), LineRow(16, TOOLKIT, 80, 1))
    kernel = _kernel((_function("_Zk", 0x100, CODE, *rows),), lines={0x110: (TOOLKIT, 80)})
    assert kernel.place(0x110) == ("mine.cu", 12)
    only = (LineRow(0, TOOLKIT, 80, 0),)
    lost = _kernel((_function("_Zk", 0x100, CODE, *only),), lines={0x110: (TOOLKIT, 80)})
    assert lost.place(0x110) == (TOOLKIT, 80)


@pytest.mark.parametrize(
    ("near", "place"),
    [
        ({-1: "up.cu", 1: "down.cu"}, "up.cu"),
        ({1: "down.cu"}, "down.cu"),
        ({-24: "far.cu", 1: "down.cu"}, "far.cu"),
        ({24: "last.cu"}, "last.cu"),
        ({-25: "x.cu", 25: "y.cu"}, TOOLKIT),
        ({-1: TOOLKIT, -2: "up.cu"}, "up.cu"),
        ({-1: "", -3: "up.cu"}, "up.cu"),
    ],
)
def test_else_the_nearest_of_somebody_s_own(near: dict[int, str], place: str) -> None:
    at = 0x1000
    lines = {at + 16 * step: (file, 5) for step, file in near.items()} | {at: (TOOLKIT, 5)}
    assert _kernel(lines=lines).place(at) == (place, 5)


def test_the_text_of_a_line() -> None:
    kernel = _kernel(sources={"a.cu": "one\ntwo\nthree", "empty.cu": "", "b\udcff": "x\udcff"})
    assert [kernel.get_line_or_python_statement("a.cu", n) for n in (None, 0, 1, 3, 4)] == [
        None,
        None,
        "one",
        "three",
        None,
    ]
    assert kernel.get_line_or_python_statement(None, 1) is None
    assert kernel.get_line_or_python_statement("empty.cu", 1) is None
    assert kernel.get_line_or_python_statement("b\\xff", 1) == "x\\xff"


LIBRARY = "/opt/site-packages/triton/language/standard.py"
LIBRARY_TEXT = """
@core.builtin
def _sum_combine(a, b):
    return a + b

def sum(input, axis=None):
    return core.reduce(input, axis, _sum_combine)
"""
TRITON_TEXT = """
import triton.language as tl

def helper(x):
    return tl.sum(x, 0)

@triton.jit
def rows(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(
        x + at,
        at < 100,
    )
    mean = tl.sum(row, 0) / 100
    more = tl.exp2(row - mean)
    total = tl.sum(more, 0)
    tl.store(y + at, total)
"""


@pytest.mark.parametrize(
    ("inside", "near", "line"),
    [
        (4, 9, 14),  # _sum_combine: the sum behind the operands, in the same function
        (7, 14, 14),
        (7, 15, 14),  # of two as near, the first
        (7, 17, 16),
        (2, 9, 9),  # no function of the library: the line near by
    ],
)
def test_the_line_of_tritons_library_is_that_of_the_statement_that_calls_it(
    inside: int, near: int, line: int
) -> None:
    at = 0x1000
    sources = {LIBRARY: LIBRARY_TEXT, "k.py": TRITON_TEXT}
    lines = {at: (LIBRARY, inside), at - 16: ("k.py", near)}
    assert _kernel(lines=lines, sources=sources).place(at) == ("k.py", line)


def test_without_the_librarys_source_it_is_the_line_near_by() -> None:
    at = 0x1000
    lines = {at: (LIBRARY, 7), at + 16: ("k.py", 15)}
    assert _kernel(lines=lines, sources={"k.py": TRITON_TEXT}).place(at) == ("k.py", 15)
    assert _kernel(lines={at: (LIBRARY, 7)}).place(at) == (LIBRARY, 7)


def test_the_text_of_a_line_of_python_is_its_statement() -> None:
    kernel = _kernel(
        sources={"k.py": TRITON_TEXT, "cut.py": "x = f(1,\n  2", "odd.py": "\tx\n y = ("}
    )
    whole = "row = tl.load( x + at, at < 100, )"
    assert [kernel.get_line_or_python_statement("k.py", n) for n in (10, 11, 13)] == [whole] * 3
    assert (
        kernel.get_line_or_python_statement("k.py", 11, are_python_statements_joined=False)
        == "        x + at,"
    )
    assert kernel.get_line_or_python_statement("k.py", 14) == "    mean = tl.sum(row, 0) / 100"
    assert kernel.get_line_or_python_statement("cut.py", 2) == "  2"
    assert kernel.get_line_or_python_statement("odd.py", 2) == " y = ("
    long = _kernel(sources={"k.py": "f(\n" + "1234567,\n" * 100 + ")"})
    assert len(long.get_line_or_python_statement("k.py", 50) or "") == STATEMENT


def test_opcodes_of_every_function() -> None:
    kernel = _kernel(
        (
            _function("_Zk", 0x100, CODE),
            _function("dev", 0x200, EXITS),
            _function("away", None, EXITS),
        )
    )
    found = {
        pc: kernel.get_opcode(pc) for pc in (0xF0, 0x100, 0x130, 0x140, 0x200, 0x210, 0x220, 0x108)
    }
    assert found == {
        0xF0: "",
        0x100: "NOP",
        0x130: "NOP",
        0x140: "",
        0x200: "EXIT",
        0x210: "EXIT",
        0x220: "",
        0x108: "",
    }


def test_a_kernel_without_an_address_is_where_it_was_run() -> None:
    places = {"launch__function_pcs": Metric(None, {0x500: 0.0})}
    kernel = _kernel(
        (_function("_Zk", None, CODE), _function("other", 0x500, EXITS)), metrics=places
    )
    assert kernel.get_opcode(0x500) == "NOP"  # what it ran, not what another process had there
    elsewhere = {"launch__function_pcs": Metric(None, {0x500: 0.0, 0x900: 0.0})}
    assert _kernel((_function("_Zk", None, CODE),), metrics=elsewhere).get_opcode(0x500) == ""


def test_code_that_the_report_has_not_has_its_opcodes_by_the_text() -> None:
    sass = {16: "NOP", 32: "LDG.E R4, [R2]", 48: "@!P0 FADD R5, R4, R4", 64: "EXIT", 80: "???"}
    kernel = _kernel(sass={**sass, 96: ".L_1:", 112: "--"})
    said = [kernel.get_opcode(pc) for pc in (*sass, 96, 112, 128)]
    assert said == ["NOP", "LDG", "FADD", "EXIT", "", "", "", ""]
    assert kernel.producers(48, "long_scoreboard") == []  # who waits for whom is in the bits alone


# --- lines of counters


def _bits(opcode: int, write: int = 7, wait: int = 0) -> bytes:
    """An instruction that holds a scoreboard until its result is there, and waits for others."""
    return struct.pack("<QQ", 0x7000 | opcode, write << 46 | 7 << 49 | wait << 52)


# LDG R4, NOP, FADD of R4, STG, EXIT
SASS = _bits(0x981, write=0) + _bits(0x918) + _bits(0x221, wait=1) + _bits(0x986) + _bits(0x94D)
LINES = {0: ("a.cu", 2), 16: ("a.cu", 3), 32: ("a.cu", 3), 48: ("a.cu", 4)}
SOURCES = {"a.cu": "// first\n  x = *p;\n  y = x + x;\n  *p = y;\n}\n"}
RAN = {"inst_executed": Metric(None, dict.fromkeys(range(0, 80, 16), 4.0))}


def _answered(name: str, metrics: dict[str, Any], count: int = 9, **more: int) -> hotlines.HotLines:
    code = (_function("_Zk", 0, SASS),)
    kernel = _kernel(code, metrics={**RAN, **metrics}, lines=LINES, sources=SOURCES)
    counters = {"rule": (name,)} if name else {}
    return hotlines._answer_request(kernel, hotlines.LinesRequest("", 0, counters, count, **more))


def _first(name: str, **metrics: Any) -> list[tuple[int | None, int | None, float, float]]:
    lines = _answered(name, metrics).counters["rule"]
    return [(x.line, x.pc, x.value, round(x.share, 3)) for x in lines]


def test_a_line_has_the_sum_of_its_instructions() -> None:
    assert _first("instructions") == [
        (3, 16, 8.0, 0.4),
        (None, 64, 4.0, 0.2),
        (2, 0, 4.0, 0.2),
        (4, 48, 4.0, 0.2),
    ]
    assert _first("instructions fp32") == [(3, 32, 4.0, 1.0)]
    assert _first("instructions tensor") == []


def test_lanes_without_work() -> None:
    threads = Metric(None, {0: 128.0, 16: 64.0, 32: 1.0, 48: 128.0, 64: 128.0})
    lost = _first("lost-lanes", thread_inst_executed_true=threads)
    assert lost == [(3, 32, 64.0 + 127.0, 1.0)]


def test_a_counter_of_one_name_counts_each_once() -> None:
    """What is summed is weighted by one; only lanes of a warp are 32, less the threads at work."""
    weights = {
        kind: {weight for terms in counter.alternatives for weight in terms.values()}
        for kind, counter in COUNTERS.items()
        if counter.alternatives and not kind.startswith("excess")
    }
    assert weights.pop("lost-lanes") == {32.0, -1.0}
    assert len(weights) > 15
    assert all(of == {1.0} for of in weights.values())


@pytest.mark.parametrize("kind", ["excess-sectors", "excess-wavefronts"])
def test_beyond_the_ideal_by_any_of_its_names(kind: str) -> None:
    names = [dict(terms) for terms in COUNTERS[kind].alternatives]
    assert [len(terms) for terms in names] == [1, 2, 1, 2]
    for terms in names:
        held = {
            name: Metric(None, {0: 9.0 if factor > 0 else 2.0, 32: 3.0 if factor > 0 else 3.5})
            for name, factor in terms.items()
        }
        expected = (
            [(2, 0, 7.0, 1.0)] if len(terms) == 2 else [(2, 0, 9.0, 0.75), (3, 32, 3.0, 0.25)]
        )
        assert _first(kind, **held) == expected


def test_a_wait_is_laid_to_what_is_waited_for() -> None:
    name = RAW_SAMPLES["long_scoreboard"]
    held = {name: Metric(None, {32: 6.0, 48: 2.0})}
    lines = _answered("stall long_scoreboard", held).counters["rule"]
    # The FADD waits for the load; of the store nothing slow is known: it is where it waits.
    assert [(x.line, x.value, x.share, x.producer_line, x.producer_opcode) for x in lines] == [
        (3, 6.0, 0.75, 2, "LDG"),
        (4, 2.0, 0.25, None, ""),
    ]
    assert [(x.stall, x.stall_share) for x in lines] == [("long_scoreboard", 1.0)] * 2


def test_a_fixed_latency_is_where_it_is_waited() -> None:
    (line,) = _answered("stall wait", {RAW_SAMPLES["wait"]: Metric(None, {32: 6.0})}).counters[
        "rule"
    ]
    assert (line.line, line.pc, line.producer_pc) == (3, 32, 16)


def test_lines_by_all_samples_and_the_code_around() -> None:
    held = {
        RAW_SAMPLES["selected"]: Metric(None, {32: 9.0, 0: 1.0}),
        RAW_SAMPLES["wait"]: Metric(None, {32: 2.0}),
        RAW_SAMPLES["barrier"]: Metric(None, {16: 4.0}),
    }
    found = _answered("", held, sampled=2).sampled
    assert [
        (x.line, x.value, round(x.share, 4), x.stall, round(x.stall_share, 3), x.source)
        for x in found
    ] == [
        (3, 15.0, 0.9375, "barrier", 0.267, "y = x + x;"),
        (2, 1.0, 0.0625, "selected", 1.0, "x = *p;"),
    ]
    assert (found[0].pc, found[0].opcode) == (32, "FADD")
    top, *near = _answered("", held, sampled=1, around=1).sampled
    assert (top.line, top.source) == (3, "  y = x + x;")
    assert [(x.line, x.source, x.value, x.share, x.pc, x.stall) for x in near] == [
        (2, "  x = *p;", 0.0, 0.0, None, ""),
        (4, "  *p = y;", 0.0, 0.0, None, ""),
    ]
    _, *far = _answered("", held, sampled=1, around=9).sampled
    assert [x.line for x in far] == [1, 2, 4, 5]


def test_equal_lines_stand_in_the_order_of_the_file() -> None:
    held = {RAW_SAMPLES["wait"]: Metric(None, {48: 2.0, 0: 2.0, 64: 2.0, 32: 3.0})}
    found = _answered("", held, sampled=9).sampled
    assert [(x.line, x.pc) for x in found] == [(3, 32), (None, 64), (2, 0), (4, 48)]


def test_a_warp_that_issues_waits_for_nothing() -> None:
    held = {RAW_SAMPLES[state]: Metric(None, {0: 5.0}) for state in ("selected", "not_selected")}
    assert _first("stalls", **held) == []
    assert set(COUNTERS["stalls"].states) == {*RAW_SAMPLES} - {"selected", "not_selected"}
    waits = {RAW_SAMPLES["sleeping"]: Metric(None, {16: 5.0})}
    assert _first("stalls", **held, **waits) == [(3, 16, 5.0, 1.0)]
    assert _first("stalls memory", **held, **waits) == []


@pytest.mark.parametrize(
    ("major", "minor", "opcode"),
    [
        (9.0, 0.0, "HFMA2"),
        (9.0, 9.0, "HFMA2"),
        (10.0, 0.0, "IADD"),
        (None, 0.0, "HFMA2"),
        (12.0, None, "HFMA2"),
    ],
)
def test_what_a_code_means_is_said_by_the_gpu_of_the_launch(
    major: float | None, minor: float | None, opcode: str
) -> None:
    said = {"major": major, "minor": minor}
    cc = {
        f"device__attribute_compute_capability_{part}": of
        for part, of in said.items()
        if of is not None
    }
    function = _function("_Zk", 0x100, _bits(0x235))
    assert LaunchedCode(Action(cc), lambda: [function]).get_opcode(0x100) == opcode


def test_a_report_that_crashes_the_library_is_told_and_costs_no_other_its_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where what came back is not as many answers as were asked for."""
    paths = [str(tmp_path / name) for name in ("one.ncu-rep", "two.ncu-rep")]
    for path in paths:
        Path(path).write_bytes(b"")
    asked = [
        hotlines.LinesRequest(path, n, {"rule": ("sectors",)}) for n in (0, 1) for path in paths
    ]
    line = hotlines.CounterLine("sectors", "a.cu", 1, 16, "LDG", 1.0, 2.0)
    good = [hotlines.HotLines({"rule": (line,)}, (line,)) for _ in range(2)]
    items: list[Any] = []
    monkeypatch.setattr(
        hotlines, "run_in_child_processes", lambda _f, i, *_: items.extend(i) or [good[:1], good]
    )
    nothing = hotlines.HotLines({}, ())
    assert hotlines.answer_line_requests(asked, is_unread_code_an_error=False) == [
        nothing,
        good[0],
        nothing,
        good[1],
    ]
    assert [(path, [of["launch"] for of in some]) for path, some in items] == [
        (path, [0, 1]) for path in paths
    ]
    with pytest.raises(ProfkitError) as caught:
        hotlines.answer_line_requests(asked)
    assert (caught.value.message, caught.value.hint) == (
        f"{paths[0]}: the process that read it answered other requests",
        "its machine code is damaged: record it again",
    )


def test_a_table_has_no_source_lines() -> None:
    asked = [hotlines.LinesRequest("x.csv", 0, {"rule": ("sectors",)}, sampled=3)]
    assert hotlines.answer_line_requests(asked, is_unread_code_an_error=False) == [
        hotlines.HotLines({"rule": ()}, ())
    ]
    with pytest.raises(ProfkitError, match=r"^x\.csv: a table has no source lines") as caught:
        hotlines.answer_line_requests(asked)
    assert caught.value.hint == "give the .ncu-rep itself for its hot lines"


@pytest.mark.parametrize(
    ("recorded", "limited", "here"),
    [
        ("its own", False, True),
        ("its own", True, False),
        ("0" * 64, False, False),
        (None, False, False),
    ],
)
def test_only_what_is_known_to_be_whole_is_read_in_this_process(
    recorded: str | None, limited: bool, here: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other may crash the library; and where memory is limited, may take all of it."""
    path = tmp_path / "made.ncu-rep"
    path.write_bytes(made.report())
    if recorded:
        sha256 = (
            hashlib.sha256(path.read_bytes()).hexdigest() if recorded == "its own" else recorded
        )
        record = {"schema": SCHEMA, "variant": "v", "case": "c", "report": {"sha256": sha256}}
        path.with_suffix(".json").write_text(json.dumps(record))
    monkeypatch.setattr(hotlines, "is_memory_limited", lambda: limited)
    # Which tests came before says whether forks have opened the library, and this process has not.
    monkeypatch.setattr(hotlines.ROOM, "reserve_read_here", lambda _size: True)
    children: list[Any] = []
    empty = [hotlines.HotLines({}, ())]
    monkeypatch.setattr(
        hotlines, "run_in_child_processes", lambda _f, i, *_: children.extend(i) or [empty]
    )
    assert hotlines.answer_line_requests([hotlines.LinesRequest(str(path), 0, sampled=1)]) == empty
    assert bool(children) is not here


def test_a_frame_of_lines_has_whole_numbers_or_nothing() -> None:
    known = hotlines.CounterLine("samples", "a.cu", 7, 1 << 62, "LDG", 0.5, 2.0, "wait", 1.0)
    bare = hotlines.CounterLine("samples", None, None, 16, "", 0.5, 2.0)
    found = hotlines.make_lines_frame([known, bare])
    assert found.pc.tolist() == [1 << 62, 16]
    assert found.line[0] == 7
    assert found[["file", "line", "producer_line", "producer_pc"]].isna().to_numpy().tolist() == [
        [False, False, True, True],
        [True, True, True, True],
    ]
    assert found.value.sum() == 4.0


@pytest.mark.parametrize(
    ("numbers", "refused"),
    [
        ([0], False),
        ([(1 << 32) - 1], False),
        ([1 << 32], True),
        ([-1], True),
        ([0, 1 << 32], True),
        ([], False),
    ],
)
def test_rows_that_no_frame_can_be_made_of_are_refused(numbers: list[int], refused: bool) -> None:
    """What a child says its launches are may be anything."""
    rows: list[Any] = [("x", n, "k", "kernel", *[None] * 7, "ok", None) for n in numbers]
    rules: list[Any] = [("x", n, "r", "t", "m", 0.5, "") for n in numbers]
    values = bytes(8 * len(CATALOGUE))
    for some, held, advice in ((rows, values * len(rows), []), ([], b"", rules)):
        if refused:
            with pytest.raises(ValueError, match="a launch's number is none"):
                frame.LaunchBatch(some, held, advice)
        else:
            assert frame.LaunchBatch(some, held, advice).identity == some
    for wrong in (values * len(rows) + b"x", values * (len(rows) + 1)):
        with pytest.raises(ValueError, match="other values than launches"):
            frame.LaunchBatch(rows, wrong)


@pytest.mark.parametrize("columns", [[1, 0], [0, 0], [-1], [len(CATALOGUE)]])
def test_columns_that_the_catalogue_does_not_have_are_refused(columns: list[int]) -> None:
    with pytest.raises(ValueError, match="its columns are none"):
        frame.LaunchBatch([], b"", columns=columns)


def test_only_metrics_that_a_launch_has_are_kept_and_parts_with_others_are_one_frame() -> None:
    """Ten thousand launches with a few metrics took a hundred times the bytes of their report."""
    width = len(CATALOGUE)
    names = list(CATALOGUE)
    parts = []
    for place in (3, 5):
        values = array("d", [nan] * 2 * width)
        values[place] = 7.0
        values[width + 4] = 0.0
        held, columns = frame.drop_uncollected_columns(values, 2)
        assert columns == tuple(sorted((4, place)))
        assert len(held) == 2 * 2 * 8
        rows: list[Any] = [("x", n, "k", "kernel", *[None] * 7, "ok", None) for n in range(2)]
        parts.append(frame.LaunchBatch(rows, held, columns=columns))
    joined, columns = frame.join_metric_values(parts, [9])
    assert columns == (3, 4, 5, 9)
    expected = [7.0, nan, nan, nan, nan, 0.0, nan, nan, nan, nan, 7.0, nan, nan, 0.0, nan, nan]
    assert str(list(joined)) == str(expected)
    read = [
        frame.ReportLaunches(part.identity, part.values, columns=part.columns, file=FILE)
        for part in parts
    ]
    first, second = read[0].iterate_metric_rows()
    assert [first[names[3]], second[names[4]]] == [7.0, 0.0]
    assert isnan(first[names[5]])
    assert list(first) == names == list(first.to_dict())
    with pytest.raises(KeyError):
        first["no such metric"]
    whole = frame.Reports(tuple(read)).launches
    shown = whole[[names[3], names[4], names[5]]].fillna(-1).to_numpy().tolist()
    assert shown == [[7, -1, -1], [-1, 0, -1], [-1, -1, 7], [-1, 0, -1]]


def test_rows_that_are_looked_at_are_those_that_are_copied() -> None:
    """A hundred dicts of 230 keys are 1.5 MB: pictures look at some of them."""
    rows: list[Any] = [("x", n, "k", "kernel", *[None] * 7, "ok", None) for n in range(2)]
    values = array("d", [1.5, nan] * len(CATALOGUE)).tobytes()
    launches = frame.Reports((frame.ReportLaunches(rows, values, file=FILE),)).launches
    looked, copied = frame.make_row_views(launches), frame.list_frame_rows_as_dicts(launches)
    assert [str(dict(row)) for row in looked] == [str(row) for row in copied]
    assert [type(value) for value in looked[0].values()] == [type(x) for x in copied[0].values()]
    assert len(looked[1]) == len(copied[1])
