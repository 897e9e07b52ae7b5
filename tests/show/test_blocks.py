"""Blocks in a terminal and as Markdown, with text that wants to be more than text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from profkit.show.text.blocks import (
    Grid,
    Heading,
    ListItem,
    Paragraph,
    TextLine,
    TextSpan,
    render_markdown,
)
from profkit.show.text.terminal import make_console, render_text

HOSTILE = "[red]x[/red] <b>y</b> | `z` \x1b[31m @me \n next"
BLOCKS = [
    Heading(HOSTILE),
    TextLine(HOSTILE, "faster"),
    Grid((HOSTILE, ">n"), ((HOSTILE, "1"), ("plain", "20")), wraps=0),
    Heading("last", 3),
]


def test_a_terminal_shows_what_it_was_given():
    text = render_text(BLOCKS, make_console(width=100))
    assert text.count("[red]x[/red] <b>y</b> | `z`") == 4
    assert "\x1b[31m" not in text
    assert "\\x1b[31m" in text
    assert not any(line.endswith(" ") for line in text.splitlines())


def test_markdown_renders_as_itself():
    text = render_markdown(BLOCKS)
    assert "<b>" not in text
    assert "@me" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 4
    # Cells are cut at bare pipes only.
    assert {row.replace("\\|", "").count("|") for row in rows} == {3}
    assert rows[1] == "| --- | --: |"
    assert text.startswith("## ")
    assert text.endswith("#### last\n")


@pytest.mark.parametrize("width", range(20, 60))
def test_no_line_ends_between_a_number_and_its_unit(width):
    told = ("warps wait 53.6 % of 1.25 ms for 3.70 cycles at ", "4.80 TB/s of 6.48 M words")
    blocks = [
        Paragraph(told),
        TextLine(told, "note"),
        ListItem(told, under=(told,)),
        Grid(("a", "b"), (("x", told[0] * 3),), wraps=1),
    ]
    text = render_text(blocks, make_console(width=width))
    assert not re.search(r"\n *(?:%|ms|cycles|TB/s|M)(?!\w)", text)
    assert " ".join(text.split()).count("53.6 % of 1.25 ms") >= 4
    assert text.replace("\n", "").isprintable()
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_table_fits_the_terminal(width):
    grid = Grid(("a", "cause"), (("rule", "word " * 60),), wraps=1)
    assert max(map(len, render_text([grid], make_console(width=width)).splitlines())) <= width


@settings(max_examples=60, deadline=None)
@given(
    st.integers(40, 200),
    st.lists(st.sampled_from(("number", "name", "words", "prose")), min_size=1, max_size=9),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_a_table_of_anything_says_its_numbers_whole(width, kinds, rows, random):
    kinds = [k if k != "prose" or i == kinds.index(k) else "words" for i, k in enumerate(kinds)]
    make = {
        "number": lambda: f"{random.uniform(0, 9999):.{random.randrange(4)}f}x",
        "name": lambda: TextSpan(
            f"void {'_'.join(['kernel'] * random.randrange(1, 20))}(int)", "name"
        ),
        "words": lambda: " ".join(["words"] * random.randrange(1, 7)),
        "prose": lambda: " ".join(["sentence"] * random.randrange(1, 60)),
    }
    cells = tuple(tuple(make[kind]() for kind in kinds) for _ in range(rows))
    head = tuple(f"{'>' * (kind == 'number')}{kind} {i}" for i, kind in enumerate(kinds))
    grid = Grid(head, cells, wraps=kinds.index("prose") if "prose" in kinds else None)
    on = Console(width=width, force_terminal=True, color_system=None, markup=False)
    lines = render_text([grid], on).splitlines()
    assert max(map(len, lines)) <= width
    if width >= 80 and len(kinds) <= 4:  # else perhaps a table beside the first column again
        assert len(lines) <= 3 * rows + 6
    words = " ".join(lines).split()
    for row in cells:
        for kind, cell in zip(kinds, row, strict=True):
            assert kind != "number" or cell in words


@pytest.mark.parametrize("width", [80, 160])
def test_a_column_that_says_nothing_is_left_out_unless_it_was_asked_for(width):
    rows = (("a", "not counted", "1"), ("b", "not counted", "2"))
    grid = Grid(("kernel", "limit", ">n"), rows)
    assert "limit" not in render_text([grid], make_console(width=width))
    assert "limit" in render_text([replace(grid, asked=True)], make_console(width=width))
    half = replace(grid, rows=(*rows, ("c", "memory: l2", "3")))
    assert render_text([half], make_console(width=width)).count("not counted") == 2
