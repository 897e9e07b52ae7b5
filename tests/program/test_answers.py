"""What is said of a program: document, screen, ranks, before and after."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import profkit as pk
from profkit.errors import ProfkitError
from profkit.program import counts
from profkit.program import readers as recordings
from profkit.program.change import compare_triages
from profkit.program.document import make_triage_document
from profkit.program.ranks import compare_ranks, merge_timelines, select_ranks
from profkit.program.recorded import judge_recordings
from profkit.program.rules import BY_ID as CATEGORIES
from profkit.program.timeline import Timeline
from profkit.program.triage import triage_timeline
from profkit.reports.figures import get_base_name_of_kernel, make_kernel_name_readable
from profkit.show.text.blocks import render_markdown
from profkit.show.text.terminal import render_text
from profkit.show.views.triage import draw_step_bar, show_compared_triages, show_triage
from tests.found import find_files
from tests.program.made import GEMM, MUL, Program, ran
from tests.program.said import said
from tests.sweeps import take_part

pytestmark = pytest.mark.slow

DATA = Path(__file__).parent / "data"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
TRACES = sorted(p.name for p in find_files(DATA, "*.json.gz"))


@pytest.mark.parametrize("name", TRACES)
def test_the_document_keeps_its_contract(name: str) -> None:
    of = said(name)
    json.dumps(of, allow_nan=False)
    assert of["schema"] == "profkit.triage/1"
    assert {"command", "ranks", "device", "steps", "how"} <= set(of["program"])
    assert {"ms", "gpu_busy_ms", "idle_ms", "idle"} <= set(of["step"])
    assert of["first"]["category"] in CATEGORIES
    ids = {row["id"] for row in of["kernels"]}
    assert len(ids) == len(of["kernels"])
    for row in of["findings"]:
        assert row["category"] in CATEGORIES
        assert set(row["kernels"]) <= ids
        assert row["say"]
        assert row["try"]
        saves = row["saves_ms"]
        assert 0 <= saves["low"] <= saves["expect"] <= saves["high"] <= of["step"]["ms"]
        assert saves["high"] <= row["at_most_ms"] + 1e-6
        assert row["evidence"]
    in_all = sum(row["ms"] for row in of["kernels"])
    assert sum(row["ms"] for row in of["origins"]) == pytest.approx(in_all, rel=1e-4)
    for row in [*of["kernels"], *of["origins"]]:
        assert row["share"] == pytest.approx(row["ms"] / of["step"]["ms"], abs=1e-5)
    for row in of["kernels"]:
        assert row["counted"] is False
        assert row["bound"] is row["headroom"] is None  # not counted is not 0 %
    plain = of["step"]["plain_ms"]  # recording makes no step faster
    assert 0 < plain["low"] <= plain["expect"] <= plain["high"] <= of["step"]["ms"] + 1e-6


def _screen(of: dict[str, Any], width: int = 120) -> str:
    from rich.console import Console

    console = Console(width=width, markup=False, emoji=False, highlight=False)
    return render_text(show_triage(of), console)


@pytest.mark.parametrize("name", TRACES)
def test_the_screen_has_at_most_forty_lines(name: str) -> None:
    text = _screen(said(name))
    assert len(text.splitlines()) <= 40
    assert "What to do first" in text


def test_the_screen_names_what_is_first() -> None:
    text = _screen(said("copy_pageable.planted.json.gz"))
    assert re.search(r"1\. copy: saves about 5\.\d\d of 9\.\d\d ms \([45]\.\d\d to 6\.\d\d\)", text)
    assert "50.3 MB per step are copied to the GPU from pageable memory" in text
    assert "not counted" not in text  # a column that says nothing of any kernel is left out
    healthy = _screen(said("healthy_transformer.planted.json.gz"))
    assert "healthy: the GPU computes in 99 % of the step" in healthy


def test_names_out_of_a_trace_cannot_act(tmp_path: Path) -> None:
    evil = "\x1b[31mred[/]<script>|`*_kernel"
    path = ran(lambda p: p.launch(evil, 500.0)).write(tmp_path / "t.json")
    of = make_triage_document(triage_timeline(recordings.read_timeline(path)))
    assert "\x1b" not in _screen(of)
    markdown = render_markdown(show_triage(of))
    assert "<script>" not in re.sub(r"``.*?``", "", markdown)  # a name is code, fenced twice


def test_the_bar_is_as_long_as_the_step() -> None:
    step = {"ms": 10.0, "gpu_busy_ms": 5.0, "idle": [{"cause": "copy", "ms": 5.0, "where": ""}]}
    assert draw_step_bar(step).text == "[" + "#" * 30 + "c" * 30 + "]"


def _rank(number: int, slow: float, tmp_path: Path) -> Timeline:
    """Two ranks come to one collective; the faster one is in it until the other comes."""

    def step(p: Program) -> None:
        for _ in range(10):
            p.launch(GEMM, 100.0)
        p.launch("my_extra_kernel", slow)
        p.launch(NCCL, 50.0 + 400.0 - slow, stream=20, after=7)
        p.launch(GEMM, 10.0, after=20)

    path = ran(step).write(
        tmp_path / f"{number}.json", distributedInfo={"rank": number, "world_size": 2}
    )
    return recordings.read_timeline(path)


@pytest.mark.parametrize("name", sorted(p.name for p in find_files(DATA, "*.json.gz")))
def test_the_numbers_of_a_screen_multiply_out(name: str) -> None:
    """Kernels x their mean is their rows; idle time saved is idle; no saving is above the step."""
    of = said(name)
    step = of["step"]
    rows = [row for row in of["kernels"] if row["category"] not in {"copy", "collective"}]
    assert sum(row["ms"] for row in rows) >= 0.98 * step["gpu_busy_ms"]
    assert sum(row["ms"] for row in step["idle"]) == pytest.approx(step["idle_ms"], abs=1e-5)
    assert step["gpu_busy_ms"] + step["idle_ms"] == pytest.approx(step["ms"], abs=1e-5)
    plain = step["plain_ms"]["expect"]
    alone = sum(row["ms"] for row in step["idle"] if row["cause"] in {"copy", "collective"})
    for finding in of["findings"]:
        saves, evidence = finding["saves_ms"], finding["evidence"]
        assert saves["low"] <= saves["expect"] <= saves["high"] <= max(plain, step["ms"])
        if "launches" in evidence:  # slow launches: nothing is done about copies
            kernels = sum(row["ms"] for row in rows if row["category"] != "set")
            assert evidence["kernels"] * evidence["mean"] / 1e3 == pytest.approx(kernels, rel=1e-4)
            slower = max(1.0, plain / step["ms"])
            idle = (step["idle_ms"] - alone) * slower
            assert saves["high"] <= max(idle, saves["expect"]) * (1 + 1e-6)


def test_the_rank_that_others_wait_for_is_named(tmp_path: Path) -> None:
    timeline = merge_timelines([_rank(0, 100.0, tmp_path), _rank(1, 400.0, tmp_path)])
    found = compare_ranks(timeline.processes)
    assert [r.rank for r in found.rows] == [0, 1]
    assert found.slowest == 1
    assert [r.waiting for r in found.rows] == [pytest.approx(300_000, rel=0.01), 0]
    assert found.longer == ("my_extra_kernel", pytest.approx(300_000, rel=0.01))
    of = make_triage_document(triage_timeline(timeline))
    assert of["program"]["ranks"] == 2
    assert of["ranks"][0]["waiting_ms"] == pytest.approx(0.3, rel=0.01)
    assert any("rank 0 waits 0.300 ms per step in collectives for rank 1" in n for n in of["notes"])
    uneven = next(f for f in of["findings"] if f["say"].startswith("rank 1 computes"))
    assert uneven["category"] == "collective"
    assert (
        "rank 1 computes for 1.41 ms per step, against a mean of 1.26 over 2 ranks" in uneven["say"]
    )
    assert uneven["saves_ms"]["expect"] == pytest.approx(0.15, rel=0.02)
    lines = _screen(of, 160).splitlines()
    (first,) = [line for line in lines if "rank 0: " in line]
    assert (
        "0.350 ms in collectives: 0.0500 ms transferring, 0.300 ms waiting for other ranks" in first
    )
    assert sum("waiting for other ranks" in line for line in lines) == 2


def test_two_real_ranks_with_unlike_parts() -> None:
    # Two H200s under torchrun, rank 1 with 5/4 of the rows, rank 0 with 3/4; counted on rank 1.
    answer, counted = judge_recordings([DATA / "slow_rank.triage"])
    assert counted is not None
    of = make_triage_document(answer, counted)
    assert of["program"]["ranks"] == 2
    assert of["first"]["category"] == "collective"
    rows = of["ranks"]
    equal = sum(row["computing_ms"] for row in rows) / 2
    assert rows[1]["computing_ms"] / equal == pytest.approx(5 / 4, rel=0.04)
    saves = of["first"]["saves_ms"]
    assert saves["low"] < rows[1]["computing_ms"] - equal < saves["high"]
    assert all(row["counted"] is False for row in of["kernels"] if row["category"] == "collective")
    assert sum(row["counted"] for row in of["kernels"]) >= 7
    assert len(_screen(of).splitlines()) <= 41  # the answer takes two of them


def test_some_ranks_are_looked_at_and_no_other(tmp_path: Path) -> None:
    timeline = merge_timelines([_rank(0, 100.0, tmp_path), _rank(1, 400.0, tmp_path)])
    assert select_ranks(timeline, "all") is timeline
    assert [p.rank for p in select_ranks(timeline, "1").processes] == [1]
    with pytest.raises(ProfkitError, match=r"--ranks 1,7: no rank 7") as caught:
        select_ranks(timeline, "1,7")
    assert caught.value.hint == "there are: 0, 1; or all"


def test_ranks_that_come_together_wait_for_nobody(tmp_path: Path) -> None:
    timeline = merge_timelines([_rank(0, 100.0, tmp_path), _rank(1, 100.0, tmp_path)])
    assert compare_ranks(timeline.processes).slowest is None


def test_recordings_of_two_kinds_are_not_one_program(tmp_path: Path) -> None:
    first = _rank(0, 100.0, tmp_path)
    with pytest.raises(ProfkitError, match="recordings of 2 kinds"):
        merge_timelines([first, replace(first, how="nsys")])


def test_what_became_of_each_promise() -> None:
    found = compare_triages(
        said("attention_written_out.planted.json.gz"), said("attention_written_out.mended.json.gz")
    )
    assert found["answer"] == "faster"
    assert found["saved_ms"] == pytest.approx(18.5, rel=0.01)
    (promise, *_) = found["promises"]
    assert (promise["category"], promise["state"]) == ("attention-unfused", "gone")
    assert found["kept"] is True  # 18.5 ms, where 18.3 were the most, and two runs differ by 2 %
    assert found["new"] == ["kernel"]
    text = render_markdown(show_compared_triages(found))
    assert f"**saved**: {found['saved_ms']:.3g} ms per step" in text


def _step(
    ms: float, low: float, high: float, device: str = "H100", steps: int = 9
) -> dict[str, Any]:
    plain = {"expect": ms, "low": low, "high": high}
    step = {"ms": high, "plain_ms": plain, "min_ms": low, "max_ms": high}
    finding = {"category": "copy", "say": "", "saves_ms": {"expect": 2.0, "low": 1.0, "high": 3.0}}
    program = {"device": device, "steps": steps, "how": "cupti", "ranks": 1}
    return {"program": program, "step": step, "findings": [finding], "kernels": []}


def test_two_gpus_show_no_gain() -> None:
    before, after = _step(10, 10, 10), _step(5, 5, 5, "A100") | {"findings": []}
    found = compare_triages(before, after)
    assert (found["answer"], found["kept"], found["outcome"]) == ("cannot tell", None, None)
    text = render_markdown(show_compared_triages(found))
    assert "different GPUs" in text
    assert "saved" not in text


def test_an_estimate_is_said_to_be_one_and_may_not_tell() -> None:
    before = _step(10, 8, 12)
    after = _step(9, 7, 11) | {"findings": []}
    assert compare_triages(before, after)["answer"] == "faster"  # at both ends and between
    text = render_markdown(show_compared_triages(compare_triages(before, after)))
    assert "about 10.0 ms (8.00 to 12.0)" in text
    assert "1.11x (1.09 to 1.14)" in text
    assert "12.0 ms before, 11.0 ms after; both times above are estimates" in text
    recorded = _step(5, 5, 5) | {"findings": []}
    text = render_markdown(show_compared_triages(compare_triages(before, recorded)))
    assert "10.0 ms is an estimate without the profiler" in text
    text = render_markdown(show_compared_triages(compare_triages(recorded, recorded)))
    assert "estimate" not in text
    wider = _step(9, 7, 13) | {"findings": []}
    assert compare_triages(before, wider)["answer"] == "cannot tell"


def test_more_than_was_promised_is_not_broken() -> None:
    before, after = _step(10, 10, 10), _step(4, 4, 4) | {"findings": []}
    found = compare_triages(before, after)
    assert (found["kept"], found["outcome"]) == (False, "more")
    text = render_markdown(show_compared_triages(found))
    assert "larger than predicted" in text
    assert "kept" not in text
    less = compare_triages(before, _step(9.7, 9.7, 9.7) | {"findings": []})
    assert less["outcome"] == "less"
    assert "smaller than predicted" in render_markdown(show_compared_triages(less))


def test_two_steps_that_differ_by_more_than_the_change_do_not_tell() -> None:
    before = _step(10, 10, 10, steps=2)
    before["step"] |= {"min_ms": 8.0, "max_ms": 12.0}
    after = _step(9, 9, 9) | {"findings": []}
    assert compare_triages(before, after)["answer"] == "cannot tell"


def _kernels(prefix: str, op: str = "", calls: int = 1) -> dict[str, Any]:
    rows = []
    for number in range(3):
        rows.append(
            {"name": f"{prefix}{number}", "op": op and f"aten::{op}{number}", "ms": 1.0}
            | {"calls": calls, "category": "unknown"}
        )
    copy = {"name": "Memcpy HtoD (Pageable -> Device)", "op": op and "aten::copy_", "ms": 9.0}
    return {"kernels": [*rows, copy | {"calls": 5, "category": "copy"}]}


@pytest.mark.parametrize(
    ("before", "after", "two"),
    [
        (_kernels("a", "mm"), _kernels("b", "conv"), True),
        (_kernels("a"), _kernels("b", calls=3), True),
        (_kernels("a", "mm"), _kernels("b", "mm"), False),
        (_kernels("a"), _kernels("b", calls=2), False),
        (_kernels("a"), _kernels("a", calls=3), False),
    ],
    ids=["operators", "launches", "other precision", "rewritten", "more of the same"],
)
def test_two_programs_have_no_ratio(before: Any, after: Any, two: bool) -> None:
    """A copy that both make shows nothing: any program makes copies."""
    found = compare_triages(_step(10, 10, 10) | before, _step(5, 5, 5) | {"findings": []} | after)
    assert (found["answer"] == "cannot tell") == two
    assert any("different programs" in note for note in found["notes"]) == two
    assert (found["promises"] == []) == two
    assert ("saved" in render_markdown(show_compared_triages(found))) == (not two)


def test_two_of_one_program_are_the_same() -> None:
    of = said("copy_pageable.planted.json.gz")
    found = compare_triages(of, of)
    assert found["answer"] == "same"
    assert found["kept"] is None
    assert {p["state"] for p in found["promises"]} == {"there"}


def test_what_is_counted_and_what_never_is(tmp_path: Path) -> None:
    def step(p: Program) -> None:
        p.copy(1_000_000, 8.0)
        p.launch(NCCL, 500.0)
        p.launch(GEMM, 950.0)
        p.launch(MUL, 40.0)
        p.launch("tiny_kernel", 2.0)

    answer = triage_timeline(recordings.read_timeline(ran(step).write(tmp_path / "t.json")))
    assert [g.name for g in counts.choose_groups_to_count(answer.groups)] == [GEMM]
    many = triage_timeline(recordings.read_timeline(DATA / "optimizer_for_loop.planted.json.gz"))
    chosen = counts.choose_groups_to_count(many.groups)
    assert len(chosen) <= counts.MOST
    assert all(g.grid for g in chosen)


# As Numba hashes the options of a compilation.
NUMBAS = (
    "cw51cXTLSUwv1oDHpC0oJQBDAi1SkIQh8Y8kgBqnMAkkq2yr1cHmq1spGOgoqIP8BLIKyIWoVYeFC1AEGr7qQK1A_3d"
)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        (
            "void at::native::(anonymous namespace)::indexFuncLargeIndex<float, long>(int)",
            "indexFuncLargeIndex",
        ),
        ("scale_strided(float const*, float*)", "scale_strided"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256>(Params)", "Kernel2"),
        (GEMM, GEMM),
        (
            f"cudapy::__main__::blur[abi:v1][abi:{NUMBAS}](Array<float, 2, C, mutable, aligned>)",
            "blur",
        ),
        (
            f"_ZN6cudapy8__main__4blurB2v1B{len(NUMBAS)}{NUMBAS}E5ArrayIfLi2E1C7mutable7alignedE",
            "blur",
        ),
        ("std::print_all[abi:cxx11](int)", "print_all"),
    ],
)
def test_names_as_ncu_filters_them(name: str, function: str) -> None:
    assert get_base_name_of_kernel(name) == function


def test_tags_that_no_source_has_are_left_out() -> None:
    plain = "cudapy::__main__::blur(Array<float, 2, C, mutable, aligned>)"
    tagged = plain.replace("blur", f"blur[abi:v1][abi:{NUMBAS}]")
    assert make_kernel_name_readable(tagged) == plain
    mangled = f"_ZN6cudapy8__main__4blurB2v1B{len(NUMBAS)}{NUMBAS}E5ArrayIfLi2E1CE"
    assert make_kernel_name_readable(mangled) == "cudapy::__main__::blur<Array 2 C>"
    assert counts.remove_demangler_differences(tagged) == counts.remove_demangler_differences(plain)


def test_frames_for_a_notebook() -> None:
    frames = pk.triage(DATA / "copy_pageable.planted.json.gz")
    assert frames.first["category"] == "copy"
    assert frames.findings["category"].iloc[0] == "copy"
    assert frames.idle["ms"].sum() == pytest.approx(frames.step["idle_ms"], abs=1e-3)
    assert frames.kernels["ms"].is_monotonic_decreasing
    assert pk.triage(DATA / "healthy_transformer.planted.json.gz").findings.empty
    assert pk.triage(frames) is frames
    one = pk.triage(str(DATA / "copy_pageable.plant*.json.gz"))
    assert one.document == pk.triage([DATA / "copy_pageable.planted.json.gz"]).document


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (3, "int: cannot read a recording"),
        (None, "NoneType: cannot read a recording"),
        ([], "an empty list"),
        ("nowhere*.json", "nowhere"),
        ("run.ncu-rep", "a report of kernels, not a program"),
    ],
)
def test_triage_says_what_it_takes(given: object, says: str) -> None:
    with pytest.raises(ProfkitError, match=says) as wrong:
        pk.triage(given)
    assert wrong.value.hint


def test_the_page_needs_nothing_and_runs_nothing(tmp_path: Path) -> None:
    import xml.etree.ElementTree as Tree

    from profkit.show.page import render_program_page
    from profkit.show.step import PageProgram

    evil = "<script>alert(1)</script>\x1b[31m_kernel"

    def step(p: Program) -> None:
        p.copy(4_000_000, 8.0)
        p.launch(evil, 500.0)
        p.launch(GEMM, 200.0, stream=20)
        p.wait()

    answer = triage_timeline(recordings.read_timeline(ran(step).write(tmp_path / "t.json")))
    page = render_program_page(PageProgram("t.json", answer, make_triage_document(answer)))
    assert "<script" not in page
    assert "http://" not in page.replace("http-equiv", "")
    assert "unsafe" not in page[: page.index("<title>")]
    assert "style=" not in page
    begin = page.index('<div class="lanes stays">')
    rows = Tree.fromstring(page[begin : page.index("</div>", begin) + 6])
    texts = [t.text for t in rows.iter("span")]
    assert texts[:3] == ["idle", "stream 7", "stream 20"]
    # Copy, kernel and product in two streams, and what is idle between them.
    titles = {t.text.split(":")[0] for t in rows.iter("title") if t.text}
    assert {"copy", "unknown", "gemm"} <= titles
    assert {"idle, copy", "idle, host-sync"} <= titles


@pytest.mark.parametrize("name", take_part(TRACES[::4], one_of=4))
def test_the_page_of_a_triage_has_the_parts_of_a_page_of_launches(name: str) -> None:
    """Bar, legend, cards, table; finding, timeline and kernel lead to each other."""
    from profkit.show.page import render_program_page
    from profkit.show.step import PageProgram

    answer = triage_timeline(recordings.read_timeline(DATA / name))
    of = make_triage_document(answer)
    page = render_program_page(PageProgram(name, answer, of))
    places = set(re.findall(r' id="([^"]+)"', page))
    links = re.findall(r'href="#([^"]+)"', page)
    assert set(links) <= places
    for finding in of["findings"]:
        for kernel in finding["kernels"]:
            assert f"program-1-{kernel}" in links or f"program-1-{kernel}" not in places
    shown = of["kernels"][:12]
    assert {f"program-1-{row['id']}" for row in shown} <= places
    assert 'name="viewport"' in page
    assert page.count('<article class="found') == len(of["findings"])
    assert "not counted" not in page
    assert not re.search(r"\[#+[lwcn.]*", page), "a bar of letters in a proportional font"
    causes = {row["cause"] for row in of["step"]["idle"] if row["ms"] > 0}
    assert page.count('<rect class="fill ') >= 1 + len(causes)
    assert page.count('class="badge ') >= 1


def test_ten_thousand_launches_are_few_bars(tmp_path: Path) -> None:
    from profkit.show.step import CELL, draw_timeline

    def step(p: Program) -> None:
        for _ in range(5_000):
            p.launch(MUL, 13.0)
            p.launch(GEMM, 13.0)  # no bar is like the one before it

    answer = triage_timeline(recordings.read_timeline(ran(step, 2).write(tmp_path / "t.json")))
    lanes = draw_timeline(answer)
    assert all(lane.count("<rect") <= 1 / CELL for lane in lanes.values())
    assert "more, too narrow to be drawn" in lanes["stream 7"]


def test_shares_of_kernels_that_overlap_say_that_they_do(tmp_path: Path) -> None:
    def overlap(p: Program) -> None:
        for _ in range(10):
            p.launch(GEMM, 200.0)
            p.launch(MUL, 150.0, stream=9)
        for name in "abcd":
            p.launch(name, 3.0)

    answer = triage_timeline(recordings.read_timeline(ran(overlap).write(tmp_path / "t.json.gz")))
    of = make_triage_document(answer)
    assert sum(row["share"] for row in of["kernels"]) > 1.5
    assert "these shares add up to 17" in _screen(of)


def test_a_replay_that_fails_gives_no_time_without_the_profiler(tmp_path: Path) -> None:
    answer = triage_timeline(recordings.read_timeline(_small_steps().write(tmp_path / "t.json.gz")))
    of = make_triage_document(answer)
    assert of["step"]["plain_ms"]["expect"] < 0.9 * of["step"]["ms"]
    failed = replace(answer, hosts=replace(answer.hosts, error=0.5))
    of = make_triage_document(failed)
    assert of["step"]["plain_ms"]["expect"] == pytest.approx(of["step"]["ms"])


def _small_steps() -> Program:
    def launch(p: Program) -> None:
        for _ in range(100):
            with p.op("aten::mul"):
                p.launch(MUL, 2.0)

    return ran(launch, host=40.0)
