"""Ranks and quantiles of timing samples: what of scipy.stats is needed here, on scipy.special alone.

scipy.stats takes half a second of processor to import, more than a comparison; and its bootstrap and
tests check, copy and dispatch for longer than they compute. A test holds each to scipy's own answer.
"""

from __future__ import annotations

from math import nan, sqrt
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from profkit.errors import needing

with needing("scipy", "an interval of measured times"):
    from scipy import special

Array: TypeAlias = NDArray[np.float64]


def normal_quantile(share: float) -> float:
    """Standard deviations below which this share of a normal distribution lies."""
    return float(special.ndtri(share))


def normal_below(deviations: float) -> float:
    """Share of a normal distribution below so many standard deviations."""
    return float(special.ndtr(deviations))


def t_quantile(share: float, dof: float) -> float:
    """As `normal_quantile`, of Student's t with so many degrees of freedom."""
    return float(special.stdtrit(dof, share))


def average_ranks(x: Array) -> Array:
    """Ranks from 1; equal values share the mean of theirs."""
    _, place, counts = np.unique(x, return_inverse=True, return_counts=True)
    means: Array = np.cumsum(counts) - (counts - 1) / 2
    return means[place]


def bootstrap_medians(x: Array, resamples: int, seed: int) -> Array:
    """The medians of so many resamples, sorted.

    What is drawn are places in the sorted sample: integers of four bytes, of which a row is sorted
    twenty times as fast as the middle of a row of floats is found (those of one or two bytes are
    slower: few processors sort them many at a time).
    """
    n = x.size
    order = np.argsort(x)
    place = np.empty(n, np.uint32)
    place[order] = np.arange(n)
    drawn = place[np.random.default_rng(seed).integers(0, n, (resamples, n))]
    drawn.sort(axis=-1)
    values = x[order]
    medians: Array = (values[drawn[:, (n - 1) // 2]] + values[drawn[:, n // 2]]) / 2
    medians.sort()
    return medians


def order_p(x: Array) -> float:
    """Two-sided p of Spearman's test that values do not go with their order; NaN if all are equal."""
    n = x.size
    ranks, order = average_ranks(x) - (n + 1) / 2, np.arange(n) - (n - 1) / 2
    power = float(ranks @ ranks) * float(order @ order)
    if n < 3 or not power:
        return nan
    r = float(ranks @ order) / sqrt(power)
    if abs(r) >= 1:
        return 0.0
    return float(2 * special.stdtr(n - 2, -abs(r) * sqrt((n - 2) / ((1 + r) * (1 - r)))))


def theil_sen_slope(x: Array) -> float:
    """Median slope over all pairs of samples, per sample."""
    first, second = np.triu_indices(x.size, 1)
    return float(np.median((x[second] - x[first]) / (second - first)))


def blocks_p(blocks: list[Array]) -> float:
    """Kruskal and Wallis' p that blocks have one distribution; NaN if all values are equal."""
    x = np.concatenate(blocks)
    _, place, counts = np.unique(x, return_inverse=True, return_counts=True)
    n = x.size
    ties = 1 - float((counts.astype(float) ** 3 - counts).sum()) / (n**3 - n)
    if not ties:
        return nan
    means = np.cumsum(counts) - (counts - 1) / 2
    ends = np.cumsum([b.size for b in blocks])[:-1]
    squares = sum(float(r.sum()) ** 2 / r.size for r in np.split(means[place], ends))
    h = (12 / (n * (n + 1)) * squares - 3 * (n + 1)) / ties
    return float(special.chdtrc(len(blocks) - 1, h))
