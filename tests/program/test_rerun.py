"""Layers that run forward again in the backward pass, and tables whose every row is updated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from profkit.program.example import STEPS, THREAD, Kernel, run_example
from profkit.program.findings.case import StepFinding
from profkit.program.timeline import HostSpan, Timeline
from profkit.program.triage import triage_timeline

NODE = "autograd::engine::evaluate_function: Node0"
LAYERS = 12
UPDATE = Kernel(
    name="adam_kernel", us=3000.0, op="aten::_foreach_mul_", within="Optimizer.step#Adam.step"
)
FORWARD = tuple(Kernel(name=f"layer{i}", us=200.0, op=f"lib::layer{i}") for i in range(LAYERS))
BACKWARD = tuple(
    Kernel(name=f"back{i}", us=400.0, op=f"lib::back{i}") for i in reversed(range(LAYERS))
)


def run_training(
    forward: Sequence[Kernel], backward: Sequence[Kernel], update: Kernel = UPDATE
) -> Timeline:
    """Return steps that go forward and backward, and update their weights."""
    parts = [*forward, *backward, update]
    timeline = run_example(parts)
    (process,) = timeline.processes
    spans = list(process.spans)
    for number in range(STEPS):
        first = number * len(parts) + len(forward)
        calls = process.calls[first : first + len(backward)]
        spans.append(HostSpan("op", NODE, calls[0].start - 10, calls[-1].end + 10, THREAD))
    spans.sort(key=lambda span: (span.start, -span.end))
    return replace(timeline, processes=[replace(process, spans=spans)])


def find_redundant(timeline: Timeline) -> list[StepFinding]:
    return [found for found in triage_timeline(timeline).findings if found.rule == "redundant"]


def test_layers_that_run_again_are_named_with_what_they_take() -> None:
    again = [*FORWARD[6:], *BACKWARD[:6], *FORWARD[:6], *BACKWARD[6:]]
    (found,) = find_redundant(run_training(FORWARD, again))
    assert "12 of 24 kernels of the backward pass run layers forward again" in found.cause
    assert abs(found.saving.expected - LAYERS * 0.2) < 0.1
    assert found.saving.low == 0.0  # memory may be short


def test_a_backward_pass_that_has_the_kernels_in_its_own_order_runs_nothing_again() -> None:
    assert not find_redundant(run_training(FORWARD, [*BACKWARD, *reversed(FORWARD)]))


def test_a_few_equal_kernels_are_no_layer() -> None:
    assert not find_redundant(run_training(FORWARD, [*BACKWARD, *FORWARD[:4]]))


def train_with_table(used: int, rows: int = 1_000_000) -> list[StepFinding]:
    """Judge steps that read some rows of a table, and update all."""
    width = 64
    backward = [
        Kernel(name="clear", us=100.0, op="aten::zero_", sizes=((rows, width),)),
        Kernel(
            name="sum_rows",
            us=10.0,
            op="aten::embedding_dense_backward",
            sizes=((used, width), (used,)),
        ),
        *BACKWARD,
    ]
    timeline = run_training(FORWARD, backward)
    (process,) = timeline.processes
    inner = []
    for span in process.spans:
        if span.name == NODE:
            # One operator clears the gradient and sums into it.
            calls = [call for call in process.calls if span.start <= call.start <= span.end][:2]
            inner.append(replace(span, name="aten::embedding_backward", end=calls[1].end + 5))
    spans = sorted([*process.spans, *inner], key=lambda span: (span.start, -span.end))
    return find_redundant(replace(timeline, processes=[replace(process, spans=spans)]))


def test_an_optimizer_that_goes_through_rows_that_were_not_read_is_named() -> None:
    (found,) = train_with_table(used=8192)
    assert "1,000,000 rows are cleared and updated per step, and at most 8,192" in found.cause
    assert 2.7 <= found.saving.expected <= 3.1


def test_a_table_of_which_much_is_read_has_a_dense_gradient() -> None:
    assert not train_with_table(used=500_000)
