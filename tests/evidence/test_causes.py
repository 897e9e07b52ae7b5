"""Whether an estimate was right, what explains a change in time, and what another session finds."""

from __future__ import annotations

from itertools import combinations
from math import log, nan, sqrt

import pytest

from profkit.evidence.causes import (
    compare_fix_with_measured_gain,
    estimate_explained_share,
    find_cause_of_time_change,
)
from profkit.evidence.compare import compare_sides, compare_warm_times
from profkit.evidence.counters import (
    CauseAmounts,
    FindingChange,
    FindingSide,
    LaunchChange,
    TextChange,
)
from profkit.evidence.history import History
from profkit.evidence.runs import Evidence
from profkit.evidence.samples import THRESHOLDS, Interval
from profkit.evidence.stats import TimeComparison
from profkit.show.views.comparison import say_estimate, say_finding_change
from tests.conftest import ROOT

ARTIFACTS = Evidence(ROOT / "artifacts")


def compare_variants(before: str, after: str):
    (change,) = compare_sides(before, after, "B", ARTIFACTS).changes
    return change


def make_time(before: float, after: float) -> TimeComparison:
    answer = "faster" if after < before else "slower"
    return TimeComparison(
        answer=answer,
        reason="difference",
        speedup=Interval(before / after, before / after, before / after),
        before=Interval(before),
        after=Interval(after),
    )


def make_launch(*findings: FindingChange, lead: str = "") -> LaunchChange:
    return LaunchChange(findings=findings, leads=TextChange(before=lead, after=lead))


def make_wait(state: str, before: float, after: float, gain: float = 9.0) -> FindingChange:
    """Return a wait that fires on both sides, as shares of the time."""
    amount = CauseAmounts(
        what="of the warps' time",
        unit="share",
        before=before,
        after=after,
        cycles_before=before,
        cycles_after=after,
    )
    side = FindingSide(status="fires", gain=gain)
    return FindingChange(
        rule="long-scoreboard", what="changed", state=state, before=side, after=side, amount=amount
    )


def test_the_estimate_of_what_the_change_fixed_stands_beside_what_was_measured():
    change = compare_variants("stage2", "stage2swizzle")
    estimate = change.estimate
    assert (estimate.rule, estimate.state) == ("shared-bank-conflicts", "gone")
    assert estimate.low < estimate.measured < estimate.high
    assert estimate.measured == change.time.speedup.median
    said = "1.87x (1.27 to 3.21) for shared-bank-conflicts; measured 1.53x: inside the interval"
    assert say_estimate(estimate) == said
    assert change.to_json()["estimate"]["is_inside"] is True


def test_one_measurement_has_no_estimate_and_no_cause():
    change = compare_variants("stage2", "stage2")
    assert change.time.reason == "identical"
    assert change.estimate is None
    assert change.cause is None
    assert change.to_json()["estimate"] is None


def test_what_grew_is_worse_and_never_clear():
    found = {f.rule: f for f in compare_variants("stage1", "stage2").launches[0].findings}
    conflicts = found["shared-bank-conflicts"]
    assert (conflicts.what, conflicts.state) == ("uncovered", "worse")
    assert found["short-scoreboard"].state == "explained"
    assert "still there" not in say_finding_change(found["fixed-latency"])


def test_a_share_that_rises_because_the_rest_is_shorter_is_not_worse():
    found = {f.rule: f for f in compare_variants("stage2", "stage2swizzle").launches[0].findings}
    wait = found["fixed-latency"]
    assert wait.amount.after > 1.3 * wait.amount.before
    assert wait.state == "still there"
    assert wait.amount.sentence == (
        "17.7 k -> 17.4 k cycles, but a larger share of a shorter launch: "
        "19.3 % -> 28.6 % of the warps' time"
    )


def test_a_wait_is_the_cause_where_it_has_most_of_the_time_saved():
    time = make_time(before=100.0, after=50.0)
    most = make_wait("better", before=0.6, after=0.4)
    assert estimate_explained_share(most, time) == pytest.approx(0.8)
    cause = find_cause_of_time_change(make_launch(most), time)
    assert cause.rule == "long-scoreboard"
    assert cause.share == pytest.approx(0.8)
    little = make_wait("better", before=0.3, after=0.4)
    assert estimate_explained_share(little, time) == pytest.approx(0.2)
    assert find_cause_of_time_change(make_launch(little), time) is None
    small = make_wait("better", before=0.6, after=0.4, gain=1.1)  # a tenth cannot make it twice
    assert find_cause_of_time_change(make_launch(small), time) is None


def test_only_what_is_worse_or_new_makes_a_kernel_slower():
    time = make_time(before=50.0, after=100.0)
    assert find_cause_of_time_change(make_launch(make_wait("better", 0.6, 0.4)), time) is None
    assert find_cause_of_time_change(make_launch(make_wait("still there", 0.6, 0.6)), time) is None
    assert (
        find_cause_of_time_change(make_launch(make_wait("worse", 0.4, 0.6)), time).state == "worse"
    )


def test_a_change_that_fixed_nothing_has_no_estimate():
    time = make_time(before=100.0, after=90.0)
    run = compare_variants("stage2", "stage2")
    verdict = find_verdict("stage2")
    assert compare_fix_with_measured_gain(run.launches[0], verdict, time) is None
    assert compare_fix_with_measured_gain(run.launches[0], verdict, None) is None
    unknown = TimeComparison(speedup=Interval(nan))
    assert compare_fix_with_measured_gain(run.launches[0], verdict, unknown) is None


def find_verdict(variant: str):
    from profkit.evidence.runs import load_runs_of_side

    (run,) = load_runs_of_side(variant, ARTIFACTS, "B")
    return run.diagnosis()


def list_pairs_of_sessions():
    """Return each pair of machine codes that two sessions timed: both comparisons of it."""
    runs, _ = History(ROOT / "artifacts" / "history").list_runs()
    sessions = {}
    for run in runs:
        if run.sass and run.median and run.session and run.gpu_uuid:
            of_session = sessions.setdefault((run.gpu_uuid, run.session), {})
            of_session.setdefault(run.case, {})[run.sass] = run
    seen = {}
    for cases in sessions.values():
        for case, by_code in cases.items():
            for one, other in combinations(sorted(by_code), 2):
                seen.setdefault((case, one, other), []).append((by_code[one], by_code[other]))
    for timed in seen.values():
        for first, second in combinations(timed, 2):
            yield (
                compare_warm_times(first[0].timed, first[1].timed),
                compare_warm_times(second[0].timed, second[1].timed),
            )


def test_what_another_session_finds_is_in_the_interval_across_sessions():
    """The figures of docs/decisions/490: of one session's interval, and of the one across sessions."""
    pytest.importorskip("pyarrow")
    pairs = list(list_pairs_of_sessions())
    squares = [log(a.speedup.median / b.speedup.median) ** 2 for a, b in pairs]
    here, across, told = 0, 0, 0
    for pair in pairs:
        for mine, other in (pair, pair[::-1]):
            found = other.speedup.median
            here += mine.speedup.low <= found <= mine.speedup.high
            across += mine.across_sessions.low <= found <= mine.across_sessions.high
        told += {a.answer for a in pair} == {"faster", "slower"}
    assert (len(pairs), here, told) == (273, 107, 0)
    assert across == 542
    assert sqrt(sum(squares) / len(pairs)) == pytest.approx(0.0047, abs=5e-5)
    assert THRESHOLDS.session_ratio >= sqrt(sum(squares) / len(pairs))
