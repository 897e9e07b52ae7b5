"""What `whatif` says where an interval leaves open whether a change gains anything."""

from __future__ import annotations

import pytest

from profkit.model.scenario import Expectation
from profkit.model.whatif import CounterChange, ExpectedLaunch
from profkit.show.text.blocks import Paragraph, TextLine
from profkit.show.views.comparison import TRY, show_predicted_times

BLOCKS = CounterChange("grid_size", "*", 4.0)
SURE = Expectation(gain=2.0, low=1.6, high=2.4)
NOTHING = f"the interval includes 1x, no gain: {TRY}"
SIZE = f"counters cannot tell how much the change gains: {TRY}"


@pytest.mark.parametrize(
    ("expectation", "said"),
    [
        (SURE, []),
        (Expectation(gain=3.3, low=0.97, high=10.1), [NOTHING]),
        (Expectation(gain=1.2, low=0.94, high=1.4), [NOTHING]),
        (Expectation(gain=4.0, low=1.5, high=9.0), [SIZE]),  # wide, and a gain all the same
        (Expectation(gain=1.01, low=0.95, high=1.1), []),  # promises nothing
    ],
)
def test_a_doubt_is_what_the_interval_leaves_open(expectation: Expectation, said: list) -> None:
    assert notes(ExpectedLaunch("B", 1e-4, expectation)) == said


def test_a_doubt_of_one_case_names_it() -> None:
    wide = ExpectedLaunch("C", 1e-4, Expectation(gain=3.3, low=0.97, high=10.1))
    assert notes(ExpectedLaunch("B", 1e-4, SURE), wide) == [f"C: {NOTHING}"]


def test_one_kernel_is_a_sentence() -> None:
    row = ExpectedLaunch(None, 1e-4, SURE, kernel="void scale<(int)64>(float *)")
    first = next(iter(show_predicted_times("mine.ncu-rep", (BLOCKS,), [row])))
    assert first == Paragraph(
        "With 4x the blocks, scale<64> would take about 50.0 µs under ncu instead of 100 µs: "
        "expect 2.00x (1.60 to 2.40)"
    )


def notes(*expected: ExpectedLaunch) -> list[str]:
    shown = show_predicted_times("stage2", (), expected)
    return [line.text for line in shown if isinstance(line, TextLine) and line.mark == "note"]
