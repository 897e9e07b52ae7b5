"""Which operators compute the same in each step, by the tensors that they were given."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from profkit.program.example import Copy, Kernel, run_example
from profkit.program.readers.tensors import Dependence, read_unchanged_operators
from profkit.program.triage import triage_timeline

THREAD = 1
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


def trace_steps(folder: Path, step: Callable[[Steps, int], None]) -> dict[str, Dependence]:
    """What operators depend on, by their names, in the last of some steps."""
    steps = Steps()
    for number in range(STEPS):
        step(steps, number)
    path = folder / "1.tensors"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in steps.rows), "utf-8")
    found = read_unchanged_operators(path)
    last = {row[3]: row[0] for row in steps.rows}
    return {
        name: found.get((start, name), Dependence.CHANGING) for name, start in last.items() if name
    }


def test_what_comes_of_weights_alone_is_the_same(tmp_path: Path) -> None:
    def step(steps: Steps, number: int) -> None:
        cast = steps.run_operator("aten::_to_copy", (WEIGHT, *HELD))
        out = steps.run_operator("aten::mm", (BATCH, *FREE), cast)
        steps.run_operator("aten::relu", out)

    found = trace_steps(tmp_path, step)
    assert found["aten::_to_copy"] == Dependence.HELD
    # It was given one batch again and again: perhaps it is meant to change.
    assert found["aten::mm"] == found["aten::relu"] == Dependence.UNCHANGED


def test_weights_that_an_optimizer_writes_change(tmp_path: Path) -> None:
    def step(steps: Steps, number: int) -> None:
        cast = steps.run_operator("aten::_to_copy", (WEIGHT, *HELD))
        gradient = steps.run_operator("aten::mm", (BATCH, *FREE), cast)
        steps.run_operator("aten::neg", (BATCH, *FREE))
        steps.run_operator("aten::add_", (WEIGHT, *HELD), gradient, makes=False)

    found = trace_steps(tmp_path, step)
    assert found["aten::_to_copy"] == found["aten::mm"] == Dependence.CHANGING
    assert found["aten::neg"] == Dependence.UNCHANGED


def test_beside_new_data_what_does_not_change_is_sure(tmp_path: Path) -> None:
    def step(steps: Steps, number: int) -> None:
        new = steps.run_operator("aten::empty", numbers="8")
        steps.run_operator("aten::copy_", new, (BATCH, *ON_CPU), makes=False)
        steps.run_operator("aten::exp", new)
        steps.run_operator("aten::neg", (STATE, *FREE))

    found = trace_steps(tmp_path, step)
    assert found["aten::exp"] == Dependence.CHANGING
    assert found["aten::neg"] == Dependence.HELD


def test_what_a_step_leaves_to_the_next_changes(tmp_path: Path) -> None:
    left = [(BATCH, *FREE)]

    def step(steps: Steps, number: int) -> None:
        text = steps.run_operator("aten::embedding", (WEIGHT, *HELD), (STATE, *FREE))
        out = steps.run_operator("aten::mul", left[0], text)
        left[0] = steps.run_operator("aten::sub", left[0], out)

    found = trace_steps(tmp_path, step)
    assert found["aten::mul"] == found["aten::sub"] == Dependence.CHANGING
    assert found["aten::embedding"] == Dependence.HELD


def test_chance_and_other_numbers_change(tmp_path: Path) -> None:
    def step(steps: Steps, number: int) -> None:
        steps.run_operator("aten::native_dropout", (WEIGHT, *HELD), numbers="0.1 True")
        row = steps.run_operator("aten::index_select", (WEIGHT, *HELD), numbers=str(number))
        steps.run_operator("aten::neg", row)
        steps.run_operator("aten::abs", (WEIGHT, *HELD))

    found = trace_steps(tmp_path, step)
    assert found["aten::abs"] == Dependence.HELD
    changing = {name for name, origin in found.items() if origin == Dependence.CHANGING}
    assert changing == {"aten::native_dropout", "aten::index_select", "aten::neg"}


def test_memory_that_no_operator_wrote_changes(tmp_path: Path) -> None:
    """A kernel that Python launched itself may have."""

    def step(steps: Steps, number: int) -> None:
        new = steps.run_operator("aten::empty", numbers="8")
        steps.run_operator("aten::exp", new)

    assert trace_steps(tmp_path, step)["aten::exp"] == Dependence.CHANGING


def test_steps_that_do_not_repeat_say_nothing(tmp_path: Path) -> None:
    def step(steps: Steps, number: int) -> None:
        steps.run_operator(f"aten::neg{number}", (WEIGHT, *HELD))

    assert set(trace_steps(tmp_path, step).values()) == {Dependence.CHANGING}


def test_a_damaged_file_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "1.tensors"
    for text in ("[", "[1, 2]\n", '{"a": 1}\n', "[1,2,3,4,5,6,7]\n", '[1,2,3,"a",[[1]],[],""]\n'):
        path.write_text(text, "utf-8")
        assert read_unchanged_operators(path) == {}


def make_parts(same: int, unchanged: int) -> Iterator[Kernel | Copy]:
    """Yield kernels, some of which compute the same in each step."""
    yield Copy(bytes=1_000_000, us=20.0, pageable=False)
    for number in range(10):
        level = unchanged if number < same else 0
        yield Kernel(name="my_kernel", us=300.0, op=f"lib::step{number}", unchanged=level)


def judge_parts(same: int, unchanged: int) -> list[Any]:
    found = triage_timeline(run_example(list(make_parts(same, unchanged)))).findings
    return [row for row in found if row.rule == "redundant"]


def test_the_saving_is_sure_where_the_data_is_new() -> None:
    (sure,) = judge_parts(3, 2)
    assert 0.7 <= sure.saving.low <= sure.saving.expected <= 1.0
    (perhaps,) = judge_parts(3, 1)
    assert perhaps.saving.low == 0
    assert "new data" in perhaps.cause


def test_a_step_with_the_same_data_is_not_blamed() -> None:
    assert not judge_parts(8, 1)
    assert not judge_parts(10, 2)
