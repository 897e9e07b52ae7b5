"""Checks, times, records and searches, as JSON values  ->  blocks for people.

Takes plain values, so that a record read from disk and one just made look the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isnan, nan
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from profkit.records.record import Record
from profkit.reports import figures
from profkit.show.text import blocks
from profkit.show.text.blocks import Block, Columns, Grid, Heading, TextLine, TextSpan, make_grid

if TYPE_CHECKING:
    import pandas as pd

    from profkit.units import MarkdownText, Seconds, Sentence, TextOrEmpty

Entry = Mapping[str, Any]


def show_variants(rows: Iterable[Entry]) -> Iterator[Block]:
    """Yield variants in ladder order, problem by problem: what is built, what is recorded."""
    problems: dict[str, list[Entry]] = {}
    for row in rows:
        problems.setdefault(row["problem"], []).append(row)
    columns: Columns[Entry] = {
        "variant": lambda row: row["variant"],
        "after": lambda row: row["after"] or "",
        "built": lambda row: "yes" if row["built"] else "no",
        "recorded": format_recorded_cases,
        "title": lambda row: row["title"],
    }
    for problem, variants in problems.items():
        yield Heading(problem)
        yield make_grid(variants, columns, wraps=4)
        lacking: dict[str, list[str]] = {}
        for row in variants:
            if why := row.get("missing"):
                lacking.setdefault(why, []).append(row["variant"])
        for why, names in lacking.items():
            yield TextLine(TextSpan(f"{', '.join(names)}: {why}", "dim"))


def format_recorded_cases(row: Entry) -> str:
    cases = row["recorded"].items()
    return ", ".join(case if state == "ok" else f"{case} ({state})" for case, state in cases)


def show_written_files(folder: Path, files: Sequence[Path]) -> Iterator[Block]:
    yield TextLine(TextSpan(str(folder), "strong"))
    for path in files:
        yield TextLine(TextSpan(str(path), "code"), indent=2)


_CAPTURED: Columns[Entry] = {
    "kernel": lambda row: TextSpan(row["kernel"], "name"),
    ">launches": lambda row: str(row["launches"]),
    "equal": lambda row: row["equal"] or "not tried",
    ">in program": lambda row: format_build_seconds(row["in_program_s"]),
    ">here": lambda row: format_build_seconds(row["here_s"]),
    ">ratio": lambda row: "" if row["ratio"] is None else f"{row['ratio']:.2f}",
}


def show_captured_kernels(rows: Sequence[Entry]) -> Iterator[Block]:
    """Yield the kernels captured of a program: whether each is the same here, and as fast."""
    with_file = [row for row in rows if row["file"]]
    if with_file:
        yield make_grid(with_file, _CAPTURED)
    for row in rows:
        if not row["file"] and row["why_not"]:
            why = f"skipped: {row['why_not']}"
            yield TextLine(f"{row['kernel']}, {row['launches']} launches, {why}")
    for row in with_file:
        for remark in row["notes"]:
            yield TextLine(TextSpan(f"{row['kernel']}: {remark}", "dim"))
    launches, kept = (sum(row["launches"] for row in some) for some in (rows, with_file))
    if launches:
        share = f" ({figures.format_share(kept / launches)})"
    else:
        share = ""
    yield TextLine(f"{len(with_file)} of {len(rows)} kernels, {kept} of {launches} launches{share}")


def format_build_seconds(seconds: Seconds | None) -> TextOrEmpty:
    if seconds is None:
        return ""
    return figures.format_seconds(seconds)


def show_examined_machine(rows: Sequence[Entry]) -> Iterator[Block]:
    """Yield what is ready and what is missing on this machine, and how to get it."""
    missing = []
    cells = []
    for row in rows:
        cells.append((row["name"], row["status"], row["detail"]))
        if row["status"] == "missing":
            missing.append(row["name"])
    yield TextLine("ready", "reading reports and traces")
    yield TextLine(f"missing {', '.join(missing)}" if missing else "ready", "measuring kernels")
    yield Grid(("what", "status", "found"), tuple(cells), wraps=2)
    for row in rows:
        if row["advice"]:
            yield TextLine(row["advice"], row["name"])


def show_builds(rows: Iterable[Entry]) -> Iterator[Block]:
    """Yield what each kernel takes of the machine, by the compiler; bytes, and seconds to build."""
    counts = ("regs", "smem", "dynamic", "blocks_per_sm", "spills", "stack")
    titles = (">regs", ">static", ">dynamic", ">per SM", ">spills", ">stack")
    cells = []
    for row in rows:
        used = ["?" if row[key] is None else str(row[key]) for key in counts]
        took = "-"
        if row["seconds"]:
            took = figures.format_seconds(row["seconds"])
        kernel = TextSpan(row["kernel"], "name")
        cells.append((row["variant"], str(row["arch"]), kernel, *used, took))
    yield Grid(("variant", "sm", "kernel", *titles, ">took"), tuple(cells))


def show_checks(rows: Iterable[Entry]) -> Iterator[Block]:
    head = ("variant", "status", "cases", ">max error", ">tolerance", "sanitizer")
    yield Grid(head, tuple(list_check_cells(row) for row in rows), wraps=5)


def list_check_cells(row: Entry) -> tuple[str, ...]:
    """Return a variant's row: cases done, the largest absolute error in them, and sanitizers."""
    done = [case for case in row["cases"] if case["status"] != "not supported"]
    cases = str(len(done))
    if left := len(row["cases"]) - len(done):
        cases += f" ({left} not supported)"
    worst = ""
    if done:
        worst = f"{max(case.get('max_abs') or 0.0 for case in done):.2g}"
    tolerance = f"{row['atol']:g} + {row['rtol']:g}·|ref|"
    sanitizer = ", ".join(f"{tool}: {state}" for tool, state in row["sanitizer"].items())
    return row["variant"], row["status"], cases, worst, tolerance, sanitizer


def list_check_faults(check: Entry, most_faults: int = 5) -> list[str]:
    """Return the first faults of a check, one line each, and how many more there are."""
    lines = []
    for case in check["cases"]:
        where = f"{check['variant']} {case['case']} seed {case['seed']}"
        lines += [f"{where}: {fault}" for fault in case["faults"]]
    more = []
    if len(lines) > most_faults:
        more = [f"{check['variant']}: and {len(lines) - most_faults} more"]
    return [*lines[:most_faults], *more]


def show_timed_case(
    name: str, gpu: Entry, rows: Sequence[Entry], references: Sequence[str]
) -> Iterator[Block]:
    """Yield times at one case, fastest first, against the fastest reference, with conditions."""
    yield Heading(f"{name}: {say_conditions(gpu, rows[0]['timing'])}")
    ranked = sorted(rows, key=get_warm_median)
    best = next((get_warm_median(row) for row in ranked if row["name"] in references), None)
    yield Grid(
        ("variant", ">warm L2", ">±", ">cold L2", ">±", ">x best reference", ">one call"),
        tuple(list_time_cells(row, best) for row in ranked),
    )
    for text in list_timing_notes(rows, references):
        yield TextLine(text, "note")


def get_warm_median(row: Entry) -> Seconds:
    time: float = row["timing"]["l2"]["warm"]["median"]
    return time


def list_time_cells(row: Entry, best: Seconds | None) -> tuple[str, ...]:
    """Return a variant's row: its times with a warm and a cold L2, the ratio to the best reference."""
    timing = row["timing"]
    backend = ""
    if row.get("backend"):
        backend = f" ({row['backend']})"
    return (
        f"{row['name']}{backend}",
        *list_median_cells(timing["l2"]["warm"]),
        *list_median_cells(timing["l2"]["cold"]),
        figures.format_speedup(best / get_warm_median(row)) if best else "",
        figures.format_seconds(timing["eager"]),
    )


def list_timing_notes(rows: Sequence[Entry], references: Sequence[str]) -> Iterator[str]:
    """Yield what to know of times: who is host-bound, wide intervals, limited clocks."""
    # References are called from Python, so they are named together: outside of a graph, the GPU
    # waits for the caller, and the ratios are those of the kernels alone.
    called = []
    for r in rows:
        if r["timing"]["host_bound"] and r["name"] in references:
            called.append(r["name"])
    if called:
        yield (
            f"host-bound in direct calls, but not in a graph: {', '.join(called)} (each call "
            "waits for Python and torch)"
        )
    throttles: set[str] = set()
    for row in rows:
        timing = row["timing"]
        throttles.update(timing["after"]["throttle"] or ())
        if timing["host_bound"] and row["name"] not in references:
            host = figures.format_seconds(timing["host"])
            yield f"{row['name']} is host-bound: its launcher takes {host} per call"
        if timing["why_wide"]:
            yield f"{row['name']}: {timing['why_wide']}"
    if throttles:
        yield f"clocks limited by {', '.join(sorted(throttles))}"


def list_median_cells(interval: Entry | None) -> tuple[str, str]:
    """Return the median and the width of its interval as a share; two empty cells for no times."""
    if not interval:
        return "", ""
    width = "?"
    if interval["width"] is not None:
        width = figures.format_share(interval["width"])
    return figures.format_seconds(interval["median"]), width


def say_conditions(gpu: Entry, timing: Entry) -> str:
    """Return on what was timed, and the clocks, power and temperature before and after."""
    parts = [f"{gpu.get('name')}, driver {gpu.get('driver') or 'unknown'}"]
    units = {"sm_clock": (1e-6, "MHz"), "power": (1, "W"), "temperature": (1, "°C")}
    for when in ("before", "after"):
        known = []
        for key, (scale, unit) in units.items():
            if timing[when][key] is not None:
                known.append(f"{timing[when][key] * scale:.0f} {unit}")
        parts.append(f"{when}: {', '.join(known) or 'not known'}")
    return "; ".join(parts)


def show_run_without_counters(name: str, record: Record) -> Iterator[Block]:
    """Yield what a record says of a run that ncu did not see: its floor, and how its grids fit."""
    yield Heading(f"{name}, without counters")
    floors = record.work.floors
    if record.warm_samples and floors:
        took = median(record.warm_samples)
        slowest = max(floors, key=lambda unit: floors[unit])
        named = ", ".join(f"{unit} {figures.format_seconds(time)}" for unit, time in floors.items())
        yield TextLine(
            f"{figures.format_seconds(took)} measured; the work itself needs {named}: "
            f"{figures.format_speedup(took / floors[slowest])} the {slowest} floor"
        )
    for launch in record.shape:
        waves = "unknown"
        if launch.waves is not None:
            waves = figures.format_three_figures(launch.waves)
        idle = ""
        if launch.idle_sms:
            idle = f", {launch.idle_sms} SMs never get one"
        yield TextLine(
            f"{launch.kernel}: {launch.blocks} blocks, {launch.blocks_per_sm} fit on an SM, "
            f"{waves} waves{idle}"
        )


_ENDED = {
    "done": "all of them",
    "exhausted": "no configuration was left",
    "time": "its time limit was reached",
}


def show_ended_search(search: Entry) -> Iterator[Block]:
    """Yield how a search ended: decision, times, outcomes, refusals, proposals."""
    yield Heading(f"{search['variant']} {search['case']} on {search['gpu'].get('name', '?')}")
    yield show_search_decision(search)
    yield make_search_times_grid(search)
    yield TextLine(describe_outcomes(search))
    yield from (TextLine(text, "refused", indent=1) for text in list_refused_trials(search))
    yield from (TextLine(text, "steering") for text in explain_steering(search))


def write_search_summary(
    search: Entry, history: pd.DataFrame, pictures: Sequence[str]
) -> MarkdownText:
    return blocks.render_markdown(show_search_summary(search, history, pictures))


def show_search_summary(
    search: Entry, history: pd.DataFrame, pictures: Sequence[str]
) -> Iterator[Block]:
    """Yield the summary of a search, with its path and its pictures."""
    yield Heading(f"Search of {search['variant']} at {search['case']}", 0)
    yield show_search_decision(search)
    yield make_search_times_grid(search)
    gpu = search["gpu"].get("name", "?")
    yield blocks.Paragraph(f"{describe_outcomes(search)} GPU: {gpu}.")
    yield Heading("The champion")
    yield from show_champion(search)
    if refusals := list(list_refused_trials(search)):
        yield Heading("Refused")
        yield from map(TextLine, refusals)
    yield Heading("Progress")
    yield show_incumbents(history)
    if steering := list(explain_steering(search)):
        yield Heading("Effect of proposals")
        yield from map(TextLine, steering)
    if search["importances"]:
        ranked = sorted(search["importances"].items(), key=lambda item: -item[1])
        yield Heading("What mattered")
        yield blocks.Paragraph("Importance for being among the fastest:")
        rows = tuple(
            (TextSpan(macro, "code"), figures.format_share(part)) for macro, part in ranked
        )
        yield Grid(("tunable", ">importance"), rows)
    yield from map(blocks.Image, pictures)


def show_search_decision(search: Entry) -> TextLine:
    return TextLine(search["because"], "keep" if search["keep"] else "fall back")


def describe_outcomes(search: Entry) -> Sentence:
    """Return how many trials came to what, and why the search ended."""
    outcomes = ", ".join(f"{n} {what}" for what, n in search["outcomes"].items())
    return (
        f"{search['distinct']} distinct trials ({outcomes}) in "
        f"{figures.format_seconds(search['seconds'])}; "
        f"{_ENDED[search['ended']]}."
    )


def list_refused_trials(search: Entry) -> Iterator[str]:
    """Yield how many trials were refused before and after building, by reason."""
    keys = {
        "refused_by_arithmetic": "ruled out before building",
        "refused": "after building",
    }
    for key, when in keys.items():
        ranked = sorted(search[key].items(), key=lambda item: -item[1])
        if ranked:
            reasons = "; ".join(f"{what}: {n}" for what, n in ranked)
            yield f"{when}: {sum(search[key].values())} ({reasons})"


def make_search_times_grid(search: Entry) -> Grid:
    """Return time and flags of champion, defaults and the reference."""
    champion = search["champion"]
    default = search["default"]
    named = [("defaults", default["name"], default["config"])]
    if champion["number"] != default["number"]:
        named.insert(0, ("champion", champion["name"], champion["config"]))
    if search["anchor"]:
        named.append((search["anchor"], search["anchor"], {}))
    rows = []
    for role, name, config in named:
        warm = search["times"].get(name, {}).get("warm")
        flags = " ".join(f"-D{macro}={value}" for macro, value in config.items())
        rows.append((role, format_search_time(warm), TextSpan(flags, "code")))
    return Grid(("", "warm L2, median (95 %)", "flags"), tuple(rows))


def format_search_time(warm: Mapping[str, Any] | None) -> str:
    """Return a median with its interval; "?" where none was measured."""
    from profkit.evidence.samples import Interval  # with numpy
    from profkit.show.text import words  # with the rules

    if not warm:
        return "?"
    ends = (nan if warm[key] is None else warm[key] for key in ("low", "high"))
    return words.format_median(Interval(warm["median"], *ends))


def show_champion(search: Entry) -> Iterator[Block]:
    """Yield who proposed the champion, and both diagnoses."""
    from profkit.show.text import words

    comparison = search["comparison"]
    champion = search["champion"]
    if champion["number"] == search["default"]["number"]:
        yield blocks.Paragraph("The defaults remain: nothing was confirmed faster.")
        return
    said = filter(None, (comparison["sentence"], words.format_p_value(comparison["p_value"])))
    yield blocks.Paragraph(
        f"Trial {champion['number']}, proposed by {champion['source']}. {'; '.join(said)}."
    )
    for role in ("default", "champion"):
        if verdict := search[role]["said"].get("verdict"):
            yield TextLine(f"{format_bound_and_limiter(verdict)}, {verdict['because']}", role)


def format_bound_and_limiter(verdict: Mapping[Any, Any]) -> str:
    both = (verdict[key] for key in ("bound", "limiter"))
    return ": ".join(word for word in both if isinstance(word, str) and word)


def show_incumbents(history: pd.DataFrame) -> Block:
    """Return the trials that were the fastest confirmed by then, oldest first."""
    steps = history[history["became_incumbent"] | (history["source"] == "default")]
    if steps.empty:
        return blocks.Paragraph("No incumbent.")
    columns: Columns[Mapping[Any, Any]] = {
        ">trial": lambda row: str(row["number"]),
        "proposed by": lambda row: str(row["source"]),
        ">time": lambda row: figures.format_seconds(float(row["value"])),
        "against the previous incumbent": format_confirmed_speedup,
        "verdict": format_bound_and_limiter,
    }
    return make_grid(steps.to_dict("records"), columns)


def format_confirmed_speedup(row: Mapping[Any, Any]) -> TextOrEmpty:
    """Return the confirmed speed-up with its interval; "" where it was not confirmed."""
    low = row["confirmed_low"]
    high = row["confirmed_high"]
    if isnan(low):
        return ""
    return f"{row['confirmed_speedup']:.3f}x ({low:.3f} to {high:.3f})"


def explain_steering(search: Entry) -> Iterator[str]:
    """Yield what the proposals of diagnoses came to, also where that is nothing."""
    worth = search["steering"]
    if not worth:
        return
    rules = ", ".join(f"{n} by {rule}" for rule, n in worth["by_rule"].items())
    by_rule = ""
    if rules:
        by_rule = f" ({rules})"
    yield (
        f"{worth['proposed']} proposals{by_rule}, {worth['measured']} measured, "
        f"{worth['incumbents']} became the incumbent"
    )
