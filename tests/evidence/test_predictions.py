"""Predictions of headers: read, tried, and no longer those of another code."""

from __future__ import annotations

import pytest

from profkit.diagnosis.rules import BY_ID
from profkit.errors import ProfkitError
from profkit.evidence.compare import Policy, compare_runs
from profkit.evidence.moves import parse_expected_changes
from profkit.evidence.runs import Evidence, load_runs_of_side
from profkit.records.record import SourceFile, read_record, refresh_header_from_source
from profkit.reports.metrics import CATALOGUE
from tests.conftest import ROOT
from tests.copies import replace
from tests.evidence.made import header, record, row, run


def promised(before: float, after: float, **facts) -> tuple[bool | None, str]:
    """What becomes of the promises about stage1's barrier stall."""
    one = run(launches=[row(stall_barrier=before)])
    other = run("stage2", launches=[row("stage2", stall_barrier=after)], after="stage1", **facts)
    (promise,) = compare_runs(one, other).promises
    return promise.kept, promise.because


@pytest.mark.parametrize(
    ("word", "before", "after", "kept"),
    [
        ("stall_barrier<0.5x", 0.4, 0.2, True),
        ("stall_barrier<0.5x", 0.4, 0.21, False),
        ("stall_barrier>2x", 0.1, 0.2, True),
        ("stall_barrier>2x", 0.0, 0.2, True),
        ("stall_barrier>2x", 0.0, 0.0, False),
        ("stall_barrier~1x", 0.0, 0.0, True),
        ("stall_barrier~1x", 0.2, 0.21, True),
        ("stall_barrier~1x", 0.2, 0.24, False),
        ("stall_barrier>2x", 0.2, float("nan"), None),
        ("stall_barriers>2x", 0.2, 0.2, None),
    ],
)
def test_a_counter_did_or_did_not_move(word, before, after, kept):
    assert promised(before, after, moves=(word,))[0] is kept
    if kept is not None:
        assert promised(before, after, moves_not=(word,))[0] is not kept


def test_the_figures_stand_beside_it():
    assert promised(0.4, 0.1, moves=("stall_barrier<0.5x",))[1] == "40 % -> 10 %, 0.250x"


@pytest.mark.parametrize(
    ("move", "before", "after", "holds"),
    [
        ("time~2x", 10.0, 18.0, True),
        ("time~2x", 10.0, 21.9, True),
        ("time~2x", 10.0, 17.9, False),
        ("time~2x", 10.0, 22.1, False),
        ("time<0.5x", 10.0, 5.0, True),
        ("time<0.5x", 10.0, 5.1, False),
        ("time>2x", 10.0, 20.0, True),
        ("time>2x", 10.0, 19.9, False),
        ("time>2x", 0.0, 1.0, True),
        ("time<2x", 0.0, 1.0, False),
        ("time~1x", 0.0, 0.0, True),
        ("time>2x", 0.0, 0.0, False),
    ],
)
def test_a_move_holds_up_to_its_border(move, before, after, holds):
    assert parse_expected_changes(move, "x")[0].is_fulfilled_by_values(before, after) is holds


@pytest.mark.parametrize(
    ("before", "after", "because"),
    [
        (8.0, 4.0, "8 -> 4, 0.500x"),
        (4.0, 8.0, "4 -> 8, 2.00x"),
        (0.0, 0.0, "0 -> 0, 1.00x"),
        (0.0, 4.0, "0 -> 4"),
        (4.0, 0.0, "4 -> 0, 0x"),
    ],
)
def test_how_far_it_came_is_said_unless_it_came_from_nothing(before, after, because):
    sides = [
        run("stage1", launches=[row("stage1", instructions=before)]),
        run(
            "stage2",
            launches=[row("stage2", instructions=after)],
            after="stage1",
            moves="instructions<1x",
        ),
    ]
    assert compare_runs(*sides).promises[0].because == because


def test_a_promise_about_one_case_is_not_tried_at_another():
    kept, because = promised(0.4, 0.1, moves=("stall_barrier<0.5x",), said_of="C")
    assert (kept, because) == (None, "applies to case C")


@pytest.mark.parametrize("bad", ["stall_barrier", "stall_barrier<x", "stall_barrier=2x", "nope>2x"])
def test_a_prediction_that_cannot_be_read_says_how_to_write_it(bad):
    with pytest.raises(ProfkitError) as raised:
        parse_expected_changes(f"instructions~1x {bad}", "v1_x.cu")
    assert "v1_x.cu" in raised.value.message
    assert raised.value.hint


def test_what_the_file_says_today_counts_while_its_code_is_the_same():
    made = record("stage2", problem="p", after="stage1", fixes=("barrier-wait",))
    today = header("Mended", after="stage1", fixes_not=("barrier-wait",))
    file = SourceFile(today, made.source_hash)
    said, stale = refresh_header_from_source(made, {"p/stage2": file})
    assert (said.header, stale) == (today, False)
    assert (said.header.fixes, said.header.fixes_not) == ((), ("barrier-wait",))
    said, stale = refresh_header_from_source(made, {"p/stage2": replace(file, sha256="other")})
    assert (said, stale) == (made, True)
    assert refresh_header_from_source(made, {}) == (made, False)
    library = record("sdpa", problem="p", source=None)
    assert refresh_header_from_source(library, {"p/sdpa": file}) == (library, False)


def test_a_file_is_held_to_todays_header_and_is_never_stale():
    path = ROOT / "artifacts" / "stage2.B.json"
    made = read_record(path)
    today = header("Mended", after="stage1", fixes_not=("short-scoreboard",))
    file = SourceFile(today, made.source_hash)
    for known, said in ((file, today), (replace(file, sha256="other"), made.header)):
        headers = {f"{made.problem}/{made.variant}": known}
        (found,) = load_runs_of_side(path, Evidence(ROOT / "artifacts", headers=headers))
        assert found.record is not None
        assert (found.record.header, found.stale) == (said, False)


def test_a_stale_run_is_refused_until_waived():
    after = replace(run("stage2"), stale=True)
    found = compare_runs(run(), after)
    assert not found.compared
    assert [r.code for r in found.refusals] == ["stale"]
    assert "profkit profile --variant stage2 --case B" in found.refusals[0].sentence
    assert compare_runs(run(), after, Policy(anyway=True)).compared


@pytest.mark.parametrize(
    ("rule", "was", "now", "kind", "kept", "because"),
    [
        (1, True, False, "fixes", True, "clear now"),
        (1, True, False, "fixes_not", False, "clear now"),
        (1, True, True, "fixes", False, "it still fires"),
        (1, True, True, "fixes_not", True, "it fires as before"),
        (1, False, True, "fixes", False, "it did not fire before, so there was nothing to fix"),
        (
            1,
            False,
            False,
            "fixes_not",
            False,
            "it did not fire before, so there was nothing to fix",
        ),
        (1, True, None, "fixes", None, "the rule's counters were not collected"),
        (1, None, False, "fixes_not", None, "the rule's counters were not collected"),
        (0, True, False, "fixes", None, "unknown rule"),
    ],
)
def test_why_a_promise_of_a_rule_was_kept_or_not(rule, was, now, kind, kept, because):
    known = BY_ID["barrier-wait"]
    blind = dict.fromkeys(CATALOGUE, float("nan"))
    metrics = {True: known.fires[0], False: known.clear[0], None: blind}
    said = {kind: known.id if rule else "no-such-rule"}
    one = run(launches=[row(**metrics[was])])
    other = run("stage2", launches=[row("stage2", **metrics[now])], after="stage1", **said)
    (promise,) = compare_runs(one, other).promises
    assert (promise.kept, promise.because) == (kept, because)
    assert promise.said == kind.replace("_", "-")


def test_promises_come_in_the_order_of_a_header_and_none_without_counters():
    said = {"fixes": "barrier-wait", "moves": "instructions<1x", "moves_not": "l2_hit>2x"}
    other = run("stage2", launches=[], after="stage1", fixes_not="tensor-idle", **said)
    found = compare_runs(run(), other).promises
    assert [(p.said, p.kept, p.because) for p in found] == [
        (kind, None, "no report on both sides")
        for kind in ("fixes", "fixes-not", "moves", "moves-not")
    ]
    assert str(parse_expected_changes("time~1.50x", "x")[0]) == "time~1.5x"
