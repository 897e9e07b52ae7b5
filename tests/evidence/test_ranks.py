"""Each of the statistics beside the one of scipy.stats that it stands for."""

from __future__ import annotations

import warnings
from math import isnan

import numpy as np
import pytest
from scipy import stats

from profkit.evidence import samples as ranks

SIZES = (6, 7, 10, 41, 120, 255, 256, 257, 700)


def made(n: int, places: int) -> np.ndarray:
    """Exponential tails on a floor, by the timer's step: few places give many that are equal."""
    return np.round(10 * (1 + np.random.default_rng(n).exponential(0.02, n)), places)


@pytest.mark.parametrize("places", [1, 2, 12])
@pytest.mark.parametrize("n", SIZES)
def test_each_is_what_scipy_says(n: int, places: int) -> None:
    x = made(n, places)
    order, blocks = np.arange(n), np.array_split(x, max(2, min(8, n // 5)))
    assert ranks.compute_ranks_with_ties(x).tolist() == stats.rankdata(x).tolist()
    assert ranks.compute_theil_sen_slope(x) == stats.theilslopes(x, order).slope
    assert ranks.compute_spearman_p(x) == pytest.approx(stats.spearmanr(order, x).pvalue, rel=1e-9)
    assert ranks.compute_kruskal_p(blocks) == pytest.approx(stats.kruskal(*blocks).pvalue, rel=1e-9)
    theirs = stats.bootstrap(
        (x,), np.median, n_resamples=300, method="percentile", rng=np.random.default_rng(n)
    )
    mine = ranks.draw_bootstrap_medians(x, 300, n)
    assert mine.tolist() == sorted(theirs.bootstrap_distribution.tolist())


@pytest.mark.parametrize("share", [1e-9, 0.025, 0.5, 0.975, 1 - 1e-9])
def test_quantiles(share: float) -> None:
    assert ranks.normal_quantile(share) == pytest.approx(stats.norm.ppf(share), rel=1e-12)
    assert ranks.normal_cdf(-3.7 * share) == pytest.approx(stats.norm.cdf(-3.7 * share), rel=1e-12)
    for dof in (1, 2.5, 5, 400):
        assert ranks.t_quantile(share, dof) == pytest.approx(stats.t.ppf(share, dof), rel=1e-9)


def test_what_always_rises_is_no_chance() -> None:
    assert (
        ranks.compute_spearman_p(np.arange(9.0)) == ranks.compute_spearman_p(-np.arange(9.0)) == 0.0
    )


def test_equal_values_have_no_p_and_no_warning() -> None:
    flat = np.full(12, 3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isnan(ranks.compute_spearman_p(flat))
        assert isnan(ranks.compute_kruskal_p(np.array_split(flat, 2)))
        assert ranks.compute_theil_sen_slope(flat) == 0.0
    assert isnan(ranks.compute_spearman_p(np.array([1.0, 2.0]))), "two are always in some order"
