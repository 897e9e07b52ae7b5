"""Checks, times and records, as JSON values  ->  blocks for people.

Takes plain values, so that a record read from disk and one just made look the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from profkit.records.record import Record
from profkit.show.text import figures
from profkit.show.text.blocks import Block, Grid, Heading, TextLine, TextSpan


def variants_table(rows: Iterable[Mapping[str, Any]]) -> Iterator[Block]:
    """Variants in ladder order, problem by problem: what is built, what is recorded."""
    problems: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        problems.setdefault(row["problem"], []).append(row)
    for problem, variants in problems.items():
        yield Heading(problem)
        yield Grid(
            ("variant", "after", "built", "recorded", "title"),
            tuple(
                (row["variant"], row["after"] or "", "yes" if row["built"] else "no",
                 ", ".join(c if state == "ok" else f"{c} ({state})"
                           for c, state in row["recorded"].items()),
                 row["title"])
                for row in variants
            ),
            wraps=4,
        )  # fmt: skip
        lacking = [(row["variant"], row["missing"]) for row in variants if row.get("missing")]
        for why in dict.fromkeys(reason for _, reason in lacking):
            names = ", ".join(variant for variant, reason in lacking if reason == why)
            yield TextLine((TextSpan(f"{names}: {why}", "dim"),))


def written(folder: Path, files: Sequence[Path]) -> Iterator[Block]:
    """What stands in a new folder."""
    yield TextLine((TextSpan(str(folder), "strong"),))
    for path in files:
        yield TextLine((TextSpan(str(path), "code"),), indent=2)


def captured(rows: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    """What was captured of a program: each kernel, whether it is the same here, and as fast."""
    with_file = [row for row in rows if row["file"]]
    if with_file:
        yield Grid(
            ("kernel", ">launches", "equal", ">in program", ">here", ">ratio"),
            tuple(
                (TextSpan(row["kernel"], "name"), str(row["launches"]), row["equal"] or "not tried",
                 _duration(row["in_program_s"]), _duration(row["here_s"]),
                 "" if row["ratio"] is None else f"{row['ratio']:.2f}")
                for row in with_file
            ),
        )  # fmt: skip
    left_out = [row for row in rows if not row["file"] and row["why_not"]]
    for row in left_out:
        yield TextLine(
            (f"{row['kernel']}, {row['launches']} launches, left out: {row['why_not']}",)
        )
    for row in with_file:
        for remark in row["notes"]:
            yield TextLine((TextSpan(f"{row['kernel']}: {remark}", "dim"),))
    launches, kept = (sum(row["launches"] for row in some) for some in (rows, with_file))
    share = f" ({figures.share(kept / launches)})" if launches else ""
    yield TextLine(
        (f"{len(with_file)} of {len(rows)} kernels, {kept} of {launches} launches{share}",)
    )


def _duration(seconds: float | None) -> str:
    return "" if seconds is None else figures.seconds(seconds)


def examined(rows: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    """What doctor found: name, status, detail, advice."""
    yield Grid(
        ("what", "status", "found"),
        tuple((row["name"], row["status"], row["detail"]) for row in rows),
        wraps=2,
    )
    yield from (TextLine(row["advice"], row["name"]) for row in rows if row["advice"])


def builds_table(rows: Iterable[Mapping[str, Any]]) -> Iterator[Block]:
    """What each kernel takes of an SM."""
    names = {"regs": "regs", "smem": "static", "dynamic": "dynamic", "blocks_per_sm": "per SM",
             "spills": "spills", "stack": "stack"}  # fmt: skip
    yield Grid(
        ("variant", "sm", "kernel", *(f">{head}" for head in names.values()), ">took"),
        tuple(
            (row["variant"], str(row["arch"]), TextSpan(row["kernel"], "name"),
             *("?" if row[name] is None else str(row[name]) for name in names),
             figures.seconds(row["seconds"]) if row["seconds"] else "-")
            for row in rows
        ),
    )  # fmt: skip


def checks(rows: Iterable[Mapping[str, Any]]) -> Iterator[Block]:
    """Verdicts on variants: each a check.Check as JSON, every fault below its variant."""
    yield Grid(
        ("variant", "status", "cases", ">max error", ">tolerance", "sanitizer"),
        tuple(_checked(row) for row in rows),
        wraps=5,
    )


def _checked(row: Mapping[str, Any]) -> tuple[str, ...]:
    done = [case for case in row["cases"] if case["status"] != "not supported"]
    worst = max((case.get("max_abs") or 0.0 for case in done), default=None)
    left = len(row["cases"]) - len(done)
    return (
        row["variant"],
        row["status"],
        f"{len(done)}" + (f" ({left} not supported)" if left else ""),
        "" if worst is None else f"{worst:.2g}",
        f"{row['atol']:g} + {row['rtol']:g}·|ref|",
        ", ".join(f"{tool}: {state}" for tool, state in row["sanitizer"].items()),
    )


def faults(check: Mapping[str, Any], most: int = 5) -> list[str]:
    """The first faults of a check, one line each, and how many more there are."""
    lines = [
        f"{check['variant']} {c['case']} seed {c['seed']}: {fault}"
        for c in check["cases"]
        for fault in c["faults"]
    ]
    more = [f"{check['variant']}: and {len(lines) - most} more"] if len(lines) > most else []
    return [*lines[:most], *more]


def timed_case(
    name: str, gpu: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], references: Sequence[str]
) -> Iterator[Block]:
    """Times at one case under what they were taken on."""
    yield Heading(f"{name}: {conditions(gpu, rows[0]['timing'])}")
    yield from times_table(rows, references)


def times_table(rows: Sequence[Mapping[str, Any]], references: Sequence[str]) -> Iterator[Block]:
    """Times at one case, fastest first, against the fastest reference, and what to say of them."""
    best = min(
        (r["timing"]["l2"]["warm"]["median"] for r in rows if r["name"] in references),
        default=None,
    )
    ranked = sorted(rows, key=lambda r: r["timing"]["l2"]["warm"]["median"])
    yield Grid(
        ("variant", ">warm L2", ">±", ">cold L2", ">±", ">x best reference", ">one call"),
        tuple(_timed(row, best) for row in ranked),
    )
    yield from (TextLine(text, "note") for text in _notes(rows, references))


def _timed(row: Mapping[str, Any], best: float | None) -> tuple[str, ...]:
    timing, warm = row["timing"], row["timing"]["l2"]["warm"]
    backend = f" ({row['backend']})" if row.get("backend") else ""
    return (
        f"{row['name']}{backend}",
        *_median(warm),
        *_median(timing["l2"]["cold"]),
        figures.speedup(best / warm["median"]) if best else "",
        figures.seconds(timing["eager"]),
    )


def _notes(rows: Sequence[Mapping[str, Any]], references: Sequence[str]) -> list[str]:
    """What has to be said beside the times: host-bound launchers, wide intervals, held clocks.

    References are called from Python, so they are named together: outside of a graph, the GPU
    waits for the caller, and the ratios are those of the kernels alone.
    """
    notes = []
    called = [r["name"] for r in rows if r["timing"]["host_bound"] and r["name"] in references]
    if called:
        notes.append(
            f"host-bound in plain calls, not in a graph: {', '.join(called)} "
            "(one call waits for Python and torch)"
        )
    for row in rows:
        timing = row["timing"]
        if timing["host_bound"] and row["name"] not in references:
            host = figures.seconds(timing["host"])
            notes.append(f"{row['name']} is host-bound: its launcher takes {host} a call")
        if timing["why_wide"]:
            notes.append(f"{row['name']}: {timing['why_wide']}")
    throttles = {w for row in rows for w in row["timing"]["after"]["throttle"] or ()}
    if throttles:
        notes.append(f"clocks held down by {', '.join(sorted(throttles))}")
    return notes


def _median(interval: Mapping[str, Any] | None) -> tuple[str, str]:
    """A median and its relative half-width."""
    if not interval:
        return "", ""
    width = figures.share(interval["width"]) if interval["width"] is not None else "?"
    return figures.seconds(interval["median"]), width


def conditions(gpu: Mapping[str, Any], timing: Mapping[str, Any]) -> str:
    """One line: on what, and how the clocks stood before and after."""
    parts = [f"{gpu.get('name')}, driver {gpu.get('driver') or 'unknown'}"]
    for when in ("before", "after"):
        state = timing[when]
        known = [
            f"{state['sm_clock'] * 1e-6:.0f} MHz" if state["sm_clock"] is not None else None,
            f"{state['power']:.0f} W" if state["power"] is not None else None,
            f"{state['temperature']:.0f} °C" if state["temperature"] is not None else None,
        ]
        parts.append(f"{when}: {', '.join(filter(None, known)) or 'not known'}")
    return "; ".join(parts)


def without_counters(name: str, record: Record) -> Iterator[Block]:
    """What a record says of a launch without a report: floors, blocks, waves."""
    yield Heading(f"{name}, without counters")
    took, floors = median(record.warm) if record.warm else None, record.work.floors
    if took and floors:
        slowest = max(floors, key=lambda k: floors[k])
        named = ", ".join(f"{k} {figures.seconds(v)}" for k, v in floors.items())
        yield TextLine(
            f"{figures.seconds(took)} measured; the work itself needs {named}: "
            f"{figures.speedup(took / floors[slowest])} the {slowest} floor"
        )
    for launch in record.shape:
        waves = "unknown" if launch.waves is None else figures.figures(launch.waves)
        idle = f", {launch.idle_sms} SMs never get one" if launch.idle_sms else ""
        yield TextLine(
            f"{launch.kernel}: {launch.blocks} blocks, {launch.blocks_per_sm} fit on an SM, "
            f"{waves} waves{idle}"
        )
