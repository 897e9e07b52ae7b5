"""Kernels of a replayed graph have the operators of its capture, where that is in the trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.program.document import make_triage_document
from profkit.program.readers import read_timeline
from profkit.program.triage import triage_timeline
from tests.program.made import EXP, GEMM, MUL, Program

pytestmark = pytest.mark.slow

LAYERS = (("aten::mm", GEMM, "attn"), ("aten::mul", MUL, "mlp"), ("aten::exp", EXP, "mlp"))


def capture(program: Program, layers: tuple[tuple[str, str, str], ...]) -> None:
    with program.capture():
        for op, kernel, function in layers:
            frame = f"/src/model.py(10): {function}"
            with (
                program.op(frame, kind="python_function"),
                program.op(op, [[64, 64]], types=["float"]),
            ):
                program.launch(kernel, 1.0)


def replay(program: Program, steps: int = 6, stream: int = 7) -> None:
    for _ in range(steps):
        with program.step(), program.op("/src/run.py(5): step", kind="python_function"):
            program.graph([(kernel, 100.0) for _, kernel, _ in LAYERS], stream=stream)
            program.wait()


def find_makers(program: Program, folder: Path) -> list[tuple[str, str]]:
    answer = triage_timeline(read_timeline(program.write(folder / "t.json")))
    works = sorted(answer.steps.typical.works, key=lambda work: work.activity.start)
    return [(work.maker.op, work.maker.function) for work in works]


def test_replayed_kernels_have_the_operators_of_the_capture(tmp_path: Path) -> None:
    program = Program()
    capture(program, LAYERS)
    replay(program)
    assert find_makers(program, tmp_path) == [(op, function) for op, _, function in LAYERS]
    answer = triage_timeline(read_timeline(tmp_path / "t.json"))
    ops = {row["op"] for row in make_triage_document(answer)["origins"]}
    assert ops == {op for op, _, _ in LAYERS}


def test_of_two_captures_that_fit_and_differ_none_is_taken(tmp_path: Path) -> None:
    program = Program()
    capture(program, LAYERS)
    capture(program, LAYERS[::-1])
    replay(program)
    assert find_makers(program, tmp_path) == [("", "step")] * 3


def test_two_captures_that_say_the_same_are_one(tmp_path: Path) -> None:
    """A server captures a graph for each size of a batch: operators are the same, sizes are not."""
    program = Program()
    capture(program, LAYERS)
    capture(program, LAYERS)
    replay(program)
    assert find_makers(program, tmp_path) == [(op, function) for op, _, function in LAYERS]


def test_a_capture_of_another_length_is_of_another_graph(tmp_path: Path) -> None:
    program = Program()
    capture(program, LAYERS[:2])
    replay(program)
    assert find_makers(program, tmp_path) == [("", "step")] * 3


def test_where_a_graph_ran_on_two_streams_its_order_is_not_known(tmp_path: Path) -> None:
    program = Program()
    capture(program, LAYERS)
    replay(program)
    for event in program.events:
        if event["cat"] == "kernel" and event["name"] == EXP:
            event["args"]["stream"] = 9
    assert find_makers(program, tmp_path) == [("", "step")] * 3
