"""A triage  ->  a screen: the step as one bar, what to do first, the kernels that take longest."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any

from profkit.program.steps.idle import clean_operator_name
from profkit.program.steps.places import replace_layer_numbers, shorten_line_path
from profkit.reports.figures import (
    format_percent,
    format_seconds,
    format_three_figures,
    get_base_name_of_kernel,
)
from profkit.show.text.blocks import (
    Block,
    Columns,
    Command,
    Grid,
    Heading,
    Paragraph,
    Strip,
    TextLine,
    TextSpan,
    Words,
    get_plain_text,
    make_grid,
)
from profkit.show.text.escape import shorten_name

if TYPE_CHECKING:
    from profkit.units import (
        CauseName,
        Clause,
        ClauseOrEmpty,
        FileAndLine,
        FindingJson,
        KernelJson,
        Milliseconds,
        OriginJson,
        OriginKind,
        PromiseJson,
        RankJson,
        Sentence,
        SentenceOrEmpty,
        Share,
        StepJson,
        TextOrEmpty,
        TriageJson,
    )


FIRST = 3  # findings shown; --json has all
WORTH_A_DOUBT = 0.05  # of the step: from this saving on it is said why it may be nothing
GROUPS = 10
NOTES = 5
NAMED = 3  # kernels in the name of a finding
RANKS = 3  # those that wait least: others wait for them
BAR = 60
_FILE = re.compile(r"\.\w+:\d+")  # a line of a file, in a place
OVERLAPS = 1.01  # of the step: shares that add up to more are of kernels that run at the same time
PLACE_MOST = 44  # characters of a place that is no line
PATH_MOST = 44  # characters of a file's path in the table
OPERATOR_MOST = 36  # characters of an operator's name in the table
SMALL = 0.01  # of the step: kernels that take less are counted, not listed
TABLES = ("kernel", "line", "module", "operator")  # what the table can have a row of
LISTED = 3  # kernels that are listed, however little they take
UNPLACED = ("before ", "between ", "in ")  # places that are no "at"
NO_FINDING = ("healthy", "unknown")  # what is said first where no finding is
COMPUTING = "computing"
WITH_FRAMES = "profile(with_stack=True) records functions"
RECORD = "profkit triage -- python train.py"
WITH_LINES = f"{RECORD} records the line of every kernel"
NO_KERNELS = ("copy", "set")  # categories of the table of kernels that are none
# What a part of the step is -> its mark in the bar, its name, and the bound whose colour it has.
CAUSES = {
    COMPUTING: ("#", "computing", "compute"),
    "host-launch": ("l", "waiting for launches", "launch"),
    "host-sync": ("w", "host synchronization", "balanced"),
    "copy": ("c", "copies", "memory"),
    "collective": ("n", "collectives", "latency"),
    "other": (".", "not explained", "unknown"),
}


def show_triage(
    triage_document: TriageJson, where_the_rest_is: str = "--json", by: str = "kernel"
) -> Iterator[Block]:
    """Yield the screen of a "profkit.triage/1" document: at most 40 lines where nothing wraps.

    Args:
        triage_document: What it says.
        where_the_rest_is: Where the findings are that are not shown.
        by: What the table has a row of: line, module, operator or kernel.
    """
    step = triage_document["step"]
    yield Paragraph(_highlight_answer(triage_document))
    yield TextLine(describe_recorded_steps(triage_document))
    yield draw_step_bar(step)
    yield TextLine((_say_whose_step(triage_document), *write_bar_legend(step)))
    yield from _show_what_to_do(triage_document, where_the_rest_is)
    recorded = ""
    if has_savings_of_unrecorded_step(triage_document):
        recorded = f", of {format_ms(step['ms'])} recorded"
    yield Heading(f"Where the GPU's time goes{recorded}", 2)
    if by == "kernel":
        yield from show_kernels_table(
            triage_document["kernels"], triage_document.get("origins", ())
        )
    else:
        yield from show_origins_table(triage_document, by)
    yield from show_what_is_next(triage_document)


def _show_what_to_do(triage_document: TriageJson, where_the_rest_is: str) -> Iterator[Block]:
    """Yield the findings with the largest savings, and that there are more."""
    step = triage_document["step"]
    yield Heading("What to do first", 2)
    if triage_document["first"]["category"] in NO_FINDING:
        yield TextLine(triage_document["first"]["say"], triage_document["first"]["category"])
    for number, row in enumerate(triage_document["findings"][:FIRST], 1):
        yield TextLine((f"{number}. ", *write_finding_title(row, triage_document)))
        yield TextLine(say_finding(row, step), indent=1)
        advice = say_advice(row, triage_document)
        yield TextLine((TextSpan("try:", "note"), f" {advice}"), indent=1)
        if other := say_alternative(row, triage_document):
            yield TextLine((TextSpan("or:", "note"), f" {other}"), indent=1)
    if (more := len(triage_document["findings"]) - FIRST) > 0:
        yield TextLine(f"and {more} more with smaller savings: {where_the_rest_is}")
    yield from show_all_savings_together(triage_document)


# Of its saving: what adds less than this to the findings before it saves the same time as one of them.
SAME_TIME = 1 / 3
_IDLE = ("host-launch", "host-sync")  # both are about the time in which the GPU waits for the host


def say_alternative(row: FindingJson, document: TriageJson) -> ClauseOrEmpty:
    """Return which later finding would save nearly the time that a finding saves; "" where none does.

    It may be by far the easier fix.
    """
    rows = document["findings"]
    saves = row["saves_ms"]["expect"]
    for other in rows[rows.index(row) + 1 :]:
        others = other["saves_ms"]["expect"]
        is_same_time = other["on_top_ms"] < SAME_TIME * others <= SAME_TIME * saves
        if is_same_time and others >= LARGE_PART * saves and _are_of_same_time(row, other):
            part = f"about {format_three_figures(others)} of the same {format_ms(saves)}"
            return f"{name_finding(other)} instead, {part}: {say_advice(other, document)}"
    return ""


LARGE_PART = 0.5  # of what a finding saves: an alternative that saves less is none


def _are_of_same_time(one: FindingJson, other: FindingJson) -> bool:
    """Return whether two findings are about the same idle time, or about some of the same kernels."""
    if one["category"] in _IDLE and other["category"] in _IDLE:
        return True
    return not set(one["kernels"]).isdisjoint(other["kernels"])


LEAST_TOGETHER = 0.05  # of the step
WAITS_FOR_RANK = " in collectives for rank "  # in the note on ranks of unlike parts


def show_all_savings_together(document: TriageJson) -> Iterator[TextLine]:
    """Yield what a step should take with all fixes; nothing where they are one, or save little."""
    plain = document["step"]["plain_ms"]["expect"]
    saved = sum(row["on_top_ms"] for row in document["findings"])
    if len(document["findings"]) < 2 or not LEAST_TOGETHER * plain <= saved < plain:
        return
    text = f"about {format_ms(plain - saved)} per step instead of {format_ms(plain)}"
    yield TextLine(text, "all of them")


def write_step_title(triage_document: TriageJson) -> str:
    """Return the step's time, without the profiler where that differs, and its GPU."""
    times = format_ms(triage_document["step"]["ms"])
    if has_savings_of_unrecorded_step(triage_document):
        plain = format_interval(**triage_document["step"]["plain_ms"])
        times = f"about {plain} without the profiler"
    return f"Step of {times} on {_name_gpu(triage_document)}"


def _name_gpu(document: TriageJson) -> str:
    return document["program"]["device"] or "unknown GPU"


def write_step_answer(document: TriageJson) -> Sentence:
    """Return what a step takes, and what to fix first, how, and for which saving; or that it is healthy.

    "A step takes 22.8 ms on NVIDIA H200. Fix attention-unfused first, which saves about 20.1 ms (16.2 to
    20.8): use torch.nn.functional.scaled_dot_product_attention."
    """
    step = document["step"]
    device = _name_gpu(document)
    takes = f"A step takes {format_ms(step['ms'])} on {device}"
    if has_savings_of_unrecorded_step(document):
        plain = format_interval(**step["plain_ms"])
        takes = f"Without the profiler a step takes about {plain} on {device}"
    if document["first"]["category"] == "healthy":
        return f"{takes}, and no known fix would save much of it."
    if document["first"]["category"] in NO_FINDING or not document["findings"]:
        return f"{takes}; what to fix first is not known."
    return f"{takes}. {_say_first_fix(document['findings'][0])}"


def _say_first_fix(row: Mapping[str, Any]) -> str:
    """Return which finding to fix first, at which line, how, and what that saves."""
    place = ""
    where = row["where"] or ""
    if is_source_line(where):
        line = _FILE.search(where)
        place = f" at {where[: line.end()]}" if line else ""
    saves = row["saves_ms"]
    interval = f"{format_three_figures(saves['low'])} to {format_three_figures(saves['high'])}"
    saved = f"which saves about {format_ms(saves['expect'])} ({interval})"
    how = _FIRST_CLAUSE.match(row["try"])
    return f"Fix {name_finding(row)}{place} first, {saved}: {how.group() if how else row['try']}."


_FIRST_CLAUSE = re.compile(
    r"(?:\([^()]*\)|[:;](?! )|[^(:;])+"
)  # up to a mark that is in no brackets


def _highlight_answer(document: TriageJson) -> Words:
    """Return the answer with what the eye looks for set off: the finding, and what it saves."""
    text = write_step_answer(document)
    if document["first"]["category"] in NO_FINDING or not document["findings"]:
        return TextSpan(text, "strong")
    name = name_finding(document["findings"][0])
    before, _, after = text.partition(f"Fix {name}")
    place, mark, rest = after.partition("which saves about ")
    saved, colon, how = rest.partition(": ")
    gain = TextSpan(mark + saved, "gain")
    return (before, TextSpan(f"Fix {name}", "strong"), place, gain, colon + how)


def _say_whose_step(triage_document: TriageJson) -> ClauseOrEmpty:
    """Return which step the bar is of, where that is not the one of the title; "" elsewhere."""
    step = triage_document["step"]
    said = []
    ranks = triage_document["ranks"]
    shown = [row for row in ranks if row["ms"] == step["ms"]]
    if len(ranks) > 1 and len(shown) == 1:
        said.append(f"rank {shown[0]['rank']}")
        if shown[0]["waiting_ms"] < min(r["waiting_ms"] for r in ranks if r is not shown[0]):
            said.append("the slowest")
    if has_savings_of_unrecorded_step(triage_document):
        said.append(f"{format_ms(step['ms'])} recorded")
    if not said:
        return ""
    return f"{', '.join(said)}: "


def has_savings_of_unrecorded_step(triage_document: TriageJson) -> bool:
    """Return whether savings are of another step than the recorded one: of one without the recorder."""
    step = triage_document["step"]
    plain = step["plain_ms"]["expect"]
    if abs(plain - step["ms"]) > 0.03 * step["ms"]:
        return True
    return bool(triage_document["findings"]) and format_three_figures(
        plain
    ) != format_three_figures(step["ms"])


def is_source_line(where: str) -> bool:
    """Return whether a place is a line of Python: it is named first then, and never cut."""
    return _FILE.search(where) is not None and not where.startswith(UNPLACED)


def _may_save_nothing_without_profiler(row: FindingJson, step: StepJson) -> bool:
    """Return whether a saving begins at 0 as nobody knows how slow the host is without the profiler."""
    saves = row["saves_ms"]
    plain = step["plain_ms"]["expect"]
    if row["category"] not in ("host-launch", "host-sync") or saves["low"] > 0:
        return False
    if saves["expect"] < WORTH_A_DOUBT * plain:
        return False
    return has_estimated_interval(step["plain_ms"]) and "captured" not in row["say"]


def say_finding(row: FindingJson, step: StepJson) -> Words:
    """Return what is wrong, behind the line that it is in, where that is known."""
    where = row["where"] or ""
    said = str(row["say"])
    is_wait = row["category"] == "host-sync"
    if is_wait and row["saves_ms"]["expect"] > 1.05 * row["evidence"].get("after", inf):
        said += "; without them the host runs ahead, and other gaps shrink too"
    if _may_save_nothing_without_profiler(row, step):
        said += (
            "; if only the profiler slows the host so, nothing is saved: pass --step-ms to find out"
        )
    if is_source_line(where):
        return TextSpan(where, "place"), f": {said}"
    return said


def write_finding_title(row: FindingJson, document: TriageJson) -> tuple[TextSpan | str, ...]:
    """Return a finding's rule, and what fixing it saves, also after the findings before it."""
    saving = TextSpan(say_saving(row, document["step"]), "gain")
    title = (TextSpan(name_finding(row), "strong"), ": ", saving)
    if row["on_top_ms"] >= 0.7 * row["saves_ms"]["expect"]:
        return title
    before = "fix 1"
    if document["findings"].index(row) > 1:
        before = "the fixes above"
    return (*title, f"; only {format_ms(row['on_top_ms'])} after {before}")


def name_finding(row: FindingJson) -> str:
    """Return what a finding is called: its rule, and of one about a kernel also which kernel."""
    category = str(row["category"])
    kernels = sorted(row["kernels"], key=lambda name: (len(name), name))[:NAMED]
    if category != "kernel" or not kernels:
        return category
    if len(kernels) == 1:
        return f"kernel {kernels[0]}"
    return f"kernels {', '.join(kernels)}"


def say_advice(row: FindingJson, document: TriageJson) -> str:
    """Return what to try; and where, if that is no line, which the finding begins with."""
    where = row["where"] or ""
    if not where or is_source_line(where):
        return str(row["try"])
    return f"{row['try']} ({_name_place(row, where, document)})"


def _name_place(row: Mapping[str, Any], where: str, document: TriageJson) -> str:
    """Return where a finding is that has no line: "at aten::to", "in kernel softmax_warp_forward"."""
    if where.startswith(UNPLACED):
        return where
    named = [kernel for kernel in document["kernels"] if kernel["name"] == where]
    place = where
    if len(where) > PLACE_MOST and not _FILE.search(where):
        place = shorten_name(where, PLACE_MOST)  # a kernel's name is long
    if not named:
        return f"at {place}"
    if named[0]["category"] not in NO_KERNELS:
        place = f"kernel {place}"
    if row["category"] in _IDLE:
        return f"before {place}"
    return f"in {place}"


def write_finding_texts(row: FindingJson, document: TriageJson) -> tuple[Clause, Clause]:
    """Return a finding's title with what it saves, and what to try, as plain text."""
    return get_plain_text(write_finding_title(row, document)), say_advice(row, document)


def say_saving(row: FindingJson, step: StepJson) -> Clause:
    """Return what fixing a finding saves: "saves about 19.4 of 22.8 ms (17.8 to 20.6)"."""
    saves = row["saves_ms"]
    plain = step["plain_ms"]["expect"]
    interval = f"{format_three_figures(saves['low'])} to {format_three_figures(saves['high'])}"
    return f"saves about {format_three_figures(saves['expect'])} of {format_ms(plain)} ({interval})"


def show_what_is_next(triage_document: TriageJson) -> Iterator[Block]:
    """Yield how to look at the counted kernel that matters most; what each rank does; notes."""
    named = set(chain.from_iterable(finding["kernels"] for finding in triage_document["findings"]))
    counted = [row for row in triage_document["kernels"] if row["counted"] and row["next"]]
    if best := min(counted, key=lambda r: (r["id"] not in named, -r["ms"]), default=None):
        yield TextLine(best["next"], f"details of {best['id']}")
    kernels = [row for row in triage_document["kernels"] if row["grid"]]
    if kernels and kernels[0]["category"] == "unknown" and kernels[0].get("missing"):
        yield TextLine(kernels[0]["missing"], kernels[0]["id"])
    yield from _show_ranks(triage_document["ranks"])
    is_said = any(finding["category"] == "collective" for finding in triage_document["findings"])
    for text in triage_document["notes"][:NOTES]:
        if not (is_said and WAITS_FOR_RANK in text):  # the finding says who waits for whom
            yield TextLine(text, "note")
    if text := say_lack_of_lines(triage_document):
        yield TextLine(text, "lines")


def _show_ranks(ranks: Sequence[RankJson]) -> Iterator[Block]:
    """Yield what each rank does; of many ranks those that wait least for the others."""
    shown = ranks
    if len(ranks) > RANKS:
        shown = sorted(ranks, key=lambda r: r["waiting_ms"])[:RANKS]
    for row in sorted(shown, key=lambda r: r["rank"]):
        transfer = row["collective_ms"] - row["waiting_ms"]
        overlap = ""
        for_whom = " for other ranks"
        if row["computing_ms"] + row["collective_ms"] > row["ms"]:
            overlap = " (overlapping)"
            for_whom = ""
        yield TextLine(
            f"{format_ms(row['computing_ms'])} computing, "
            f"{format_ms(row['collective_ms'])} in collectives{overlap}: "
            f"{format_ms(transfer)} transferring, {format_ms(row['waiting_ms'])} waiting{for_whom}",
            f"rank {row['rank']}",
        )


def say_lack_of_lines(triage_document: TriageJson) -> SentenceOrEmpty:
    """Say how to get lines of Python, of a trace that has none; empty where nothing is to be said."""
    program = triage_document["program"]
    origins = triage_document.get("origins", ())
    if program["how"] == "cupti" and origins and not any(origin["line"] for origin in origins):
        return "none in this recording: no Python, or --no-lines was given"
    if program["how"] != "torch trace" or not origins:
        return ""
    has_functions = any(origin["function"] for origin in origins)
    if (program["device"] or "").startswith("AMD"):
        if has_functions:
            return "the trace has functions but no lines: each is named by the line of its def"
        return f"the trace has no Python frames: {WITH_FRAMES}"
    if has_functions:
        return f"the trace has functions but no lines: {WITH_LINES}"
    return f"none in this trace; to get them, run {RECORD}"


def suggest_commands(document: TriageJson) -> Iterator[Block]:
    """Yield the command that leads on from a screen; none where nothing was found."""
    if document["findings"]:
        yield Heading("Next", 2)
        rule = document["findings"][0]["category"]
        yield Command(f"profkit explain {rule}", "the cause, and how to fix it")


def format_ms(value: Milliseconds) -> str:
    return f"{format_three_figures(value)} ms"


def describe_recorded_steps(triage_document: TriageJson) -> Clause:
    """Return which step it is, and what those took that were recorded, if that is not said above."""
    program = triage_document["program"]
    step = triage_document["step"]
    found = f"{program['how']}, {step['found']}"
    steps = f"median of {program['steps']} steps ({found})"
    if program["steps"] == 2:
        steps = f"one of 2 steps ({found})"
    if program["steps"] < 2:
        steps = f"one step ({found})"
    low = format_three_figures(step["min_ms"])
    high = format_ms(step["max_ms"])
    if high != f"{low} ms":
        return f"{steps}; {low} to {high} recorded"
    if has_savings_of_unrecorded_step(triage_document):
        return f"{steps}; {format_ms(step['ms'])} recorded"
    return steps


def format_interval(expect: Milliseconds, low: Milliseconds, high: Milliseconds) -> str:
    if format_three_figures(low) == format_three_figures(high):
        return format_ms(expect)
    return f"{format_ms(expect)} ({format_three_figures(low)} to {format_three_figures(high)})"


def draw_step_bar(step: StepJson) -> Strip:
    """Return the step as one line: # computes, other marks are idle time by its cause."""
    parts = []
    drawn = 0
    shares = {cause: end - begin for cause, begin, end, _ in iterate_step_segments(step)}
    for cause, length in divide_bar_by_shares(shares).items():
        mark, _, colour = CAUSES[cause]
        parts.append((mark * length, colour))
        drawn += length
    return Strip((*parts, (" " * (BAR - drawn), "")))


def divide_bar_by_shares(shares: Mapping[CauseName, Share]) -> dict[CauseName, int]:
    """Return how many marks of the bar each share gets: those left by rounding go to the largest rests.

    So a larger share never has fewer marks than a smaller one.
    """
    exact = {cause: BAR * max(share, 0.0) for cause, share in shares.items()}
    marks = {cause: int(length) for cause, length in exact.items()}
    left = min(round(sum(exact.values())), BAR) - sum(marks.values())
    by_rest = sorted(exact, key=lambda cause: marks[cause] - exact[cause])
    for cause in by_rest[: max(left, 0)]:
        marks[cause] += 1
    return marks


def write_bar_legend(step: StepJson) -> tuple[TextSpan | str, ...]:
    """Return what the bar's marks mean, and each one's share; no entry is broken over two lines.

    A part that is too short for a mark is named without one.
    """
    drawn = draw_step_bar(step).text
    words: list[TextSpan | str] = []
    small: list[TextSpan | str] = []
    for cause, text in iterate_step_shares(step):
        mark = CAUSES[cause][0]
        if mark in drawn:
            words += [" · ", TextSpan(f"{mark} {text}", "whole")]
        else:
            small += [" · ", TextSpan(f"{text} (too little to draw)", "whole")]
    return tuple([*words, *small][1:])


def iterate_step_shares(step: StepJson) -> Iterator[tuple[CauseName, str]]:
    """Yield each cause, and computing, with its part of the step."""
    for cause, begin, end, _ in iterate_step_segments(step):
        if cause == COMPUTING or end - begin >= 0.001:
            yield cause, f"{CAUSES[cause][1]} {format_percent(end - begin, 1)}"


def iterate_step_segments(step: StepJson) -> Iterator[tuple[CauseName, Share, Share, str]]:
    """Yield computing and each cause: begin and end as shares of the step, and what it is."""
    computing = {"cause": COMPUTING, "ms": step["gpu_busy_ms"], "where": ""}
    begin = 0.0
    for row in (computing, *step["idle"]):
        end = begin + row["ms"] / max(step["ms"], 1e-12)
        most = ""
        if row["where"]:
            most = f", most of it {row['where']}"
        yield row["cause"], begin, end, f"{row['cause']} {format_ms(row['ms'])}{most}"
        begin = end


def show_kernels_table(
    kernel_rows: Sequence[KernelJson], origins: Iterable[OriginJson] = ()
) -> Iterator[Block]:
    """Yield the table of the kernels that take longest, and what the others take together."""
    shown, rest = split_large_and_small_kernels(kernel_rows)
    yield make_kernels_table(shown, origins)
    if rest:
        yield TextLine(describe_rest_of_rows(rest) + note_overlapping_shares(kernel_rows))


def describe_rest_of_rows(rows: Sequence[Mapping[str, Any]]) -> Clause:
    """Return how many rows of a table are left out, and the time that they take together."""
    took = sum(row["ms"] for row in rows)
    share = sum(row["share"] for row in rows)
    return f"and {len(rows):,} more: {format_from_ms(took)}, {format_percent(share, 1)}"


def split_large_and_small_kernels(
    kernel_rows: Sequence[KernelJson],
) -> tuple[Sequence[KernelJson], Sequence[KernelJson]]:
    """Return the kernels that are listed, and those that are only counted."""
    large = [row for row in kernel_rows if row["share"] >= SMALL]
    count = max(LISTED, min(len(large), GROUPS))
    return kernel_rows[:count], kernel_rows[count:]


def note_overlapping_shares(rows: Iterable[Mapping[str, Any]]) -> ClauseOrEmpty:
    """Say so where shares of a step add up to more than the step: kernels run at the same time."""
    whole = sum(row["share"] for row in rows)
    if whole <= OVERLAPS:
        return ""
    return f"; kernels overlap: these shares add up to {format_percent(whole)}"


def make_kernels_table(
    kernel_rows: Sequence[KernelJson], origins: Iterable[OriginJson] = ()
) -> Grid:
    """Return kernels by time; what no kernel was counted for is no column."""
    lines: dict[str, set[str]] = {}
    for origin in origins:
        for name in origin["kernels"]:
            lines.setdefault(name, set()).add(origin["line"] or "")

    def name_kernel_line(row: KernelJson) -> str:
        return name_source_line(row, len(lines.get(row["id"], ())) - 1)

    columns: Columns[Mapping[str, Any]] = {
        "": lambda row: row["id"],
        "kernel": lambda row: TextSpan(row["name"], "name"),
        "line": name_kernel_line,
        "module": lambda row: row.get("module") or "",
        **make_kind_column(kernel_rows),
        **make_grid_column(kernel_rows),
        ">calls": _format_calls,
        ">per step": _format_time_of_step,
        ">share": _format_share_of_step,
        "limit": _format_limit,
        ">could gain": _format_headroom,
    }
    return make_grid(kernel_rows, columns, narrow=True, spare=("kind", "module", ">calls", ">grid"))


def _format_calls(row: Mapping[str, Any]) -> str:
    return str(row["calls"])


def _format_time_of_step(row: Mapping[str, Any]) -> str:
    return format_from_ms(row["ms"])


def _format_share_of_step(row: Mapping[str, Any]) -> str:
    return format_percent(row["share"], 1)


def _format_limit(row: KernelJson) -> str:
    if row["bound"]:
        return f"{row['bound']}: {row['limiter']}"
    return "not counted"


def _format_headroom(row: KernelJson) -> TextOrEmpty:
    if row["headroom"]:
        return f"{row['headroom']:.2f}x"
    return ""


def make_kind_column(kernel_rows: Sequence[KernelJson]) -> Columns[KernelJson]:
    """Return the column that says what kernels do: their operators where no line is known."""
    if any(row.get("line") for row in kernel_rows) or not any(row["op"] for row in kernel_rows):
        return {"kind": lambda row: row["category"]}
    return {"operator": lambda row: shorten_operator_name(row["op"] or row["category"])}


def shorten_operator_name(name: str) -> str:
    """Name an operator or a node of autograd: by its end where it is long, as a kernel is."""
    plain = clean_operator_name(name).removeprefix("torch::autograd::")
    if len(plain) <= OPERATOR_MOST:
        return plain
    return shorten_name(plain, OPERATOR_MOST)


def make_grid_column(kernel_rows: Sequence[KernelJson]) -> Columns[KernelJson]:
    """Return the column that tells kernels of one name apart; none where no two are of one."""
    grids: dict[tuple[str | None, ...], set[str]] = {}
    for row in kernel_rows:
        grids.setdefault(_make_row_key(row), set()).add(format_blocks_of_grid(row))
    alike = {name for name, own in grids.items() if len(own) > 1}
    if not alike:
        return {}
    return {">grid": lambda row: format_blocks_of_grid(row) if _make_row_key(row) in alike else ""}


def _make_row_key(row: KernelJson) -> tuple[str | None, ...]:
    return get_base_name_of_kernel(row["name"]), row.get("op"), row.get("line")


def format_blocks_of_grid(row: KernelJson) -> str:
    """Write how many blocks a kernel has along each axis, without last ones of one block: 32x4."""
    sizes = list(row.get("grid") or ())
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return "x".join(f"{size:,}" for size in sizes)


def format_from_ms(value: Milliseconds) -> str:
    """Return milliseconds in the unit that is read best: 6.66 ms, 42.8 µs."""
    return format_seconds(value / 1e3)


def name_source_line(row: KernelJson, others: int = 0) -> TextOrEmpty:
    """Name the line of most of a kernel's time, and how many lines there are besides."""
    line = row.get("line")
    if not line:
        return ""
    more = ""
    if others > 0:
        more = f" +{others}"
    return f"{shorten_line_path(line)}{more}"


# What a table can have a row of, besides a kernel -> how a row of "origins" is called there.
ORIGINS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "line": lambda row: name_line(row["line"] or ""),
    "module": lambda row: replace_layer_numbers(row["module"] or ""),
    "operator": lambda row: row["op"] or "",
}
UNKNOWN = "unknown"
NO_MODULE = "no module"  # of what a line outside of all modules launches: an optimizer, a loss


def name_line(line: FileAndLine) -> str:
    """Name a line by its file; one whose file is in a folder of packages by its path in there."""
    if line.startswith("/"):
        return shorten_line_path(line)
    return line


def shorten_place(place: str) -> str:
    """Leave the folders between a package and its file out, where the path is long."""
    if len(place) <= PATH_MOST or place.count("/") <= 1:
        return place
    package, *_, file = place.split("/")
    return f"{package}/…/{file}"


def show_origins_table(triage_document: TriageJson, by: OriginKind) -> Iterator[Block]:
    """Yield a step's GPU time by line, module or operator, what takes longest first, and the rest."""
    ordered = sum_rows_by_origin(triage_document, by)
    yield make_table_of_summed_origins(ordered[:GROUPS], by)
    if rest := ordered[GROUPS:]:
        yield TextLine(describe_rest_of_rows(rest) + note_overlapping_shares(ordered))
    has_functions = any(row["function"] for row in triage_document.get("origins", ()))
    if by == "line" and triage_document["program"]["how"] == "torch trace" and has_functions:
        yield TextLine("lines are where functions begin: a trace has no others", "note")


def sum_rows_by_origin(triage_document: TriageJson, by: OriginKind) -> list[OriginJson]:
    """Return rows by line, module or operator with what comes from each."""
    limits = {row["id"]: row["limiter"] for row in triage_document["kernels"]}
    rows: dict[str, dict[str, Any]] = {}
    has_modules = any(origin["module"] for origin in triage_document["origins"])
    for origin in triage_document["origins"]:
        name = ORIGINS[by](origin)
        if not name and by == "module" and has_modules and origin["line"]:
            name = NO_MODULE
        name = name or UNKNOWN
        row = rows.setdefault(name, {"name": name, "ms": 0.0, "share": 0.0, "calls": 0})
        row.setdefault("function", origin["function"] or "")
        row.setdefault("part", Counter())[origin["part"] or ""] += origin["ms"]
        row.setdefault("limits", Counter())
        for key in ("ms", "share", "calls"):
            row[key] += origin[key]
        if limit := limits.get(origin["kernels"][0]):
            row["limits"][limit] += origin["ms"]
    return sorted(rows.values(), key=lambda row: -row["ms"])


def make_table_of_summed_origins(rows: Sequence[OriginJson], by: OriginKind) -> Grid:
    """Return the table of what comes from each line, module or operator."""
    names: Columns[Mapping[str, Any]] = {by: lambda row: shorten_place(row["name"])}
    if by == "line":
        names = {
            by: lambda row: TextSpan(shorten_place(row["name"]), "place"),
            "in": lambda row: row["function"],
        }
    columns: Columns[Mapping[str, Any]] = {
        **names,
        "part": _join_parts_of_step,
        ">calls": _format_calls,
        ">per step": _format_time_of_step,
        ">share": _format_share_of_step,
        "limit": _name_largest_limit,
    }
    return make_grid(rows, columns, narrow=True)


def _join_parts_of_step(row: OriginJson) -> str:
    """Return the parts of a step that a row is of, what takes longest first."""
    return " + ".join(part for part, _ in row["part"].most_common() if part)


def _name_largest_limit(row: OriginJson) -> TextOrEmpty:
    """Return what limits most of a row's time; "" where nothing was counted."""
    for limit, _ in row["limits"].most_common(1):
        return str(limit)
    return ""


# What is said of a saving against what was predicted.
OUTCOMES = {
    "inside": "the saving is inside the predicted interval",
    "more": "the saving is larger than predicted",
    "less": "the saving is smaller than predicted",
}


def has_estimated_interval(step_time: Mapping[str, Milliseconds]) -> bool:
    """Return whether what a step takes without a recorder has an interval."""
    return format_three_figures(step_time["low"]) != format_three_figures(step_time["high"])


def say_step_time(step_time: Mapping[str, Milliseconds]) -> Clause:
    """Return what a step takes without a recorder; about, where that is an estimate."""
    interval = format_interval(step_time["expect"], step_time["low"], step_time["high"])
    if has_estimated_interval(step_time):
        return f"about {interval}"
    return interval


def show_compared_triages(comparison: Mapping[str, Any]) -> Iterator[Block]:
    """Yield whether a step is faster, what became of its findings, and which one is next."""
    sides = comparison["before"], comparison["after"]
    saved = comparison["saved_ms"]
    answer = comparison["answer"]
    yield Heading(say_program_change(comparison))
    is_known = answer != "cannot tell"
    if is_known:
        change = "lost"
        if saved >= 0:
            change = "saved"
        yield TextLine(f"{format_ms(abs(saved))} per step", change)
    if any(map(has_estimated_interval, sides)):
        first, second = (format_ms(side["recorded"]) for side in sides)
        kinds = "both times above are estimates without the profiler, which slows the host"
        if not all(map(has_estimated_interval, sides)):
            estimated = next(
                format_ms(side["expect"]) for side in sides if has_estimated_interval(side)
            )
            kinds = f"{estimated} is an estimate without the profiler, which slowed that side only"
        yield TextLine(f"{first} before, {second} after; {kinds}", "recorded")
    for text in comparison["notes"]:
        yield TextLine(text, "note" if is_known else answer)
    yield from _show_promises(comparison["promises"])
    if comparison["outcome"]:
        yield TextLine(OUTCOMES[comparison["outcome"]], "predicted")
    if comparison["new"]:
        listed = ", ".join(comparison["new"])
        yield TextLine(f"{listed} (profkit triage AFTER says what each would save)", "new findings")


def _show_promises(promises: Sequence[PromiseJson]) -> Iterator[Block]:
    """Yield the finding of before that could save most from now on, and what became of each."""
    if not promises:
        return
    left = [row for row in promises if row["state"] != "gone" and row["left"] > 0]
    if left:
        largest = max(left, key=lambda row: row["left"])
        more = format_ms(largest["left"])
        yield TextLine(f"{largest['category']}, which could save another {more}", "next")
    columns: Columns[Mapping[str, Any]] = {
        "finding": lambda row: row["category"],
        ">predicted saving": lambda row: format_interval(*row["said"]),
        "now": lambda row: row["state"],
        ">left to save": lambda row: format_ms(row["left"]) if row["state"] != "gone" else "",
    }
    yield make_grid(promises, columns)


BRIEF_KERNELS = 3  # of a brief


def write_brief_triage(triage_document: TriageJson) -> str:
    """Return what to do first in a step, and where its time goes, in lines of plain text."""
    from profkit.show.text.words import fit_lines_in_brief  # which needs the rooms of kernels

    step = triage_document["step"]
    shares = ", ".join(text for _, text in iterate_step_shares(step))
    lines = [
        write_step_answer(triage_document),
        describe_recorded_steps(triage_document),
        f"{_say_whose_step(triage_document)}{shares}",
    ]
    first = triage_document["first"]
    findings = triage_document["findings"]
    if first["category"] in NO_FINDING:
        lines.append(f"{first['category']}: {first['say']}")
    lines += _iterate_finding_lines(triage_document)
    lines += map(_describe_kernel_briefly, triage_document["kernels"][:BRIEF_KERNELS])
    lines += [f"note: {text}" for text in triage_document["notes"][:NOTES]]
    if findings:
        lines.append(f"Run: profkit explain {findings[0]['category']}")
    return fit_lines_in_brief(lines)


def _iterate_finding_lines(document: TriageJson) -> Iterator[str]:
    """Yield the lines of a brief for the first findings: what it is, what to try, what to do instead."""
    findings = document["findings"]
    for number, row in enumerate(findings[:FIRST], 1):
        title, advice = write_finding_texts(row, document)
        yield f"{number}. {title}: {get_plain_text(say_finding(row, document['step']))}"
        yield f"Try: {advice}"
        if other := say_alternative(row, document):
            yield f"Or: {other}"
    if (more := len(findings) - FIRST) > 0:
        yield f"{more} more findings with smaller savings: --json"


def _describe_kernel_briefly(row: KernelJson) -> str:
    """Return a kernel of a step in one line: its time, its name, and where it comes from."""
    operator = shorten_operator_name(row["op"] or "")
    places = [shorten_name(row["name"], OPERATOR_MOST), name_source_line(row), operator]
    named = ", ".join(filter(None, places))
    return f"{row['id']}: {_format_time_of_step(row)}, {_format_share_of_step(row)}, {named}"


def say_program_change(comparison: Mapping[str, Any]) -> Sentence:
    """Return in one sentence by how much a step changed, and which findings came and went."""
    sides = [comparison[side] for side in ("before", "after")]
    before, after = (say_step_time(side) for side in sides)
    answer = comparison["answer"].capitalize()
    if comparison["answer"] in ("faster", "slower"):
        answer += f", {format_speedup_between(*sides)}"
    if any(UNLIKE in note for note in comparison["notes"]):
        answer += ", if both recordings are of the same program"
    said = f"{answer}: a step took {before} and now takes {after}"
    gone = [row["category"] for row in comparison["promises"] if row["state"] == "gone"]
    for change, names in (("gone", gone), ("new", comparison["new"])):
        if names:
            said += f"; {change}: {', '.join(names)}"
    return said


UNLIKE = "they are not of one program"  # in the note on two recordings with other kernels
ENOUGH = 3  # steps, whose times have a spread


def format_speedup_between(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """Return how many times faster AFTER is, with its interval: "1.43x (1.41 to 1.46)".

    Of estimates the ends are compared in pairs, as they are for the answer: one recorder slows both
    hosts alike. Of measured times the shortest and longest steps are; of one or two steps there is no
    interval, and that is said.
    """
    expect = before["expect"] / max(1e-9, after["expect"])
    if has_estimated_interval(before) or has_estimated_interval(after):
        ends = [before[end] / max(1e-9, after[end]) for end in ("low", "high")]
    elif min(before.get("steps", 1), after.get("steps", 1)) < ENOUGH:
        return f"{format_three_figures(expect)}x (no interval: fewer than {ENOUGH} steps on a side)"
    else:
        ends = [
            before["least"] / max(1e-9, after["most"]),
            before["most"] / max(1e-9, after["least"]),
        ]
    low = min(expect, *ends)
    high = max(expect, *ends)
    return (
        f"{format_three_figures(expect)}x ({format_three_figures(low)} to "
        f"{format_three_figures(high)})"
    )
