"""Markdown for pull requests: a table and folded diagnoses, nothing of a report's is markup."""

from __future__ import annotations

import html.parser

from markdown_it import MarkdownIt

from profkit.diagnosis.launches import HotLine, LaunchRow, group_and_rank_launches
from profkit.show.text.blocks import render_markdown
from profkit.show.views.diagnosis import show_diagnosis

from .conftest import HOSTILE, Made

OURS = {
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "code",
    "p",
    "ul",
    "li",
    "strong",
    "em",
    "details",
    "summary",
    "br",
    "b",
    "h3",
    "h4",
}


def _rendered(table: list[LaunchRow]) -> str:
    return render_markdown(show_diagnosis(table, table, list_all_rows=True))


def _tags(source: str) -> dict[str, int]:
    tags: dict[str, int] = {}

    class Reader(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags[tag] = tags.get(tag, 0) + 1

    Reader().feed(MarkdownIt("commonmark").enable("table").render(source))
    return tags


def test_nothing_of_a_report_becomes_markup(made: Made) -> None:
    line = HotLine("|x|`.cu", 1, "``a`` | <b>", 1, 0.5, "barrier", 0.5)
    runs = [made(n, report=f"{n[:99]}.r", device=n[:50], lines=(line,)) for n in HOSTILE]
    found = group_and_rank_launches(runs)
    tags = _tags(_rendered(found))
    assert set(tags) == OURS
    assert tags["details"] == len(HOSTILE)
    assert tags["tr"] == 1 + len(HOSTILE)
    assert tags["td"] == len(HOSTILE) * 8


def test_the_table_has_the_verdict(made: Made) -> None:
    found = group_and_rank_launches([made("f", 3e-3), made("g", 1e-3)])
    assert _rendered(found).splitlines()[4] == (
        "| 1 | `f` | a.ncu-rep #&#8203;0 | 3.00 ms | 75 % | memory: shared | shared-bank-conflicts "
        "| 7.90x (3.30 to 7.98) |"
    )
