"""Three figures and a unit."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.reports import figures
from profkit.reports.metrics import CATALOGUE
from profkit.show.text import words


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (3.85e-5, "s", "38.5 µs"),
        (2.5, "s", "2.50 s"),
        (0.9999e-3, "s", "1.00 ms"),
        (1.98e9, "Hz", "1.98 GHz"),
        (0.4532, "share", "45.3 %"),
        (1.0, "share", "100 %"),
        (3.35e12, "byte/s", "3.35 TB/s"),
        (49152, "byte", "49.2 kB"),
        (0, "byte", "0 B"),
        (4.2e14, "op/s", "420 Top/s"),
        (65121, "cycle", "65.1 kcycles"),
        (1184, "count", "1,184"),
        (2.6718, "count", "2.67"),
        (747e6, "count", "747 M"),
        (nan, "s", "not collected"),
        (None, "share", "not collected"),
        (inf, "count", "not collected"),
    ],
)
def test_quantity(value: float | None, unit: str, shown: str) -> None:
    assert figures.format_value_with_unit(value, unit) == shown


@given(st.floats(1e-9, 1e15), st.sampled_from(sorted({m.unit for m in CATALOGUE.values()})))
def test_the_text_is_the_value_to_three_figures(value: float, unit: str) -> None:
    text = figures.format_value_with_unit(value, unit)
    number, _, rest = text.partition(" ")
    prefix = {"T": 1e12, "G": 1e9, "M": 1e6, "k": 1e3, "m": 1e-3, "µ": 1e-6, "n": 1e-9, "%": 1e-2}
    size = 1.0
    if rest and rest not in {"s", "B", "op", "Hz", "cycles", "B/s", "op/s"}:
        size = prefix[rest[0]]
    assert float(number.replace(",", "")) * size == pytest.approx(value, rel=0.006)


def test_a_gain_is_a_bound() -> None:
    assert words.format_gain_as_bound(1.853) == "at most 1.85x"
    assert words.format_gain_as_bound(None) == "gain unknown"
    assert figures.format_speedup(22.0) == "22.0x"


def test_dims_leave_trailing_ones_out() -> None:
    assert words.format_dims((64, 1, 1)) == "64"
    assert words.format_dims((64, 1, 2)) == "64 x 1 x 2"
    assert words.format_dims((1, 1, 1)) == "1"
    assert words.format_dims(None) == "unknown"
