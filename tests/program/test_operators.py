"""Operators of a few steps are joined to the calls of all steps by what is called around them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from profkit.program.origins import get_called_operator
from profkit.program.readers import injected
from profkit.program.readers.operators import assign_operators_to_all_steps, read_recorded_operators
from profkit.program.readers.store import read_saved_timeline, write_timeline
from profkit.program.steps.attribution import CallOrigin
from profkit.program.steps.cut import StepWork
from profkit.program.timeline import Activity, Call, HostSpan
from profkit.program.triage import triage_timeline
from tests.program.recorded_lines import record_training

STEP = (("aten::mm", 2, 0), ("aten::gelu", 1, 1), ("aten::mm", 2, 2), ("aten::add", 1, 3))
PERIOD = 10_000


def make_calls(steps: int, ops: tuple[tuple[str, int, int], ...] = STEP) -> list[Call]:
    """Each operator makes some calls, from a place of its own."""
    calls = []
    for step in range(steps):
        time = step * PERIOD
        for _, count, origin in ops:
            for _ in range(count):
                time += 100
                calls.append(Call("cuLaunchKernel", time, time + 50, 1, len(calls) + 1, origin))
    return calls


def spread(
    spans: list[HostSpan], calls: list[Call], blocks: dict[int, int] | None = None
) -> list[HostSpan]:
    """Give calls operators; `blocks` is how many a call launches, by its correlation number."""
    origins = {call.correlation: (call.origin, 0) for call in calls}
    threads = {call.correlation: 899 + call.thread for call in calls}  # the system's numbers
    return assign_operators_to_all_steps([spans], calls, (origins,), threads, blocks or {})


def test_of_each_recording_the_middle_counts() -> None:
    """A loop before the steps was recorded, too; in the first recorded step an operator was open."""
    calls = make_calls(20, STEP[:2])
    loop = make_calls(6, (("aten::copy_", 3, 9),))
    early = []
    for call in loop:
        begin = call.start - 80 * PERIOD
        number = 1000 + call.correlation
        early.append(replace(call, start=begin, end=begin + 50, correlation=number))
    copies = []
    for call in early:
        copies.append(HostSpan("op", "aten::copy_", call.start - 9, call.start + 9, 900, (), ()))
    steps = record_steps(4, 5, 6, 7)
    cut = [replace(span, shapes=(), types=()) for span in steps if span.start < 5 * PERIOD]
    steps = [*cut, *steps[len(cut) :]]
    both = sorted([*early, *calls], key=lambda call: call.start)
    origins = {call.correlation: (call.origin, 0) for call in both}
    threads = dict.fromkeys(origins, 900)
    spans = assign_operators_to_all_steps([copies, steps], both, (origins,), threads, {})
    of_step = [span for span in spans if 2 * PERIOD < span.start < 18 * PERIOD]
    assert {span.name for span in of_step} == {"aten::linear", "aten::mm", "aten::gelu"}
    assert all(span.shapes == ((64, 64),) for span in of_step)
    assert all(names_at(spans, call) == ["aten::copy_"] for call in early[3:-3])


def record_steps(*numbers: int, size: int = 64) -> list[HostSpan]:
    spans = []
    for number in numbers:
        spans += record_step(number, size)
    return spans


def record_step(number: int, size: int, thread: int = 900) -> list[HostSpan]:
    """The operators of a step; a linear has its product inside."""
    spans = []
    time = number * PERIOD
    for name, count, _ in STEP:
        begin, end = time + 60, time + 100 * count + 60
        shapes = ((size, size),)
        if name == "aten::mm":
            spans.append(HostSpan("op", "aten::linear", begin, end, thread, shapes, ("float",)))
        spans.append(HostSpan("op", name, begin + 1, end - 1, thread, shapes, ("float",)))
        time += 100 * count
    return spans


def names_at(spans: list[HostSpan], call: Call) -> list[str]:
    return [s.name for s in spans if s.start <= call.start <= s.end and s.thread == call.thread]


def test_calls_of_all_steps_have_the_operators_of_one() -> None:
    calls = make_calls(6)
    spans = spread(record_steps(1, 2, 3, 4), calls)
    expected = []
    for name, count, _ in STEP:
        expected += [["aten::linear", name] if name == "aten::mm" else [name]] * count
    inner = calls[6:-6]  # the first and the last step have not the same calls around them
    assert [names_at(spans, call) for call in inner] == expected * 4
    outer = [span for span in spans if span.name == "aten::linear" and 0 < span.start // PERIOD < 5]
    assert len(outer) == 2 * 4  # one for both calls of a product
    assert {span.shapes for span in outer} == {((64, 64),)}


def test_one_recorded_step_is_enough_where_the_program_ended_meanwhile() -> None:
    """Its middle third is a part of a step: where that says nothing the rest is looked at."""
    calls = make_calls(6)
    spans = spread(record_steps(3), calls)
    inner = calls[12:-12]
    assert all(names_at(spans, call) for call in inner)
    outer = {span.name for span in spans}
    assert outer == {"aten::linear", "aten::mm", "aten::gelu", "aten::add"}


def test_where_the_same_calls_had_unlike_operators_only_they_have_them() -> None:
    calls = make_calls(12)
    recorded = []
    for number in range(3, 9):
        recorded += record_step(number, size=64 + number % 2)
    spans = spread(recorded, calls)
    assert {span.start // PERIOD for span in spans} <= {5, 6}


def test_a_step_of_other_grids_has_the_operators_and_not_their_sizes() -> None:
    """Text grows from pass to pass: operators are the same, and what they are given is longer."""
    calls = make_calls(6)
    count = len(calls) // 6
    blocks = {call.correlation: 64 for call in calls}
    for call in calls[4 * count : 5 * count : 2]:
        blocks[call.correlation] = 65
    spans = spread(record_steps(1, 2, 3, 4), calls, blocks)
    for call in calls[count : 3 * count]:
        own = [span for span in spans if span.start <= call.start <= span.end]
        assert own
        assert all(span.shapes == ((64, 64),) for span in own)
    for call in calls[4 * count : 5 * count]:
        own = [span for span in spans if span.start <= call.start <= span.end]
        assert own
        assert not any(span.shapes or span.types for span in own)


def test_a_step_that_makes_other_calls_has_no_operators() -> None:
    """What is evaluated in between launches the same kernels from other places."""
    calls = make_calls(4)
    other = []
    for call in calls:
        begin = call.start + PERIOD // 2
        other.append(Call(call.name, begin, begin + 50, 2, call.correlation + 100, call.origin + 9))
    spans = spread(record_steps(0, 1, 2, 3), sorted([*calls, *other], key=lambda c: c.start))
    assert spans
    assert {span.thread for span in spans} == {1}


def test_a_damaged_file_costs_its_operators_alone(tmp_path: Path) -> None:
    path = tmp_path / "7.operators"
    assert read_recorded_operators(path, 0) == []
    good = {"name": "aten::mm", "start": 1_000_500, "end": 1_000_900, "thread": 3}
    good |= {"shapes": [[4, 4], []], "types": ["float", "Scalar"], "sequence": 5, "backward": False}
    clocks = json.dumps({"clocks": [[1_000_000, 400, 1_000_100]]})
    path.write_text(f"{clocks}\n{json.dumps(good)}\n" + '{"name": "aten::m')
    ((span,),) = read_recorded_operators(path, 100)
    assert (span.start, span.end, span.shapes) == (750, 1150, ((4, 4), ()))
    path.write_text("\x00\n")
    assert read_recorded_operators(path, 0) == []


def test_a_live_recording_has_operators_where_they_were_recorded(tmp_path: Path) -> None:
    folder = record_training(tmp_path / "r", 12)
    before = injected.read_injected_recording(folder).processes[0]
    clock = 1_000_000  # the recording's own begins there, and so does Python's here
    rows = [json.dumps({"clocks": [[clock, clock, clock]]})]
    for call in before.calls[18:54]:  # four steps
        row = {"name": f"aten::op{call.origin}", "thread": 7, "shapes": [[8, 8]]}
        row |= {"types": ["float"], "sequence": -1, "backward": False}
        row |= {"start": clock + call.start - 10, "end": clock + call.end + 10}
        rows.append(json.dumps(row))
    (folder / "7.operators").write_text("\n".join(rows))
    begin, end = before.calls[18].start, before.calls[53].end
    (folder / "7.hook").write_text(f"disturbed\t{clock + begin}\nundisturbed\t{clock + end}\n")
    timeline = injected.read_injected_recording(folder)
    answer = triage_timeline(timeline)
    typical = answer.steps.typical
    assert typical.end <= begin or typical.begin >= end  # its host was not slowed
    assert any("are left out: torch's operators" in note for note in answer.steps.notes)
    write_timeline(timeline, tmp_path / "kept")
    kept = triage_timeline(read_saved_timeline(tmp_path / "kept"))
    assert kept.steps.typical.begin == typical.begin
    works = typical.works
    launched = [work for work in works if not work.activity.graph]
    assert {work.maker.op for work in launched} != {""}
    assert all(work.maker.op.startswith("aten::op") for work in launched)
    assert all(work.maker.shapes == ((8, 8),) for work in launched)


def test_where_all_steps_were_slowed_they_are_kept_and_that_is_said(tmp_path: Path) -> None:
    folder = record_training(tmp_path / "r", 12)
    (folder / "7.hook").write_text("disturbed\t1\n")  # the program was ended meanwhile
    (process,) = injected.read_injected_recording(folder).processes
    assert process.disturbed[0][1] > process.calls[-1].end
    notes = triage_timeline(injected.read_injected_recording(folder)).steps.notes
    assert any("recorded in every step" in note for note in notes)


@pytest.mark.parametrize(
    ("maker", "kernel", "operator"),
    [
        (CallOrigin(op="aten::addmm", top="aten::linear"), "gemm", "aten::linear"),
        (CallOrigin(op="aten::mm", top="Torch-Compiled Region: 0/0"), "nvjet", "aten::mm"),
        (
            CallOrigin(
                op="aten::mm", top="autograd::engine::evaluate_function: CompiledFunctionBackward"
            ),
            *("nvjet", "aten::mm"),
        ),
        (
            CallOrigin(op="triton_per_fused_add_norm_view_5", top="CompiledFunction"),
            *("triton_per_fused_add_norm_view_5", "fused add_norm_view"),
        ),
        (CallOrigin(), "triton_poi_fused__to_copy_gelu_12", "fused _to_copy_gelu"),
        (CallOrigin(), "nvjet", ""),
        (CallOrigin(op="CompiledFunction", top="CompiledFunction"), "nvjet", "CompiledFunction"),
    ],
)
def test_the_operator_of_compiled_work_is_what_it_computes(
    maker: CallOrigin, kernel: str, operator: str
) -> None:
    work = StepWork(Activity("kernel", kernel, 0, 1), "gemm", 0, maker)
    assert get_called_operator(work) == operator
