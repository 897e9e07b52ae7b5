"""Figures of the statistics on samples small enough to work them out by hand or by the book."""

from __future__ import annotations

from dataclasses import astuple, replace
from math import ceil, exp, inf, isnan, log, nan, sqrt

import numpy as np
import pytest
from msgspec import structs
from scipy import stats

from profkit.errors import ProfkitError
from profkit.evidence.samples import (
    THRESHOLDS,
    Interval,
    Spread,
    Thresholds,
    estimate_process_spread,
    group_samples_by_process,
    measure_gap_between_levels,
    measure_significant_drift,
    summarize_samples,
)
from profkit.evidence.stats import (
    TimeComparison,
    compare_samples,
    compute_detectable_change,
    compute_hedges_g,
    count_samples_needed_per_side,
    estimate_median,
    format_ratio,
    is_speedup_significant,
)

X = np.array([10.0, 10.4, 9.8, 10.1, 10.3, 9.9, 10.2, 10.0])
FAST = Thresholds(resamples=400)


def test_the_numbers_that_decide():
    assert astuple(THRESHOLDS) == (0.95, 6, 2000, 0, 0.05, 0.1, 0.05, 60, 120, 0.02, 0.01, 0.005)


# --- samples as groups


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([1.0, nan, inf], r"SIDE: 2 of 3 samples are not times between 1e-15 and 1e\+18"),
        ([1.0, 0.0], r"SIDE: 1 of 2 samples are not times between 1e-15 and 1e\+18"),
        ([[1.0, 2.0], [-1.0]], r"SIDE: 1 of 3 samples are not times between 1e-15 and 1e\+18"),
        ([[1.0], []], "SIDE: there are no samples"),
        ([[[1.0]]], "SIDE: there are no samples"),
        ([], "SIDE: there are no samples"),
    ],
)
def test_what_cannot_be_times(bad, message):
    with pytest.raises(ProfkitError, match=message):
        group_samples_by_process(bad, "SIDE", must_be_positive=True)


# --- spread of processes


def _of(*medians: float) -> list[np.ndarray]:
    return [np.array([m - 1, m, m + 1]) for m in medians]


def test_spread_is_the_standard_deviation_of_the_medians():
    assert estimate_process_spread(_of(10.0, 12.0)) == Spread(sqrt(2), 1)
    assert estimate_process_spread(_of(10.0, 12.0, 14.0)) == Spread(2.0, 2)
    # Pooled: 2 + 8 squares over 1 + 2 degrees; a side of one process says nothing.
    pooled = estimate_process_spread(_of(10.0, 12.0), _of(1.0, 3.0, 5.0), _of(7.0))
    assert pooled is not None
    assert (pooled.sigma, pooled.dof) == (pytest.approx(sqrt(10 / 3)), 3)
    assert estimate_process_spread(_of(7.0)) is None
    assert estimate_process_spread() is None


# --- intervals


def test_an_interval_is_the_same_every_time_and_round_the_median():
    found = estimate_median(X)
    assert (found.median, found.level) == (pytest.approx(10.05), 0.95)
    assert found == estimate_median(X)
    assert (found.low, found.high) == (pytest.approx(9.85, abs=0.06), pytest.approx(10.3, abs=0.06))
    wide = estimate_median(X, level=0.999)
    assert wide.low < found.low < found.high < wide.high
    assert wide.level == 0.999


@pytest.mark.parametrize(("n", "unusable"), [(5, "too-few"), (6, None)])
def test_six_samples_are_enough_and_five_are_not(n, unusable):
    found = summarize_samples([X[:n]], FAST)
    assert found.unusable == unusable
    assert isnan(found.interval.low) is (unusable is not None)


def test_a_timer_s_step_is_the_smallest_difference():
    found = summarize_samples([np.array([10.0] * 30 + [10.5, 11.5])], FAST).interval
    assert (found.low, found.high) == (9.75, 10.25)


def test_processes_halve_what_is_independent():
    one = summarize_samples([X], FAST).interval
    two = summarize_samples([X, X + 2.0], FAST).interval
    assert two.median == pytest.approx(one.median + 1)
    shrunk = [(one.median - one.low) / sqrt(2), (one.high - one.median) / sqrt(2)]
    assert [two.median - two.low, two.high - two.median] == pytest.approx(shrunk, rel=0.02)


def test_a_measured_spread_replaces_the_noise_and_an_assumed_one_adds_to_it():
    plain = summarize_samples([X], FAST)
    below = plain.interval.median - plain.interval.low
    measured = summarize_samples([X, X], FAST, Spread(1.0, 3))
    half = stats.t.ppf(0.975, 3) / sqrt(2)
    assert measured.interval.high - measured.interval.median == pytest.approx(half)
    assert measured.interval.median - measured.interval.low == pytest.approx(half)
    assert measured.faults == ("processes",)
    assumed = summarize_samples([X], FAST, Spread(1.0))
    half = stats.norm.ppf(0.975)
    assert assumed.interval.median - assumed.interval.low == pytest.approx(np.hypot(below, half))
    small = summarize_samples([X], FAST, Spread(1e-6, 3))
    assert (small.interval, small.faults) == (plain.interval, ())


def test_one_bad_process_spoils_the_side_but_has_a_median():
    found = summarize_samples([X, np.array([10.0] * 8)], FAST)
    assert (found.unusable, found.faults) == ("constant", ())
    assert found.interval.median == pytest.approx((10.05 + 10.0) / 2)
    assert isnan(found.interval.low)
    assert isnan(found.interval.high)


def test_intervals_that_touch_share_a_value():
    assert Interval(1, 0, 2).overlaps(Interval(3, 2, 4))
    assert Interval(3, 2, 4).overlaps(Interval(1, 0, 2))
    assert not Interval(3, 2.1, 4).overlaps(Interval(1, 0, 2))


def test_the_ends_of_a_bootstrap_interval():
    x = np.array([10.12, 9.31, 11.47, 10.05, 9.88, 12.6, 10.43, 8.97, 10.71, 11.03])
    found = estimate_median(x)
    # Hesterberg's expanded percentiles of the bootstrapped medians, seed 0.
    tail = stats.norm.cdf(-sqrt(10 / 9) * stats.t.ppf(0.975, 9))
    drawn = stats.bootstrap(
        (x,),
        np.median,
        n_resamples=2000,
        method="percentile",
        confidence_level=1 - 2 * tail,
        rng=np.random.default_rng(0),
    )
    ends = drawn.confidence_interval
    assert (found.low, found.median, found.high) == pytest.approx((ends.low, 10.275, ends.high))
    assert found.low < 9.9 < 10.7 < found.high


# --- drift and samples that hang together


def test_a_drift_widens_both_sides_by_all_of_it():
    rng = np.random.default_rng(3)
    x = 10 + rng.normal(0, 0.01, 40) + np.arange(40) * 0.05
    found = summarize_samples([x], FAST)
    assert found.faults[0] == "drift"
    drift = measure_significant_drift(x)
    assert drift == pytest.approx(39 * 0.05, rel=0.02)
    assert found.interval.median - found.interval.low > drift
    assert found.interval.high - found.interval.median > drift
    assert found.interval.high - found.interval.low < 2 * drift + 1.5


# --- two sides


def test_hedges_g_by_the_book():
    before, after = np.array([5.0, 6.0, 7.0]), np.array([1.0, 2.0, 3.0, 4.0])
    # Means 6 and 2.5; squares 2 and 5 over 5 degrees: 1.4; corrected by 1 - 3 / 19.
    assert compute_hedges_g(before, after) == pytest.approx(3.5 / sqrt(1.4) * (1 - 3 / 19))
    assert compute_hedges_g(after, before) == pytest.approx(-3.5 / sqrt(1.4) * (1 - 3 / 19))
    assert isnan(compute_hedges_g(np.array([1.0]), np.array([2.0])))
    assert isnan(compute_hedges_g(np.array([1.0, 1.0]), np.array([2.0, 2.0])))
    assert compute_hedges_g(np.array([3.0, 5.0]), np.array([2.0])) == pytest.approx(
        2 / sqrt(2) * (1 - 3 / 3)
    )


# --- whole comparisons and what they say


def test_a_ratio_has_the_digits_of_its_interval():
    assert (
        format_ratio(Interval(1.0124, 1.0119, 1.0131), " slower")
        == "1.012x slower (1.012 to 1.013)"
    )
    assert format_ratio(Interval(1.8437, 1.79, 1.9)) == "1.84x (1.79 to 1.90)"
    assert format_ratio(Interval(1.8437)) == "1.84x"


def test_faster_slower_and_the_same_in_words():
    rng = np.random.default_rng(1)
    noise = np.exp(rng.normal(0, 0.002, 40))
    fast = compare_samples(20 * noise, 10 * noise[::-1], thresholds=FAST)
    assert (fast.answer, fast.reason, fast.within) == ("faster", "difference", 0.01)
    assert fast.speedup.median == pytest.approx(2, rel=0.002)
    low, high = fast.speedup.low, fast.speedup.high
    assert fast.sentence == f"{fast.speedup.median:.2f}x faster ({low:.2f} to {high:.2f})"
    slow = compare_samples(10 * noise[::-1], 20 * noise, thresholds=FAST)
    assert slow.answer == "slower"
    assert slow.sentence == f"{fast.speedup.median:.2f}x slower ({low:.2f} to {high:.2f})"
    few = compare_samples(10 * noise, 10 * noise[::-1], within=0.02, thresholds=FAST)
    assert few.answer == "cannot tell"  # 40 a side, one after the other: clocks may have changed
    assert few.sentence.endswith("interleave them, or take at least 120 of each")
    many = np.exp(rng.normal(0, 0.002, 240))
    same = compare_samples(10 * many, 10 * many[::-1], within=0.02, thresholds=FAST)
    assert same.answer == "same"
    assert same.sentence.startswith("the same within 2 %: 1.000x (")
    assert fast.before.median == pytest.approx(20, rel=0.002)
    assert fast.before.low < fast.before.median < fast.before.high
    assert fast.hedges_g > 50
    assert fast.p_value < 1e-6


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (
            [10.0, 10.1, 10.2],
            [5.0, 5.1],
            "2x, but too few samples (3 and 2) for an interval: take at least 6, better 40",
        ),
        (
            [10.0] * 9,
            [5.0] * 9,
            "2x, but all samples of one side are equal: the timer's resolution hides the spread, so "
            "time more calls per sample",
        ),
    ],
)
def test_why_it_cannot_be_told(before, after, sentence):
    assert compare_samples(before, after).sentence == sentence


def test_apart_assumes_a_hundredth_and_groups_replace_it():
    rng = np.random.default_rng(2)
    one, two = (10 * np.exp(rng.normal(0, 1e-4, 240)) for _ in range(2))
    together, apart = (
        compare_samples(one, two, taken=how, thresholds=FAST) for how in ("one process", "apart")
    )
    assert together.speedup.high < 1.001
    # Two sides of 1 % each: 1.96 x sqrt(2) x 1 %.
    assert log(apart.speedup.high) == pytest.approx(1.96 * sqrt(2) * 0.01, rel=0.02)
    assert log(apart.speedup.low) == pytest.approx(-1.96 * sqrt(2) * 0.01, rel=0.02)
    groups = compare_samples([one, one * 1.001], [two, two * 1.001], taken="apart", thresholds=FAST)
    assert log(groups.speedup.high) < 0.005


def test_interleaved_is_judged_round_by_round():
    rng = np.random.default_rng(4)
    ramp = np.linspace(1, 2, 40)
    before = 20 * ramp
    after = 10 * ramp * np.exp(rng.normal(0, 0.001, 40))
    found = compare_samples(before, after, taken="interleaved", thresholds=FAST)
    assert found.answer == "faster"
    assert found.speedup.median == pytest.approx(2, rel=0.001)
    assert exp(log(found.speedup.high) - log(found.speedup.low)) < 1.003


# --- at one in a thousand


def seen(deviations: float, below=0.01, above=0.01, effective=1e9) -> TimeComparison:
    """A comparison whose speed-up is so many standard deviations of 1 % from none."""
    z, middle = stats.norm.ppf(0.975), exp(deviations * 0.01)
    speedup = Interval(middle, middle * exp(-z * below), middle * exp(z * above))
    made = compare_samples([1.0, 1.1], [1.0, 1.2])
    return structs.replace(made, speedup=speedup, effective=effective)


@pytest.mark.parametrize(
    ("deviations", "sides", "effective", "answer"),
    [
        (3.30, {}, 1e9, True),
        (3.28, {}, 1e9, False),
        (-3.30, {}, 1e9, True),
        (-3.28, {}, 1e9, False),
        (3.30, {"above": 0.5}, 1e9, True),
        (3.30, {"below": 0.02}, 1e9, False),
        (-3.30, {"below": 0.5}, 1e9, True),
        (-3.30, {"above": 0.02}, 1e9, False),
        (4.31, {}, 13.0, False),
        (4.33, {}, 13.0, True),  # Student's t of as few
        (630.0, {}, 2.0, False),
        (640.0, {}, 2.0, True),
        (630.0, {}, 1.0, False),
        (640.0, {}, nan, True),
        (0.0, {}, 1e9, False),
    ],
)
def test_a_difference_needs_its_nearer_end_and_samples_enough(deviations, sides, effective, answer):
    assert is_speedup_significant(seen(deviations, effective=effective, **sides)) is answer
    none = compare_samples([1.0, 1.1], [9.0, 9.2])
    assert not is_speedup_significant(none), "without an interval nothing is"


def test_the_smallest_change_is_what_the_wider_end_would_see():
    """The critical value of one in a thousand, and what 95 of 100 such changes lie above."""
    reach = (stats.norm.ppf(0.9995) + stats.norm.ppf(0.95)) * 0.02
    for sides in ({"below": 0.02}, {"above": 0.02}):
        assert compute_detectable_change(seen(1.0, **sides)) == pytest.approx(exp(reach) - 1)
    few = (stats.t.ppf(0.9995, 12) + stats.norm.ppf(0.95)) * 0.01
    assert compute_detectable_change(seen(0.0, effective=13.0)) == pytest.approx(exp(few) - 1)
    per = stats.norm.ppf(0.9995) + stats.norm.ppf(0.95)
    nearly = log(1e6) / per
    assert compute_detectable_change(seen(0.0, above=0.999 * nearly)) > 9e5
    assert isnan(compute_detectable_change(seen(0.0, above=1.001 * nearly))), (
        "a factor of a million"
    )


@pytest.mark.parametrize("reason", ["drift", "levels", "processes", "constant"])
def test_more_samples_do_not_help_against(reason):
    assert count_samples_needed_per_side(0.02, 0.04, 100, reason) is None


@pytest.mark.parametrize("reason", ["autocorrelated", "unseen", "difference", "within", "too-few"])
def test_more_samples_help_where(reason):
    assert count_samples_needed_per_side(0.02, 0.02, 120, reason) == 120
    wider = log(1.04) / log(1.02)
    assert count_samples_needed_per_side(0.02, 0.04, 120, reason) == ceil(120 * wider**2)
    assert count_samples_needed_per_side(0.02, 0.01, 120, reason) < 120


# --- what few samples cannot show


def halves(n: int, taken: str = "one process", **thresholds: float) -> tuple[float, float, str]:
    """How far an interval reaches below and above, as logarithms, and why it is not narrower."""
    noise = np.exp(np.random.default_rng(n).normal(0, 0.002, (2, n)))
    known = replace(Thresholds(resamples=400, drift_p=0, lag_p=1e-12, level_p=0), **thresholds)
    found = compare_samples(10 * noise[0], 10 * noise[1], 0.0, taken, known)
    middle = log(found.speedup.median)
    return middle - log(found.speedup.low), log(found.speedup.high) - middle, found.reason


@pytest.mark.parametrize("taken", ["interleaved", "one process"])
def test_fewer_than_enough_widen_an_interval_by_as_much(taken):
    known = {"alone": 0}
    low, high, reason = halves(40, taken, enough=60, **known)
    plain = halves(40, taken, enough=40, **known)
    assert (low, high) == pytest.approx((1.5 * plain[0], 1.5 * plain[1]))
    assert (reason, plain[2]) == ("unseen", "wide")
    assert halves(60, taken, enough=60, **known) == halves(60, taken, enough=1, **known)


def test_two_clock_states_may_hide_from_few_samples_that_were_not_interleaved():
    low, high, reason = halves(100, enough=1, alone=120)
    plain = halves(100, enough=1, alone=100)
    assert (reason, plain[2]) == ("unseen", "wide")
    half = stats.norm.ppf(0.975) * sqrt(2) * 0.02
    assert (low, high) == pytest.approx((np.hypot(plain[0], half), np.hypot(plain[1], half)))
    turns = [halves(100, "interleaved", enough=1, alone=n) for n in (120, 100)]
    assert turns[0] == turns[1], "side by side both see them"
    apart = halves(100, "apart", enough=1, alone=120)
    assert apart[0] == pytest.approx(np.hypot(halves(100, "apart", enough=1, alone=1)[0], half))
    noise = np.exp(np.random.default_rng(1).normal(0, 0.002, (2, 3, 20)))
    several = [
        compare_samples(
            list(noise[0]), list(noise[1]), thresholds=replace(FAST, enough=1, alone=n)
        ).speedup
        for n in (120, 1)
    ]
    assert several[0] == several[1], "measured processes have shown it"


def test_an_interval_rests_on_the_fewer_samples_and_on_no_more_than_the_processes():
    rng = np.random.default_rng(2)
    x, y = rng.normal(10, 0.01, 90), rng.normal(10, 0.01, 70)
    plain = Thresholds(resamples=400, lag_p=1e-12)
    assert compare_samples(x, y, thresholds=plain).effective == 70
    assert compare_samples(x[:70], y, taken="interleaved", thresholds=plain).effective == 70
    three = [x[:30], x[30:60], x[60:]]
    assert summarize_samples(three, plain).effective == 90
    assert summarize_samples(three, plain, Spread(0.1)).effective == 90
    assert summarize_samples(three, plain, Spread(0.1, 2)).effective == 3


def test_a_round_that_is_missing_in_one_process_is_missing():
    whole, short = [list(X), list(X)], [list(X), list(X[:-1])]
    with pytest.raises(ProfkitError, match="differ in number: 16 before, 15 after"):
        compare_samples(whole, short, taken="interleaved")
    with pytest.raises(ProfkitError, match="differ in number: 16 before, 16 after"):
        compare_samples(whole, [[*X, *X]], taken="interleaved")
    assert compare_samples(whole, short).before.median == pytest.approx(10.05, rel=1e-3)


# --- levels


def test_levels_widen_both_ends_by_all_of_their_distance():
    rng = np.random.default_rng(6)
    x = np.repeat([10.0, 10.3, 10.0, 10.3, 10.0, 10.3, 10.0, 10.3], 15) + rng.normal(0, 0.01, 120)
    found, alone = (
        summarize_samples([x], replace(FAST, lag_p=1e-12, level_p=p)) for p in (0.05, 0)
    )
    assert (found.faults, alone.faults) == (("levels",), ())
    apart = measure_gap_between_levels(x)
    assert apart == pytest.approx(0.3, abs=0.02)
    for end in ("low", "high"):
        moved = abs(getattr(found.interval, end) - getattr(alone.interval, end))
        assert moved == pytest.approx(apart)
