"""Traces of tests/programs from an H200: the planted problem is first, the saving is what it was.

The truth is the plain time of the planted program less that of the mended one.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from profkit.program.readers.store import read_saved_timeline
from profkit.program.recorded import judge_recordings
from profkit.program.triage import triage_timeline
from profkit.program.verdict import WORTH
from tests.conftest import ROOT
from tests.found import find_files
from tests.program.said import said
from tests.sweeps import take_part
from tools import left_out, programs

pytestmark = pytest.mark.slow

DATA = Path(__file__).parent / "data"
TRUTH = json.loads((DATA / "truth.json").read_text())["programs"]
# Recorded program -> what is planted in it.
PLANTED = {
    name: row["category"]
    for name, row in TRUTH.items()
    if (DATA / f"{name}.planted.json.gz").is_file() and row["category"] != "healthy"
}
TIMED = [name for name in PLANTED if TRUTH[name]["mended_ms"]]
CLOSE = 0.25
# Said more than a quarter off, the truth inside of the interval: a mend that makes another kernel
# slower (the bias' gradient takes three times as long in channels_last).
INSIDE_ONLY = {
    "layout_channels_first",
    "loader_on_main_thread",  # 498 ms said of 343: numpy's runs of one process take 135 to 545
    "optimizer_foreach",
    "sync_conjugate_gradients",
    "layout_width_one",  # 6.91 ms said of 9.46: half of its biases are not seen to go with a product
    # Without the waits the host limits it all the same: 22.6 ms of 25.2, and the GPU works for 14.5.
    "sync_accumulation_item",
    "sync_clip_by_hand",  # 4.20 ms (0 to 7.66) said of 6.06: what its loop costs the host is not known
}
# What is said first where the planted problem is not: known misses, and that they are still there.
MISSED = {
    # Two chains of elementwise kernels at its loss, 0.944 ms of 16: 5.4 % are expected of them.
    "healthy_convnet": "elementwise-chain",
}
# Steps that the profiler slows so that what is left without it is off by more than a sixth.
SLOWED = {
    "copy_checkpoint_each_step",  # copies to pageable memory: 197 ms in its trace, 166 plain
    "loader_on_main_thread",  # 516 ms in its trace, 135 to 545 plain
    "atomics_particle_in_cell",  # its steps grow as it runs: 16.8, 19.3, 20.4 ms in its trace
}
# Neither near nor inside: what one step of three, the second, says of a program whose steps differ.
OFF = {
    "atomics_particle_in_cell",  # the particles gather: 16.9 ms said of 11.5
    "optimizer_for_loop",  # 52.9 and 45.6 ms in its trace, 26.5 plain: 3.45 to 26.1 said of 2.74
    "fp32_convolutions",  # 10.8 to 16.3 said of 18.6
    "layout_width_one",  # its copies and biases take 9.43 ms, and 9.46 came: 6.91 said
}
OFF_BY_ITSELF = {"sync_accumulation_item"}  # 10.6 to 25.0 % said of 10.4
MENDED = [
    "attention_written_out",
    "copy_results_to_host",
    "elementwise_chain",
    "fp32_matmul",
    "host_launch_small_layers",
    "host_sync_item",
    "kernel_triton_small_grid",
    "chain_entropy_by_hand",
    "kernel_full_sort",
    "layout_token_mixing",
    "optimizer_foreach",
    "sync_masked_rows",
    "sync_timers",
    "kernel_odd_vocabulary",
    "copy_offloaded_weights",
    "copy_checkpoint_each_step",
    "fp64_inputs",
    "layout_audio_transposes",
    "loader_on_main_thread",
]
HEALTHY = [
    "healthy_transformer",
    "kernel_tile_tail",
    "healthy_data2vec",
    "healthy_ranking",
]
LARGE = {"launch_transducer", "optimizer_lamb_by_hand"}  # traces of 1.7 and 2.7 MB are not kept


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_problem_is_first(name: str) -> None:
    assert said(f"{name}.planted.json.gz")["first"]["category"] == MISSED.get(name, PLANTED[name])


@pytest.mark.parametrize("name", [n for n in TIMED if n not in MISSED and n not in OFF])
def test_the_saving_is_what_it_was(name: str) -> None:
    saves = said(f"{name}.planted.json.gz")["first"]["saves_ms"]
    truth = TRUTH[name]["planted_ms"] - TRUTH[name]["mended_ms"]
    assert saves["low"] <= saves["expect"] <= saves["high"]
    assert saves["low"] <= truth <= saves["high"] or abs(saves["expect"] - truth) < CLOSE * truth
    if name not in INSIDE_ONLY:
        assert saves["expect"] == pytest.approx(truth, rel=CLOSE)


@pytest.mark.parametrize(
    "file", [*(f"{n}.planted" for n in HEALTHY), *(f"{n}.mended" for n in MENDED)]
)
def test_what_has_no_problem_is_healthy(file: str) -> None:
    of = said(f"{file}.json.gz")
    assert of["first"]["category"] == "healthy"
    assert all(f["saves_ms"]["expect"] < WORTH * of["step"]["ms"] for f in of["findings"])


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_at_all_is_said_of_a_healthy_program(name: str) -> None:
    assert said(f"{name}.planted.json.gz")["findings"] == []


@pytest.mark.parametrize("folder", sorted((DATA / "own").iterdir()), ids=lambda f: f.stem)
def test_the_planted_problem_is_first_in_our_own_timeline(folder: Path) -> None:
    """Names, grids, times and calls: no operator, no shape, no line."""
    answer, truth = said(f"own/{folder.name}"), TRUTH[folder.stem]
    assert answer["first"]["category"] == truth["category"]
    # The step that is found may be a part of the program's: shares are compared.
    share = (truth["planted_ms"] - truth["mended_ms"]) / truth["planted_ms"]
    plain, saves = answer["step"]["plain_ms"]["expect"], answer["first"]["saves_ms"]
    assert (
        folder.stem in OFF_BY_ITSELF
        or saves["low"] / plain <= share <= saves["high"] / plain
        or (saves["expect"] / plain == pytest.approx(share, rel=CLOSE))
    )


@pytest.mark.parametrize(
    "file", ["own/host_launch_jax_op_by_op.triage", "host_launch_jax_op_by_op.planted.json.gz"]
)
def test_a_program_in_jax_is_not_told_of_pytorch(file: str) -> None:
    of = said(file)
    first = of["findings"][0]
    assert first["try"].startswith("jax.jit")
    assert first["where"] in {"loop_add_fusion", "wrapped_add"}, (
        "and not XLA's Thunk:#name=,hlo_op=...#"
    )
    assert "torch" not in json.dumps(of["findings"])
    kinds = {row["name"]: row["category"] for row in of["kernels"]}
    assert (kinds["wrapped_add"], kinds["gemm_fusion_dot"]) == ("elementwise", "gemm")


def test_a_chain_over_lists_is_one_finding_with_counters_too() -> None:
    timeline = read_saved_timeline(DATA / "own" / "optimizer_foreach.triage")
    lists = {g.id for g in triage_timeline(timeline).groups if g.kind == "optimizer"}
    assert len(lists) >= 8
    counted = triage_timeline(timeline, gain_by_kernel_group=dict.fromkeys(lists, 1.9))
    assert [f.rule for f in counted.findings if lists.intersection(f.kernels)] == ["optimizer"]


def test_waits_behind_a_slow_host_may_save_nothing() -> None:
    # 36 calls of .item() a step, of norms that are computed one by one. Taking the calls out saved
    # nothing: the host was no faster. One launch for all norms was not tried.
    of = said("waits_behind_slow_host.json.gz")
    truth = TRUTH["waits_behind_slow_host"]
    assert truth["mended_ms"] == pytest.approx(truth["planted_ms"], rel=0.01)
    waits, launches = of["findings"][:2]
    assert (waits["category"], launches["category"]) == ("host-sync", "host-launch")
    assert "torch._foreach_norm" in waits["try"]
    assert waits["saves_ms"]["low"] == 0.0
    assert waits["saves_ms"]["expect"] < 0.3 * truth["planted_ms"]


@pytest.mark.parametrize("name", [n for n in TIMED if n not in SLOWED])
def test_the_step_without_the_profiler_is_told(name: str) -> None:
    plain = said(f"{name}.planted.json.gz")["step"]["plain_ms"]
    assert plain["expect"] == pytest.approx(TRUTH[name]["planted_ms"], rel=0.16)


@pytest.mark.parametrize("name", PLANTED)
def test_the_step_is_given_out_whole(name: str) -> None:
    step = said(f"{name}.planted.json.gz")["step"]
    idle = sum(row["ms"] for row in step["idle"])
    assert step["gpu_busy_ms"] + idle == pytest.approx(step["ms"], abs=1e-4)
    assert step["idle_ms"] == pytest.approx(idle, abs=1e-4)


def test_most_of_what_is_planted_was_timed() -> None:
    assert len(TIMED) >= 10
    assert set(PLANTED) == set(TIMED)


def test_every_program_has_its_planted_trace() -> None:
    sources = {p.stem for p in find_files(ROOT / "tests" / "programs", "*.py")}
    sources -= {"base", "overhead", "record"}
    assert sources <= set(TRUTH)
    traced = {p.name.split(".")[0] for p in find_files(DATA, "*.planted.json.gz")}
    assert traced == {*PLANTED, *HEALTHY, "healthy_convnet"}
    assert sources <= {*traced, *LARGE}
    assert not LARGE & traced
    assert all("blind" in TRUTH[name] for name in LARGE), "what was said of it is kept"


@pytest.mark.slow
def test_the_page_has_the_table_as_it_comes_today() -> None:
    table = programs.table(take_part(programs.WITHOUT, one_of=2, first=1))
    lines = [line for line in table.splitlines() if line]
    page = programs.PAGE.read_text("utf-8").splitlines()
    first = page.index(lines[0])
    there = [line for line in page[first:] if line in lines]
    assert there[: len(lines)] == lines, "python tools/score.py programs"
    assert "Blind: first in 27 of 29" in table


@pytest.mark.forks  # which has the answers of the test before: they are of the same recordings
def test_the_page_of_programs_left_out_has_the_table_as_it_comes_today() -> None:
    assert left_out.make_table() in left_out.PAGE.read_text("utf-8")


def test_a_counted_kernel_at_the_hardware_limit_is_no_finding() -> None:
    answer, counts = judge_recordings([DATA / "slow_rank.triage"])
    at_limit = next(g for g in answer.groups if g.name.startswith("nvjet_sm90_tst_128x256"))
    assert counts is not None
    assert counts.expected_gains[at_limit.id] == 1.0
    assert not any("could be" in f.cause and at_limit.id in f.kernels for f in answer.findings)


def test_a_bound_that_nothing_prices_is_no_gain() -> None:
    answer, counts = judge_recordings([DATA / "slow_rank.triage"])
    short = next(g for g in answer.groups if g.grid == (1, 1, 1) and "vectorized" in g.name)
    assert counts is not None
    assert short.id in counts.groups
    assert short.id not in counts.expected_gains
