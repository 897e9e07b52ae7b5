"""A sequence of launches  ->  where it begins to repeat, how long one turn is, how many there are."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALIKE = 0.9  # of a turn's launches that must be the ones of the turn before
NEAR_BEST = 0.98  # layers repeat inside of a step, but not as well as steps do
LONGEST = 1 << 19  # launches looked at, the last ones: the beginning is warm-up anyway
_VIEWS = 8  # random projections: how well a lag matches is known to about 1 / sqrt(8 n)


def repeats(sequence: Sequence[Hashable]) -> tuple[int, int, int] | None:
    """Where the turns begin, their length, and how many are alike; None if nothing repeats."""
    import numpy as np

    offset = max(0, len(sequence) - LONGEST)
    numbers: dict[Hashable, int] = {}
    codes = np.array([numbers.setdefault(token, len(numbers)) for token in sequence[offset:]])
    if len(codes) < 2:
        return None
    exact = {n: float(np.mean(codes[n:] == codes[:-n])) for n in _candidates(codes)}
    best = max(exact.values(), default=0.0)
    if best < 0.5:
        return None
    for length in (n for n, alike in exact.items() if alike >= NEAR_BEST * best):
        if found := _turns(codes, length):
            return offset + found[0], length, found[1]
    return None


def _candidates(codes: NDArray[Any]) -> list[int]:
    """Lags at which the sequence is most like itself, by the correlation of random projections."""
    import numpy as np

    count = len(codes)
    rng = np.random.default_rng(0)
    size = 1 << (2 * count - 1).bit_length()
    power = np.zeros(size // 2 + 1)
    for _ in range(_VIEWS):
        signs = rng.choice((-1.0, 1.0), int(codes.max()) + 1)
        power += np.abs(np.fft.rfft(signs[codes], size)) ** 2
    alike = np.fft.irfft(power, size)[:count] / _VIEWS
    most = count * 2 // 3  # the last third may be warm-up's turn; two turns are the least
    ratio = alike[1 : most + 1] / np.arange(count - 1, count - 1 - most, -1)
    if len(ratio) == 0:
        return []
    good = np.flatnonzero(ratio >= max(0.4, 0.9 * float(ratio.max())))[:64] + 1
    top = np.argsort(-ratio, kind="stable")[:64] + 1
    return sorted({int(n) for n in (*good, *top)})


def _turns(codes: NDArray[Any], length: int) -> tuple[int, int] | None:
    """The longest run of turns at the end that are alike: its beginning and count."""
    end = len(codes)
    best: tuple[int, int] | None = None
    # What follows the loop (a last evaluation, say) may be no turn: ends are tried until one fits.
    for tail in range(0, min(2 * length, end - 2 * length + 1), max(1, length // 16)):
        stop, count = end - tail, 1
        while (first := stop - (count + 1) * length) >= 0:
            before, here = codes[first : first + length], codes[first + length :][:length]
            if float((here == before).mean()) < ALIKE:
                break
            count += 1
        if count >= 2 and (best is None or count > best[1]):
            best = stop - count * length, count
    return best
