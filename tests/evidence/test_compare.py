"""Two runs made by hand, whose difference is known."""

from __future__ import annotations

import json
import lzma
from collections import Counter

import pytest
from msgspec import structs

from profkit.diagnosis.rule import Diagnosis, LaunchFinding, Measure
from profkit.diagnosis.rules import ALL, BY_ID
from profkit.diagnosis.verdict import judge_launch
from profkit.evidence.compare import (
    Compared,
    Policy,
    RunComparison,
    classify_timing_processes,
    compare_runs,
    is_resource_worse,
    list_exit_reasons,
    match_launches,
)
from profkit.evidence.counters import (
    FindingChange,
    SecondsChange,
    compare_findings,
    compare_launches,
    list_moved_metrics,
    make_moved_metric,
)
from profkit.evidence.runs import Run, match_runs
from profkit.judge import Estimate, Status
from profkit.model.launch import Launch, NotCollected
from profkit.records.parts import RecordedGpu, Resources
from profkit.show.text.terminal import make_console, render_text
from profkit.show.views.comparison import show_comparison
from tests.conftest import ROOT
from tests.copies import replace
from tests.evidence.made import frame, record, row, run, samples


def test_time_is_judged_from_the_timings():
    faster = compare_runs(run(), run("stage2", warm=samples(5e-5, seed=1)))
    assert faster.compared
    assert faster.time.answer == "faster"
    assert faster.time.speedup.median == pytest.approx(2, rel=0.01)
    assert faster.time_note == "warm L2, interleaved"
    assert faster.between_processes is None


def takes(registers: int, shared: int) -> Resources:
    return Resources(registers=registers, shared_static=0, shared_dynamic=shared, spills=0, stack=0)


def test_a_duration_under_ncu_is_no_timing():
    found = compare_runs(run(warm=()), run("stage2"))
    assert found.time is None
    assert "stage1.B was never timed" in found.time_note
    assert found.launches[0].profiled_time == SecondsChange(before=1e-4, after=1e-4)


@pytest.mark.parametrize(
    ("one", "other", "taken"),
    [
        ({}, {}, "interleaved"),
        ({}, {"warm": samples(n=50)}, "one process"),
        ({}, {"session": "another"}, "apart"),
        ({"session": None}, {"session": None}, "apart"),
    ],
)
def test_how_the_samples_were_taken(one, other, taken):
    assert classify_timing_processes(record(**one), record("stage2", **other)) == taken


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"correct": False, "max_abs": 2.5}, "wrong"),
        ({"sanitizers": {"racecheck": "2 errors", "memcheck": "clean"}}, "sanitizer"),
        ({"sass": "sass of stage1"}, "same-binary"),
        ({"gpu": "NVIDIA L4"}, "device"),
        ({"clock_control": "base"}, "clocks"),
    ],
)
@pytest.mark.parametrize("anyway", [False, True])
def test_what_would_mislead_is_refused(facts, code, anyway):
    found = compare_runs(run(), run("stage2", **facts), Policy(anyway=anyway))
    assert [r.code for r in found.refusals] == [code]
    # A wrong kernel or one binary under two names is never compared.
    assert found.compared == (anyway and code in ("device", "clocks"))
    if not found.compared:
        assert found.time is None
        assert found.launches == ()


@pytest.mark.parametrize(
    ("changed", "code"),
    [({"ncu_version": "2024.1.0"}, "ncu"), ({"sm_clock": 0.8e9}, "clocks"), ({"case": "C"}, None)],
)
def test_reports_under_other_conditions_are_refused(changed, code):
    after = run("stage2", launches=[row("stage2", **changed)])
    codes = [r.code for r in compare_runs(run(), after).refusals]
    assert codes == ([code] if code else [])


def test_two_cases_are_refused():
    assert [r.code for r in compare_runs(run(), run("stage2", "C")).refusals] == ["case"]


def test_the_same_variant_measured_twice_may_be_compared():
    assert compare_runs(run(), run()).compared


def test_free_clocks_are_noted_not_refused():
    after = run("stage2", launches=[row("stage2", sm_clock=1.6e9)])
    found = compare_runs(run(), after)
    assert found.compared
    assert any("1,900 and 1,600 MHz" in note for note in found.notes)


def test_metrics_move_in_their_unit():
    found = {
        m.metric: m
        for m in list_moved_metrics(
            row(l2_hit=0.80, instructions=100.0, dram_busy=0.100, shared_wavefronts=0.0),
            row(l2_hit=0.92, instructions=50.0, dram_busy=0.105, shared_wavefronts=8.0),
        )
    }
    assert set(found) == {"l2_hit", "instructions", "shared_wavefronts"}
    assert found["l2_hit"].points == pytest.approx(12)
    assert found["instructions"].points is None
    assert found["instructions"].factor == 0.5
    assert found["shared_wavefronts"].distance_moved > found["instructions"].distance_moved


@pytest.mark.parametrize(
    ("unit", "before", "after", "weight"),
    [
        ("share", 0.5, 0.75, 1.0),  # 25 points are a doubling
        ("share", 0.75, 0.5, 1.0),
        ("share", 0.0, 1.0, 4.0),
        ("byte", 1.0, 2.0, 1.0),
        ("byte", 8.0, 1.0, 3.0),
        ("byte", 1.0, 16.0, 4.0),
        ("byte", 1.0, 1024.0, 4.0),  # far is far
        ("byte", 0.0, 1.0, 4.0),
        ("byte", 1.0, 0.0, 4.0),
    ],
)
def test_a_doubling_weighs_as_much_as_25_points(unit, before, after, weight):
    assert make_moved_metric("m", unit, before, after).distance_moved == weight


@pytest.mark.parametrize(
    ("metric", "before", "after", "shown"),
    [
        ("l2_hit", 0.5, 0.509, False),
        ("l2_hit", 0.5, 0.515, True),
        ("l2_hit", 0.5, 0.48, True),
        ("instructions", 1000.0, 1015.0, False),
        ("instructions", 1000.0, 1030.0, True),
        ("instructions", 1030.0, 1000.0, True),
        ("instructions", 0.0, 0.0, False),
    ],
)
def test_a_point_of_a_share_and_two_per_cent_of_a_count_are_a_change(metric, before, after, shown):
    assert bool(list_moved_metrics(row(**{metric: before}), row(**{metric: after}))) is shown


@pytest.mark.parametrize(
    ("clock", "said"),
    [(1.9e9, False), (1.86e9, False), (1.94e9, False), (1.83e9, True), (1.97e9, True)],
)
def test_clocks_three_per_cent_apart_are_worth_a_word(clock, said):
    after = run("stage2", launches=[row("stage2", sm_clock=clock)])
    notes = compare_runs(run(launches=[row(sm_clock=1.9e9)]), after).notes
    assert any("the SM ran at" in note for note in notes) is said


@pytest.mark.parametrize(
    ("name", "before", "after", "worse"),
    [
        ("registers", 64.0, 96.0, True),
        ("registers", 96.0, 64.0, False),
        ("blocks_per_sm", 4.0, 3.0, True),
        ("blocks_per_sm", 3.0, 4.0, False),
        ("occupancy_limit", 0.5, 0.25, True),
        ("spills", None, 4.0, False),
        ("spills", 4.0, None, False),
        ("spills", None, None, False),
    ],
)
def test_more_is_worse_but_of_blocks_and_of_nothing_nothing_is_known(name, before, after, worse):
    assert is_resource_worse(name, before, after) is worse


def test_what_one_side_does_not_have_has_not_moved():
    before, after = row(l2_hit=0.8), row(tensor_busy=0.5)
    found = compare_launches(before, after, (judge_launch(before), judge_launch(after)))
    assert found.only_before == ("l2_hit",)
    assert found.only_after == ("tensor_busy",)
    assert found.moved == ()


def rule_run(variant: str, fires: bool, **facts) -> Run:
    rule = BY_ID["long-scoreboard"]
    metrics = (rule.fires if fires else rule.clear)[0]
    return run(variant, launches=[row(variant, **metrics)], **facts)


def test_a_finding_that_is_gone_and_one_that_is_new():
    gone = compare_runs(rule_run("stage1", True), rule_run("stage2", False))
    assert ("long-scoreboard", "gone") in [(f.rule, f.what) for f in gone.launches[0].findings]
    new = compare_runs(rule_run("stage1", False), rule_run("stage2", True))
    assert ("long-scoreboard", "new") in [(f.rule, f.what) for f in new.launches[0].findings]


CONFLICTS = {
    "shared_busy": 0.9,
    "lsu_data_busy": 0.9,
    "l1_busy": 0.9,
    "excess_shared_wavefronts": 0.75,
    "stall_short_scoreboard": 0.66,
}
WAITS = {
    "shared_busy": 0.2,
    "lsu_data_busy": 0.2,
    "l1_busy": 0.2,
    "excess_shared_wavefronts": 0.0,
    "stall_short_scoreboard": 0.35,
}


def compare_rows(before: dict[str, float], after: dict[str, float]) -> dict[str, FindingChange]:
    """Return what became of each rule of a launch of which only these metrics changed."""
    same = {"stall_selected": 0.1, "issue_busy": 0.2, "dram_busy": 0.1, "l2_cache_busy": 0.1}
    rows = row(**same, **before), row(**same, **after)
    found = compare_launches(*rows, (judge_launch(rows[0]), judge_launch(rows[1])))
    return {change.rule: change for change in found.findings}


def test_what_another_cause_explains_is_not_gone_and_was_not_new():
    change = compare_rows(WAITS, CONFLICTS)["short-scoreboard"]
    assert (change.what, change.explained_by) == ("hidden", "shared-bank-conflicts")
    assert change.why == ("35 % -> 66 % of the warps' time; now caused by shared-bank-conflicts")
    change = compare_rows(CONFLICTS, WAITS)["short-scoreboard"]
    assert (change.what, change.explained_by) == ("uncovered", "shared-bank-conflicts")
    quiet = WAITS | {"stall_short_scoreboard": 0.05, "stall_wait": 0.6}
    assert compare_rows(WAITS, quiet)["short-scoreboard"].what == "gone"
    assert compare_rows(quiet, WAITS)["short-scoreboard"].what == "new"
    assert compare_rows(WAITS, WAITS)["short-scoreboard"].what == "stays"


# How much there is of a rule's cause, by one metric; of each there is more, the worse it is.
AMOUNTS = {
    **{rule.id: rule.looks[0] for rule in ALL if rule.looks and rule.looks[0].startswith("stall_")},
    "shared-bank-conflicts": "excess_shared_wavefronts",
    "uncoalesced-access": "excess_sectors",
    "dram-bandwidth": "dram_busy",
    "issue-slots": "issue_busy",
    "fp64-pipe": "fp64_busy",
    "xu-pipe": "xu_busy",
    "register-spills": "spill_instructions",
}


def test_nothing_is_gone_while_there_is_more_of_it_nor_new_while_there_is_less():
    """Two kernels after each other, of all that others wrote: what is said is what was counted."""
    with lzma.open(ROOT / "artifacts" / "pairs.json.xz", "rt") as file:
        launches = [pair["before"] for pair in json.load(file)]
    verdicts = [judge_launch(launch) for launch in launches]
    counted = Counter()
    for place in range(1, len(launches)):
        sides = slice(place - 1, place + 1)
        before, after = launches[sides]
        for change in compare_findings(*verdicts[sides], (before, after)):
            metric = AMOUNTS.get(change.rule)
            if metric is None or metric not in before or metric not in after:
                continue
            counted[change.what] += 1
            grew = after[metric] - before[metric]
            tree = change.amount.what.endswith("tree")  # of which no metric of its own is counted
            assert change.what != "gone" or grew < 0 or tree, (change.rule, before, after)
            assert change.what != "new" or grew > 0 or tree, (change.rule, before, after)
    assert min(counted[what] for what in ("gone", "new", "hidden", "uncovered", "changed")) > 10


def test_every_cause_that_has_an_amount_has_a_measure():
    """Of those without one, only that they fire is known."""
    without = {rule.id for rule in ALL if not rule.measures and not rule.note}
    assert without == {"tensor-xu-serial", "nothing-stands-out", "operations-mismatch"}
    for rule in ALL:
        plainest = Launch(rule.fires[0])
        amounts = [(m, m.of(plainest)) for m in rule.measures if is_measured(m, plainest)]
        assert not amounts or any(m.is_enough_for_cause(amount) for m, amount in amounts), rule.id


def is_measured(measure: Measure, launch: Launch) -> bool:
    try:
        measure.of(launch)
    except NotCollected:
        return False
    return True


@pytest.mark.parametrize(
    ("was", "now", "said", "kept"),
    [
        (True, False, "fixes", True),
        (True, True, "fixes", False),
        (False, False, "fixes", False),
        (True, True, "fixes_not", True),
        (True, False, "fixes_not", False),
    ],
)
def test_what_the_header_promised(was, now, said, kept):
    after = rule_run("stage2", now, after="stage1", **{said: ("long-scoreboard",)})
    promise = compare_runs(rule_run("stage1", was), after).promises[0]
    assert (promise.rule, promise.kept) == ("long-scoreboard", kept)


def test_a_promise_about_another_baseline_is_not_judged():
    after = rule_run("stage2", False, after="stage0", fixes=("long-scoreboard",))
    assert compare_runs(rule_run("stage1", True), after).promises == ()


def test_a_promise_without_counters_or_of_no_rule_is_not_decided():
    after = rule_run("stage2", False, after="stage1", fixes=("long-scoreboards",))
    assert compare_runs(rule_run("stage1", True), after).promises[0].kept is None
    blind = run("stage2", launches=[], after="stage1", fixes=("long-scoreboard",))
    assert compare_runs(rule_run("stage1", True), blind).promises[0].kept is None


def test_resources_and_the_occupancy_step():
    after = run(
        "stage2",
        launches=[row("stage2", blocks_per_sm=3.0, occupancy_limit=0.375)],
        resources=Resources(
            registers=64, shared_static=0, shared_dynamic=40960, spills=16, stack=32
        ),
    )
    found = {r.name: r for r in compare_runs(run(), after).resources}
    assert set(found) == {"shared_dynamic", "spills", "stack", "blocks_per_sm", "occupancy_limit"}
    assert all(r.worse for r in found.values())


def test_unchecked_and_unrecorded_runs_are_said():
    bare = replace(run("stage2"), record=None)
    notes = " ".join(compare_runs(run(correct=None), bare).notes)
    assert "stage1.B was not checked" in notes
    assert "stage2.B has no run record" in notes


@pytest.mark.parametrize(
    ("seen", "note"),
    [
        (("0", "1"), "profiled on two GPUs of one host: 0 and 1"),
        ((None, "1"), "profiled on two GPUs of one host: the first and 1"),
        (("1", None), "profiled on two GPUs of one host: 1 and the first"),
        (("1", "1"), None),
        ((None, None), None),
    ],
)
def test_counters_of_two_gpus_of_a_host_are_said(seen, note):
    sides = [
        replace(made, record=replace(made.record, ncu=replace(made.record.ncu, visible=gpu)))
        for made, gpu in zip((run(), run("stage2")), seen, strict=True)
    ]
    said = [n for n in compare_runs(*sides).notes if "profiled on two GPUs" in n]
    assert said == ([note] if note else [])


@pytest.mark.parametrize(
    ("uuids", "said"),
    [
        (("a", "b"), True),
        (("a", "a"), False),
        ((None, "b"), False),
        (("a", None), False),
    ],
)
def test_times_of_two_gpus_of_one_name_are_said(uuids, said):
    sides = [
        replace(made, record=replace(made.record, gpu=replace(made.record.gpu, uuid=uuid)))
        for made, uuid in zip((run(), run("stage2")), uuids, strict=True)
    ]
    notes = compare_runs(*sides).notes
    assert ("timed on two GPUs of the same model: a and b" in notes) is said


def test_findings_come_by_what_became_of_them_and_the_dearest_first():
    def diagnosis(**gains: float | None) -> Diagnosis:
        fires = [make_finding(rule, "fires", gain) for rule, gain in gains.items()]
        clear = [make_finding(rule, "clear", None) for rule in "abcd" if rule not in gains]
        return Diagnosis("latency", None, "", (*fires, *clear), ())

    found = compare_findings(diagnosis(a=None, b=1.5, d=2.0), diagnosis(c=1.1, d=2.0))
    assert [(f.rule, f.what) for f in found] == [
        ("b", "gone"),
        ("a", "gone"),
        ("c", "new"),
        ("d", "stays"),
    ]
    dearer = compare_findings(diagnosis(a=2.0, b=None), diagnosis(a=2.0 * 1.5, b=1.5))
    assert [f.what for f in dearer] == ["changed", "changed"]


def test_one_run_a_side_is_a_pair_whatever_it_is_called_and_several_go_by_their_names():
    one, other = run("stage1", "B"), run("stage2", "C")
    assert match_runs([one], [other]) == ([(one, other)], ())
    cases = [run("stage1", "A"), run("stage1", "B")]
    later = [run("stage2", "B"), run("stage2", "C")]
    pairs, left = match_runs(cases, later)
    assert [(b.name, a.name) for b, a in pairs] == [("stage1.B", "stage2.B")]
    assert left == ("stage1.A", "stage2.C")
    pairs, left = match_runs(cases, [other])
    assert (pairs, left) == ([], ("stage1.A", "stage1.B", "stage2.C"))
    both = [run("stage1", "B"), run("stage2", "B")]
    pairs, left = match_runs(both, [run("stage2", "B"), run("stage3", "B")])
    assert [(b.name, a.name) for b, a in pairs] == [("stage2.B", "stage2.B")]
    assert left == ("stage1.B", "stage3.B")
    assert match_runs([], [one]) == ([], ("stage1.B",))


def test_launches_match_by_name_and_order():
    def bare(*kernels):
        rows = [row(None, None, kernel=k, launch=i) for i, k in enumerate(kernels)]
        return Run("x", None, None, frame(*rows))

    pairs, left = match_launches(bare("a", "b", "a"), bare("b", "a", "c"))
    assert [(b["launch"], a["launch"]) for b, a in pairs] == [(0, 1), (1, 0)]
    assert left == (("a",), ("c",))
    # Of several foreign kernels none is taken for another; one on each side is what was asked for.
    assert match_launches(bare("a"), bare("y", "z")) == (
        [],
        (("a",), ("y", "z")),
    )
    pairs, left = match_launches(bare("a"), bare("y"))
    assert [(b["kernel"], a["kernel"]) for b, a in pairs] == [("a", "y")]
    assert left == ((), ())
    # A kernel that got another name is launched as often as before; the n-th is the n-th.
    pairs, left = match_launches(bare("a", "a"), bare("y", "y"))
    assert [(b["launch"], a["launch"]) for b, a in pairs] == [(0, 0), (1, 1)]
    assert left == ((), ())
    assert (
        "no kernel has the same name on both sides" in compare_runs(bare("a"), bare("y")).notes[-1]
    )
    notes = compare_runs(bare("a"), bare("y", "z")).notes
    assert any("1 and 2 launches, together 100 µs and 200 µs" in note for note in notes)


def test_launches_of_variants_match_in_order_whatever_their_names():
    one = run(launches=[row(kernel="qk"), row(kernel="pv")])
    other = run("stage2", launches=[row("stage2", kernel="first"), row("stage2", kernel="second")])
    pairs, left = match_launches(one, other)
    assert [(b["kernel"], a["kernel"]) for b, a in pairs] == [("qk", "first"), ("pv", "second")]
    assert left == ((), ())


def test_a_failed_launch_is_not_compared():
    failed = run("stage2", launches=[row("stage2", status="failed")])
    found = compare_runs(run(), failed)
    assert found.launches == ()
    assert any("no launch that ncu finished" in note for note in found.notes)


def test_json_has_no_nan():
    found = compare_runs(run(), run("stage2", launches=[row("stage2", time=float("nan"))]))
    text = json.dumps(found.to_json(), allow_nan=False)
    assert json.loads(text)["launches"][0]["profiled_time_s"]["after"] is None


def test_samples_with_nan_are_said_not_hidden():
    found = compare_runs(run(), run("stage2", warm=(1e-4, float("nan")) * 10))
    assert found.time is None
    assert "10 of 20 samples" in found.time_note


def test_one_measurement_on_both_sides_is_the_same():
    change = compare_runs(run(warm=(1e-5,) * 60), run(warm=(1e-5,) * 60))
    assert (change.time.answer, change.time.reason) == ("same", "identical")
    assert "timer" not in change.time.sentence


def on_gpu(made: Run, uuid: str) -> Run:
    return replace(
        made, record=replace(made.record, gpu=RecordedGpu(name="NVIDIA H200", uuid=uuid))
    )


def test_what_processes_differ_by_is_measured_or_said_to_be_assumed() -> None:
    """1.5 % apart, in two processes: inside the assumed 1 %, outside of the 0.1 % of this machine."""
    one, two, elsewhere = (
        on_gpu(run(name, warm=samples(median, n=120, seed=seed), session=str(seed)), gpu)
        for name, median, seed, gpu in (
            ("stage1", 1e-4, 1, "GPU-1"),
            ("stage2", 0.985e-4, 2, "GPU-1"),
            ("stage2", 1e-4, 3, "GPU-2"),
        )
    )
    assumed = compare_runs(one, two)
    assert (assumed.time.answer, assumed.time.reason) == ("cannot tell", "processes")
    assert assumed.time_note == "warm L2, apart: processes differ by 1 %, assumed"
    known = compare_runs(one, two, Policy(spread_of={"GPU-1": 0.001}.get))
    assert known.time.answer == "faster"
    assert known.time_note == "warm L2, apart: processes differ by 0.1 %, measured"
    assert known.to_json()["between_processes"] == {
        "sigma": 0.001,
        "measured": True,
    }
    both = {"GPU-1": 0.001, "GPU-2": 0.001}
    assert not compare_runs(
        one, elsewhere, Policy(spread_of=both.get)
    ).between_processes.measured, "of two GPUs"


def slow(**facts) -> RunComparison:
    return compare_runs(run(), run("stage2", warm=samples(2e-4, seed=1), **facts))


EVERY = ("slower", "finding", "resource")


def test_what_closes_a_gate_on_comparisons_and_with_which_status():
    """1 where AFTER is bad as asked, or wrong; 2 where nothing could be said; each with its reason."""
    held = slow()
    assert list_exit_reasons([held], EVERY) == [(1, f"stage2.B: {held.time.sentence}")]
    assert list_exit_reasons([held], ("finding", "resource")) == [], "nobody asked"
    more = slow(resources=takes(96, 40960))
    assert list_exit_reasons([more], ("resource",)) == [
        (1, "stage2.B: more registers, shared_dynamic")
    ]
    assert [status for status, _ in list_exit_reasons([more, held], EVERY)] == [1, 1, 1]
    less = compare_runs(
        run(),
        run(
            "stage2",
            resources=Resources(
                registers=32, shared_static=0, shared_dynamic=32768, spills=0, stack=0
            ),
        ),
    )
    assert list_exit_reasons([less], EVERY) == []
    found = compare_runs(rule_run("stage1", False), rule_run("stage2", True))
    ((status, said),) = list_exit_reasons([found], ("finding",))
    assert (status, said.startswith("stage2.B: new finding ")) == (1, True)
    assert "long-scoreboard" in said
    gone = compare_runs(rule_run("stage1", True), rule_run("stage2", False))
    assert "long-scoreboard" not in str(list_exit_reasons([gone], ("finding",)))


def test_what_could_not_be_compared_closes_a_gate_unasked():
    wrong = compare_runs(run(), run("stage2", correct=False, max_abs=2.5))
    assert list_exit_reasons([wrong], ()) == [
        (1, "stage2.B: stage2.B gives wrong results (largest error 2.5)")
    ]
    raced = compare_runs(run(), run("stage2", sanitizers={"racecheck": "2 errors"}))
    assert list_exit_reasons([raced], ()) == [(1, "stage2.B: stage2.B: racecheck found errors")]
    before = compare_runs(run(correct=False), run("stage2"))
    assert list_exit_reasons([before], EVERY) == [(2, "stage2.B: stage1.B gives wrong results")]
    other = compare_runs(run(), run("stage2", gpu="NVIDIA L4", clock_control="base"))
    assert list_exit_reasons([other], EVERY) == [
        (
            2,
            "stage2.B: GPUs differ: NVIDIA H200 and NVIDIA L4; "
            "clock controls differ: none and base",
        ),
    ]
    few = compare_runs(run(), run("stage2", warm=samples(n=3)))
    assert list_exit_reasons([few], ()) == [(2, f"stage2.B: {few.time.sentence}")]
    none = compare_runs(run(), run("stage2", warm=(float("nan"),) * 9))
    assert list_exit_reasons([none], ()) == [(2, f"stage2.B: {none.time_note}")]


def test_what_nobody_timed_is_harmless_beside_what_was():
    same, other = (compare_runs(run(warm=()), run(name, warm=())) for name in ("stage1", "stage2"))
    lost = compare_runs(run(), run("stage3", warm=()))
    assert (same.untimed, other.untimed, lost.untimed) == ("unchanged", "both sides", "one side")
    timed = compare_runs(run(), run("stage4", warm=samples(seed=1)))

    def statuses(*changes: RunComparison, asked=("slower",)) -> list[int]:
        return [status for status, _ in list_exit_reasons(changes, asked)]

    assert statuses(same) == [0]
    assert statuses(other) == [2], "a gate on it was not tried"
    assert statuses(other, timed) == [0]
    assert statuses(other, same) == [0, 0]
    assert statuses(lost, timed) == [2]
    assert statuses(same, other, lost, asked=("finding", "resource")) == []
    assert list_exit_reasons([lost], ("slower",)) == [(2, f"stage3.B: {lost.time_note}")]


@pytest.mark.parametrize(
    ("was", "now", "what"),
    [
        (("fires", 2.0), ("fires", 2.0 * 1.1), "stays"),  # by less than a tenth
        (("fires", 2.0), ("fires", 2.0 / 1.1), "stays"),
        (("fires", 2.0), ("fires", 2.0 * 1.11), "changed"),
        (("fires", 2.0), ("fires", 2.0 / 1.11), "changed"),
        (("fires", 2.0), ("fires", None), "changed"),
        (("fires", None), ("fires", 2.0), "changed"),
        (("fires", None), ("fires", None), "stays"),
        (("fires", 2.0), ("clear", None), "gone"),
        (("clear", None), ("fires", 2.0), "new"),
        (("unknown", None), ("fires", 2.0), "unknown"),
        (("fires", 2.0), ("unknown", None), "unknown"),
        (("clear", None), ("unknown", None), None),
        (("unknown", None), ("clear", None), None),
    ],
)
def test_what_became_of_a_finding(was, now, what):
    sides = [
        Diagnosis("latency", None, "", (make_finding("a", status, gain),), ())
        for status, gain in (was, now)
    ]
    assert [f.what for f in compare_findings(*sides)] == ([what] if what else [])
    none = Diagnosis("latency", None, "", (), ())
    assert compare_findings(sides[0], none) == compare_findings(none, sides[1]) == ()


@pytest.mark.parametrize(
    ("metric", "before", "after", "shown"),
    [
        ("dram_busy", 0.0, 0.01, True),
        ("dram_busy", 0.0, 0.0099, False),  # a point is a change
        ("instructions", 100.0, 98.0, False),
        ("instructions", 98.0, 100.0, False),
        ("instructions", 100.0, 97.9, True),
        ("instructions", 0.0, 1e-9, True),
        ("peak_flops_fp32", 1.0, 2.0, False),
        ("l2_size", 1.0, 2.0, False),
        ("replay_passes", 1.0, 9.0, False),
        ("limit_blocks_registers", 1.0, 9.0, False),
    ],
)
def test_a_change_at_its_border_and_facts_that_are_not_the_kernel_s(metric, before, after, shown):
    assert bool(list_moved_metrics(row(**{metric: before}), row(**{metric: after}))) is shown


def test_what_moved_farthest_comes_first():
    before = row(l2_hit=0.5, instructions=100.0, dram_busy=0.2, shared_wavefronts=0.0)
    after = row(l2_hit=0.6, instructions=10.0, dram_busy=0.6, shared_wavefronts=1.0)
    assert [m.metric for m in list_moved_metrics(before, after)] == [
        "shared_wavefronts",
        "instructions",
        "dram_busy",
        "l2_hit",
    ]
    assert make_moved_metric("m", "byte", 0.0, 4.0).factor == float("inf")


@pytest.mark.parametrize(
    ("clock", "refused"), [(1.0e9, False), (1.35e9, False), (1.36e9, True), (0.74e9, True)]
)
def test_clocks_of_which_one_was_locked_are_refused(clock, refused):
    after = run("stage2", launches=[row("stage2", sm_clock=clock)])
    found = compare_runs(run(launches=[row(sm_clock=1e9)]), after)
    assert [r.sentence for r in found.refusals] == (
        [f"SM clocks differ: 1000 MHz and {clock / 1e6:.0f} MHz"] if refused else []
    )
    bare = compare_runs(run(launches=[], sm_clock=1e9), run("stage2", launches=[], sm_clock=clock))
    assert [r.code for r in bare.refusals] == ["clocks"] * refused, "else the record's clock"


def test_each_refusal_says_why():
    twin = run("stage2", sass="sass of stage1", host="the launcher", source="source of stage1")
    assert [r.sentence for r in compare_runs(run(), twin).refusals] == [
        "stage1 and stage2 are the same binary (SASS sass of stag): "
        "not a comparison: the change never reached the GPU"
    ]
    again = run(source="edited", sass="sass of stage1")
    assert compare_runs(run(), again).refusals[0].code == "same-binary", "edited to no effect"
    cases = compare_runs(run(), run("stage2", "C"))
    assert [r.sentence for r in cases.refusals] == ["cases differ: B and C"]
    assert compare_runs(run(), run("stage2", "C"), Policy(anyway=True)).compared
    unknown = run("stage2", gpu=None, launches=[])
    assert compare_runs(run(launches=[]), unknown).refusals == (), "not known is not different"


def test_two_runs_without_counters_say_so_and_one_process_needs_no_spread():
    found = compare_runs(run(launches=[]), run("stage2", warm=samples(seed=1)))
    assert "stage1.B has no report: no counters" in found.notes
    assert found.between_processes is None
    assert found.promises == ()
    once = "both sides are the same measurement: record the change first"
    assert once in compare_runs(run(), run()).notes
    assert once not in found.notes
    shorter = run(warm=samples()[:-1])
    assert once not in compare_runs(run(), shorter).notes
    assert once not in compare_runs(run(), run(session="two")).notes
    assert once not in compare_runs(run(warm=()), run(warm=())).notes


def test_one_launch_of_several_stands_for_a_variant_whose_kernels_have_other_names():
    """The longest of each side; the others are left over, in order."""
    before = run(launches=[row(kernel="a", time=1e-5), row(kernel="b", time=9e-5)])
    after = run("stage2", launches=[row("stage2", kernel="c", time=3e-5)])
    pairs, left = match_launches(before, after)
    assert [(b["kernel"], a["kernel"]) for b, a in pairs] == [("b", "c")]
    assert left == (("a",), ())
    three = run("stage2", launches=[row("stage2", kernel=k) for k in ("b", "b", "z")])
    pairs, left = match_launches(before, three)
    assert [(b["kernel"], a["kernel"]) for b, a in pairs] == [("b", "b")]
    assert left == (("a",), ("b", "z"))
    assert match_launches(before, run("stage2", launches=[])) == (
        [],
        (("a", "b"), ()),
    )


def test_a_resource_is_the_record_s_and_else_the_report_s():
    bare = run(
        "stage2",
        launches=[row("stage2", registers=80.0, shared_static=16.0)],
        resources=Resources(),
    )
    found = {r.name: (r.before, r.after, r.worse) for r in compare_runs(run(), bare).resources}
    assert found == {
        "registers": (64.0, 80.0, True),
        "shared_static": (0.0, 16.0, True),
        "spills": (0.0, None, False),
        "stack": (0.0, None, False),
    }
    blind = run("stage2", launches=[])
    lost = {r.name: (r.after, r.worse) for r in compare_runs(run(), blind).resources}
    assert lost == {"blocks_per_sm": (None, False), "occupancy_limit": (None, False)}


def test_a_strict_policy_asks_for_one_in_a_thousand():
    before, after = run(), run("stage2", warm=samples(1e-4 * 0.998, seed=1))
    time = compare_runs(before, after).time
    strict = Policy(strict=True)
    assert strict.answer_comparison(structs.replace(time, answer="same")) == "same"
    wide = structs.replace(
        time,
        answer="faster",
        speedup=structs.replace(time.speedup, median=1.01, low=1.001, high=1.019),
        effective=1000.0,
    )
    assert (Policy().answer_comparison(wide), strict.answer_comparison(wide)) == (
        "faster",
        "cannot tell",
    )
    sure = structs.replace(wide, speedup=structs.replace(wide.speedup, low=1.005, high=1.015))
    assert strict.answer_comparison(sure) == "faster"
    slower = structs.replace(
        sure,
        answer="slower",
        speedup=structs.replace(sure.speedup, median=0.99, low=0.98, high=0.995),
    )
    assert strict.answer_comparison(slower) == "slower", "its nearer end decides"
    assert strict.answer_comparison(structs.replace(slower, effective=4.0)) == "cannot tell", (
        "rests on four samples"
    )
    assert (
        strict.answer_comparison(structs.replace(slower, effective=float("nan"))) == "cannot tell"
    )


def test_launches_of_reports_match_by_their_marks_and_those_of_variants_do_not():
    def marked(variant, *pairs):
        return [row(variant, None if variant is None else "B", nvtx=n, kernel=k) for n, k in pairs]

    sides = [[("qk", "k"), ("pv", "k")], [("pv", "k"), ("qk", "k"), ("z", "k")]]
    reports = [Run("x", None, None, frame(*marked(None, *side))) for side in sides]
    pairs, left = match_launches(*reports)
    assert [(b["nvtx"], a["nvtx"]) for b, a in pairs] == [("qk", "qk"), ("pv", "pv")]
    assert left == ((), ("k",))
    one = run(launches=marked("stage1", ("stage1", "a"), ("stage1", "b")))
    two = run("stage2", launches=marked("stage2", ("stage2", "b")))
    assert [(b["kernel"], a["kernel"]) for b, a in match_launches(one, two)[0]] == [("b", "b")]


def test_what_is_damaged_in_a_record_is_named():
    paths = ("timing.l2.warm.samples[3]", "gpu.sms", "made", "x" * 200)
    (note,) = (
        n for n in compare_runs(run(), damaged(run("stage2"), paths)).notes if "damaged" in n
    )
    assert note == (
        "stage2.B: parts of its record are damaged and not used: timing.l2.warm.samples[3], gpu.sms, "
        "made and others"
    )


def damaged(one: Run, paths: tuple[str, ...]) -> Run:
    return replace(one, record=replace(one.record, damaged=paths))


def test_notes_are_of_what_is_known_on_both_sides():
    bare = [Run(name, "B", None, frame(), None) for name in ("x", "y")]
    assert compare_runs(*bare).untimed == "both sides", "no report is not one report"
    known, foreign = run(), Run("y", "B", None, frame(row(None, "B", kernel="other")))
    assert not [n for n in compare_runs(known, foreign).notes if "no kernel has the same" in n]
    assert not [n for n in compare_runs(known, run("stage2", launches=[])).notes if "together" in n]
    near = run("stage2", launches=[row("stage2", sm_clock=1.9e9 * 1.0305)])
    assert not [n for n in compare_runs(known, near).notes if "the SM ran" in n], "of the faster"
    sides = on_gpu(run(), ""), on_gpu(run("stage2"), "b")
    assert not [n for n in compare_runs(*sides).notes if "two GPUs" in n]


def make_finding(rule: str, status: Status, gain: float | None) -> LaunchFinding:
    return LaunchFinding(rule=rule, status=status, cause="", saving=Estimate(bound=gain))


def test_a_refusal_that_can_be_waived_says_how():
    def show_text(**facts):
        on = make_console(width=80)
        compared = Compared(changes=(compare_runs(run(), run("stage2", **facts)),))
        return render_text(show_comparison(compared), on)

    assert "to compare anyway: --anyway" in show_text(gpu="NVIDIA L4")
    assert "--anyway" not in show_text(correct=False, max_abs=2.5)


def test_kernels_of_one_side_only_are_named_by_side():
    def bare(*kernels):
        rows = [row(None, None, kernel=k, launch=i) for i, k in enumerate(kernels)]
        return Run("x", None, None, frame(*rows))

    change = compare_runs(bare("a", "a", "both"), bare("y", "both"))
    assert (change.only_before, change.only_after) == (("a", "a"), ("y",))
    assert change.unmatched == ("a", "a", "y")
    text = render_text(show_comparison(Compared(changes=(change,))), make_console(width=80))
    assert "only in BEFORE: a (2x)" in text
    assert "only in AFTER: y" in text
    nothing = compare_runs(bare("a", "b"), bare("y", "z"))
    text = render_text(show_comparison(Compared(changes=(nothing,))), make_console(width=80))
    assert "not compared: no kernel is on both sides" in text
    assert list(dict(list_exit_reasons([nothing], ()))) == [2]
    assert "Resources" not in text
