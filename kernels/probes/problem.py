"""A probe's buffers and its truth: six buffers, filled the same for all; what its header claims.

Probes have no reference: what matters is why they are slow. A probe with a twin is checked against
it (`output: same` to the bit, `close` in norm within `tolerance:`), the rest for finite results.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # run from a checkout, not installed
from profkit.records.header import parse_header

BYTES = 1 << 30  # of each buffer: kBufferBytes of kernels/probes/probe.cuh
WORDS = BYTES // 4
CHASE_A, CHASE_C = 1664525, 1013904223  # kChaseA and kChaseC of kernels/probes/probe.cuh
TILE = 1 << 26  # bytes of random content, repeated to fill a buffer
POISON = 0xFFFFFFFF  # a NaN that no probe writes: what was not written stays this
TOLERANCE = 1e-3
INPUTS = (
    "float32 in [0.5, 1.5)",
    "32 random bits",
    "one cycle through all words: next = (a * i + c) mod 2^28",
    "float16 in [-1, 1)",
)
OUTPUTS = ("float32 results, poisoned first", "scratch, zeros first, never checked")


def arguments() -> dict[str, Any]:
    """What ProfkitArgs carries beside the pointers: size[0] is bytes; scale is a 1 to hide."""
    return {"size": (BYTES,), "scale": 1.0, "causal": 0}


def tile(which: int) -> NDArray[Any]:
    """The content of input buffer 0, 1 or 3: TILE bytes, to be repeated.

    Args:
        which: Index into ProfkitArgs.in; 2 is not repeatable, see cycle().
    """
    rng = np.random.default_rng(which)
    if which == 1:
        return rng.integers(0, 1 << 32, TILE // 4, dtype=np.uint32)
    drawn = rng.random(TILE // 4 if which == 0 else TILE // 2, dtype=np.float32)
    return drawn + np.float32(0.5) if which == 0 else (2 * drawn - 1).astype(np.float16)


def cycle(first: int, count: int) -> NDArray[np.uint32]:
    """Words first to first + count of input buffer 2."""
    i = np.arange(first, first + count, dtype=np.uint32)
    return (i * np.uint32(CHASE_A) + np.uint32(CHASE_C)) & np.uint32(WORDS - 1)


def header(path: Path) -> Mapping[str, str]:
    """The keys of a probe's header comment; see KEYS of profkit/records/header.py."""
    return parse_header(path.read_text(encoding="utf-8"), path.name).keys


def probes(folder: Path | None = None) -> dict[str, Path]:
    """Id -> file of every probe."""
    here = folder or Path(__file__).parent
    return {path.name.split("_", 1)[0]: path for path in sorted(here.rglob("*.cu"))}


def faults(
    main: NDArray[np.uint32], twin: NDArray[np.uint32] | None, keys: Mapping[str, str]
) -> str:
    """What is wrong with the words of out[0] of a probe (and its twin); empty if nothing is."""
    for name, words in (("main", main), ("twin", twin)):
        if words is None:
            continue
        written = words[words != POISON].view(np.float32)
        if written.size == 0:
            return f"{name} wrote nothing"
        if not np.isfinite(written).all():
            return f"{name} wrote {np.count_nonzero(~np.isfinite(written))} non-finite results"
    wanted = keys.get("output", "finite")
    if twin is None or wanted == "finite":
        return ""
    if not np.array_equal(main == POISON, twin == POISON):
        return "main and twin wrote different places"
    a, b = (x[x != POISON].view(np.float32).astype(np.float64) for x in (main, twin))
    error = float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30))
    allowed = 0.0 if wanted == "same" else float(keys.get("tolerance", TOLERANCE))
    return "" if error <= allowed else f"main and twin differ by {error:.3g} of the norm"
