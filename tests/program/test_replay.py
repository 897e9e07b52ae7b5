"""A step that is replayed takes what it took; with a change it takes what the changed one takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from profkit.program.document import make_triage_document
from profkit.program.readers import torch_trace
from profkit.program.replay.play import DEPTH, ReplayModel, build_replay_model
from profkit.program.replay.scenario import EXPECT, HIGH, LOW, Range, StepChange
from profkit.program.steps.cut import find_steps
from profkit.program.triage import triage_timeline
from tests.program.made import GEMM, MUL, Program, plain_ms, ran

Step = Callable[[Program], None]


def scaled(of: ReplayModel, by: float) -> ReplayModel:
    """The model with all of its work by a factor."""
    return StepChange(dict.fromkeys(range(len(of.items)), Range(by, by, by))).apply_to_model(
        of, EXPECT
    )


def busy_gpu(p: Program) -> None:
    for _ in range(20):
        p.launch(GEMM, 100.0)


def slow_host(p: Program) -> None:
    for _ in range(50):
        p.launch(MUL, 2.0)


def looks(p: Program) -> None:
    for _ in range(10):
        p.launch(GEMM, 80.0)
        p.wait()


def two_streams(p: Program) -> None:
    p.launch(GEMM, 300.0, stream=7)
    p.launch(GEMM, 200.0, stream=20)
    p.launch(GEMM, 100.0, stream=7, after=20)


def held_by_a_copy(p: Program) -> None:
    p.copy(10_000_000, 10.0)
    for _ in range(5):
        p.launch(GEMM, 60.0)


def held_until_staged(p: Program) -> None:
    """The driver has taken the bytes, and the call returns: the last ones are still to be copied."""
    p.copy(10_000_000, 10.0)
    p.events[-2]["dur"] -= 80.0
    p.now -= 80.0
    p.launch(GEMM, 60.0)
    p.wait()


def _model(step: Step, tmp_path: Path) -> ReplayModel:
    process = torch_trace.read_torch_trace(ran(step).write(tmp_path / "t.json")).processes[0]
    return build_replay_model(process, find_steps(process).typical)


@pytest.mark.parametrize(
    "step", [busy_gpu, slow_host, looks, two_streams, held_by_a_copy, held_until_staged]
)
def test_the_replay_takes_what_the_program_takes(step: Step, tmp_path: Path) -> None:
    assert _model(step, tmp_path).period / 1e6 == pytest.approx(plain_ms(step), rel=0.03)


def test_a_faster_gpu_saves_nothing_where_the_host_binds(tmp_path: Path) -> None:
    of = _model(slow_host, tmp_path)
    assert scaled(of, 0.1).period == pytest.approx(of.period, rel=0.02)


def test_a_faster_gpu_saves_down_to_where_the_host_binds(tmp_path: Path) -> None:
    def step(p: Program) -> None:
        for _ in range(20):
            p.launch(GEMM, 28.0)

    of = _model(step, tmp_path)
    # 20 launches of 14 us on the host: half of 560 us of kernels is where the host is next.
    assert scaled(of, 0.1).period == pytest.approx(280_000, rel=0.03)


def test_a_wait_that_goes_saves_the_latency_after_it(tmp_path: Path) -> None:
    from dataclasses import replace

    of = _model(looks, tmp_path)
    free = replace(of, events=tuple(e._replace(awaits=-1) for e in of.events))

    def unwatched(p: Program) -> None:
        for _ in range(10):
            p.launch(GEMM, 80.0)

    assert free.period / 1e6 == pytest.approx(plain_ms(unwatched), rel=0.03)


def test_the_host_is_at_most_a_queue_ahead(tmp_path: Path) -> None:
    of = _model(slow_host, tmp_path)
    assert DEPTH == 1024
    slowed = scaled(of, 50.0)  # the GPU binds: the host's time does not add up
    assert slowed.period == pytest.approx(50 * 100_000, rel=0.02)


def test_a_launch_that_waits_for_room_is_no_slow_host(tmp_path: Path) -> None:
    program, ends = Program(), []
    for _ in range(120):
        with program.step():
            for _ in range(20):
                program.launch(GEMM, 200.0)
                ends.append(program.free[7])
                if len(ends) > DEPTH and (room := ends[-1 - DEPTH]) > program.now:
                    program.events[-2]["dur"] += room - program.now
                    program.now = room
    process = torch_trace.read_torch_trace(program.write(tmp_path / "t.json")).processes[0]
    full = build_replay_model(process, find_steps(process).steps[100])
    assert full.period == pytest.approx(4_000_000, rel=0.02)
    # The host needs 14 us a launch: a GPU of 20 binds, one of 2 does not.
    assert scaled(full, 0.1).period == pytest.approx(400_000, rel=0.05)
    assert scaled(full, 0.01).period == pytest.approx(280_000, rel=0.05)


def test_a_queue_that_was_not_recorded_is_no_delay_of_its_own(tmp_path: Path) -> None:
    def backlog(p: Program) -> None:  # what was launched before recording began: 50 ms of it
        if p.step_number == 1:
            p.free[7] = p.now + 50_000
        busy_gpu(p)

    assert _model(backlog, tmp_path).period / 1e6 == pytest.approx(plain_ms(busy_gpu), rel=0.03)


def test_a_fix_is_data_that_can_be_compared_and_is_applied_where_it_helps_least_and_most(
    tmp_path: Path,
) -> None:
    of = _model(looks, tmp_path)
    half, none = Range(1.0, 0.5, 0.0), Range(0.0, 0.0, 0.0)
    works = range(len(of.items))
    change = StepChange(dict.fromkeys(works, half), merge={0: Range(1.0, 0.1, 0.0)})
    assert change == StepChange(dict.fromkeys(works, half), merge={0: Range(1.0, 0.1, 0.0)})
    assert change != StepChange(dict.fromkeys(works, none))
    assert "merge={0: Range(low=1.0, expect=0.1, high=0.0)}" in repr(change)
    least, expect, most = (change.apply_to_model(of, level).period for level in (LOW, EXPECT, HIGH))
    assert least == of.period > expect > most
    assert StepChange().apply_to_model(of, HIGH) == of


def test_a_saving_is_predicted_where_copies_of_pageable_memory_are_the_program(
    tmp_path: Path,
) -> None:
    trace = ran(held_until_staged, 1).write(tmp_path / "t.json")
    document = make_triage_document(triage_timeline(torch_trace.read_torch_trace(trace)))
    assert document["findings"][0]["category"] == "copy"
