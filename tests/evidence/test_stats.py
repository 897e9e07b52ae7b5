"""Comparisons of simulated timings whose truth is known."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import isnan

import numpy as np
import pytest

from profkit.errors import ProfkitError
from profkit.evidence import samples
from profkit.evidence.samples import summarize_samples
from profkit.evidence.stats import (
    THRESHOLDS,
    Interval,
    TimeComparison,
    compare_samples,
    compute_hedges_g,
    estimate_median,
)

FAST = replace(THRESHOLDS, resamples=300)  # the simulations need many runs, not fine intervals


def timings(rng: np.random.Generator, n: int, floor: float = 10.0) -> np.ndarray:
    """A floor and a tail, as kernel times have: the median is floor * (1 + 0.02 ln 2)."""
    return floor * (1 + rng.exponential(0.02, n))


def correlated(rng: np.random.Generator, n: int, rho: float) -> np.ndarray:
    x = np.empty(n)
    x[0] = rng.normal(0, 0.1)
    for i in range(1, n):
        x[i] = rho * x[i - 1] + rng.normal(0, 0.1 * np.sqrt(1 - rho**2))
    return 10 + x


def answers(make, runs: int, **options) -> Counter:
    found = (compare_samples(*make(), thresholds=FAST, **options).answer for _ in range(runs))
    return Counter(found)


def alarms(counted: Counter) -> float:
    return (counted["faster"] + counted["slower"]) / counted.total()


@pytest.mark.slow
def test_two_thousand_null_runs_stay_within_the_nominal_level():
    rng = np.random.default_rng(1)
    sizes = [(40, 40), (10, 200), (100, 100), (20, 60)]
    counted = Counter()
    for n, m in sizes:
        counted += answers(lambda: (timings(rng, n), timings(rng, m)), 500, within=0.0)  # noqa: B023
    assert counted.total() == 2000
    assert alarms(counted) <= 0.05
    assert counted["same"] == 0  # nothing is the same within 0 %


@pytest.mark.slow
@pytest.mark.parametrize("n", [10, 40, 100])
def test_the_interval_covers_the_median_as_often_as_it_says(n):
    rng = np.random.default_rng(2)
    truth = 10 * (1 + 0.02 * np.log(2))
    runs = 800
    intervals = (summarize_samples([timings(rng, n)], FAST).interval for _ in range(runs))
    covered = sum(i.low <= truth <= i.high for i in intervals) / runs
    assert 0.93 <= covered <= 0.97  # within two points


@pytest.mark.slow
def test_a_real_difference_is_seen():
    rng = np.random.default_rng(3)
    for taken, n in (("interleaved", 60), ("one process", 120)):
        seen = answers(lambda: (timings(rng, n), timings(rng, n, 9.7)), 200, taken=taken)  # noqa: B023
        assert seen["faster"] >= 190, taken
        lost = answers(lambda: (timings(rng, n), timings(rng, n, 10.3)), 200, taken=taken)  # noqa: B023
        assert lost["slower"] >= 190, taken


@pytest.mark.slow
def test_equal_kernels_are_the_same_within_the_tolerance():
    rng = np.random.default_rng(4)
    seen = answers(lambda: (timings(rng, 200), timings(rng, 200)), 100, within=0.02)
    assert seen["same"] >= 95


@pytest.mark.slow
def test_samples_that_hang_together_raise_no_more_alarms():
    rng = np.random.default_rng(5)
    for rho in (0.6, 0.9):
        seen = answers(lambda: (correlated(rng, 60, rho), correlated(rng, 60, rho)), 150)  # noqa: B023
        assert alarms(seen) <= 0.08, rho


# A drift as small as the noise (2 %) cannot always be seen; then its shift of the median can be.
@pytest.mark.slow
@pytest.mark.parametrize(("total", "allowed"), [(0.02, 0.2), (0.05, 0.05), (0.2, 0.05)])
def test_a_drift_is_not_a_difference(total, allowed):
    rng = np.random.default_rng(6)
    ramp = 1 + np.linspace(0, total, 50)
    seen = answers(lambda: (timings(rng, 50), timings(rng, 50) * ramp), 200)
    assert alarms(seen) <= allowed


def test_a_difference_larger_than_the_drift_is_still_seen():
    rng = np.random.default_rng(7)
    found = compare_samples(timings(rng, 50) * (1 + np.linspace(0, 0.05, 50)), timings(rng, 50, 5))
    assert found.answer == "faster"
    assert found.speedup.low < 2 < found.speedup.high


def test_interleaved_rounds_cancel_a_drift_that_both_share():
    rng = np.random.default_rng(8)
    ramp = 1 + np.linspace(0, 0.3, 50)
    before, after = timings(rng, 50) * ramp, timings(rng, 50, 9.5) * ramp
    assert compare_samples(before, after).reason == "drift"
    assert compare_samples(before, after, taken="interleaved").answer == "faster"


def states(rng: np.random.Generator, n: int) -> np.ndarray:
    """Two clock states 3 % apart, each held for 15 samples."""
    held = np.repeat(rng.integers(0, 2, n // 15 + 2), 15)[rng.integers(15) :][:n]
    return 10 * (1 + 0.03 * held) * (1 + rng.exponential(0.003, n))


@pytest.mark.slow
@pytest.mark.parametrize("n", [10, 30, 60, 120, 240])
def test_clock_states_in_runs_raise_no_alarm(n):
    rng = np.random.default_rng(20)
    seen = answers(lambda: (states(rng, n), states(rng, n)), 150)
    assert alarms(seen) <= 0.01, "36 % at 10 and 20 % at 120 before blocks were compared"


def test_levels_are_named_and_interleaving_is_the_cure():
    rng = np.random.default_rng(21)
    found = compare_samples(states(rng, 240), states(rng, 240))
    assert found.answer == "cannot tell"
    assert found.reason in ("levels", "drift", "autocorrelated")
    clock = np.repeat([1.0, 1.03, 1.0, 1.03], 30)
    before, after = timings(rng, 120) * clock, timings(rng, 120, 9.7) * clock
    assert compare_samples(before, after, taken="interleaved").answer == "faster"


@pytest.mark.parametrize(
    ("n", "taken"),
    [(10, "one process"), (30, "one process"), (10, "interleaved"), (30, "interleaved")],
)
def test_correlation_that_few_samples_hide_raises_no_alarm(n, taken):
    rng = np.random.default_rng(22)
    seen = answers(lambda: (correlated(rng, n, 0.8), correlated(rng, n, 0.8)), 150, taken=taken)
    assert alarms(seen) <= 0.04, "14 to 25 % at 10 before"


def processes(rng: np.random.Generator, k: int) -> list[np.ndarray]:
    return [timings(rng, 30, 10 * np.exp(rng.normal(0, 0.05))) for _ in range(k)]


@pytest.mark.slow
@pytest.mark.parametrize(("k", "m"), [(2, 2), (3, 3), (1, 4)])
def test_processes_that_differ_raise_no_alarm(k, m):
    rng = np.random.default_rng(9)
    seen = answers(lambda: (processes(rng, k), processes(rng, m)), 100)
    assert alarms(seen) <= 0.08


def test_several_processes_widen_the_interval():
    rng = np.random.default_rng(10)
    groups = processes(rng, 3)
    alone, together = estimate_median(groups[0]), estimate_median(groups)
    assert together.high - together.low > 3 * (alone.high - alone.low)


def test_two_processes_are_not_one_sample():
    rng = np.random.default_rng(16)
    before, after = timings(rng, 120), timings(rng, 120, 9.8)
    assert compare_samples(before, after).answer == "faster"
    apart = compare_samples(before, after, taken="apart")
    assert apart.answer == "cannot tell"
    assert apart.speedup.low < 1 < apart.speedup.high


def test_tiny_and_constant_samples_are_never_significant():
    few = compare_samples([10.0, 10.1, 10.2], [1.0, 1.1, 1.2])
    assert (few.answer, few.reason) == ("cannot tell", "too-few")
    assert few.speedup.median == pytest.approx(10.1 / 1.1)
    assert isnan(few.speedup.low)
    assert isnan(few.p_value)
    flat = compare_samples([10.0] * 50, [9.0] * 50)
    assert (flat.answer, flat.reason) == ("cannot tell", "constant")
    assert isnan(flat.hedges_g)
    one = estimate_median([3.0])
    assert one.median == 3.0
    assert isnan(one.low)


def test_a_coarse_timer_keeps_half_its_step():
    found = estimate_median([10.0] * 39 + [10.5])
    assert (found.low, found.high) == (9.75, 10.25)


@pytest.mark.parametrize("bad", [[], [float("nan")] * 9, [1.0, -1.0], [0.0] * 9, ["a"], 3.0])
def test_what_is_no_time_is_refused_by_side(bad):
    with pytest.raises(ProfkitError, match="AFTER"):
        compare_samples([1.0] * 9, bad)


def test_a_missing_round_is_refused():
    with pytest.raises(ProfkitError, match="10 before, 9 after"):
        compare_samples(np.arange(1.0, 11), np.arange(1.0, 10), taken="interleaved")


def test_answer_interval_and_p_agree():
    rng = np.random.default_rng(12)
    for shift in np.linspace(9.7, 10.3, 40):
        found = compare_samples(timings(rng, 30), timings(rng, 30, shift), thresholds=FAST)
        outside = found.speedup.low > 1 or found.speedup.high < 1
        assert outside == (found.p_value < 0.05)
        assert (found.answer in ("faster", "slower")) <= outside


def test_the_same_samples_give_the_same_answer_and_json_has_no_nan():
    rng = np.random.default_rng(13)
    before, after = timings(rng, 30), timings(rng, 30, 8)
    first: TimeComparison = compare_samples(before, after)
    assert first == compare_samples(before, after)
    assert compare_samples([1.0], [1.0]).to_json()["p_value"] is None
    assert first.sentence.startswith("1.2")
    assert "faster" in first.sentence


def test_hedges_g_of_two_standard_deviations():
    rng = np.random.default_rng(14)
    g = compute_hedges_g(rng.normal(12, 1, 5000), rng.normal(10, 1, 5000))
    assert g == pytest.approx(2, abs=0.1)


def test_overlap():
    assert Interval(1, 0, 2).overlaps(Interval(3, 1.5, 4))
    assert not Interval(1, 0, 2).overlaps(Interval(3, 2.5, 4))
    assert Interval(1, float("nan"), float("nan")).overlaps(Interval(9, 8, 10))


@pytest.mark.parametrize("within", [-1, -1e-9, float("nan"), float("inf"), 1, 10**400])
def test_a_tolerance_that_is_none_is_our_error(within):
    with pytest.raises(ProfkitError, match="within"):
        compare_samples([1.0, 1.1] * 10, [2.0, 2.1] * 10, within=within)


def test_integers_beyond_float_are_our_error():
    with pytest.raises(ProfkitError, match="BEFORE: not a list of numbers"):
        compare_samples([10**400] * 10, [2.0] * 10)


@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_many_samples_are_judged_as_if_each_pair_were_looked_at(
    rho: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their own way, which takes no square of their number, and the way of few."""
    x = correlated(np.random.default_rng(7), 3000, rho)
    x += np.linspace(0, 0.05, x.size)
    many = samples.summarize_times_of_process(x, THRESHOLDS)
    slope = samples.compute_theil_sen_slope(x)
    monkeypatch.setattr(samples, "PAIRED_MOST", x.size)
    few = samples.summarize_times_of_process(x, THRESHOLDS)
    assert many.faults == few.faults
    assert many.effective == pytest.approx(few.effective)
    assert many.interval.median == few.interval.median
    width = few.interval.high - few.interval.low
    assert many.interval.high - many.interval.low == pytest.approx(width, rel=0.05)
    assert slope == pytest.approx(samples.compute_theil_sen_slope(x), rel=0.05)
