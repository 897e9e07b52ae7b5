"""A launch and changed counts ("inst_exp/32, blocks*4")  ->  how much faster, with an interval.

The cost model: a launch takes t0 cycles and, for each of its rounds of resident warps, the sum of
cost times events per warp; and never less than its fullest unit needs for the work that is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import exp, log
from typing import Literal, TypedDict

from profkit.errors import ProfkitError
from profkit.model.launch import Launch, NotCollected
from profkit.model.scenario import ENTRY, LINKS, SHARPNESS, Expectation, loads, reach
from profkit.reports.metrics import CATALOGUE

# Cycles that one event of a warp costs beside the others, fitted (nonnegative, log error) on 312
# launches of probes with their twins, ladder and other people's kernels. Latencies that other
# warps hide are small here; an atomic stands in a queue with those of all warps.
COSTS: Mapping[tuple[str, ...], float] = {
    ("instructions",): 0.893,
    ("inst_global_load", "inst_texture", "inst_async_copy"): 5.98,
    (
        "global_load_sectors",
        "global_store_sectors",
        "local_load_sectors",
        "local_store_sectors",
    ): 0.212,
    ("inst_global_store",): 8.74,
    ("inst_shared_load", "inst_shared_store", "inst_shuffle"): 1.90,
    ("shared_wavefronts",): 4.19,
    ("inst_xu",): 3.75,
    ("inst_barrier",): 93.5,
    ("branches",): 117.0,
    ("inst_matrix",): 0.577,
    ("l2_atomic_sectors",): 2830.0,
}
LINE = 128  # bytes: a warp's access
LINE_COST = 1.44  # cycles for each line that DRAM moves
START = 224.0  # cycles: t0
# 10th and 90th percentile of (ln came - ln predicted) / (OFFSET + |ln predicted|) over 82 steps of
# ladder and other people's kernels, each predicted from the counts of both sides with its own
# program left out of the fit.
SPREAD = (-0.62, 0.62)
OFFSET = 0.1
# What each unit's work is counted by.
_WORK: Mapping[str, tuple[str, ...]] = {
    "dram": ("dram_bytes",), "l2": ("l2_bytes",), LINKS: ("l2_read_bytes", "l2_write_bytes"),
    "l1": ("global_load_sectors", "global_store_sectors", "shared_wavefronts", "local_load_sectors",
           "local_store_sectors"),
    "shared": ("shared_wavefronts",),
    ENTRY: ("inst_global_load", "inst_global_store", "inst_shared_load", "inst_shared_store"),
    "issue": ("instructions",), "int": ("instructions",), "constant": ("instructions",),
    "fp32": ("inst_fp32",), "fp64": ("inst_fp64",), "fp16": ("inst_half",), "xu": ("inst_xu",),
    "tensor": ("inst_matrix",), "atomics": ("l2_atomic_sectors",), "texture": ("inst_texture",),
}  # fmt: skip
# A change of the first changes the others: by as much (+), or by the same factor (x).
_CARRIES: tuple[tuple[str, str, str], ...] = (
    ("inst_exp", "+", "inst_xu"),
    ("inst_ffma", "+", "inst_fp32"),
    *((kind, "+", "instructions") for kind in (
        "inst_xu", "inst_fp32", "inst_fp64", "inst_half", "inst_imad", "inst_matrix", "inst_shuffle",
        "inst_global_load", "inst_global_store", "inst_shared_load", "inst_shared_store",
        "inst_async_copy", "inst_barrier", "inst_atomic")),
    ("inst_shared_load", "x", "shared_wavefronts"),
    ("inst_global_load", "x", "global_load_sectors"),
    ("inst_global_store", "x", "global_store_sectors"),
)  # fmt: skip
_ALIASES = {"inst_mufu": "inst_exp", "blocks": "grid_size", "warps": "warps_per_sm"}
COUNTS = frozenset(
    {name for names in (*COSTS, *_WORK.values()) for name in names}
    | {kind for kind, _, _ in _CARRIES}
    | {"grid_size", "warps_per_sm"}
)
_CHANGE = re.compile(r"([a-z][a-z0-9_]*)\s*([*/=])\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?)", re.IGNORECASE)


class WhatifAnswer(TypedDict):
    """What one run is expected to become."""

    case: str | None
    time_s: float | None
    expect: Expectation


class WhatifDocument(TypedDict):
    """What `profkit whatif --json` prints."""

    schema: Literal["profkit.whatif/1"]
    variant: str
    changes: tuple[CounterChange, ...]
    answers: list[WhatifAnswer]


@dataclass(frozen=True)
class CounterChange:
    """A count that becomes another: times a factor, or (op "=") this value."""

    metric: str
    op: str
    value: float

    def of(self, before: float) -> float:
        """The count after it."""
        if self.op == "=":
            return self.value
        return before * self.value if self.op == "*" else before / self.value


def parse_changes(text: str) -> tuple[CounterChange, ...]:
    """`inst_exp/32, shared_wavefronts*0.25, blocks*4`  ->  changes.

    Raises:
        ProfkitError: A part is no change, names no count of the model, or divides by zero.
    """
    parts = [part.strip() for part in re.split(r"[,;]+", text) if part.strip()]
    if not parts:
        raise ProfkitError("no change was given", _HOW)
    return tuple(_change(part) for part in parts)


_HOW = 'write e.g. --with "inst_exp/32, shared_wavefronts*0.25, blocks*4"'


def _change(part: str) -> CounterChange:
    read = _CHANGE.fullmatch(part)
    if not read:
        raise ProfkitError(f"cannot read the change '{part}'", _HOW)
    name, op, value = read[1], read[2], float(read[3])
    metric = _ALIASES.get(name, name)
    if metric not in COUNTS:
        near = get_close_matches(name, sorted(COUNTS | set(_ALIASES)), 3, 0.5)
        known = " or ".join(near) or ", ".join(sorted(_ALIASES))
        raise ProfkitError(
            f"'{name}' is no count that the cost model knows", f"did you mean {known}?"
        )
    if op == "/" and value == 0:
        raise ProfkitError(f"'{part}' divides by zero", _HOW)
    return CounterChange(metric, op, value)


def whatif_launch(launch: Launch, changes: Iterable[CounterChange]) -> Expectation:
    """The speed-up when these counts change and every other stays; below 1 it is slower.

    Args:
        launch: The launch as it is.
        changes: What becomes of its counts. A kind of instruction takes the total with it, and
            accesses their sectors and wavefronts, unless those are given too.

    Raises:
        ProfkitError: A count or what the model needs was not collected.
    """
    try:
        return _whatif(launch, tuple(changes))
    except NotCollected as absent:
        section = CATALOGUE[absent.metric].section or "every report"
        raise ProfkitError(
            f"{absent.metric} was not collected, and the cost model needs it",
            f"--section {section}",
        ) from absent


def _whatif(launch: Launch, changes: tuple[CounterChange, ...]) -> Expectation:
    after = changed(launch, changes)
    places = _places(launch, after)
    cost = _cycles(after, _resident(launch) * places) / _cycles(launch, _resident(launch))
    power = SHARPNESS
    full, filled = _fullest(launch, launch) ** power, _fullest(launch, after) ** power
    waits = max(0.0, 1 - full)  # a unit past what launches on record reached leaves no time to wait
    gain = ((waits + full) / (waits * cost**power + filled)) ** (1 / power)
    unit = OFFSET + abs(log(gain))
    low, high = (exp(log(gain) + end * unit) for end in SPREAD)
    return Expectation(gain, low, high)


def changed(launch: Launch, changes: Iterable[CounterChange]) -> Launch:
    """The launch with its counts changed, and those that change with them."""
    values = {name: launch[name] for name in launch if name in launch}
    given = set()
    for change in changes:
        values[change.metric] = change.of(launch[change.metric])
        given.add(change.metric)
    for cause, how, effect in _CARRIES:
        if effect in given or cause not in launch or effect not in launch:
            continue
        if how == "+":
            values[effect] = max(values[effect] + values[cause] - launch[cause], 0.0)
        elif launch[cause] > 0:
            values[effect] *= values[cause] / launch[cause]
    return Launch(values)


def _resident(launch: Launch) -> float:
    """Warps at work at once, on the whole machine and on average."""
    return max(launch["warps_per_sm"] * launch["sm_active"] * launch["sm_count"], 1.0)


def _places(launch: Launch, after: Launch) -> float:
    """How many times more warps are at work: more blocks fill places, more warps a block bring."""
    waves = launch.get("waves", 1.0)
    blocks = after["grid_size"] / launch["grid_size"]
    filled = min(1.0, waves * blocks) / min(1.0, waves)
    most = launch.get("max_warps", 64.0) / max(launch["warps_per_sm"], 1e-9)
    return min(filled * after["warps_per_sm"] / launch["warps_per_sm"], max(most, filled))


def _cycles(launch: Launch, resident: float) -> float:
    launch["instructions"]  # without instruction counts there is no cost
    total = sum(cost * launch.get(name, 0.0) for names, cost in COSTS.items() for name in names)
    total += LINE_COST * launch.get("dram_bytes", 0.0) / LINE
    return START + total / resident


def _fullest(launch: Launch, after: Launch) -> float:
    """Share of what it can reach that the fullest unit is at, in today's time, after the change."""
    shares = loads(launch)
    if not shares:
        return float(launch["issue_busy"])  # raises: no unit was collected
    return max(
        share * _left(_WORK[unit], launch, after) / reach(unit, launch)
        for unit, share in shares.items()
    )


def _left(names: tuple[str, ...], before: Launch, after: Launch) -> float:
    was, now = (sum(side.get(name, 0.0) for name in names) for side in (before, after))
    return now / was if was > 0 else 1.0
