"""Which operators compute the same in each step, by the tensors that they were given."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from profkit.program.example import Copy, Kernel, run_example
from profkit.program.readers import tensors
from profkit.program.readers.tensors import (
    SAME,
    UNREAD,
    find_period_of_names,
    read_needless_operators,
)
from profkit.program.triage import triage_timeline

THREAD = 1
NODE = "autograd::engine::evaluate_function"
STEPS = 3
WEIGHT, BATCH, STATE = 1, 2, 3  # numbers of tensors that were there before
HELD, FREE, ON_CPU = (1, 0), (0, 0), (0, 2)


class Steps:
    """Operators one after another, as the recorder's hook writes them."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self.clock = 0
        self.count = 100  # tensors that steps make

    def run_operator(
        self, name: str, *tensors: tuple[int, int, int], makes: bool = True, numbers: str = ""
    ) -> tuple[int, int, int]:
        """Let an operator read tensors; the one that it makes."""
        begin = self.clock
        self.clock += 10
        self.rows.append([begin, begin + 8, THREAD, name, list(tensors), [], numbers])
        if not makes:
            return tensors[0]
        self.count += 1
        self.rows.append([begin + 1, begin + 1, THREAD, "", [], [self.count], ""])
        return self.count, 0, 0


def trace_steps(folder: Path, step: Callable[[Steps, int], None]) -> dict[str, str]:
    """What operators depend on, by their names, in the last of some steps."""
    steps = Steps()
    for number in range(STEPS):
        step(steps, number)
    path = folder / "1.tensors"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in steps.rows), "utf-8")
    found = read_needless_operators(path)
    last = {row[3]: row[0] for row in steps.rows}
    return {name: found.get((start, name), "") for name, start in last.items() if name}


def test_what_comes_of_weights_alone_is_the_same(tmp_path: Path) -> None:
    def step(steps: Steps, number: int) -> None:
        cast = steps.run_operator("aten::_to_copy", (WEIGHT, *HELD))
        out = steps.run_operator("aten::mm", (BATCH, *FREE), cast)
        steps.run_operator("aten::relu", out)

    found = trace_steps(tmp_path, step)
    assert found["aten::_to_copy"] == SAME
    # It was given one batch again and again: perhaps it is meant to change.
    assert found["aten::mm"] == found["aten::relu"] == ""


def test_each_recording_of_a_run_is_judged_for_itself(tmp_path: Path) -> None:
    """A loop over weights is recorded first, and then steps that cast one of them anew each time."""
    loop, steps = Steps(), Steps()
    for number in range(STEPS):
        loop.run_operator("aten::copy_", (50 + number, *FREE), (1, *ON_CPU), makes=False)
    steps.clock = loop.clock
    for _ in range(STEPS):
        cast = steps.run_operator("aten::_to_copy", (WEIGHT, *HELD))
        steps.run_operator("aten::mm", (BATCH, *FREE), cast)
    path = tmp_path / "1.tensors"
    rows: list[Any] = [{"recording": 1}, *loop.rows, {"recording": 2}, *steps.rows]
    for order in (rows, [*rows[len(loop.rows) + 1 :], *rows[: len(loop.rows) + 1]]):
        path.write_text("".join(f"{json.dumps(row)}\n" for row in order), "utf-8")
        found = read_needless_operators(path)
        assert {name for _, name in found} == {"aten::_to_copy"}
        assert len(found) == STEPS


def test_weights_that_an_optimizer_writes_change(tmp_path: Path) -> None:
    def step(steps: Steps, number: int) -> None:
        cast = steps.run_operator("aten::_to_copy", (WEIGHT, *HELD))
        gradient = steps.run_operator("aten::mm", (BATCH, *FREE), cast)
        steps.run_operator("aten::neg", (BATCH, *FREE))
        steps.run_operator("aten::add_", (WEIGHT, *HELD), gradient, makes=False)

    found = trace_steps(tmp_path, step)
    assert found["aten::_to_copy"] == found["aten::mm"] == ""
    assert found["aten::neg"] == ""


def test_beside_new_data_what_does_not_change_is_sure(tmp_path: Path) -> None:
    def step(steps: Steps, number: int) -> None:
        new = steps.run_operator("aten::empty", numbers="8")
        steps.run_operator("aten::copy_", new, (BATCH, *ON_CPU), makes=False)
        steps.run_operator("aten::exp", new)
        steps.run_operator("aten::neg", (STATE, *FREE))

    found = trace_steps(tmp_path, step)
    assert found["aten::exp"] == ""
    assert found["aten::neg"] == SAME


def test_what_a_step_leaves_to_the_next_changes(tmp_path: Path) -> None:
    left = [(BATCH, *FREE)]

    def step(steps: Steps, number: int) -> None:
        text = steps.run_operator("aten::embedding", (WEIGHT, *HELD), (STATE, *FREE))
        out = steps.run_operator("aten::mul", left[0], text)
        left[0] = steps.run_operator("aten::sub", left[0], out)

    found = trace_steps(tmp_path, step)
    assert found["aten::mul"] == found["aten::sub"] == ""
    assert found["aten::embedding"] == SAME


def test_chance_and_other_numbers_change(tmp_path: Path) -> None:
    def step(steps: Steps, number: int) -> None:
        steps.run_operator("aten::native_dropout", (WEIGHT, *HELD), numbers="0.1 True")
        row = steps.run_operator("aten::index_select", (WEIGHT, *HELD), numbers=str(number))
        steps.run_operator("aten::neg", row)
        steps.run_operator("aten::abs", (WEIGHT, *HELD))

    found = trace_steps(tmp_path, step)
    assert found["aten::abs"] == SAME
    changing = {name for name, origin in found.items() if not origin}
    assert changing == {"aten::native_dropout", "aten::index_select", "aten::neg"}


def test_memory_that_no_operator_wrote_changes(tmp_path: Path) -> None:
    """A kernel that Python launched itself may have."""

    def step(steps: Steps, number: int) -> None:
        new = steps.run_operator("aten::empty", numbers="8")
        steps.run_operator("aten::exp", new)

    assert trace_steps(tmp_path, step)["aten::exp"] == ""


def test_steps_that_do_not_repeat_say_nothing(tmp_path: Path) -> None:
    def step(steps: Steps, number: int) -> None:
        steps.run_operator(f"aten::neg{number}", (WEIGHT, *HELD))

    assert set(trace_steps(tmp_path, step).values()) == {""}


@pytest.mark.parametrize(
    "text", ["[", "[1, 2]\n", '{"a": 1}\n', "[1,2,3,4,5,6,7]\n", '[1,2,3,"a",[[1]],[],""]\n']
)
def test_a_damaged_file_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "1.tensors"
    path.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=r"^1\.tensors is damaged"):
        read_needless_operators(path)


def test_of_a_part_of_the_operators_nothing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reads a gradient may stand behind the last line that is read."""
    path = tmp_path / "1.tensors"
    path.write_text('{"recording": 1}\n' * 3, "utf-8")
    monkeypatch.setattr(tensors, "MOST", 4)
    assert read_needless_operators(path) == {}
    monkeypatch.setattr(tensors, "MOST", 3)
    with pytest.raises(ValueError, match="too long"):
        read_needless_operators(path)


@pytest.mark.parametrize(
    ("names", "lag"),
    [
        ("", 0),
        ("a", 0),
        ("aa", 1),
        ("abab", 2),
        ("ababa", 2),
        ("aabaab", 3),
        ("abcab", 0),
        ("ab", 0),
    ],
)
def test_names_come_again_after_a_lag(names: str, lag: int) -> None:
    assert find_period_of_names(names) == lag


def test_names_that_nearly_repeat_take_a_pass() -> None:
    """Each of 200,000 lags fails at the last name: a comparison for each would take hours."""
    assert find_period_of_names("a" * 400_000 + "b") == 0


def step_with_gradients(steps: Steps, number: int) -> None:
    """One weight's gradient is read by an optimizer, the other's by nothing."""
    begin = steps.clock
    place = len(steps.rows)
    trained = steps.run_operator("aten::mm", (BATCH, *FREE))
    frozen = steps.run_operator("aten::bmm", (BATCH, *FREE))
    steps.rows.insert(place, [begin, steps.clock - 1, THREAD, NODE, [], [], ""])
    for gradient in (trained, frozen):
        start = steps.clock
        steps.clock += 10
        steps.rows.append([start, start + 8, THREAD, f"{NODE}: AccumulateGrad", [gradient], [], ""])
    steps.run_operator("aten::add_", (WEIGHT, *HELD), trained, makes=False)


def test_a_gradient_that_nothing_reads_is_needless(tmp_path: Path) -> None:
    found = trace_steps(tmp_path, step_with_gradients)
    assert found["aten::bmm"] == UNREAD
    assert found["aten::mm"] == ""


def test_without_an_optimizer_no_gradient_is_needless(tmp_path: Path) -> None:
    def step(steps: Steps, number: int) -> None:
        step_with_gradients(steps, number)
        steps.rows.pop()

    assert not trace_steps(tmp_path, step)["aten::bmm"]


@pytest.mark.parametrize("node", ["CompiledFunctionBackward", "FusedNormFunctionBackward"])
def test_what_a_node_of_python_code_makes_is_taken_to_be_read(tmp_path: Path, node: str) -> None:
    """Its kernels are launched by no operator: those of torch.compile, or of a kernel of one's own."""

    def step(steps: Steps, number: int) -> None:
        step_with_gradients(steps, number)
        begin, place = steps.clock, len(steps.rows)
        steps.run_operator("aten::sum", (BATCH, *FREE))
        name = f"{NODE}: {node}"
        steps.rows.insert(place, [begin, steps.clock - 1, THREAD, name, [], [], ""])
        begin, place = steps.clock, len(steps.rows)
        steps.run_operator("aten::prod", (BATCH, *FREE))
        name = f"{NODE}: AddmmBackward0"
        steps.rows.insert(place, [begin, steps.clock - 1, THREAD, name, [], [], ""])

    found = trace_steps(tmp_path, step)
    assert found["aten::sum"] == ""
    assert found["aten::prod"] == found["aten::bmm"] == UNREAD


def judge_parts(count: int, needless: str) -> list[Any]:
    """Judge kernels of which some are needless."""
    parts: list[Kernel | Copy] = [Copy(bytes=1_000_000, us=20.0, pageable=False)]
    for number in range(10):
        why = needless if number < count else ""
        parts.append(Kernel(name="my_kernel", us=300.0, op=f"lib::step{number}", needless=why))
    found = triage_timeline(run_example(parts)).findings
    return [row for row in found if row.rule == "redundant"]


@pytest.mark.parametrize("needless", [SAME, UNREAD])
def test_what_is_needless_is_saved(needless: str) -> None:
    (found,) = judge_parts(3, needless)
    assert 0.7 <= found.saving.low <= found.saving.expected <= 1.0


def test_a_step_that_computes_the_same_whole_has_no_data() -> None:
    assert not judge_parts(10, SAME)


def test_memory_that_is_cleared_to_be_written_is_cleared_in_each_step(tmp_path: Path) -> None:
    def step(steps: Steps, number: int) -> None:
        steps.run_operator("aten::copy_", (BATCH, *FREE), (99, *ON_CPU), makes=False)
        total = steps.run_operator("aten::zeros")
        steps.run_operator("aten::add_", total, (BATCH, *FREE), makes=False)

    assert not trace_steps(tmp_path, step)["aten::zeros"]


def test_a_gradient_that_is_added_after_its_memory_was_read_is_needless(tmp_path: Path) -> None:
    """A generator's weights get gradients in the discriminator's step, and are cleared afterwards."""

    def step(steps: Steps, number: int) -> None:
        steps.run_operator("aten::copy_", (BATCH, *FREE), (99, *ON_CPU), makes=False)
        begin, place = steps.clock, len(steps.rows)
        kept = steps.run_operator("aten::mm", (BATCH, *FREE))
        steps.rows.insert(place, [begin, steps.clock - 1, THREAD, NODE, [], [], ""])
        steps.rows.append(
            [steps.clock, steps.clock + 8, THREAD, f"{NODE}: AccumulateGrad", [kept], [], ""]
        )
        steps.clock += 10
        steps.run_operator("aten::add_", (WEIGHT, *HELD), kept, makes=False)
        begin, place = steps.clock, len(steps.rows)
        more = steps.run_operator("aten::bmm", (BATCH, *FREE))
        steps.run_operator("aten::mul_", kept, more, makes=False)
        steps.rows.insert(place, [begin, steps.clock - 1, THREAD, NODE, [], [], ""])

    found = trace_steps(tmp_path, step)
    assert found["aten::bmm"] == UNREAD
    assert found["aten::mm"] == ""
