"""A launch  ->  what limits its occupancy, and what one more block would need."""

from __future__ import annotations

from math import nan

from profkit.reports.metrics.occupancy import METRICS as OCCUPANCY_METRICS

LIMITS = tuple(m.name for m in OCCUPANCY_METRICS if m.name.startswith("limit_"))
_STEPS = {"limit_registers": "registers_step", "limit_shared": "shared_step"}


def next_block(row: dict[str, float], blocks: dict[str, float], least: float) -> str:
    """What the deciding limiters have to give for one more block; a dash when one cannot.

    Shared memory without a step needs none: the driver only configured as much of it as the other
    limiters let it use.
    """
    deciding = [name for name in blocks if blocks[name] == least]
    steps = {name: row.get(_STEPS[name], nan) for name in deciding if name in _STEPS}
    words = []
    if (registers := steps.get("limit_registers", nan)) > 0:
        words.append(f"−{registers:.0f} registers")
    if (shared := steps.get("limit_shared", nan)) > 0:
        words.append(f"−{shared / 1024:.3g} KiB shared")
    return ", ".join(words) if words and len(steps) == len(deciding) else "–"
