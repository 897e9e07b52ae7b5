"""Whatever a report holds, it reaches a terminal, Markdown and HTML as text only."""

from __future__ import annotations

import html.parser
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from profkit.show.text import escape

from .conftest import HOSTILE

any_text = st.text() | st.sampled_from(HOSTILE)
characters = st.characters() | st.sampled_from("\x1b\x9b\u202e\ud800`|<>&[]()*_~@#\\\n")


@given(st.text(characters) | any_text)
def test_nothing_visible_acts(text: str) -> None:
    shown = escape.escape_text(text)
    assert not [c for c in shown if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"}]
    shown.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("flash<64> *", "flash<64> *"),
        ("µ名", "µ名"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\u202e", "\\u202e"),
        ("\U000e0001", "\\U000e0001"),
    ],
)
def test_visible(text: str, shown: str) -> None:
    assert escape.escape_text(text) == shown


def _rendered(source: str) -> tuple[str, set[str]]:
    """Plain text and the tags that a Markdown reader with tables and links makes of it."""
    tags: set[str] = set()
    text: list[str] = []

    class Reader(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            tags.add(tag)

        def handle_data(self, data: str) -> None:
            text.append(data)

    made = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(source)
    Reader().feed(made)
    return "".join(text), tags


@given(st.text(characters, min_size=1) | any_text)
def test_markdown_renders_as_the_text_itself(text: str) -> None:
    rendered, tags = _rendered(f"x {escape.escape_markdown(text)} x")
    assert tags <= {"p"}
    assert rendered.replace("\u200b", "").split() == f"x {escape.escape_text(text)} x".split()


@given(st.text(characters, min_size=1) | any_text)
def test_code_in_a_table_stays_one_cell(text: str) -> None:
    span = escape.write_code_span(text, in_table=True)
    rendered, tags = _rendered(f"| a | b |\n|---|---|\n| {span} | end |\n")
    assert tags == {"table", "thead", "tbody", "tr", "th", "td", "code"}
    assert rendered.split()[-1] == "end"
    assert "".join(escape.escape_text(text).split()) in "".join(rendered.split())


def test_markdown_calls_nobody_and_links_nowhere() -> None:
    shown = escape.escape_markdown("@somebody #12 https://a.b www.a.b")
    assert "@somebody" not in shown
    assert "#12" not in shown.replace("&#", "")
    assert "https://" not in shown
    assert "www." not in shown


@given(any_text)
def test_html_has_no_tags(text: str) -> None:
    assert not set("<>\"'") & set(escape.escape_html(text))
