"""Shapes  ->  the rung or library call that is fastest there, from what was recorded.

`picks.json` beside this is written by `python tools/attention_grid.py table` from the times in
artifacts/attention/grid.json: per head dimension and mask, what was fastest at each recorded number
of rows and heads. A shape in between takes the recorded one that is nearest, by ratio.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import log2
from pathlib import Path

TABLE = Path(__file__).with_name("picks.json")
LIBRARY = "sdpa-"  # what a pick begins with that is PyTorch's and not a rung
DIMENSIONS = (64, 128)  # head dimensions that the rungs have

# What is recorded: every combination of rows, heads, head dimension and mask.
ROWS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
HEADS = (1, 4, 16, 64, 256)
# Of those, what the entry is held to (rows, heads), and shapes that no record has.
HELD = (
    *((64, 1), (64, 64), (64, 256), (128, 16), (256, 4), (256, 64), (512, 1), (512, 16)),
    *((512, 256), (1024, 4), (1024, 64), (2048, 16), (4096, 1), (4096, 64), (8192, 256)),
)
BETWEEN = ((96, 12), (300, 40), (384, 96), (768, 24), (1536, 2), (1500, 100), (3000, 8), (6000, 32))


@dataclass(frozen=True)
class Shape:
    """Queries and keys, batch times heads, head dimension; causal: row i sees keys 0 to i."""

    rows: int
    heads: int
    D: int
    causal: bool = False

    @property
    def at(self) -> dict[str, int | bool]:
        """Its place in a grid's file."""
        return {"S": self.rows, "BH": self.heads, "D": self.D, "causal": self.causal}

    def __str__(self) -> str:
        return f"S{self.rows}-BH{self.heads}-D{self.D}" + ("-causal" if self.causal else "")


def _shapes(pairs: tuple[tuple[int, int], ...]) -> tuple[Shape, ...]:
    """Each pair with both head dimensions, causal and not."""
    return tuple(Shape(*p, d, c) for p, d, c in product(pairs, DIMENSIONS, (False, True)))


RECORDED = _shapes(tuple(product(ROWS, HEADS)))
GRID, OFF_GRID = _shapes(HELD), _shapes(BETWEEN)


def named(name: str) -> Shape:
    """The shape that is called so."""
    rows, heads, d, *causal = name.split("-")
    return Shape(int(rows[1:]), int(heads[2:]), int(d[1:]), bool(causal))


@lru_cache
def table() -> dict[Shape, str]:
    """Recorded shape -> what was fastest there."""
    return {named(k): v for k, v in json.loads(TABLE.read_text("utf-8"))["fastest"].items()}


@lru_cache(maxsize=4096)
def pick(shape: Shape) -> str:
    """What to call for a shape: a rung's id, or `sdpa-` and a backend; `sdpa` where nothing is known.

    The nearest recorded shape is the one with the smallest sum of squared logarithms of the ratios
    of rows and of heads.
    """
    like = [s for s in table() if (s.D, s.causal) == (shape.D, shape.causal)]
    if not like or shape.rows < 1 or shape.heads < 1:
        return "sdpa"
    return table()[min(like, key=lambda s: _apart(s, shape))]


def _apart(one: Shape, other: Shape) -> float:
    return log2(one.rows / other.rows) ** 2 + log2(one.heads / other.heads) ** 2
