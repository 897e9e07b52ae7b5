"""One judged launch  ->  what its part of the page says: texts for the template, data for charts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from math import isfinite, nan
from typing import Any

from profkit.diagnosis.launches import HotLine, Judged, Row
from profkit.diagnosis.rules import BY_ID
from profkit.model.roofline import nearest_roof
from profkit.reports import figures
from profkit.reports.figures import share
from profkit.reports.metrics import CATALOGUE
from profkit.reports.metrics.warps import MEANING
from profkit.show.numbers import PIPES, pipe_word, shares
from profkit.show.numbers import word as roof_word
from profkit.show.page.memory import beside, levels, occupancy_facts
from profkit.show.page.roofline import VALUE, roofline_data, rounded, row_of
from profkit.show.text import words
from profkit.show.text.escape import escaped
from profkit.show.text.names import middle, short
from profkit.show.text.words import BOUNDS, device_of, in_report, named
from profkit.show.views.diagnosis import finding_blocks, launch_blocks, place_of, spread
from profkit.show.views.document import finite_or_none

LABEL, NAME, LONGEST = 36, 90, 2000  # characters of a name: in a chart, in the table, in full
THIN = 4  # of the bar of time, 1000 wide: what is narrower has no edge
SMALL = 0.005  # states and pipes below are one another's equals: nothing


@dataclass(frozen=True)
class PageRow:
    """A row of the page."""

    number: int  # from 1, worst first
    row: Row  # launches alike
    part: float  # of all time, 0-1; NaN when not known

    @property
    def run(self) -> Judged:
        """The launch that stands for the row."""
        return self.row.shown

    @property
    def label(self) -> str:
        """What charts call it: variant and case, or the kernel; the number tells equals apart."""
        run = self.run
        return middle(escaped(named(run)), LABEL) or short(run.kernel, LABEL)


def row_summary(shown: PageRow) -> dict[str, Any]:
    """The launch's row of the table: text and, to sort by, the number behind it."""
    run, row = shown.run, shown.row
    nearest = nearest_roof(row_of(run))
    return {
        "number": shown.number,
        "label": shown.label,
        "kernel": short(run.kernel, NAME),
        "report": in_report(run),
        "count": spread(row) if len(row.launches) > 1 else "",
        "time": figures.seconds(row.total) if row.times else "?",
        "time_s": finite_or_none(row.total if row.times else nan),
        "part": share(shown.part) if isfinite(shown.part) else "",
        "part_of": finite_or_none(shown.part),
        "bound": run.diagnosis.bound if run.status == "ok" else run.status,
        "limiter": run.diagnosis.limiter or "",
        "finding": run.top.rule if run.top else "",
        "cause": run.top.cause if run.top else "",
        "gain": words.top(run.top) or _without_gain(run),
        "saved": f"saves {figures.seconds(row.saved)}" if row.saved > 0 else "",
        "saved_of": row.saved,
        "gain_of": finite_or_none(run.top.worth if run.top else None),
        "roof": f"{share(nearest[1])} of {roof_word(nearest[0])}" if nearest else "",
        "roof_of": finite_or_none(nearest[1] if nearest else None),
        "occupancy": words.metric("occupancy", run.values.get("occupancy", nan)),
        "occupancy_of": finite_or_none(run.values.get("occupancy", nan)),
        "device": device_of(run),
        "case": run.case or "",
    }


def _without_gain(run: Judged) -> str:
    """What stands for a gain where no finding has one: a unit at its roof is an answer too."""
    at_roof = run.top is None and run.diagnosis.bound in {"memory", "compute", "balanced"}
    return "at its roof" if at_roof else ""


def bars(several: Sequence[PageRow], total: float) -> list[dict[str, Any]]:
    """The rows as parts of a bar 1000 wide: how long, by what bound, what could be saved."""
    out: list[dict[str, Any]] = []
    x = 0.0
    for shown in several:
        row, run = shown.row, shown.run
        width = 1000 * row.total / total if total else 0.0
        if width <= 0:
            continue
        saved = f", about {figures.seconds(row.saved)} to save" if row.saved > 0 else ""
        label = words.label(run)
        out.append({
            "to": f"launch-{shown.number}", "x": round(x, 2), "width": round(width, 2),
            "saved": round(width * row.saved / row.total, 2),
            "thin": width < THIN,
            "bound": run.diagnosis.bound if run.status == "ok" else "unknown",
            "about": f"{shown.label} {figures.seconds(row.total)}, {label}{saved}",
        })  # fmt: skip
        x += width
    if total and x < 1000 - THIN:
        rest = f"the rows that are left out: {figures.seconds(total * (1 - x / 1000))}"
        out.append({"to": "launches", "x": round(x, 2), "width": round(1000 - x, 2), "saved": 0,
                    "thin": False, "bound": "rest", "about": rest})  # fmt: skip
    return out


def words_of(several: Sequence[PageRow]) -> list[dict[str, str]]:
    """What the page links to: the bounds, and the rules that fire on it, with their advice."""
    findings = chain.from_iterable(row.run.diagnosis.findings for row in several)
    fired = {finding.rule for finding in findings if finding.status == "fires"}
    bounds = [{"name": name, "meaning": text, "advice": ""} for name, text in BOUNDS.items()]
    rules = [BY_ID[rule] for rule in sorted(fired) if rule in BY_ID]
    return bounds + [
        {"name": r.id, "meaning": f"{r.title}. {r.meaning}", "advice": r.advice} for r in rules
    ]


def details(shown: PageRow, total: float) -> dict[str, Any]:
    """The launch's own section; `total` is the time of all launches in s."""
    run = shown.run
    return {
        "full_name": middle(escaped(run.kernel), LONGEST) or "(no name)",
        "blocks": list(launch_blocks(shown.row, total)),
        "findings": list(finding_blocks(run)),
        "silent": [f.rule for f in run.diagnosis.findings if f.status == "clear"],
        "levels": levels(run.values),
        "beside": beside(run.values),
        "occupancy": occupancy_facts(run.values),
        "listing": list(code_listing(run.lines)),
        "nvidia": [
            {"rule": r.rule, "title": " ".join(r.title.split()),
             "message": " ".join(r.message.split()),
             "speedup": share(r.speedup) if r.speedup else "",
             "scope": "of a part of it" if r.scope == "local" else ""}
            for r in sorted(run.nvidia, key=lambda r: -(r.speedup or 0))
        ],
        "stalls": _stalls(run),
        "pipes": _pipes(run),
    }  # fmt: skip


def code_listing(lines: Sequence[HotLine]) -> Iterator[dict[str, Any]]:
    """Hot lines in the order of the file, code that stands between them included.

    Yields:
        Runs of neighbouring lines: file, and lines with number, code, share, stall. Instructions
        without a line come in one run, hottest first.
    """
    coded = sorted((x for x in lines if x.file), key=lambda x: (x.file or "", x.line or 0))
    numbered = ((x.file, (x.line or 0) - n, x) for n, x in enumerate(coded))
    for (file, _), group in groupby(numbered, key=lambda item: item[:2]):
        yield {"file": file, "lines": [_line(x) for *_, x in group]}
    bare = [x for x in lines if not x.file]
    if bare:
        yield {"file": None, "lines": [_line(x) for x in bare]}


def _line(line: HotLine) -> dict[str, Any]:
    return {
        "number": line.line or "",
        "place": place_of(line),
        "code": line.text.expandtabs(4)[:LONGEST],
        "of": f"{line.share:.3g}",
        "share": share(line.share) if line.samples else "",
        "stall": f"{line.stall} {share(line.stall_share)}" if line.stall else "",
    }


def _stalls(run: Judged) -> list[dict[str, Any]]:
    """The states of the resident warps, largest first; none when not collected."""
    limiters = (run.diagnosis.limiter or "").split("+")
    known = {state: run.values.get(f"stall_{state}", nan) for state in MEANING}
    states = [(state, value) for state, value in known.items() if value >= SMALL]
    bars = []
    for state, value in sorted(states, key=lambda s: -s[1]):
        waiting = "verdict" if state in limiters else "waiting"
        kind = "issuing" if state == "selected" else waiting
        bars.append({"line": state, "text": share(value), "kind": kind, "of": (f"{value:.3g}",)})
    return bars


def _pipes(run: Judged) -> list[dict[str, Any]]:
    """The pipes that did something, busiest first: of elapsed cycles and of active ones."""
    bars = []
    for pipe in PIPES:
        both = [value for value in shares(run.values, pipe) if isfinite(value)]
        if max(both, default=0.0) >= SMALL:
            text = " | ".join(map(share, both))
            bars.append({"line": pipe_word(pipe), "text": text, "kind": "pipe", "most": max(both),
                         "of": tuple(f"{value:.3g}" for value in both)})  # fmt: skip
    return sorted(bars, key=lambda bar: -bar["most"])


def meanings() -> dict[str, str]:
    """State or pipe -> what it is: said once for all launches."""
    return {**{pipe_word(pipe): CATALOGUE[f"{pipe}_busy"].meaning for pipe in PIPES}, **MEANING}


def data(shown: PageRow, rules: Sequence[str]) -> dict[str, Any]:
    """What the scripts of the page read of a launch; metrics in the catalogue's order.

    What can be told from the rest is left out: the text of no value, all but the place of a rule
    that is clear.
    """
    run = shown.run
    clear = {f.rule for f in run.diagnosis.findings if f.status == "clear"}
    values = [finite_or_none(run.values.get(name, nan)) for name in CATALOGUE]
    return {
        "number": shown.number,
        "label": shown.label,
        "kernel": short(run.kernel, NAME),
        "bound": " ".join(filter(None, (run.diagnosis.bound, run.diagnosis.limiter))),
        "values": [rounded(value, VALUE) for value in values],
        "texts": [
            "" if value is None else words.metric(name, value)
            for name, value in zip(CATALOGUE, values, strict=True)
        ],
        "findings": {
            f.rule: [f.status, f.cause, finite_or_none(f.gain), figures.speedup(f.gain)]
            for f in run.diagnosis.findings
            if f.status != "clear"
        },
        "clear": [n for n, rule in enumerate(rules) if rule in clear],
        "position": roofline_data([(shown.number, shown.label, run)]),
    }


def rule_names(several: Sequence[PageRow]) -> list[str]:
    """Every rule that was asked of the launches; ours first, in their order."""
    findings = chain.from_iterable(row.run.diagnosis.findings for row in several)
    rules = dict.fromkeys(finding.rule for finding in findings)
    return [rule for rule in {**dict.fromkeys(BY_ID), **rules} if rule in rules]


def metrics() -> list[Mapping[str, str]]:
    """Name, unit and meaning of every metric, in the catalogue's order."""
    return [{"name": m.name, "unit": m.unit, "meaning": m.meaning} for m in CATALOGUE.values()]
