"""Is one entry for all shapes, which picks by what was recorded, ever slower than PyTorch's best?

artifacts/attention/held.jsonl has the entry and every SDPA backend at sixty shapes, and at shapes that
the table has no record of, in turns and in one process (`tools/attention_grid.py hold`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.evidence.claims import Answer, claim, decide
from profkit.evidence.runs import Evidence, MissingEvidence
from profkit.evidence.stats import Interval, compare_samples
from profkit.records.grid import GridCell, TimeGrid, read_time_grid

HELD = Path(__file__).resolve().parents[1] / "artifacts" / "attention" / "held.jsonl"
GRID = 60  # shapes that the entry is held to; what follows them in the file no table has
SLOWER = 0.03
FEW = 6  # rounds


def _held() -> TimeGrid:
    try:
        return read_time_grid(HELD)
    except ProfkitError as error:
        raise MissingEvidence(error.message, "python tools/attention_grid.py hold") from error


def _compared(grid: TimeGrid, cell: GridCell) -> Interval:
    """How many times faster than the backend that was the fastest at a shape, round by round.

    Backends that a first look found 1.4 times slower or more were not timed in full: of them there
    is no interval, only that look.
    """
    (ours, mine), (best, theirs) = (
        cell.find_fastest(grid.against, is_of_the_others=w) for w in (True, False)
    )
    if best not in cell.warm:
        return Interval(theirs / mine, theirs / mine, theirs / mine)
    return compare_samples(cell.warm[best], cell.warm[ours], taken="interleaved").speedup


def _ahead_in_every_round(grid: TimeGrid, cell: GridCell) -> bool:
    """Of the few rounds that long calls have, none was lost: one in 64 by chance, or less."""
    (ours, _), (best, _) = (
        cell.find_fastest(grid.against, is_of_the_others=w) for w in (True, False)
    )
    if best not in cell.warm:
        return False
    rounds = list(zip(cell.warm[best], cell.warm[ours], strict=True))
    return len(rounds) >= FEW and all(theirs >= (1 - SLOWER) * mine for theirs, mine in rounds)


def _never_behind(grid: TimeGrid, cells: Sequence[GridCell]) -> Answer:
    found = {str(dict(c.at)): _compared(grid, c) for c in cells}
    behind = {name: s.median for name, s in found.items() if s.high < 1 - SLOWER}
    lost = {str(dict(c.at)) for c in cells if not _ahead_in_every_round(grid, c)}
    unsure = {
        name: s.median
        for name, s in found.items()
        if name not in behind and name in lost and not s.low >= 1 - SLOWER
    }
    ratios = sorted(s.median for s in found.values())
    ours = sum(not c.ran[next(iter(c.ran))].startswith("sdpa") for c in cells)
    listed = ", ".join(f"{name} {ratio:.2f}x" for name, ratio in {**behind, **unsure}.items())
    return decide(
        False if behind else None if unsure else True,
        f"{len(found)} shapes, {ours} by a rung of ours: {ratios[0]:.2f}x at worst, "
        f"{ratios[len(ratios) // 2]:.2f}x in the middle, {ratios[-1]:.2f}x at best"
        + (f"; behind or not decided: {listed}" if listed else ""),
        shapes=len(found),
        worst=ratios[0],
        median=ratios[len(ratios) // 2],
        best=ratios[-1],
    ).elsewhere(
        "L4 (computed): the table is of sm_90a; the entry calls SDPA there, and is never behind"
    )


@claim(who="the target set for the entry")
def never_behind_on_the_grid(_: Evidence) -> Answer:
    """At sixty shapes the entry is never more than 3 % slower than the best SDPA backend."""
    grid = _held()
    return _never_behind(grid, grid.cells[:GRID])


@claim(who="the same at shapes that the table has no record of")
def never_behind_between(_: Evidence) -> Answer:
    """Nor is it at shapes between the recorded ones."""
    grid = _held()
    return _never_behind(grid, grid.cells[GRID:])
