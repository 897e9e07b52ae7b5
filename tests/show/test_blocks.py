"""Blocks in a terminal and as Markdown, with text that wants to be more than text."""

from __future__ import annotations

import re

import pytest

from profkit.show.text.blocks import Grid, Heading, ListItem, Paragraph, TextLine
from profkit.show.text.markup import to_markdown
from profkit.show.text.terminal import console, to_text

HOSTILE = "[red]x[/red] <b>y</b> | `z` \x1b[31m @me \n next"
BLOCKS = [
    Heading(HOSTILE),
    TextLine(HOSTILE, "faster"),
    Grid((HOSTILE, ">n"), ((HOSTILE, "1"), ("plain", "20")), wraps=0),
    Heading("last", 3),
]


def test_a_terminal_shows_what_it_was_given():
    text = to_text(BLOCKS, console(width=100))
    assert text.count("[red]x[/red] <b>y</b> | `z`") == 4
    assert "\x1b[31m" not in text
    assert "\\x1b[31m" in text
    assert not any(line.endswith(" ") for line in text.splitlines())


def test_markdown_renders_as_itself():
    text = to_markdown(BLOCKS)
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
    blocks = [Paragraph(told), TextLine(told, "note"), ListItem(told, under=(told,)),
              Grid(("a", "b"), (("x", told[0] * 3),), wraps=1)]  # fmt: skip
    text = to_text(blocks, console(width=width))
    assert not re.search(r"\n *(?:%|ms|cycles|TB/s|M)(?!\w)", text)
    assert " ".join(text.split()).count("53.6 % of 1.25 ms") >= 4
    assert text.replace("\n", "").isprintable()
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_table_fits_the_terminal(width):
    grid = Grid(("a", "cause"), (("rule", "word " * 60),), wraps=1)
    assert max(map(len, to_text([grid], console(width=width)).splitlines())) <= width
