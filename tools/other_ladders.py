"""The other problems on the ladder's page: what each is, and its rungs at every recorded case.

Times and verdicts come from artifacts/, the sentence from the problem's problem.py. Used by ladder_page.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from math import isnan
from pathlib import Path

from profkit.evidence.comparison.ladder import Ladder, Rung, build_ladder
from profkit.evidence.runs.runs import Evidence
from profkit.evidence.timing.stats import TimeComparison
from profkit.measure.variants.problem import is_complete, load_problem
from profkit.show.text import figures

Table = Callable[[tuple[str, ...], list[tuple[str, ...]]], list[str]]
Link = Callable[[str, int, str], str]


def other_problems(
    kernels: Path, main: str, known: Evidence, table: Table, link: Link
) -> Iterator[str]:
    """Lines of Markdown.

    Args:
        kernels: The folder of problems.
        main: The problem that has the rest of the page.
        known: The committed artifacts with the headers of today.
        table: Rows as Markdown.
        link: A variant as Markdown, from its id, its depth and its file.
    """
    for folder in sorted(d for d in kernels.iterdir() if d.name != main and is_complete(d)):
        asked = load_problem(folder)
        of_this = {k.partition("/")[2] for k in known.headers if k.startswith(f"{folder.name}/")}
        said = ast.get_docstring(ast.parse(asked.path.read_text("utf-8"))) or ""
        yield from ("", f"## The problem {folder.name}", "", said.splitlines()[0])
        for case in asked.cases:
            if not of_this & {variant for variant, at in known.names() if at == case}:
                continue
            ladder = build_ladder(known, case, anyway=True)
            yield from ("", f"### {folder.name} at {case}", "")
            yield from table(*_rows(ladder, known, link))


def _rows(
    ladder: Ladder, known: Evidence, link: Link
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    references = sorted({name for step in ladder.steps for name in step.references})
    head = ("rung", ">time", ">vs parent", *(f">vs {r}" for r in references), "bound: limiter")
    rows = []
    for step in ladder.steps:
        key = next(k for k in known.headers if k.endswith(f"/{step.variant}"))
        versus = (_factor(step.references.get(r)) for r in references)
        parent = _factor(step.change.time if step.change else None)
        file = known.headers[key].file
        rows.append(
            (link(step.variant, step.depth, file), _time(step), parent, *versus, step.bound)
        )
    return head, rows


def _time(step: Rung) -> str:
    if step.time is None:
        return "not timed"
    half = (step.time.high - step.time.low) / 2 / step.time.median
    interval = "" if isnan(half) else f" ± {100 * half:.1f} %"
    return f"{figures.seconds(step.time.median)}{interval}"


def _factor(found: TimeComparison | None) -> str:
    if found is None:
        return ""
    return f"{'~' if found.answer == 'cannot tell' else ''}{found.speedup.median:.2f}x"
