"""Shapes  ->  the rung or library call that is fastest there, from what was recorded.

`picks.json` beside this is written by `python tools/attention_grid.py table` from the times in
artifacts/attention: at each recorded shape what was fastest, and for each that was timed a law: how
its time goes with its rounds (tiles of rows over the blocks that the GPU holds at once) and with the
keys that the busiest of them walks through. A shape between takes what its laws say is fastest, each
corrected by how far it was off at the recorded shapes nearby, and by half of how far it would be off
there had it not known them: what is less sure has to promise more. The nearest recorded shape alone
would not do: one tile more than a round holds is a whole round more, for one and not for another.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import exp, log, log2, sqrt
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("picks.json")
LIBRARY = "sdpa-"  # what a pick begins with that is PyTorch's and not a rung
_BLUR = 0.02  # of distances: no recorded time is so sure that it should count alone
_DOUBT = 0.5  # of what a law is off by nearby, so much is added to what it says
DIMENSIONS = (64, 128)  # head dimensions that the rungs have

# What is recorded: every combination of rows, heads, head dimension and mask; and, where a few rounds
# of tiles make a time, a finer one.
ROWS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
HEADS = (1, 4, 16, 64, 256)
FINER_ROWS, FINER_HEADS = (192, 384, 768, 1536, 3072), (3, 8, 32, 128)
RAGGED = (
    (80, 20),
    (80, 200),
    (160, 20),
    (160, 200),
    (330, 20),
    (330, 200),
    (1100, 20),
    (1100, 200),
)
FINER_TOO = ((256, 128), (512, 32), (512, 128), (1024, 32), (2048, 8), (2048, 32))
# Of those, what the entry is held to (rows, heads), and shapes that no record has: the first were known
# when laws took the place of the nearest shape, the second when RAGGED was added, and what UNSEEN showed
# decided which of the tilings that explain alike is taken. None of them is unseen any longer.
HELD = (
    *((64, 1), (64, 64), (64, 256), (128, 16), (256, 4), (256, 64), (512, 1), (512, 16)),
    *((512, 256), (1024, 4), (1024, 64), (2048, 16), (4096, 1), (4096, 64), (8192, 256)),
)
UNSEEN = ((90, 220), (450, 70), (900, 36), (1800, 14), (5000, 5))
SECOND = ((200, 150), (640, 48), (1280, 12), (2500, 20), (100, 300))
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
FINER = _shapes((*product(FINER_ROWS, FINER_HEADS), *FINER_TOO, *RAGGED))
GRID, OFF_GRID, NEVER = _shapes(HELD), _shapes((*BETWEEN, *SECOND)), _shapes(UNSEEN)


def named(name: str) -> Shape:
    """The shape that is called so."""
    rows, heads, d, *causal = name.split("-")
    return Shape(int(rows[1:]), int(heads[2:]), int(d[1:]), bool(causal))


@dataclass(frozen=True)
class Tiling:
    """How a kernel cuts a shape up.

    Attributes:
        rows: Queries of a tile.
        blocks: Tiles that the GPU works on at once.
        keys: A step of a tile is so many keys.
        parts: So many blocks share the keys of a tile where there are blocks for that.
    """

    rows: int
    blocks: int
    keys: int
    parts: int = 1

    def work(self, shape: Shape) -> tuple[float, float, float]:
        """One call, its rounds of tiles, and the steps that the busiest block takes in series."""
        return _work(self, shape)


@lru_cache(maxsize=65536)
def _work(tiling: Tiling, shape: Shape) -> tuple[float, float, float]:
    tiles = -(-shape.rows // tiling.rows)
    rounds, longest = -(-tiles * shape.heads // tiling.blocks), -(-shape.rows // tiling.keys)
    if tiles * shape.heads * tiling.parts <= tiling.blocks:
        longest = -(-longest // tiling.parts)
    if not shape.causal:
        return 1, rounds, rounds * longest
    ends = (min((i + 1) * tiling.rows, shape.rows) for i in range(tiles))
    share = sum(-(-end // tiling.keys) for end in ends) * shape.heads / tiling.blocks
    # Tiles differ: whoever takes the last one ends half of the longest behind the mean.
    return 1, rounds, max(longest, share + (longest / 2 if rounds > 1 else 0))


@dataclass(frozen=True)
class Law:
    """The time of one candidate over the shapes of one head dimension and mask.

    Attributes:
        tiling: As it explains the times best.
        cost: Seconds of a call, a round and a step.
        times: Recorded shape -> seconds.
        off: Recorded shape -> log of the time over what the law says without having it.
    """

    tiling: Tiling
    cost: tuple[float, float, float]
    times: dict[Shape, float]
    off: dict[Shape, float]

    def seconds(self, shape: Shape, without: Shape | None = None) -> float:
        """What to expect of a shape, as if one of the recorded ones were not."""
        weights = {s: w for s, w in self._weights(shape).items() if s != without}
        off = sum(w * log(self.times[s] / self._formula(s)) for s, w in weights.items())
        return self._formula(shape) * exp(off / sum(weights.values()))

    def spread(self, shape: Shape) -> float:
        """How far off, as a share, it would have been at the recorded shapes nearby."""
        weights = self._weights(shape)
        return sqrt(sum(w * self.off[s] ** 2 for s, w in weights.items()) / sum(weights.values()))

    def _weights(self, shape: Shape) -> dict[Shape, float]:
        """Recorded shapes, by what they say of this one: those near in rows, heads and rounds."""
        rounds = self.tiling.work(shape)[1]
        return {
            at: (
                log2(at.rows / shape.rows) ** 2
                + log2(at.heads / shape.heads) ** 2 / 4
                + log2(self.tiling.work(at)[1] / rounds) ** 2
                + _BLUR
            )
            ** -2
            for at in self.times
        }

    def _formula(self, shape: Shape) -> float:
        return sum(c * x for c, x in zip(self.cost, self.tiling.work(shape), strict=True))


@lru_cache
def _said() -> dict[str, Any]:
    said: dict[str, Any] = json.loads(TABLE.read_text("utf-8"))
    return said


@lru_cache
def table() -> dict[Shape, str]:
    """Recorded shape -> what was fastest there."""
    return {named(k): v for k, v in _said()["fastest"].items()}


@lru_cache
def laws(d: int, causal: bool) -> dict[str, Law]:
    """Rung or library call -> its law, for a head dimension and mask."""
    found = {}
    for name, law in _said()["laws"].get(family(d, causal), {}).items():
        shapes = [(Shape(int(s), int(h), d, causal), t, off) for s, h, t, off in law["times"]]
        found[name] = Law(
            Tiling(*law["tiling"]),
            tuple(law["cost"]),
            {s: t for s, t, _ in shapes},
            {s: off for s, _, off in shapes},
        )
    return found


def family(d: int, causal: bool) -> str:
    """What the table calls a head dimension and mask."""
    return f"D{d}" + ("-causal" if causal else "")


@lru_cache(maxsize=4096)
def pick(shape: Shape) -> str:
    """What to call for a shape: a rung's id, or `sdpa-` and a backend; `sdpa` where nothing is known."""
    if shape.rows < 1 or shape.heads < 1:
        return "sdpa"
    if shape in table():
        return table()[shape]
    known = laws(shape.D, shape.causal)
    if not known:
        return "sdpa"
    return min(known, key=lambda n: known[n].seconds(shape) * (1 + _DOUBT * known[n].spread(shape)))


def rungs() -> set[str]:
    """Every rung that may be picked."""
    named_there = {n for d, c in product(DIMENSIONS, (False, True)) for n in laws(d, c)}
    return {x for x in (*table().values(), *named_there) if not x.startswith(LIBRARY)}
