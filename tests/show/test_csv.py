"""CSV in which no text acts: whoever reads it has as many rows as were written, and no formula."""

from __future__ import annotations

import csv
import io
import unicodedata

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from profkit.show.text.escape import iterate_csv

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
BREAKS = ("\r", "\n", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
CONTROLS = [
    chr(n) for n in (*range(1, 32), *range(127, 160)) if unicodedata.category(chr(n)) == "Cc"
]
# Names of kernels, devices, ranges and folders, with what ends a row and what begins a formula in them.
PIECES = st.sampled_from(
    [*BREAKS, *CONTROLS, *FORMULA, '"', "'", ",", ";", "gemm", "=cmd|' /C x'!A0"]
)
CELLS = st.lists(PIECES | st.text(max_size=3), max_size=6).map("".join)
FRAMES = st.lists(st.tuples(CELLS, st.floats(), CELLS), min_size=1, max_size=4)


def without_nul(text: str) -> str:
    return text.replace("\0", "").encode("utf-8", "ignore").decode()


@settings(max_examples=400, deadline=None)
@given(FRAMES)
@example([("gemm\r=cmd|' /C calc'!A0\r", 1.0, "x")])
@example([("", 1.0, "\x85=1")])
def test_every_reader_finds_the_rows_that_were_written(rows: list[tuple[str, float, str]]) -> None:
    """400 frames: by pandas, by csv, and by a reader that ends a row at any line break."""
    rows = [(without_nul(a), number, without_nul(b)) for a, number, b in rows]
    frame = pd.DataFrame(rows, columns=["kernel", "time", "a\rb"])
    text = "".join(iterate_csv(frame))
    read = pd.read_csv(io.StringIO(text, newline=""), dtype=str, keep_default_na=False)
    assert len(read) == len(rows)
    plain = list(csv.reader(io.StringIO(text, newline="")))
    assert len(plain) == len(rows) + 1
    for number, (kernel, _, other) in enumerate(rows):
        for cells in (list(read.iloc[number]), plain[number + 1]):
            assert (cells[0].removeprefix("'"), cells[2].removeprefix("'")) in {
                (kernel, other),
                (kernel.removeprefix("'"), other.removeprefix("'")),
            }
            assert not cells[0].startswith(FORMULA)
            assert not cells[2].startswith(FORMULA)


@pytest.mark.parametrize("character", [*BREAKS, *CONTROLS], ids=ascii)
def test_a_line_break_or_a_control_stands_in_quotes(character: str) -> None:
    text = "".join(iterate_csv(pd.DataFrame({"x": [f"a{character}=1"], "y": [1.5]})))
    assert text == f'x,y\n"a{character}=1",1.5\n'
