"""One judged launch  ->  what its part of the page says: texts for the template, data for scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

from profkit.diagnosis.launches import HotLine, JudgedLaunch, LaunchRow
from profkit.diagnosis.rule import LaunchFinding
from profkit.diagnosis.rules import BY_ID
from profkit.evidence.counters import list_limiters_finding_can_cause
from profkit.model.launch import NotCollected, StrictLaunch
from profkit.model.roofline import find_nearest_roof
from profkit.records.store import make_json_safe
from profkit.reports import figures
from profkit.reports.figures import format_share
from profkit.reports.metrics import CATALOGUE
from profkit.reports.metrics.derive import SECTOR
from profkit.reports.metrics.warps import MEANING
from profkit.show.draw import Bar, draw_roofline, make_roofline_row
from profkit.show.numbers import (
    PIPES,
    find_cuts_for_one_more_block,
    find_deciding_block_limits,
    get_pipe_shares,
    make_display_name,
)
from profkit.show.text import words
from profkit.show.text.escape import cut_middle, escape_text, shorten_name
from profkit.show.text.words import (
    BOUNDS,
    name_device,
    name_launch_by_report,
    name_launch_by_variant,
)
from profkit.show.views.diagnosis import (
    format_share_of_time,
    show_launch_identity,
    show_page_findings,
)

if TYPE_CHECKING:
    from profkit.units import (
        FloatOrNan,
        LookName,
        MetricName,
        MetricValues,
        RuleName,
        Share,
        ShareOrNan,
        StallState,
        TextOrEmpty,
    )


LABEL, NAME, LONGEST = 36, 90, 2000  # characters of a name: in a chart, in the table, in full
SMALL = 0.005  # states and pipes below are one another's equals: nothing
DIGITS = 9  # of what is compared: all 17 are half of a page
_LEVELS = (  # its name, in metrics, how near its peak it was, what hit
    ("L1TEX", "l1", "l1_busy", (("l1_hit", "hit rate"),)),
    ("L2", "l2", "l2_cache_busy", (("l2_hit", "hit rate"), ("l2_read_hit", "hit rate of reads"))),
    ("DRAM", "dram", "dram_busy", ()),
)


@dataclass(frozen=True)
class PageRow:
    number: int  # from 1, worst first
    row: LaunchRow  # launches alike
    all_time: float  # of the launches, in s

    @property
    def share_of_time(self) -> ShareOrNan:
        """Return its part of all time, 0-1; NaN when not known."""
        if self.all_time and self.row.known_times_sorted:
            return self.row.total / self.all_time
        return nan

    @property
    def run(self) -> JudgedLaunch:
        return self.row.median_launch

    @property
    def label(self) -> str:
        """Return what charts call it: variant and case, or the kernel; the number tells equals apart."""
        run = self.run
        return cut_middle(escape_text(name_launch_by_variant(run)), LABEL) or shorten_name(
            run.kernel, LABEL
        )


def make_table_row_of_launch(page_row: PageRow) -> dict[str, Any]:
    """Return the launch's row of the table: texts, and in `sort` the numbers to sort them by."""
    run = page_row.run
    row = page_row.row
    occupancy = run.values.get("occupancy", nan)
    summary = {
        "number": page_row.number,
        "label": page_row.label,
        "kernel": shorten_name(run.kernel, NAME),
        "report": name_launch_by_report(run),
        "count": "",
        "time": "?",
        "part": format_share_of_time(row, page_row.all_time),
        "bound": run.status,
        "limiter": run.diagnosis.limiter or "",
        "occupancy": words.format_metric("occupancy", occupancy),
        "device": name_device(run),
        "case": run.case or "",
    }
    finding, gain = _summarize_finding(row)
    summary["roof"], share_of_roof = _summarize_roof(run)
    sort = {
        "time": nan,
        "part": page_row.share_of_time,
        "gain": gain,
        "roof": share_of_roof,
        "occupancy": occupancy,
    }
    if len(row.launches) > 1:
        summary["count"] = words.format_count_and_times(row)
    if row.known_times_sorted:
        summary["time"] = figures.format_seconds(row.total)
        sort["time"] = row.total
    if run.status == "ok":
        summary["bound"] = run.diagnosis.bound
    numbers = {key: make_json_safe(value) for key, value in sort.items()}
    return {**summary, **finding, "sort": numbers}


def _summarize_roof(run: JudgedLaunch) -> tuple[TextOrEmpty, ShareOrNan]:
    """Return the share of the nearest roof as text and as a number; "" and NaN without a roof."""
    nearest = find_nearest_roof(make_roofline_row(run))
    if nearest is None:
        return "", nan
    name, part = nearest
    return f"{format_share(part)} of {make_display_name(name)}", part


def _summarize_finding(row: LaunchRow) -> tuple[dict[str, Any], FloatOrNan]:
    """Return the cells of a row's leading finding, and its gain for sorting; NaN without one."""
    top = row.median_launch.top
    diagnosis = row.median_launch.diagnosis
    cells = {"finding": "", "cause": "", "gain": words.format_expected_gain(top)}
    gain = nan
    if top:
        cells["finding"], cells["cause"] = top.rule, top.cause
        gain = top.ranking_gain
    elif diagnosis.bound in {"memory", "compute", "balanced"}:
        cells["gain"] = "near the hardware limit"  # that is an answer too
    saved = ""
    if row.seconds_saved > 0:
        saved = f"saves {figures.format_seconds(row.seconds_saved)}"
    return {**cells, "saved": saved, "saved_of": row.seconds_saved}, gain


def iterate_time_bars(page_rows: Sequence[PageRow]) -> Iterator[Bar]:
    """Yield the rows as parts of the time of all launches, and the rest that has no row."""
    end = total = 0.0
    for shown in page_rows:
        row = shown.row
        run = shown.run
        total = shown.all_time
        if not shown.share_of_time > 0:
            continue
        begin = end
        end = end + shown.share_of_time
        about = f"{shown.label} {figures.format_seconds(row.total)}, {words.label_verdict(run)}"
        if row.seconds_saved > 0:
            about += f", about {figures.format_seconds(row.seconds_saved)} to save"
        look = "unknown"
        if run.status == "ok":
            look = run.diagnosis.bound
        yield Bar(begin, end, look, about, f"launch-{shown.number}", row.seconds_saved / total)
    if total and end < 0.996:
        left_out = f"rows not shown: {figures.format_seconds(total * (1 - end))}"
        yield Bar(end, 1.0, "rest", left_out, "launches")


def iterate_linked_words(page_rows: Sequence[PageRow]) -> Iterator[dict[str, str]]:
    """Yield what the page links to: the bounds, and the rules that fire on it, with their advice."""
    for name, text in BOUNDS.items():
        yield {"name": name, "meaning": text, "advice": ""}
    fired = set()
    for row in page_rows:
        for finding in row.run.diagnosis.findings:
            if finding.status == "fires" and finding.rule in BY_ID:
                fired.add(finding.rule)
    for name in sorted(fired):
        rule = BY_ID[name]
        yield {"name": name, "meaning": f"{rule.title}. {rule.meaning}", "advice": rule.advice}


def make_launch_section(page_row: PageRow) -> dict[str, Any]:
    """Return what the launch's own part of the page says: texts, pictures and their numbers."""
    run = page_row.run
    known = {}
    for name, value in run.values.items():
        if isfinite(value):
            known[name] = value
    clear = [finding for finding in run.diagnosis.findings if finding.status == "clear"]
    return {
        "run": run,
        "full_name": cut_middle(escape_text(run.kernel), LONGEST) or "(no name)",
        "blocks": list(show_launch_identity(page_row.row, page_row.all_time)),
        "findings": list(show_page_findings(run)),
        "silent": len(clear),
        "position": draw_roofline(
            [(page_row.number, page_row.label, run)], is_picture_of_one_launch=True
        ),
        "levels": list_memory_levels(run.values),
        "limits": find_deciding_block_limits(known),
        "needs": find_cuts_for_one_more_block(known),
        "listing": list(group_neighbouring_lines(run.lines)),
        "nvidia": sorted(run.nvidia, key=lambda r: -(r.speedup or 0)),
        "stalls": list_stall_shares_with_looks(run),
        "pipes": list_pipe_shares_with_looks(run),
    }


def group_neighbouring_lines(lines: Sequence[HotLine]) -> Iterator[list[HotLine]]:
    """Yield runs of neighbouring lines in the order of the file, then those without a line."""
    coded = []
    bare = []
    for hot in lines:
        if hot.file:
            coded.append(hot)
        else:
            bare.append(hot)
    coded.sort(key=lambda hot: (hot.file or "", hot.line or 0))
    group: list[HotLine] = []
    for hot in coded:
        if group and (hot.file, hot.line or 0) != (group[-1].file, (group[-1].line or 0) + 1):
            yield group
            group = []
        group.append(hot)
    if group:
        yield group
    if bare:
        yield bare


def list_stall_shares_with_looks(
    run: JudgedLaunch,
) -> list[tuple[StallState, LookName, list[Share]]]:
    """Return name, look and share (0-1) of the states of the resident warps, largest first."""
    looks = dict.fromkeys((run.diagnosis.limiter or "").split("+"), "verdict")
    looks["selected"] = "issuing"
    shown = []
    for state in MEANING:
        part = run.values.get(f"stall_{state}", nan)
        if part >= SMALL:
            shown.append((state, looks.get(state, "waiting"), [part]))
    return sorted(shown, key=lambda row: -row[2][0])


def list_pipe_shares_with_looks(run: JudgedLaunch) -> list[tuple[str, LookName, list[Share]]]:
    """Return name, look and shares (0-1) of pipes that did something, busiest first.

    The shares are of elapsed and of active cycles, as far as they were collected.
    """
    shown = []
    for pipe in PIPES:
        shares = [part for part in get_pipe_shares(run.values, pipe) if isfinite(part)]
        if max(shares, default=0.0) >= SMALL:
            shown.append((make_display_name(pipe), "pipe", shares))
    return sorted(shown, key=lambda row: -max(row[2]))


def make_metric_fact(values: MetricValues, name: str, label: str) -> dict[str, Any]:
    """Return a metric of the catalogue under a label; a share also as a number."""
    value = values.get(name, nan)
    part = None
    if CATALOGUE[name].unit == "share" and isfinite(value):
        part = value
    return {"name": label, "text": words.format_metric(name, value), "metric": name, "share": part}


def list_memory_levels(values: MetricValues) -> list[dict[str, Any]]:
    """Return L1 to DRAM: facts (how busy, hit rates, bandwidth), bytes read (down) and written (up)."""

    def find_first_known(*names: MetricName) -> FloatOrNan:
        for name in names:
            value = values.get(name, nan)
            if isfinite(value):
                return value
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
    levels = []
    for title, level, busy, hits in _LEVELS:
        facts = [make_metric_fact(values, name, label) for name, label in ((busy, "busy"), *hits)]
        facts.append(make_bandwidth_fact(values, level))
        down, up = (figures.format_value_with_unit(value, "byte") for value in moved[level])
        levels.append({"name": title, "facts": facts, "down": down, "up": up})
    return levels


def make_bandwidth_fact(values: MetricValues, level: str) -> dict[str, Any]:
    """Return the bandwidth and its share of the peak that the report gives."""
    rate = values.get(f"{level}_rate", nan)
    peak = values.get(f"peak_{level}", nan)
    around = values.get("inst_async_copy", 0.0) + values.get("inst_texture", 0.0)
    if level == "l1" and rate == 0 and around > 0:
        # ncu's L1 bytes are what goes back to registers: "0 B/s" beside a busy unit misleads.
        text = "bypassed: async copies and textures"
        return {"name": "bandwidth", "text": text, "metric": "", "share": None}
    of = ""
    if rate >= 0 and peak > 0:
        of = f" of {figures.format_value_with_unit(peak, 'byte/s')}"
    text = figures.format_value_with_unit(rate, "byte/s") + of
    return {"name": "bandwidth", "text": text, "metric": f"{level}_rate", "share": None}


def make_launch_data(page_row: PageRow, rules: Sequence[RuleName]) -> dict[str, Any]:
    """Return what the scripts of the page read of a launch; metrics in the catalogue's order.

    What can be told from the rest is left out: the text of no value, all but the place of a rule
    that is clear.
    """
    run = page_row.run
    values: list[float | None] = []
    texts = []
    for name in CATALOGUE:
        value = make_json_safe(run.values.get(name, nan))
        if value is None:
            values.append(None)
            texts.append("")
        else:
            values.append(float(f"{value:.{DIGITS}g}"))
            texts.append(words.format_metric(name, value))
    findings = {}
    clear = set()
    for finding in run.diagnosis.findings:
        if finding.status == "clear":
            clear.add(finding.rule)
        else:
            findings[finding.rule] = list_finding_values_for_script(finding)
    return {
        "number": page_row.number,
        "label": page_row.label,
        "variant": run.variant or "",
        "case": run.case or "",
        "kernel": shorten_name(run.kernel, NAME),
        "bound": " ".join(filter(None, (run.diagnosis.bound, run.diagnosis.limiter))),
        "values": values,
        "texts": texts,
        "findings": findings,
        "clear": [number for number, rule in enumerate(rules) if rule in clear],
        "amounts": list_cause_amounts(run, rules),
    }


def list_finding_values_for_script(finding: LaunchFinding) -> list[Any]:
    """Return status, cause, gain and its text; of what fires also what it explains, and if it is a note.

    What it explains is there twice: as its own limiters, and with the waits for a unit that is full.
    """
    said = [
        finding.status,
        finding.cause,
        make_json_safe(finding.gain),
        figures.format_speedup(finding.gain),
    ]
    if finding.status == "fires":
        said += [
            list(finding.explains),
            sorted(list_limiters_finding_can_cause(finding)),
            finding.note,
        ]
    return said


def list_cause_amounts(
    run: JudgedLaunch, rules: Sequence[RuleName]
) -> dict[RuleName, list[list[Any] | None]]:
    """Return how much of each rule's cause a launch has, by each of its measures, with the text."""
    launch = StrictLaunch(run.values)
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
                measured.append([amount, figures.format_value_with_unit(amount, measure.unit)])
            else:
                measured.append(None)
        amounts[rule] = measured
    return amounts
