"""A trace with Python stacks: what recording them costs the host is known from the trace itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.program.readers import torch_trace
from profkit.program.readers.store import read_saved_timeline, write_timeline
from profkit.program.triage import triage_timeline
from profkit.reports.figures import format_three_figures
from tests.program.made import MUL, Program, ran

COST = 0.4  # microseconds that the made profiler adds for each frame
FRAMES = 80  # of each launch


class Traced(Program):
    """A host whose profiler records Python frames: a third of the cost inside of each frame."""

    def call_functions(self, count: int, cost: float) -> None:
        for _ in range(count):
            self._event("<built-in function len>", "python_function", self.now, cost / 3, {}, tid=1)
            self.now += cost


def decode(p: Program, cost: float) -> None:
    for _ in range(100):
        if isinstance(p, Traced):
            p.call_functions(FRAMES, cost)
        p.launch(MUL, 5.0)


def record(folder: Path, cost: float) -> Path:
    p = Traced(host=12.0)
    for _ in range(6):
        with p.step():
            decode(p, cost)
    return p.write(folder / "trace.json")


def test_the_cost_of_frames_is_taken_out_of_the_hosts_time(tmp_path: Path) -> None:
    timeline = torch_trace.read_torch_trace(record(tmp_path, COST))
    of = triage_timeline(timeline)
    frames_ms = 100 * FRAMES * COST / 1e3
    plain = triage_timeline(
        torch_trace.read_torch_trace(
            ran(lambda p: decode(p, 0), host=12.0).write(tmp_path / "p.json")
        )
    )
    recorded = of.split.period / 1e6
    assert recorded == pytest.approx(plain.split.period / 1e6 + frames_ms, rel=0.01)
    # No more is left than without frames, and no host is said to be as slow as it was recorded.
    assert of.hosts.step_ms_without_recorder.expect == pytest.approx(
        plain.hosts.step_ms_without_recorder.expect, rel=0.05
    )
    assert of.hosts.step_ms_without_recorder.low <= plain.hosts.step_ms_without_recorder.expect
    first = of.findings[0]
    assert first.rule == "host-launch"
    assert (
        f"which take about {format_three_figures(frames_ms)} ms of the host's time" in first.cause
    )
    assert first.saving.low == 0.0
    assert "Python stacks" not in plain.findings[0].cause


def test_a_kept_trace_says_the_same(tmp_path: Path) -> None:
    timeline = torch_trace.read_torch_trace(record(tmp_path, COST))
    write_timeline(timeline, tmp_path / "kept")
    again = triage_timeline(read_saved_timeline(tmp_path / "kept"))
    first = triage_timeline(timeline)
    assert again.findings[0].cause == first.findings[0].cause
    assert again.hosts.step_ms_without_recorder == first.hosts.step_ms_without_recorder


def test_a_busy_gpu_is_not_said_to_wait_for_a_traced_host(tmp_path: Path) -> None:
    p = Traced(host=12.0)
    for _ in range(6):
        with p.step():
            for _ in range(100):
                p.call_functions(FRAMES, COST)
                p.launch(MUL, 60.0)
    of = triage_timeline(torch_trace.read_torch_trace(p.write(tmp_path / "trace.json")))
    assert not [finding for finding in of.findings if finding.idle]


def test_few_frames_tell_nothing_of_their_cost() -> None:
    assert torch_trace.estimate_frame_cost_ns([0, 1_000, 2_000], [100, 1_100, 2_100]) == 0.0
    starts = [1_000 * n for n in range(500)]
    assert torch_trace.estimate_frame_cost_ns(starts, [start + 300 for start in starts]) == 1_000.0
