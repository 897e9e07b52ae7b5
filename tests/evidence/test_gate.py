"""Gates on made-up repositories: identical ones stay open, real changes close them, causes are named."""

from __future__ import annotations

import json
import re
from math import isnan, nan
from pathlib import Path

import numpy as np
import pytest

from profkit.errors import ProfkitError
from profkit.evidence.compare import SpreadBetweenProcesses
from profkit.evidence.conditions import (
    list_machine_differences,
    list_timing_method_differences,
)
from profkit.evidence.gate import GateReport, GateSubject, judge_head_against_base, make_gate_report
from profkit.evidence.runs import Evidence, Run
from profkit.evidence.stats import (
    GATE,
    GATE_ROUNDS,
    compare_samples,
    compute_detectable_change,
    count_samples_needed_per_side,
    is_speedup_significant,
)
from profkit.records.header import VariantHeader
from profkit.records.parts import (
    CheckedCase,
    CheckResult,
    GpuState,
    RecordedGpu,
    RecordedLaunch,
    RecordedSource,
    TimedSide,
    TimedSides,
    Timing,
    Versions,
)
from profkit.records.record import Record, SourceFile, write_record
from tests.copies import replace
from tests.evidence.made import row, samples
from tests.evidence.made import run as counted

LAUNCH = RecordedLaunch(
    kernel="k",
    grid=(132, 1, 1),
    block=(128, 1, 1),
    dynamic_smem=0,
    static_smem=0,
    regs=64,
    blocks_per_sm=4,
)


def timed(median: float, seed: int, session: str, n: int = 120, noise: float = 0.003) -> Timing:
    rng = np.random.default_rng(seed)
    samples = tuple(float(x) for x in median * (1 + rng.exponential(noise, n)))
    side = TimedSide(samples=samples)
    return Timing(l2=TimedSides(warm=side), session=session, after=GpuState(sm_clock=1.9e9))


def made(variant: str, median: float = 1e-5, seed: int = 0, session: str = "s", **facts) -> Record:
    known = {
        "problem": "p",
        "header": VariantHeader(f"The {variant}"),
        "source": RecordedSource(
            file=f"p/{variant}.cu",
            sha256=f"code {variant}",
            sass=f"sass {variant}",
            arch="90",
        ),
        "launches": (LAUNCH,),
        "check": CheckResult(status="right"),
        "timing": timed(median, seed, session),
        "gpu": RecordedGpu(name="NVIDIA H200", uuid="GPU-1", driver="580"),
    } | facts
    return Record(variant=variant, case=known.pop("case", "B"), **known)


def changed(record: Record, median: float, seed: int, session: str = "s", **facts) -> Record:
    """The same subject with other machine code."""
    source = replace(record.source, sha256="other code", sass="other sass")
    return replace(record, source=source, timing=timed(median, seed, session), **facts)


def folder(root: Path, *records: Record) -> Path:
    for record in records:
        write_record(root / record.problem / record.case / f"{record.variant}.json", record)
    return root


def gated(tmp_path: Path, base: list[Record], head: list[Record], **options) -> GateReport:
    sides = (folder(tmp_path / "base", *base), folder(tmp_path / "head", *head))
    return judge_head_against_base(*(Evidence(side) for side in sides), **options)


def repository(number: int) -> list[Record]:
    """One of ten repositories: 2 to 20 variants with all the faults that timings have."""
    rng = np.random.default_rng(number)
    records = []
    for i in range(2 + 2 * number):
        record = made(f"v{i}", 10 ** rng.uniform(-6, -3), 100 * number + i, f"s{number}")
        clock = np.repeat(1 + 0.03 * rng.integers(0, 2, 9), 15)[:120]
        samples = np.array(record.warm_samples) * (clock if number % 2 else 1.0)
        side = TimedSide(samples=tuple(samples[: [3, 10, 30, 120][i % 4]]))
        timing = replace(record.timing, l2=TimedSides(warm=side if i % 5 else None))
        correct = CheckResult(status="not supported" if i % 7 == 6 else "right")
        records.append(replace(record, timing=timing, check=correct))
    return [*records, made("sdpa", seed=number, source=None)]


@pytest.mark.parametrize("number", range(10))
def test_an_identical_pull_request_raises_no_alarm(tmp_path: Path, number: int) -> None:
    records = repository(number)
    report = gated(tmp_path, records, records)
    assert (report.status, report.reasons) == (0, ())
    assert {s.answer for s in report.subjects} == {"same"}
    assert len(report.subjects) == len(records) - 1, "library calls are not judged"
    strict = gated(tmp_path, records, records, strict=True)
    assert strict.status == 0


@pytest.mark.parametrize("number", range(10))
def test_nor_does_one_measured_anew_on_a_slower_machine(tmp_path: Path, number: int) -> None:
    records = repository(number)
    anew = [
        replace(r, timing=timed(1.3 * float(np.median(r.warm_samples or (1.0,))), i, "tomorrow"))
        for i, r in enumerate(records)
    ]
    report = gated(tmp_path, records, anew)
    assert (report.status, report.reasons) == (0, ()), "the machine code is the same"


def coded(record: Record, sha256: str, host: str | None, made_from: str | None = None) -> Record:
    """The record with the same kernels, of another source and perhaps of another launcher."""
    source = replace(record.source, sha256=sha256, host=host, made_from=made_from)
    return replace(record, source=source)


RIGHT = CheckedCase(status="right")
WRONG = {
    "the summary": CheckResult(status="wrong"),
    "it failed": CheckResult(status="failed"),
    "a case": CheckResult(status="right", cases=(RIGHT, replace(RIGHT, status="wrong"))),
    "a case failed": CheckResult(status="not supported", cases=(CheckedCase(status="failed"),)),
    "a fault": CheckResult(status="right", cases=(RIGHT, replace(RIGHT, faults=("off by 1",)))),
    **{
        tool: CheckResult(status="right", sanitizer={tool: "3 errors: at k()", "other": "clean"})
        for tool in ("memcheck", "racecheck", "initcheck", "synccheck")
    },
    "both": CheckResult(status="wrong", sanitizer={"racecheck": "1 errors, 2 warnings: at k()"}),
}
BEFORE = made("v1", 1e-5, 1)
MEASURED = {
    "nothing else is new": BEFORE,
    "newly timed": made("v1", 1e-5, 2, "later"),
    "slower": made("v1", 3e-5, 2, "later"),
    "another host's compiler": coded(made("v1", 3e-5, 2), "code v1", "h of another g++"),
    "other code": changed(BEFORE, 1e-5, 2),
    "other code, faster": changed(BEFORE, 0.5e-5, 2),
    "other code that is slower": changed(BEFORE, 3e-5, 2, "later"),
    "not timed": replace(BEFORE, timing=None),
    "another name": replace(BEFORE, variant="renamed"),
    "a new variant": changed(replace(BEFORE, variant="new"), 1e-5, 3),
    "a library call": replace(BEFORE, source=None),
}


@pytest.mark.slow
@pytest.mark.parametrize("measured", MEASURED)
@pytest.mark.parametrize("how", WRONG)
def test_wrong_is_asked_first(tmp_path: Path, how: str, measured: str) -> None:
    """However a record says that it is wrong, and whatever else is or is not as it was."""
    head, check = replace(MEASURED[measured], check=WRONG[how]), WRONG[how]
    slow = made("a", 1e-5, 5)
    base = [replace(BEFORE, source=head.source and BEFORE.source), slow]
    report = gated(tmp_path, base, [head, changed(slow, 2e-5, 6)])
    assert report.status == 1
    assert report.summary.startswith("1 wrong, 1 slower")
    (subject,) = (s for s in report.subjects if s.answer == "wrong")
    assert subject.name == f"{head.variant}.B"
    assert report.reasons[0] == f"{subject.name}: {subject.because}", "before what is slower"
    for tool in head.sanitizer_errors:
        assert f"{tool}: {check.sanitizer[tool]}" in subject.because
    assert ("wrong results" in subject.because) == (not how.endswith("check"))
    same = head.code_identity.is_surely_same(base[0].code_identity)
    assert ("the same code was measured wrong" in subject.because) == same
    assert (subject.cause == "code") == (not same and head.source is not None)


@pytest.mark.parametrize("how", WRONG)
def test_what_was_wrong_before_is_wrong(tmp_path: Path, how: str) -> None:
    record = replace(BEFORE, check=WRONG[how])
    (subject,) = gated(tmp_path, [record], [record]).subjects
    assert subject.answer == "wrong"
    assert f"in BASE it was wrong too ({', '.join(record.faults)})" in subject.because


def test_what_was_not_checked_is_not_called_right(tmp_path: Path) -> None:
    head = replace(BEFORE, check=WRONG["the summary"])
    (subject,) = gated(tmp_path / "a", [replace(BEFORE, check=None)], [head]).subjects
    assert subject.because.endswith("in BASE it was not checked")
    (subject,) = gated(tmp_path / "b", [BEFORE], [head]).subjects
    assert subject.because.endswith("in BASE it was measured right")


@pytest.mark.parametrize("session", ["s", "later"])
@pytest.mark.parametrize("scale", [5e-324, 1e-320, 1e-200, 1e-17, 1e200, 1e307, nan])
@pytest.mark.parametrize("side", ["BASE", "HEAD", "both", "a reference"])
def test_samples_that_are_no_times_have_none(
    tmp_path: Path, side: str, scale: float, session: str
) -> None:
    """Above zero and no times: whatever is computed of them would overflow somewhere."""

    rng = np.random.default_rng(1)

    def scaled(record: Record, ours: bool) -> Record:
        kept = (
            tuple(scale * float(x) for x in rng.integers(1, 9, 12)) if ours else record.warm_samples
        )
        l2 = TimedSides(warm=TimedSide(samples=kept))
        return replace(record, timing=replace(record.timing, l2=l2))

    before, after = made("v1", 1e-5, 1), changed(made("v1", 1e-5, 1), 2e-5, 2, session)
    base, head = scaled(before, side in ("BASE", "both")), scaled(after, side in ("HEAD", "both"))
    library = made("sdpa", 1e-5, 3, "one", source=None), made("sdpa", 1e-5, 4, "two", source=None)
    other = [scaled(library[0], side == "a reference"), library[1]]
    report = gated(tmp_path, [base, other[0]], [head, other[1]])
    assert report.status == (1 if side == "a reference" else 2)
    said = "not times between" if side != "a reference" else "sdpa.B: BEFORE: 12 of 12 samples"
    assert any(said in reason for reason in report.reasons)
    json.dumps(report.to_json(), allow_nan=False)


@pytest.mark.parametrize("spread", [1.0, 1e6, 1e30])
@pytest.mark.parametrize("count", [6, 12, 120])
def test_times_of_any_spread_are_judged(tmp_path: Path, count: int, spread: float) -> None:
    rng = np.random.default_rng(count)
    sides = []
    for seed, record in enumerate((made("v1", 1e-5, 1), changed(made("v1"), 1e-5, 2, "later"))):
        kept = tuple(
            float(x) for x in 1e-14 * (1 + seed + rng.random(count)) * spread ** rng.random(count)
        )
        l2 = TimedSides(warm=TimedSide(samples=kept))
        sides.append([replace(record, timing=replace(record.timing, l2=l2))])
    document = gated(tmp_path, *sides).to_json()
    assert json.loads(json.dumps(document, allow_nan=False)) == document


@pytest.mark.parametrize(
    ("before", "after", "judged"),
    [
        (("a", None), ("a", None), False),  # one source
        (("a", "h of g++ 12"), ("a", "h of g++ 14"), False),
        (("a", "h"), ("a", None), False),
        (("a", "h"), ("b", "h"), False),  # a refactoring
        (("a", None), ("b", "h", "a"), False),  # refreshed since
        (("a", "h", "0"), ("b", None, "0"), False),
        (("a", "h"), ("b", "i"), True),  # the launcher changed
        (("a", "h"), ("b", None), True),  # not known is not the same
        (("a", None), ("b", None), True),
    ],
)
def test_a_launcher_that_changed_is_judged_by_time(
    tmp_path: Path, before: tuple[str, ...], after: tuple[str, ...], judged: bool
) -> None:
    slow = made("v1", 1.1e-5, 2)
    report = gated(tmp_path, [coded(made("v1", 1e-5, 1), *before)], [coded(slow, *after)])
    (subject,) = report.subjects
    assert (subject.answer, report.status) == (("slower", 1) if judged else ("same", 0))


def test_other_flags_of_one_source_are_other_code(tmp_path: Path) -> None:
    before, slow = (made("v1", t, i) for i, t in enumerate((1e-5, 1.1e-5)))
    after = replace(slow, source=replace(slow.source, flags=("-DBLOCKS=2",)))
    assert gated(tmp_path, [before], [after]).status == 1


def test_a_grid_that_an_older_record_does_not_say_is_no_change(tmp_path: Path) -> None:
    before = made("v1", 1e-5, 1, launches=(replace(LAUNCH, grid=(), block=()),))
    assert gated(tmp_path, [before], [made("v1", 1.1e-5, 2, "another")]).status == 0
    wide = made("v1", 1.1e-5, 2, launches=(replace(LAUNCH, grid=(264, 1, 1)),))
    assert gated(tmp_path / "wide", [made("v1", 1e-5, 1)], [wide]).status == 1


@pytest.mark.parametrize(
    ("factor", "answer", "status"),
    [(1.02, "slower", 1), (0.98, "faster", 0), (1.0, "same", 0), (2.0, "slower", 1)],
)
def test_changed_code_is_judged(tmp_path: Path, factor: float, answer: str, status: int) -> None:
    before = made("v1", 1e-5, 1)
    report = gated(tmp_path, [before], [changed(before, factor * 1e-5, 2)])
    (subject,) = report.subjects
    assert (subject.answer, report.status) == (answer, status)
    assert subject.smallest_change < 0.005, "120 interleaved rounds of 0.3 % noise"
    assert subject.cause == ("noise" if answer == "same" else "code")
    assert bool(report.reasons) == (status != 0)
    assert report.summary.startswith(f"{int(answer == 'slower')} slower, ")


def test_another_process_on_the_same_gpu_says_how_small_a_change_it_sees(tmp_path: Path) -> None:
    before = made("v1", 1e-5, 1)
    report = gated(tmp_path, [before], [changed(before, 1.02e-5, 2, "another")])
    (subject,) = report.subjects
    assert (subject.answer, subject.cause, report.status) == ("cannot tell", "noise", 0)
    assert 0.2 < subject.smallest_change < 0.25, "3 % from process to process, until it is measured"
    assert report.assumed_spread == SpreadBetweenProcesses(sigma=0.03, measured=False)
    sides = [Evidence(tmp_path / x) for x in ("base", "head")]
    known = judge_head_against_base(*sides, spread_of={"GPU-1": 0.002}.get)
    (measured,) = known.subjects
    assert known.assumed_spread is None
    assert (measured.answer, measured.cause) == ("slower", "code")
    assert measured.smallest_change < 0.02
    assert subject.samples_needed is None, "more samples do not help: processes do"
    assert "only a change of" in subject.because


def test_what_the_references_do_too_is_the_machine(tmp_path: Path) -> None:
    before, reference = made("v1", 1e-5, 1), made("sdpa", 2e-5, 3, source=None)
    after = changed(before, 1.4e-5, 2, "later")
    slower = replace(reference, timing=timed(2.8e-5, 4, "later"))
    (subject,) = gated(tmp_path, [before, reference], [after, slower]).subjects
    assert (subject.answer, subject.cause) == ("cannot tell", "machine")
    assert "the references measured with it" in subject.because
    steady = replace(reference, timing=timed(2e-5, 5, "later"))
    (subject,) = gated(tmp_path, [before, reference], [after, steady]).subjects
    assert (subject.answer, subject.cause) == ("slower", "code")


def test_another_torch_is_no_control(tmp_path: Path) -> None:
    before, reference = made("v1", 1e-5, 1), made("sdpa", 2e-5, 3, source=None)
    after = changed(before, 1.4e-5, 2, "later")
    newer = replace(reference, timing=timed(2.8e-5, 4, "later"), versions=Versions(torch="9"))
    (subject,) = gated(tmp_path, [before, reference], [after, newer]).subjects
    assert (subject.answer, subject.cause) == ("slower", "code")


def test_a_reference_timed_on_one_side_only_is_no_control(tmp_path: Path) -> None:
    before, reference = made("v1", 1e-5, 1), made("sdpa", 2e-5, 3, source=None)
    after = changed(before, 1.4e-5, 2, "later")
    untimed = replace(reference, timing=replace(timed(2e-5, 4, "later"), l2=TimedSides()))
    for sides in ((reference, untimed), (untimed, reference)):
        (subject,) = gated(tmp_path, [before, sides[0]], [after, sides[1]]).subjects
        assert (subject.answer, subject.cause) == ("slower", "code")


def test_another_gpu_is_the_machine(tmp_path: Path) -> None:
    before = made("v1", 1e-5, 1)
    after = changed(before, 2e-5, 2, gpu=RecordedGpu(name="NVIDIA L4"))
    report = gated(tmp_path, [before], [after])
    (subject,) = report.subjects
    assert (subject.answer, subject.cause, report.status) == ("cannot tell", "machine", 0)
    assert "NVIDIA L4" in subject.because
    assert gated(tmp_path, [before], [after], strict=True).status == 2


@pytest.mark.parametrize(
    ("gpu", "state", "named"),
    [
        (RecordedGpu(name="NVIDIA H200", uuid="GPU-2", driver="580"), {}, "GPU-1 and GPU-2"),
        (RecordedGpu(name="NVIDIA H200", uuid="GPU-1", driver="590"), {}, "driver 580 and 590"),
        (None, {"power_limit": 400.0}, "a power limit of 700 and 400 W"),
        (None, {"throttle": ("hardware thermal slowdown",)}, "by nothing and by hardware thermal"),
    ],
)
def test_two_machines_of_one_name_need_references(tmp_path: Path, gpu, state, named) -> None:
    def on(record: Record, **facts) -> Record:
        known = {"sm_clock": 1.9e9, "power_limit": 700.0, "throttle": ()}
        after = GpuState(**known | facts)
        return replace(record, timing=replace(record.timing, after=after))

    before, reference = on(made("v1", 1e-5, 1)), on(made("sdpa", 2e-5, 3, source=None))
    after = on(changed(before, 1.5e-5, 2, "later", gpu=gpu or before.gpu), **state)
    (alone,) = gated(tmp_path / "alone", [before], [after]).subjects
    assert (alone.answer, alone.cause) == ("cannot tell", "machine")
    assert named in alone.because
    assert "profkit profile --all" in alone.because
    steady = on(replace(reference, timing=timed(2e-5, 5, "later")), **state)
    (subject,) = gated(tmp_path / "both", [before, reference], [after, steady]).subjects
    assert (subject.answer, subject.cause) == ("slower", "code"), "the references did not move"


def test_a_gpu_that_was_not_asked_held_nobody_down() -> None:
    """NVML may be missing: not known is not nothing."""
    before, after = made("v1", 1e-5, 1), made("v1", 1e-5, 2)

    def held(record: Record, reasons: tuple[str, ...] | None) -> Record:
        state = GpuState(sm_clock=1.9e9, throttle=reasons)
        return replace(record, timing=replace(record.timing, after=state, session=None))

    slow = held(after, ("hardware thermal slowdown",))
    assert list_machine_differences(held(before, None), slow) == []
    assert list_machine_differences(held(before, ()), slow) == [
        "clocks limited by nothing and by hardware thermal slowdown"
    ]


def test_methods_are_compared_where_both_are_known() -> None:
    record = made("v1", 1e-5, 1)
    samples = record.timing.l2.warm

    def taken(method: str | None = None, **sides: TimedSide) -> Record:
        return replace(record, timing=replace(record.timing, method=method, l2=TimedSides(**sides)))

    warm, cold, both = taken(warm=samples), taken(cold=samples), taken(warm=samples, cold=samples)
    assert list_timing_method_differences(cold, warm) == [
        "BASE was timed with a cold L2, HEAD with a warm one"
    ]
    assert (
        list_timing_method_differences(both, warm)
        == list_timing_method_differences(cold, both)
        == []
    )
    assert list_timing_method_differences(taken(), warm) == []
    events, graph = taken("events", warm=samples), taken("graph replay", warm=samples)
    assert list_timing_method_differences(events, graph) == [
        "BASE was timed by events, HEAD by graph replay"
    ]
    assert (
        list_timing_method_differences(events, warm)
        == list_timing_method_differences(graph, graph)
        == []
    )


def test_what_the_kernel_itself_makes_of_the_clocks_is_no_other_machine() -> None:
    """A power cap is met by who works hard; heat, hardware and what has no name are the machine's."""
    record = made("v1", 1e-5, 1)

    def held(before: tuple[str, ...], after: tuple[str, ...] = ()) -> Record:
        states = {"before": GpuState(throttle=before), "after": GpuState(throttle=after)}
        return replace(record, timing=replace(record.timing, session=None, **states))

    assert list_machine_differences(held(()), held(("software power cap",))) == []
    for reason in ("software thermal slowdown", "hardware slowdown", "unknown"):
        assert list_machine_differences(held((reason,)), held((), (reason,))) == []
        assert list_machine_differences(held(()), held((), (reason, "software power cap"))) == [
            f"clocks limited by nothing and by {reason}"
        ]


def test_a_cold_and_a_warm_time_are_two_methods(tmp_path: Path) -> None:
    before = made("v1", 1e-5, 1)
    after = changed(before, 3e-5, 2)
    cold = replace(after.timing, l2=TimedSides(cold=after.timing.l2.warm))
    (subject,) = gated(tmp_path / "a", [before], [replace(after, timing=cold)]).subjects
    assert (subject.answer, subject.cause) == ("cannot tell", "method")
    assert "BASE was timed with a warm L2, HEAD with a cold one" in subject.because
    other = replace(after, timing=replace(after.timing, method="events"))
    first = replace(before, timing=replace(before.timing, method="graph replay"))
    (subject,) = gated(tmp_path / "b", [first], [other]).subjects
    assert (subject.answer, subject.cause) == ("cannot tell", "method")
    both = replace(first, timing=replace(first.timing, l2=cold.l2))
    (subject,) = gated(tmp_path / "c", [both], [replace(after, timing=cold)]).subjects
    assert (subject.answer, "cold L2 only" in subject.because) == ("no time", True)


def test_wrong_and_untried_are_named(tmp_path: Path) -> None:
    wrong, bare = made("bad", seed=1), made("bare", seed=2)
    head = [
        changed(wrong, 1e-5, 3, check=CheckResult(status="wrong")),
        replace(changed(bare, 1e-5, 4), timing=None),
    ]
    report = gated(tmp_path, [wrong, bare], head)
    assert report.status == 1
    assert [r.split(":")[0] for r in report.reasons] == ["bad.B", "bare.B"]
    assert "wrong results" in report.reasons[0]
    assert "profkit profile --variant bare --case B" in report.reasons[1]
    assert report.summary == (
        "1 wrong, 0 slower, 0 faster, 0 the same, 0 cannot tell, 1 without a time"
    )


def test_reports_without_a_record(tmp_path: Path) -> None:
    for side, content in (("base", b"one"), ("head", b"one")):
        (tmp_path / side).mkdir()
        (tmp_path / side / "sdpa-flash.C.ncu-rep").write_bytes(content)
    sides = [Evidence(tmp_path / side) for side in ("base", "head")]
    assert judge_head_against_base(*sides).status == 0
    (tmp_path / "head" / "sdpa-flash.C.ncu-rep").write_bytes(b"two")
    report = judge_head_against_base(*sides)
    assert (report.status, [s.answer for s in report.subjects]) == (2, ["no time"])
    assert "without a run record" in report.reasons[0]


def test_a_renamed_subject_and_those_of_one_side(tmp_path: Path) -> None:
    old = made("old", seed=1)
    report = gated(
        tmp_path,
        [old, made("gone", seed=2)],
        [replace(old, variant="new-name"), made("new", seed=3)],
    )
    assert [(s.name, s.answer) for s in report.subjects] == [
        ("gone.B", "gone"),
        ("new.B", "new"),
        ("new-name.B", "same"),
    ]
    assert "old" in report.subjects[2].because
    assert report.status == 0


def test_code_that_changed_since_it_was_measured_is_stale(tmp_path: Path) -> None:
    record = made("v1", seed=1)
    root = folder(tmp_path / "a", record)
    today = {"p/v1": SourceFile(VariantHeader("x"), "edited")}
    measured = {"p/v1": SourceFile(VariantHeader("x"), record.source_hash)}
    stale = judge_head_against_base(Evidence(root, headers=measured), Evidence(root, headers=today))
    assert (stale.status, stale.subjects[0].answer) == (2, "stale")
    both = judge_head_against_base(Evidence(root, headers=today), Evidence(root, headers=today))
    assert both.status == 0, "it was stale before: nothing changed"


def test_what_cannot_be_read_is_named_and_stops_nothing(tmp_path: Path) -> None:
    base, head = folder(tmp_path / "b", made("v1")), folder(tmp_path / "h", made("v1"))
    (head / "p" / "B" / "v2.json").write_text("{")
    report = judge_head_against_base(Evidence(base), Evidence(head))
    assert report.status == 2
    assert "v2.json: not JSON" in report.reasons[0]
    assert report.subjects[0].answer == "same"
    with pytest.raises(ProfkitError, match="no run at case Z"):
        judge_head_against_base(Evidence(base), Evidence(head), case="Z")


def test_one_other_case_and_launch_shape(tmp_path: Path) -> None:
    record = made("v1", seed=1)
    shape = replace(LAUNCH, grid=(264, 1, 1))
    after = replace(record, launches=(shape,), timing=timed(1.5e-5, 2, "s"))
    (subject,) = gated(tmp_path, [record], [after]).subjects
    assert subject.answer == "slower", "the launcher is machine code too"


@pytest.mark.slow
def test_the_smallest_change_is_seen_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    seen, quick = [], replace(GATE, resamples=300)
    for _ in range(150):
        before, after = (1e-5 * (1 + rng.exponential(0.005, 120)) for _ in range(2))
        smallest = compute_detectable_change(
            compare_samples(before, after, taken="interleaved", thresholds=quick)
        )
        assert 0.001 < smallest < 0.05
        more = after * (1 + smallest)
        later = compare_samples(before, more, taken="interleaved", thresholds=quick)
        seen.append(is_speedup_significant(later))
    assert sum(seen) / len(seen) >= 0.95
    assert isnan(compute_detectable_change(compare_samples([1.0], [1.0])))


def test_bench_takes_what_a_gate_needs() -> None:
    from profkit.lab.measure.bench import ROUNDS

    assert ROUNDS[0] >= GATE_ROUNDS


@pytest.mark.slow
def test_noise_that_hangs_together_unshared_raises_no_alarm() -> None:
    """AR(0.8) on each side of interleaved rounds: 0.5 % alarms before; see test_false_alarms.py."""
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(200):
        sides = []
        for _side in range(2):
            x = rng.normal(0, 0.01, 30)
            for i in range(1, 30):
                x[i] = 0.8 * x[i - 1] + 0.6 * x[i]
            sides.append(1 + x)
        thresholds = replace(GATE, resamples=200)
        time = compare_samples(*sides, taken="interleaved", thresholds=thresholds)
        alarms += is_speedup_significant(time) and time.answer in ("faster", "slower")
    assert alarms <= 1, "2 of 4,000 were counted"


def test_more_samples_help_only_against_noise() -> None:
    assert count_samples_needed_per_side(0.02, 0.04, 200, "wide") == 785
    assert count_samples_needed_per_side(0.02, 0.04, 100, "wide") == 273, (
        "from 120 on, nothing is added for too few"
    )
    assert count_samples_needed_per_side(0.02, 0.04, 30, "wide") == 48
    assert count_samples_needed_per_side(0.02, 0.02, 100, "wide") == 100
    assert count_samples_needed_per_side(0.02, 0.04, 100, "levels") is None
    assert count_samples_needed_per_side(0.02, float("nan"), 3, "too-few") is None


def test_the_document_is_plain(tmp_path: Path) -> None:
    before = made("v1", 1e-5, 1)
    document = gated(tmp_path, [before], [changed(before, 2e-5, 2)]).to_json()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert (document["schema"], document["status"]) == ("profkit.gate/1", 1)
    assert document["subjects"][0]["smallest_change"] < 0.02


def tempered(
    tmp_path: Path, factor: float, references: dict[str, float], sigma: float, **facts
) -> GateSubject:
    """What becomes of changed code that takes `factor` times as long, beside references."""
    before = made("v1", 1e-5, 1)
    after = changed(before, factor * 1e-5, 2, "later", **facts)
    old = [made(name, 2e-5, 3 + i, source=None) for i, name in enumerate(references)]
    new = [
        replace(r, timing=timed(2e-5 * times, 13 + i, "later"))
        for i, (r, times) in enumerate(zip(old, references.values(), strict=True))
    ]
    known = {"GPU-1": sigma}.get
    (subject,) = gated(tmp_path, [before, *old], [after, *new], spread_of=known).subjects
    return subject


@pytest.mark.parametrize(
    ("factor", "reference", "sigma", "machine"),
    [
        (1.4, 1.4 * 1.008, 1e-5, True),  # a per cent is no change of code
        (1.4, 1.4 / 1.008, 1e-5, True),
        (1.4, 1.4 * 1.02, 1e-5, False),
        (1.4, 1.4 / 1.02, 1e-5, False),
        (1.4, 1.4 * 1.04, 0.02, True),  # within what the processes differ by
        (1.4, 1.4 / 1.04, 0.02, True),
        (1.4, 1.4 * 1.09, 0.02, False),
        (1.4, 1.4 / 1.09, 0.02, False),
        (0.7, 0.7 * 1.04, 0.02, True),
        (0.7, 0.7 / 1.09, 0.02, False),
        (1.4, 1 / 1.4, 1e-5, False),  # the other way
        (1.2, 1.05, 0.02, False),  # the references may not have moved at all
    ],
)
def test_the_references_explain_what_they_did_too(
    tmp_path: Path, factor: float, reference: float, sigma: float, machine: bool
) -> None:
    subject = tempered(tmp_path, factor, {"sdpa": reference}, sigma)
    moved = (
        ("cannot tell", "machine") if machine else ("slower" if factor > 1 else "faster", "code")
    )
    assert (subject.answer, subject.cause) == moved
    said = (
        r"and the references measured with it changed as well \(([\d.]+)x their time\): the machine"
    )
    found = re.search(said, subject.because)
    assert bool(found) is machine
    assert not found or float(found[1]) == pytest.approx(reference, rel=0.01)


def test_the_most_typical_reference_speaks_for_the_machine(tmp_path: Path) -> None:
    most = {"sdpa": 1.4, "cudnn": 1.0, "flash": 1.4}
    assert tempered(tmp_path / "a", 1.4, most, 1e-5).cause == "machine"
    few = {"sdpa": 1.0, "cudnn": 1.4, "flash": 1.0}
    assert tempered(tmp_path / "b", 1.4, few, 1e-5).cause == "code"
    faster = {"sdpa": 0.5, "cudnn": 1.4, "flash": 3.0}
    assert tempered(tmp_path / "c", 1.4, faster, 1e-5).cause == "machine"


def test_a_reference_of_another_case_or_that_is_wrong_is_no_control(tmp_path: Path) -> None:
    before = made("v1", 1e-5, 1)
    after = changed(before, 1.4e-5, 2, "later")
    for case, status, cause in (
        ("B", "right", "machine"),
        ("C", "right", "code"),
        ("B", "wrong", "code"),
    ):
        old = made("sdpa", 2e-5, 3, source=None, case=case, check=CheckResult(status=status))
        new = replace(old, timing=timed(2.8e-5, 4, "later"), check=CheckResult(status="right"))
        at = tmp_path / f"{case} {status}"
        report = gated(at, [before, old], [after, new], spread_of={"GPU-1": 1e-3}.get)
        assert [s.cause for s in report.subjects] == [cause]


class Known(Evidence):
    """Evidence that has been read already."""

    def list_names(self):
        return sorted(self._runs)


def known(**runs: Run) -> Known:
    return Known(Path("nowhere"), {(name, "B"): run for name, run in runs.items()})


def test_counters_that_moved_are_named_beside_a_difference_and_never_of_another_ncu() -> None:
    """Times compare whatever ncu counted; the three that moved farthest are enough of a reason."""
    more = {"l2_hit": 0.8, "instructions": 5000.0, "tensor_busy": 0.5, "dram_busy": 0.15}
    less = {"l2_hit": 0.3, "instructions": 1000.0, "tensor_busy": 0.2, "dram_busy": 0.10}
    before = counted("v1", launches=[row("v1", **less)], warm=samples(1e-4, 120))
    for version, said in (
        ("2025.3.1", "; instructions 5x, l2_hit 2.7x, tensor_busy 2.5x"),
        ("2026.1.0", ""),
    ):
        launch = row("v1", ncu_version=version, **more)
        facts = {"source": "other", "sass": "other", "warm": samples(2e-4, 120, 1)}
        after = counted("v1", launches=[launch], **facts)
        report = judge_head_against_base(known(v1=before), known(v1=after))
        (subject,) = report.subjects
        assert (subject.answer, subject.cause) == ("slower", "code")
        assert subject.because == f"{subject.time.sentence}{said}"
    elsewhere = replace(after, record=replace(after.record, gpu=RecordedGpu(name="NVIDIA L4")))
    (subject,) = judge_head_against_base(known(v1=before), known(v1=elsewhere)).subjects
    assert (subject.answer, subject.cause) == ("cannot tell", "machine"), "not waived with it"


def test_why_nothing_can_be_said_and_what_would_help(tmp_path: Path) -> None:
    before = made("v1", timing=timed(1e-5, 1, "s", 60, 0.05))
    after = replace(changed(before, 1e-5, 2), timing=timed(1e-5, 2, "s", 60, 0.05))
    (noisy,) = gated(tmp_path / "noisy", [before], [after]).subjects
    assert (noisy.answer, noisy.cause) == ("cannot tell", "noise")
    assert noisy.samples_needed > 60
    assert noisy.because == (
        f"only a change of {100 * noisy.smallest_change:.1f} % would have been detected; "
        f"2 % takes {noisy.samples_needed} samples of each"
    )
    few = replace(after, timing=timed(1e-5, 2, "s", 3))
    (subject,) = gated(tmp_path / "few", [before], [few]).subjects
    assert (subject.answer, subject.because) == ("cannot tell", subject.time.sentence)
    assert isnan(subject.smallest_change)
    quiet = [made("v1", timing=timed(1e-5, 5, "s", noise=0.01))]
    later = [replace(changed(quiet[0], 1e-5, 6), timing=timed(1.001e-5, 6, "s", noise=0.01))]
    (subject,) = gated(tmp_path / "quiet", quiet, later).subjects
    assert subject.answer == "same"


def test_other_code_with_the_very_same_samples_was_not_recorded_anew(tmp_path: Path) -> None:
    before = made("v1", 1e-5, 1)
    after = replace(changed(before, 1e-5, 2), timing=before.timing)
    (subject,) = gated(tmp_path, [before], [after]).subjects
    assert (subject.answer, subject.because) == ("same", "nothing new was recorded")


def test_which_side_has_no_time_is_said(tmp_path: Path) -> None:
    before = made("v1", 1e-5, 1)
    after = changed(before, 1e-5, 2)
    untimed = replace(after, timing=None)
    again = "profkit profile --variant v1 --case B"
    for name, base, head, side in (
        ("a", before, untimed, "HEAD"),
        ("b", replace(before, timing=None), after, "BASE"),
    ):
        report = gated(tmp_path / name, [base], [head])
        assert report.status == 2
        assert report.reasons == (f"v1.B: {side} was not timed: {again}",)


def test_a_report_beside_a_record_on_one_side_only_is_not_the_same(tmp_path: Path) -> None:
    base, head = folder(tmp_path / "base", made("v1", 1e-5, 1)), tmp_path / "head"
    (head / "p" / "B").mkdir(parents=True)
    for side in (base, head):
        (side / "p" / "B" / "v1.ncu-rep").write_bytes(b"one report")
    for sides in ((base, head), (head, base)):
        report = judge_head_against_base(*map(Evidence, sides))
        assert [(s.answer, s.cause) for s in report.subjects] == [("no time", None)]
        assert list(report.reasons) == [
            "v1.B: a report without a run record has no timing: profkit profile writes both"
        ]


def test_two_that_a_new_name_may_have_had_are_gone_and_it_is_new(tmp_path: Path) -> None:
    one = made("one", seed=1)
    twin = replace(one, variant="two")
    report = gated(tmp_path / "a", [one, twin], [replace(one, variant="three")])
    assert [s.answer for s in report.subjects] == ["gone", "new", "gone"]
    report = gated(tmp_path / "b", [one], [replace(one, variant="three", case="C")])
    assert [s.answer for s in report.subjects] == ["gone", "new"], "of another case"


def test_a_strict_gate_closes_on_what_cannot_be_told_and_bad_news_comes_first() -> None:
    answers = ("slower", "cannot tell", "wrong", "stale", "same", "new", "no time", "slower")
    subjects = tuple(GateSubject(name=f"v{i}", answer=a, because=a) for i, a in enumerate(answers))
    problem = ProfkitError("half a record")
    report = make_gate_report(subjects, [problem])
    bad = ["v2: wrong", "v0: slower", "v7: slower"]
    assert (report.status, report.reasons) == (
        1,
        (*bad, "v3: stale", "v6: no time", "half a record"),
    )
    strict = make_gate_report(subjects, [problem], strict=True)
    assert list(strict.reasons) == [
        *bad,
        "v1: cannot tell",
        "v3: stale",
        "v6: no time",
        "half a record",
    ]
    assert report.summary == (
        "1 wrong, 2 slower, 0 faster, 1 the same, 1 cannot tell, 1 without a time, 1 stale, 1 new"
    )
    assert make_gate_report([], [problem]).status == 2, "what cannot be read is not tried"
    assert make_gate_report([subjects[1]]).status == 0
    assert make_gate_report([subjects[1]], strict=True).status == 2


def test_references_of_one_process_or_of_another_library_are_no_control(tmp_path: Path) -> None:
    """In one session the machine is the same for both sides: what moved is their code."""
    before, old = made("v1", 1e-5, 1), made("sdpa", 2e-5, 3, source=None)
    for name, session, backend in (("a", "s", old.backend), ("b", "later", "another")):
        after = changed(before, 1.4e-5, 2, session)
        new = replace(old, timing=timed(2.8e-5, 4, session), backend=backend)
        report = gated(tmp_path / name, [before, old], [after, new], spread_of={"GPU-1": 1e-3}.get)
        assert [(s.answer, s.cause) for s in report.subjects] == [("slower", "code")]


def test_how_many_samples_it_takes_is_counted_from_the_fewer(tmp_path: Path) -> None:
    before = made("v1", timing=timed(1e-5, 1, "s", 120, 0.05))
    after = replace(changed(before, 1e-5, 2), timing=timed(1e-5, 2, "s", 60, 0.05))
    for name, sides in (("a", (before, after)), ("b", (after, before))):
        (found,) = gated(tmp_path / name, [sides[0]], [sides[1]]).subjects
        wanted = count_samples_needed_per_side(0.02, found.smallest_change, 60, found.time.reason)
        assert found.samples_needed == wanted > 60


def test_a_side_without_any_time_was_not_timed_and_a_library_call_is_never_stale(
    tmp_path: Path,
) -> None:
    before = made("v1", 1e-5, 1)
    side = before.timing.l2.warm
    both = replace(before, timing=replace(before.timing, l2=TimedSides(warm=side, cold=side)))
    (found,) = gated(
        tmp_path / "a", [both], [replace(changed(both, 1e-5, 2), timing=None)]
    ).subjects
    assert found.because.startswith("HEAD was not timed: ")
    (found,) = gated(
        tmp_path / "b",
        [both],
        [replace(changed(both, 1e-5, 2), timing=replace(both.timing, l2=TimedSides(cold=side)))],
    ).subjects
    assert found.because.startswith("HEAD was timed with a cold L2 only: ")
    root = folder(tmp_path / "c", made("sdpa", source=None), before)
    today = {"p/sdpa": SourceFile(VariantHeader("x"), "edited")}
    report = judge_head_against_base(Evidence(root), Evidence(root, headers=today))
    assert [(s.name, s.answer) for s in report.subjects] == [("v1.B", "same")]
