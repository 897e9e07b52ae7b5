"""One judged launch  ->  what its part of the page says: texts for the template, data for scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from math import isfinite, nan
from typing import Any

from profkit.diagnosis.launches import HotLine, Judged, Row
from profkit.diagnosis.rule import LaunchFinding
from profkit.diagnosis.rules import BY_ID
from profkit.evidence.counters import list_explained_limiters
from profkit.model.launch import Launch, NotCollected
from profkit.model.roofline import find_nearest_roof
from profkit.records.store import make_json_safe
from profkit.reports import figures
from profkit.reports.figures import share
from profkit.reports.metrics import CATALOGUE
from profkit.reports.metrics.derive import SECTOR
from profkit.reports.metrics.warps import MEANING
from profkit.show.draw import Bar, draw_roofline, make_roofline_row
from profkit.show.numbers import (
    PIPES,
    find_block_limits,
    find_cuts_for_one_more_block,
    get_pipe_shares,
    spell_unit,
)
from profkit.show.text import words
from profkit.show.text.escape import cut_middle, escape_text, shorten_name
from profkit.show.text.words import BOUNDS, name_by_report, name_device, name_launch
from profkit.show.views.diagnosis import (
    format_part_of_time,
    show_launch_identity,
    show_page_findings,
)

LABEL, NAME, LONGEST = 36, 90, 2000  # characters of a name: in a chart, in the table, in full
SMALL = 0.005  # states and pipes below are one another's equals: nothing
DIGITS = 9  # of what is compared: all 17 are half of a page
Values = Mapping[str, float]
_LEVELS = (  # its name, in metrics, how near its peak it was, what hit
    ("L1TEX", "l1", "l1_busy", (("l1_hit", "hit rate"),)),
    ("L2", "l2", "l2_cache_busy", (("l2_hit", "hit rate"), ("l2_read_hit", "hit rate of reads"))),
    ("DRAM", "dram", "dram_busy", ()),
)


@dataclass(frozen=True)
class PageRow:
    number: int  # from 1, worst first
    row: Row  # launches alike
    all_time: float  # of the launches, in s

    @property
    def share_of_time(self) -> float:
        """Its part of all time, 0-1; NaN when not known."""
        if self.all_time and self.row.times:
            return self.row.total / self.all_time
        return nan

    @property
    def run(self) -> Judged:
        return self.row.median_launch

    @property
    def label(self) -> str:
        """What charts call it: variant and case, or the kernel; the number tells equals apart."""
        run = self.run
        return cut_middle(escape_text(name_launch(run)), LABEL) or shorten_name(run.kernel, LABEL)


def summarize_row(shown: PageRow) -> dict[str, Any]:
    """Return the launch's row of the table: texts, and in `sort` the numbers to sort them by."""
    run, row = shown.run, shown.row
    nearest = find_nearest_roof(make_roofline_row(run))
    occupancy = run.values.get("occupancy", nan)
    at_roof = run.top is None and run.diagnosis.bound in {"memory", "compute", "balanced"}
    sort = {
        "time": row.total if row.times else None,
        "part": shown.share_of_time,
        "gain": run.top.ranking_gain if run.top else None,
        "roof": nearest[1] if nearest else None,
        "occupancy": occupancy,
    }
    return {
        "number": shown.number,
        "label": shown.label,
        "kernel": shorten_name(run.kernel, NAME),
        "report": name_by_report(run),
        "count": words.format_count_and_times(row) if len(row.launches) > 1 else "",
        "time": figures.seconds(row.total) if row.times else "?",
        "part": format_part_of_time(row, shown.all_time),
        "bound": run.diagnosis.bound if run.status == "ok" else run.status,
        "limiter": run.diagnosis.limiter or "",
        "finding": run.top.rule if run.top else "",
        "cause": run.top.cause if run.top else "",
        # Where no finding has one: at the limit is an answer too.
        "gain": words.format_worth(run.top) or ("near the hardware limit" if at_roof else ""),
        "saved": f"saves {figures.seconds(row.seconds_saved)}" if row.seconds_saved > 0 else "",
        "saved_of": row.seconds_saved,
        "roof": f"{share(nearest[1])} of {spell_unit(nearest[0])}" if nearest else "",
        "occupancy": words.format_metric("occupancy", occupancy),
        "device": name_device(run),
        "case": run.case or "",
        "sort": {key: make_json_safe(value) for key, value in sort.items()},
    }


def iterate_time_bars(several: Sequence[PageRow]) -> Iterator[Bar]:
    """Yield the rows as parts of the time of all launches, and the rest that has no row."""
    end = total = 0.0
    for shown in several:
        row, run, total = shown.row, shown.run, shown.all_time
        if shown.share_of_time > 0:
            begin, end = end, end + shown.share_of_time
            if row.seconds_saved > 0:
                saved = f", about {figures.seconds(row.seconds_saved)} to save"
            else:
                saved = ""
            label = words.label_verdict(run)
            about = f"{shown.label} {figures.seconds(row.total)}, {label}{saved}"
            look = "unknown"
            if run.status == "ok":
                look = run.diagnosis.bound
            yield Bar(begin, end, look, about, f"launch-{shown.number}", row.seconds_saved / total)
    if total and end < 0.996:
        left_out = f"rows not shown: {figures.seconds(total * (1 - end))}"
        yield Bar(end, 1.0, "rest", left_out, "launches")


def iterate_linked_words(several: Sequence[PageRow]) -> Iterator[dict[str, str]]:
    """Yield what the page links to: the bounds, and the rules that fire on it, with their advice."""
    yield from ({"name": name, "meaning": text, "advice": ""} for name, text in BOUNDS.items())
    findings = chain.from_iterable(row.run.diagnosis.findings for row in several)
    fired = {finding.rule for finding in findings if finding.status == "fires"}
    for rule in (BY_ID[name] for name in sorted(fired) if name in BY_ID):
        meaning = f"{rule.title}. {rule.meaning}"
        yield {"name": rule.id, "meaning": meaning, "advice": rule.advice}


def describe_launch(shown: PageRow) -> dict[str, Any]:
    run = shown.run
    known = {}
    for name, value in run.values.items():
        if isfinite(value):
            known[name] = value
    return {
        "run": run,
        "full_name": cut_middle(escape_text(run.kernel), LONGEST) or "(no name)",
        "blocks": list(show_launch_identity(shown.row, shown.all_time)),
        "findings": list(show_page_findings(run)),
        "silent": sum(f.status == "clear" for f in run.diagnosis.findings),
        "position": draw_roofline([(shown.number, shown.label, run)], single=True),
        "levels": list_memory_levels(run.values),
        "limits": find_block_limits(known),
        "needs": find_cuts_for_one_more_block(known),
        "listing": list(group_neighbouring_lines(run.lines)),
        "nvidia": sorted(run.nvidia, key=lambda r: -(r.speedup or 0)),
        "stalls": list_stalls(run),
        "pipes": list_pipes(run),
    }


def group_neighbouring_lines(lines: Sequence[HotLine]) -> Iterator[list[HotLine]]:
    """Yield runs of neighbouring lines in the order of the file, then those without a line."""
    coded = sorted((x for x in lines if x.file), key=lambda x: (x.file or "", x.line or 0))
    numbered = ((x.file, (x.line or 0) - n, x) for n, x in enumerate(coded))
    for _, group in groupby(numbered, key=lambda item: item[:2]):
        yield [x for *_, x in group]
    if bare := [x for x in lines if not x.file]:
        yield bare


def list_stalls(run: Judged) -> list[tuple[str, str, list[float]]]:
    """Return name, look and share of the states of the resident warps, largest first."""
    looks = dict.fromkeys((run.diagnosis.limiter or "").split("+"), "verdict")
    looks["selected"] = "issuing"
    known = {state: run.values.get(f"stall_{state}", nan) for state in MEANING}
    states = sorted((s for s in known if known[s] >= SMALL), key=lambda s: -known[s])
    return [(state, looks.get(state, "waiting"), [known[state]]) for state in states]


def list_pipes(run: Judged) -> list[tuple[str, str, list[float]]]:
    """Return the same of pipes that did something, busiest first: of elapsed and of active cycles."""
    both = {pipe: [v for v in get_pipe_shares(run.values, pipe) if isfinite(v)] for pipe in PIPES}
    busy = {pipe: max(values, default=0.0) for pipe, values in both.items()}
    kept = sorted((p for p in PIPES if busy[p] >= SMALL), key=lambda p: -busy[p])
    return [(spell_unit(pipe), "pipe", both[pipe]) for pipe in kept]


def make_fact(values: Values, name: str, label: str) -> dict[str, Any]:
    """Return a metric of the catalogue under a label; a share also as a number."""
    value = values.get(name, nan)
    part = None
    if CATALOGUE[name].unit == "share" and isfinite(value):
        part = value
    return {"name": label, "text": words.format_metric(name, value), "metric": name, "share": part}


def list_memory_levels(values: Values) -> list[dict[str, Any]]:
    """Return L1 to DRAM: facts (how busy, hit rates, bandwidth), bytes read (down) and written (up)."""

    def find_first_known(*names: str) -> float:
        for n in names:
            if isfinite(v := values.get(n, nan)):
                return v
        return nan

    stored = find_first_known("global_store_sectors") + find_first_known("local_store_sectors")
    moved = {
        "l1": (find_first_known("l1_rate") * find_first_known("time"), SECTOR * stored),
        "l2": (
            find_first_known("l2_to_l1_bytes", "l2_read_bytes"),
            find_first_known("l1_to_l2_bytes", "l2_write_bytes"),
        ),
        "dram": (find_first_known("dram_read"), find_first_known("dram_write")),
    }
    out = []
    for title, level, busy, hits in _LEVELS:
        facts = [make_fact(values, name, label) for name, label in ((busy, "busy"), *hits)]
        down, up = (figures.quantity(value, "byte") for value in moved[level])
        facts.append(describe_rate(values, level))
        out.append({"name": title, "facts": facts, "down": down, "up": up})
    return out


def describe_rate(values: Values, level: str) -> dict[str, Any]:
    """Return the bandwidth and its share of the peak that the report gives."""
    rate, peak = values.get(f"{level}_rate", nan), values.get(f"peak_{level}", nan)
    around = values.get("inst_async_copy", 0.0) + values.get("inst_texture", 0.0)
    if level == "l1" and rate == 0 and around > 0:
        # ncu's L1 bytes are what goes back to registers: "0 B/s" beside a busy unit misleads.
        text = "bypassed: async copies and textures"
        return {"name": "bandwidth", "text": text, "metric": "", "share": None}
    of = ""
    if rate >= 0 and peak > 0:
        of = f" of {figures.quantity(peak, 'byte/s')}"
    text = figures.quantity(rate, "byte/s") + of
    return {"name": "bandwidth", "text": text, "metric": f"{level}_rate", "share": None}


def make_launch_data(shown: PageRow, rules: Sequence[str]) -> dict[str, Any]:
    """Return what the scripts of the page read of a launch; metrics in the catalogue's order.

    What can be told from the rest is left out: the text of no value, all but the place of a rule
    that is clear.
    """
    run = shown.run
    clear = {f.rule for f in run.diagnosis.findings if f.status == "clear"}
    values = {name: make_json_safe(run.values.get(name, nan)) for name in CATALOGUE}
    return {
        "number": shown.number,
        "label": shown.label,
        "variant": run.variant or "",
        "case": run.case or "",
        "kernel": shorten_name(run.kernel, NAME),
        "bound": " ".join(filter(None, (run.diagnosis.bound, run.diagnosis.limiter))),
        "values": [v if v is None else float(f"{v:.{DIGITS}g}") for v in values.values()],
        "texts": ["" if v is None else words.format_metric(n, v) for n, v in values.items()],
        "findings": {
            f.rule: describe_finding(f) for f in run.diagnosis.findings if f.status != "clear"
        },
        "clear": [n for n, rule in enumerate(rules) if rule in clear],
        "amounts": list_cause_amounts(run, rules),
    }


def describe_finding(finding: LaunchFinding) -> list[Any]:
    """Return status, cause, gain and its text; of what fires also what it explains, and if it is a note.

    What it explains is there twice: as its own limiters, and with the waits for a unit that is full.
    """
    said = [
        finding.status,
        finding.cause,
        make_json_safe(finding.gain),
        figures.speedup(finding.gain),
    ]
    if finding.status == "fires":
        said += [list(finding.explains), sorted(list_explained_limiters(finding)), finding.note]
    return said


def list_cause_amounts(run: Judged, rules: Sequence[str]) -> dict[str, list[list[Any] | None]]:
    """Return how much of each rule's cause a launch has, by each of its measures, with the text."""
    launch = Launch(run.values)
    amounts: dict[str, list[list[Any] | None]] = {}
    for rule in rules:
        if rule not in BY_ID or not BY_ID[rule].measures:
            continue
        measured: list[list[Any] | None] = []
        for measure in BY_ID[rule].measures:
            try:
                amount = measure.of(launch)
            except (NotCollected, ArithmeticError):
                amount = nan
            # Not collected is no zero: the script leaves this measure out.
            if isfinite(amount):
                measured.append([amount, figures.quantity(amount, measure.unit)])
            else:
                measured.append(None)
        amounts[rule] = measured
    return amounts
