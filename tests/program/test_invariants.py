"""What holds of the answer for every program: hypothesis makes the programs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.program.readers import torch_trace
from profkit.program.triage import Triage, triage_timeline
from tests.program.made import GEMM, SOFTMAX, Program


def judged(program: Program, **how: float) -> Triage:
    with tempfile.TemporaryDirectory() as folder:
        path = program.write(Path(folder) / "trace.json")
        return triage_timeline(torch_trace.read_torch_trace(path), **how)


@settings(max_examples=60)
@given(
    pause=st.floats(0, 2e6), where=st.sampled_from(("before", "inside", "behind a wait")),
    count=st.integers(2, 6), marked=st.booleans(),
    took=st.lists(st.floats(396.0, 404.0), min_size=120, max_size=120),
)  # fmt: skip
def test_a_pause_before_the_first_step_is_nobody_s_fault(
    pause: float, where: str, count: int, marked: bool, took: list[float]
) -> None:
    """The GPU is full in every step; workers that start once, or a profiler, cost no step a thing."""
    program = Program()
    kernels = iter(took)
    if where == "before":
        program.work(pause)
    for number in range(count):
        with program.step():
            if number == 0 and where == "behind a wait":
                program.wait()
            if number == 0:
                program.work(pause if where != "before" else 0.0)
            for name in [*[GEMM] * 19, SOFTMAX]:
                program.launch(name, next(kernels))
    if not marked:
        program.events = [e for e in program.events if not e["name"].startswith("ProfilerStep")]
    of = judged(program)
    assert [f.say for f in of.findings if f.category == "host-launch"] == []
    assert of.hosts.plain[0] == pytest.approx(8.0, rel=0.02)


@pytest.mark.parametrize("count", range(2, 7))
def test_a_pause_of_every_step_is_found_whichever_steps_were_recorded(count: int) -> None:
    """The first step's own is never taken for theirs."""
    program = Program()
    for number in range(count):
        with program.step():
            program.work(3e5 if number == 0 else 8e3)
            for _ in range(10):
                program.launch(GEMM, 400.0)
    first, *_ = judged(program, plain_ms=8.14).findings
    assert first.category == "host-launch"
    assert first.saves.expect == pytest.approx(4.0, rel=0.1)
