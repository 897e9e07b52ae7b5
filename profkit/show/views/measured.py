"""Checks, times and records, as JSON values  ->  tables for the terminal.

Takes plain values, so that a record read from disk and one just made look the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from profkit.show.text.escape import visible

_STATUS = {"right": "green", "ok": "green", "wrong": "red", "failed": "red", "missing": "red",
           "warning": "yellow", "not supported": "dim", "stale": "yellow"}  # fmt: skip


def _cell(value: Any, style: str = "") -> Text:
    return Text(visible(str(value)) if value is not None else "", style=style)


def _table(*columns: str, numbers: Sequence[str] = ()) -> Table:
    """A plain table whose numeric columns stand right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        right = name in numbers
        table.add_column(Text(name), justify="right" if right else "left", no_wrap=right)
    return table


def ladder(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Variants in ladder order: what is built, what is recorded.

    Args:
        rows: variant, after, title, built (bool), recorded (case -> ok or stale).
    """
    table = _table("variant", "after", "title", "built", "recorded")
    for row in rows:
        recorded = Text(", ").join(
            _cell(case if state == "ok" else f"{case} ({state})", _STATUS.get(state, ""))
            for case, state in row["recorded"].items()
        )
        built = _cell("yes" if row["built"] else "no", "" if row["built"] else "dim")
        table.add_row(
            _cell(row["variant"]), _cell(row["after"] or ""), _cell(row["title"]), built, recorded
        )
    return table


def findings(rows: Iterable[Mapping[str, Any]]) -> Table:
    """What doctor found: name, status, detail, advice."""
    table = _table("what", "status", "found")
    for row in rows:
        found = _cell(row["detail"])
        if row["advice"]:
            found.append(f"\n{visible(row['advice'])}", style="dim")
        table.add_row(_cell(row["name"]), _cell(row["status"], _STATUS[row["status"]]), found)
    return table


def builds(rows: Iterable[Mapping[str, Any]]) -> Table:
    """What each kernel takes of an SM.

    Args:
        rows: variant, arch, kernel, regs, smem, dynamic (None: not known), blocks_per_sm, spills,
            stack and seconds (0: nothing had to be done).
    """
    names = {"regs": "regs", "smem": "static", "dynamic": "dynamic", "blocks_per_sm": "per SM",
             "spills": "spills", "stack": "stack"}  # fmt: skip
    numbers = (*names.values(), "s")
    table = _table("variant", "sm", "kernel", *numbers, numbers=numbers)
    for row in rows:
        cells = [_cell(row[k]) for k in ("variant", "arch", "kernel")]
        cells += [_cell("?" if row[k] is None else row[k]) for k in names]
        table.add_row(*cells, _cell(f"{row['seconds']:.1f}" if row["seconds"] else "-"))
    return table


def checks(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Verdicts on variants: each a check.Check as JSON, every fault below its variant."""
    table = _table("variant", "status", "cases", "max error", "tolerance", "sanitizer")
    for row in rows:
        done = [c for c in row["cases"] if c["status"] != "not supported"]
        worst = max((c.get("max_abs") or 0.0 for c in done), default=None)
        left = len(row["cases"]) - len(done)
        counted = f"{len(done)}" + (f" ({left} not supported)" if left else "")
        said = ", ".join(f"{k}: {v}" for k, v in row["sanitizer"].items())
        table.add_row(
            _cell(row["variant"]),
            _cell(row["status"], _STATUS.get(row["status"], "")),
            _cell(counted),
            _cell(None if worst is None else f"{worst:.2g}"),
            _cell(f"{row['atol']:g} + {row['rtol']:g}·|ref|"),
            _cell(said),
        )
    return table


def faults(check: Mapping[str, Any], most: int = 5) -> list[str]:
    """The first faults of a check, one line each, and how many more there are."""
    found = [
        f"{check['variant']} {c['case']} seed {c['seed']}: {fault}"
        for c in check["cases"]
        for fault in c["faults"]
    ]
    more = [f"{check['variant']}: and {len(found) - most} more"] if len(found) > most else []
    return [visible(f) for f in (*found[:most], *more)]


def times(rows: Sequence[Mapping[str, Any]], references: Sequence[str]) -> Table:
    """Times at one case, fastest first, against the fastest reference.

    Args:
        rows: name, backend (of a reference) and timing, as in a run record.
        references: Which of the names are references.
    """
    numbers = ("warm µs", "±", "cold µs", "±", "x best reference", "one call µs")
    table = _table("variant", *numbers, numbers=numbers)
    best = min(
        (r["timing"]["l2"]["warm"]["median"] for r in rows if r["name"] in references),
        default=None,
    )
    for row in sorted(rows, key=lambda r: r["timing"]["l2"]["warm"]["median"]):
        timing, warm = row["timing"], row["timing"]["l2"]["warm"]
        ratio = f"{best / warm['median']:.2f}" if best else None
        backend = f" ({row['backend']})" if row.get("backend") else ""
        table.add_row(
            _cell(f"{row['name']}{backend}"),
            *_median(warm),
            *_median(timing["l2"]["cold"]),
            _cell(ratio),
            _cell(f"{timing['eager'] * 1e6:.1f}"),
        )
    return table


def notes(rows: Sequence[Mapping[str, Any]], references: Sequence[str]) -> list[str]:
    """What has to be said beside the times: host-bound launchers, wide intervals, held clocks.

    References are called from Python, so they are named together: outside of a graph, the GPU
    waits for the caller, and the ratios are those of the kernels alone.
    """
    found = []
    called = [r["name"] for r in rows if r["timing"]["host_bound"] and r["name"] in references]
    if called:
        found.append(
            f"host-bound in plain calls, not in a graph: {', '.join(called)} "
            "(one call waits for Python and torch)"
        )
    for row in rows:
        timing = row["timing"]
        if timing["host_bound"] and row["name"] not in references:
            host = timing["host"] * 1e6
            found.append(f"{row['name']} is host-bound: its launcher takes {host:.0f} µs a call")
        if timing["why_wide"]:
            found.append(f"{row['name']}: {timing['why_wide']}")
    held = {w for row in rows for w in row["timing"]["after"]["throttle"] or ()}
    if held:
        found.append(f"clocks held down by {', '.join(sorted(held))}")
    return [visible(line) for line in found]


def _median(found: Mapping[str, Any] | None) -> tuple[Text, Text]:
    """A median in microseconds and its relative half-width."""
    if not found:
        return _cell(None), _cell(None)
    width = f"{found['width']:.1%}" if found["width"] is not None else "?"
    return _cell(f"{found['median'] * 1e6:.2f}"), _cell(width, "dim")


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
        said = ", ".join(k for k in known if k) or "not known"
        parts.append(f"{when}: {said}")
    return visible("; ".join(parts))


def without_counters(record: Mapping[str, Any]) -> list[str]:
    """What a record says of a launch without a report: floors, blocks, waves."""
    lines = []
    timing, floors = record["timing"], record["work"]["floors"]
    if timing and floors:
        took = timing["l2"]["warm"]["median"]
        slowest = max(floors, key=lambda k: floors[k])
        named = ", ".join(f"{k} {v * 1e6:.2f} µs" for k, v in floors.items())
        lines.append(
            f"{took * 1e6:.2f} µs measured; the work itself needs {named}: "
            f"{took / floors[slowest]:.1f}x the {slowest} floor"
        )
    for one in record["shape"]:
        waves = "unknown" if one["waves"] is None else f"{one['waves']:.2f}"
        idle = f", {one['idle_sms']} SMs never get one" if one["idle_sms"] else ""
        lines.append(
            f"{one['kernel']}: {one['blocks']} blocks, {one['blocks_per_sm']} fit on an SM, "
            f"{waves} waves{idle}"
        )
    return [visible(line) for line in lines]
