"""What a fix is said to save, on every report at hand: of which finding, of how much, in every form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import inf, isnan, nan

import pytest

from profkit.diagnosis.document import make_diagnosis_document
from profkit.diagnosis.launches import (
    JudgedLaunch,
    LaunchRow,
    find_leading_row_with_sure_saving,
    group_and_rank_launches,
    judge_reports,
)
from profkit.diagnosis.rule import CombinedGain, Diagnosis, LaunchFinding
from profkit.diagnosis.rules import ALL
from profkit.diagnosis.verdict import NOTHING_TO_WIN, judge_launch
from profkit.judge import Estimate
from profkit.model.scenario import Expectation
from profkit.reports import figures
from profkit.reports.reader import read_report_files
from profkit.show.launch import PageRow, make_table_row_of_launch
from profkit.show.text import words
from profkit.show.text.words import find_fix_to_name_first, write_headline
from profkit.show.views.diagnosis import show_folded_verdict, write_brief_diagnosis
from tests.conftest import committed, others
from tests.copies import replace

from .conftest import Made


@pytest.fixture(scope="module")
def all_runs() -> list[JudgedLaunch]:
    """Every launch at hand, and the launches that the rules' own examples are."""
    reports = [read_report_files(committed())] + ([read_report_files(others())] if others() else [])
    return [run for several in reports for run in judge_reports(several)]


def most(finding: LaunchFinding) -> float:
    """The share of the time that fixing a finding can save at most."""
    return 1.0 if finding.gain is None else 1 - 1 / finding.gain


def wrong_numbers(run: JudgedLaunch) -> Iterator[str]:
    """What the numbers of one launch say that cannot be."""
    saves, top = run.diagnosis.estimate_saved_time(run.time), run.top
    if not isnan(saves) and (top is None or not (top.expect or top.at_roof)):
        yield f"saves {saves} of a finding without an expectation"
    if not isnan(saves) and top and saves > run.time * most(top) * (1 + 1e-9):
        yield f"saves {saves} of {run.time}: {top.rule} allows {top.gain}"
    for f in run.diagnosis.findings:
        if f.expect and not f.expect.low <= f.expect.gain <= f.expect.high <= (f.gain or inf):
            yield f"{f.rule}: expect {f.expect}, at most {f.gain}"


def wrong_words(row: LaunchRow) -> Iterator[str]:
    """What the forms say of one row that disagrees with its numbers, or between them."""
    run, text = row.median_launch, " ".join(write_headline([row]))
    said = re.search(r"saving about (\S+ \S+?) of (\S+ \S+?)[.;](?: |$)", text)
    told = f"saves {figures.format_seconds(row.seconds_saved)}" if row.seconds_saved > 0 else ""
    fix = find_fix_to_name_first(run)
    page = make_table_row_of_launch(PageRow(1, row, 1.0))
    if (page["saved"], page["saved_of"]) != (told, row.seconds_saved):
        yield f"page {page['saved']}, ranked by {page['saved_of']}, row {row.seconds_saved}"
    wide = (
        run.top
        and run.top.expect
        and run.top.expect.is_wide
        and run.top.measured_reachable_gain is None
    )
    little = run.top and run.top.expect and run.top.expect.gain < NOTHING_TO_WIN
    is_said = row.seconds_saved > 0 and not wide and not little
    if fix is not run.top and fix is not None and row.known_times_sorted:
        is_said = True  # the answer is about a fix that should gain more
        gain = fix.measured_reachable_gain or (fix.expect.gain if fix.expect else nan)
        told = f"saves {figures.format_seconds(row.total * (1 - 1 / gain))}"
    if bool(said) != is_said or (said and told != f"saves {said[1]}"):
        yield f"saves {row.seconds_saved}, said: {text}"
    if run.top and row.seconds_saved > row.total * most(run.top) * (1 + 1e-9):
        yield f"saves {row.seconds_saved} of {row.total} by {run.top.rule}, at most {run.top.gain}"
    document = make_diagnosis_document([], [run]).to_json()["launches"][0]["saves_s"]
    if len(row.launches) == 1 and (document or 0.0) != row.seconds_saved:
        yield f"JSON {document}, row {row.seconds_saved}"
    everything = f"{write_brief_diagnosis([row])} {show_folded_verdict(row, 1, row.total)}"
    for nonsense in (
        r"\b0 ns",
        r"takes not collected",
        r"\bblock of at most",
        r"\bnan\b",
    ):
        if re.search(nonsense, everything):
            yield f"{nonsense} in {everything}"


@pytest.mark.slow
def test_no_launch_at_hand_is_promised_more_than_its_finding_can_bring(
    all_runs: list[JudgedLaunch],
) -> None:
    bad = [f"{run.report} #{run.index}: {x}" for run in all_runs for x in wrong_numbers(run)]
    assert bad == []
    assert sum(run.seconds_saved > 0 for run in all_runs) > 100


@pytest.mark.slow
def test_every_form_says_the_same_of_every_row_at_hand(all_runs: list[JudgedLaunch]) -> None:
    rows = [
        *group_and_rank_launches(all_runs),
        *group_and_rank_launches(all_runs, one_row_per_launch=True),
    ]
    assert [f"{row.median_launch.report}: {x}" for row in rows for x in wrong_words(row)] == []
    ordered = group_and_rank_launches(all_runs)
    sure = find_leading_row_with_sure_saving(ordered)
    ranked = [row.seconds_saved for row in ordered if row is not sure]
    assert ranked == sorted(ranked, reverse=True)


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_no_example_of_a_rule_is_promised_more_than_its_finding_can_bring(rule, made: Made) -> None:
    for example in rule.fires:
        run = made(time=1e-3, diagnosis=judge_launch({**example, "time": 1e-3}))
        assert [*wrong_numbers(run), *wrong_words(LaunchRow((run,)))] == []


def finding(rule: str, gain: float | None, expect: float | None) -> LaunchFinding:
    saving = Estimate(bound=gain)
    if expect:
        saving = Estimate(low=1.0, expected=expect, high=gain or expect, bound=gain)
    return make_finding(rule, saving)


def make_finding(rule: str, saving: Estimate) -> LaunchFinding:
    return LaunchFinding(
        rule=rule, status="fires", cause=f"{rule} is why", advice="Less of it.", saving=saving
    )


CAPPED = finding("short-kernel", 1.24, None)
LARGE = finding("occupancy-shared", 8.0, 5.6)


def found(*findings: LaunchFinding) -> Diagnosis:
    return Diagnosis("latency", "wait", "because", findings, ())


def test_what_another_finding_promises_is_not_said_of_the_first(made: Made) -> None:
    run = made(time=9.6e-6, diagnosis=found(CAPPED, LARGE))
    assert isnan(run.diagnosis.estimate_saved_time(run.time))
    (row,) = group_and_rank_launches([run])
    assert (row.seconds_saved, list(wrong_words(row))) == (0.0, [])
    assert (
        " ".join(write_headline([row])).count("Less of it: at most 1.24x. It takes 9.60 µs.") == 1
    )
    unbounded = made(time=1e-5, diagnosis=found(finding("atomics-contention", None, 34.0)))
    assert unbounded.seconds_saved == 0  # 1x to 34x: nothing is sure


def test_a_row_of_unlike_launches_saves_what_the_shown_one_is_said_to(made: Made) -> None:
    several = [found(CAPPED, LARGE), found(finding("barrier-wait", 1.5, 1.2)), found(LARGE)]
    for order in ((0, 1, 2), (1, 0, 2), (0, 2, 1)):
        runs = [made(time=t * 1e-6, index=t, diagnosis=several[k]) for t, k in enumerate(order, 1)]
        (row,) = group_and_rank_launches(runs)
        assert (row.median_launch.index, list(wrong_words(row))) == (2, [])


def test_kernels_that_could_not_be_profiled_are_named_before_the_rest(made: Made) -> None:
    unknown = made(status="failed", kernel="attention", time=nan, index=1)
    first = write_headline(group_and_rank_launches([made(time=1e-5), unknown]))[0]
    assert first.startswith(
        "ncu failed to profile attention; the answer covers the other launches. "
    )
    assert "--replay-mode application" in " ".join(
        write_headline(group_and_rank_launches([unknown]))
    )


def test_without_a_duration_nothing_is_said_to_take_or_save_one(made: Made) -> None:
    (row,) = group_and_rank_launches([made(time=nan)])
    text = " ".join(write_headline([row]))
    assert not {"takes", "about", "save"} & set(text.split())
    assert ": expect 8.00x (3.33 to 8.00), at most 8.00x." in text


def test_a_grid_whose_units_nobody_counted_has_a_bound_and_no_expectation() -> None:
    shape = {"grid_size": 1.0, "sm_count": 84.0, "block_size": 64.0, "waves": 1 / 84}
    blind = judge_launch(shape)
    assert (blind.top.rule, blind.top.gain, blind.top.expect) == (
        "grid-too-small",
        pytest.approx(84),
        None,
    )  # type: ignore[union-attr]
    seen = judge_launch({**shape, "dram_busy": 0.1, "l1_busy": 0.1, "issue_busy": 0.1})
    assert seen.top.expect is not None  # type: ignore[union-attr]


def test_what_a_block_takes_is_said_in_whole_clauses(made: Made) -> None:
    of = {"registers": 32.0, "shared_block": 1024.0, "occupancy_limit": 2 / 3}
    for left_out in ((), ("occupancy",), ("occupancy", "registers"), ("shared_block", "registers")):
        run = made(time=1e-5)
        values = {**run.values, "occupancy": 0.5, **of, **dict.fromkeys(left_out, nan)}
        text = str(show_folded_verdict(LaunchRow((replace(run, values=values),)), 1, 1e-5))
        assert (
            ("of at most 66.7 %" in text)
            == ("occupancy 50 % of" in text)
            == (not left_out or "occupancy" not in left_out)
        )
        assert "at most 66.7 %" in text


@pytest.mark.parametrize("name", ["sm_active_max", "l2_hit", "occupancy"])
def test_no_share_of_a_whole_is_written_as_more_than_all_of_it(name: str) -> None:
    assert words.format_metric(name, 1.024) == "100 %"
    assert words.format_metric(name, 0.999) == "99.9 %"
    assert words.format_metric(name, 1.08) == "108 %"  # more than rounding: replay-unsteady says it
    assert words.format_metric("waves", 1.024) == "1.02"


def test_an_interval_that_says_little_is_a_range_and_what_measures_it() -> None:
    wide = make_finding("x", Estimate(low=2.0, expected=5.0, high=8.0, bound=9.0))
    assert words.describe_finding_gain(wide) == "expect 2.00x to 8.00x, at most 9.00x"
    said = words.describe_finding_gain(replace(wide, rule="shared-bank-conflicts"))
    assert said == "expect 2.00x to 8.00x, at most 9.00x; `profkit ablate` can measure it"
    assert words.format_expected_gain(wide) == "2.00x to 8.00x"
    narrow = make_finding("x", Estimate(low=3.0, expected=5.0, high=8.0, bound=9.0))
    assert words.describe_finding_gain(narrow) == "expect 5.00x (3.00 to 8.00), at most 9.00x"


def test_two_findings_that_multiply_have_a_line() -> None:
    both = CombinedGain(("grid-too-small", "uncoalesced-access"), 20.0, Expectation(9.0, 4.0, 11.0))
    names = "grid-too-small and uncoalesced-access together"
    assert (
        words.describe_combined_gain(both) == f"{names}: expect 9.00x (4.00 to 11.0), at most 20.0x"
    )
    more = replace(both, is_more_than_product=True)
    assert words.describe_combined_gain(more).endswith(
        "; alone, each leaves what the other removes"
    )
    unbounded = replace(both, gain=None, expect=Expectation(9.0, 2.0, 11.0))
    assert words.describe_combined_gain(unbounded) == f"{names}: expect 2.00x to 11.0x"
