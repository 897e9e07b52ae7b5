"""What holds of the answer for every program: hypothesis makes the programs."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profkit.program.document import make_triage_document
from profkit.program.findings.case import StepFinding
from profkit.program.ranks import merge_timelines
from profkit.program.readers import torch_trace
from profkit.program.replay.scenario import SPREAD, StepChange
from profkit.program.timeline import Timeline
from profkit.program.triage import IDLE_CAUSES, Triage, triage_timeline
from tests.found import find_files
from tests.program.made import ADDCDIV, EXP, GEMM, MUL, SGEMM, SOFTMAX, Program
from tests.program.said import said
from tests.sweeps import choose_count, take_part

DATA = Path(__file__).parent / "data"


def judged(program: Program, **how: float) -> Triage:
    with tempfile.TemporaryDirectory() as folder:
        path = program.write(Path(folder) / "trace.json")
        return triage_timeline(torch_trace.read_torch_trace(path), **how)


@settings(max_examples=60)
@given(
    pause=st.floats(0, 2e6),
    where=st.sampled_from(("before", "inside", "behind a wait")),
    count=st.integers(2, 6),
    marked=st.booleans(),
    took=st.lists(st.floats(396.0, 404.0), min_size=120, max_size=120),
)
def test_a_pause_before_the_first_step_is_nobody_s_fault(
    pause: float, where: str, count: int, marked: bool, took: list[float]
) -> None:
    """The GPU is full in every step; workers that start once, or a profiler, cost no step a thing."""
    program = Program()
    kernels = iter(took)
    if where == "before":
        program.work(pause)
    for number in range(count):
        with program.step():
            if number == 0 and where == "behind a wait":
                program.wait()
            if number == 0:
                program.work(pause if where != "before" else 0.0)
            for name in [*[GEMM] * 19, SOFTMAX]:
                program.launch(name, next(kernels))
    if not marked:
        program.events = [e for e in program.events if not e["name"].startswith("ProfilerStep")]
    of = judged(program)
    assert [f.cause for f in of.findings if f.rule == "host-launch"] == []
    assert of.hosts.step_ms_without_recorder.expect == pytest.approx(8.0, rel=0.02)


@pytest.mark.parametrize("count", range(2, 7))
def test_a_pause_of_every_step_is_found_whichever_steps_were_recorded(count: int) -> None:
    """The first step's own is never taken for theirs."""
    program = Program()
    for number in range(count):
        with program.step():
            program.work(3e5 if number == 0 else 8e3)
            for _ in range(10):
                program.launch(GEMM, 400.0)
    first, *_ = judged(program, unprofiled_step_ms=8.14).findings
    assert first.rule == "host-launch"
    assert first.saving.expected == pytest.approx(4.0, rel=0.1)


KERNELS = (GEMM, SGEMM, MUL, EXP, SOFTMAX, ADDCDIV, "my_own_kernel(float*)", "reduce_kernel<512>")
PART = st.one_of(
    st.tuples(st.just("launch"), st.sampled_from(KERNELS), st.floats(1.0, 3e3)),
    st.tuples(st.just("small"), st.sampled_from(KERNELS), st.floats(1.0, 20.0)),
    st.tuples(st.just("work"), st.just(""), st.floats(1.0, 4e3)),
    st.tuples(st.just("wait"), st.just(""), st.just(0.0)),
    st.tuples(st.just("copy"), st.sampled_from(("HtoD", "DtoH")), st.floats(4.0, 5e7)),
    st.tuples(st.just("beside"), st.sampled_from(KERNELS), st.floats(1.0, 500.0)),
)


def _do(program: Program, what: str, name: str, much: float) -> None:
    if what == "work":
        program.work(much)
    elif what == "wait":
        program.wait()
    elif what == "copy":
        program.copy(int(much), 20.0, direction=name)
    else:
        for _ in range(40 if what == "small" else 1):
            program.launch(name, much, stream=9 if what == "beside" else 7)


@pytest.mark.slow
@settings(max_examples=choose_count(150, 50))
@given(
    parts=st.lists(PART, min_size=1, max_size=8),
    odd=st.lists(PART, max_size=2),
    at=st.integers(0, 4),
    count=st.integers(2, 5),
    host=st.floats(0.5, 60.0),
    plain=st.one_of(st.none(), st.floats(0.01, 50.0)),
)
def test_no_saving_is_more_than_there_is(
    parts: list[tuple[str, str, float]],
    odd: list[tuple[str, str, float]],
    at: int,
    count: int,
    host: float,
    plain: float | None,
) -> None:
    """Of the step, of all fixes together, of the GPU's idle time; what saves most is first."""
    program = Program(host)
    for number in range(count):
        with program.step():
            program.launch(GEMM, 5.0)
            for part in [*parts, *(odd if number == at else ())]:
                _do(program, *part)
    holds(judged(program) if plain is None else judged(program, unprofiled_step_ms=plain))


def say_what_is_known(of: Triage) -> None:
    """No saving without a replay that is the recording; healthy is known to be; else a finding leads."""
    largest = max((finding.saving.expected for finding in of.findings), default=0.0)
    if not of.hosts.matches_recording:
        assert of.findings == []
        assert of.verdict.category == "unknown"
        assert "a replay of the step" in of.verdict.say
    elif of.verdict.category == "healthy":
        plain = of.hosts.step_ms_without_recorder
        assert of.split.busy / 1e6 >= 0.85 * (plain.low if of.hosts.checked else plain.expect)
        if largest >= 0.05 * plain.expect:  # then nothing is sure
            assert of.findings[0].saving.low < SPREAD * plain.expect
            assert of.findings[0].saving.expected < 0.15 * plain.expect
    elif of.verdict.category == "unknown":
        assert "not known" in of.verdict.say
    else:
        first = of.findings[0]
        # Waits that come before a graph: what they keep from being captured has to be worth it.
        worth = largest if first.waits_before_graph else first.saving.expected
        assert worth >= 0.05 * of.hosts.step_ms_without_recorder.expect


def is_shown(of: Triage, finding: StepFinding) -> bool:
    """Whether its cause takes more than 1 % of the bar, or is none of idle time."""
    if finding.rule not in IDLE_CAUSES or finding.change == StepChange():
        return True
    idle = sum(row.time for row in of.split.idle if row.cause == finding.rule)
    return idle >= 0.015 * of.split.period


def given_back(of: Triage, finding: StepFinding) -> float:
    """Milliseconds of a finding's kernels, and of the calls that its fix removes or shortens."""
    step, change = of.steps.typical, finding.change
    kernels = sum(step.works[i].activity.duration + 3_000 for i in finding.works)
    calls = {step.works[i].call for i in change.merge} | set(change.host)
    host = 0
    for number in calls:
        before = step.calls[number - 1].end if number else step.begin
        host += step.calls[number].end - min(before, step.calls[number].start)
    return (kernels + host) / 1e6


def say_no_more_than_named(of: Triage, finding: StepFinding) -> None:
    """Saves no more than its kernels and the work on them take, and what starting them costs."""
    kernels = sum(of.steps.typical.works[i].activity.duration for i in finding.works) / 1e6
    named = finding.evidence.get("start_ms", 0.0)
    work = finding.evidence.get("work", 0.0)  # of the host, that goes with a copy
    others = finding.evidence.get("others_ms", 0.0)  # of kernels that are not named
    assert finding.saving.high <= kernels * (1 + 2e-6) + named + work + others
    assert ("other kernels may gain another " in finding.cause) == bool(others)
    assert finding.evidence.get("ms", kernels) == pytest.approx(kernels)
    assert finding.evidence.get("count", len(finding.works)) == len(finding.works)
    if named:
        assert " costs the host up to " in finding.cause


def holds(of: Triage) -> None:
    """What is true of the answer whatever the program."""
    say_what_is_known(of)
    # A plain run that was measured as slower has a host up to 1.5 times slower, and slower kernels then.
    slower = of.hosts.step_ms_without_recorder.expect / (of.split.period / 1e6)
    slower = 1.5 * slower if slower > 1 else 1.0
    for finding in of.findings:
        if finding.works:
            assert set(finding.change.scale) | set(finding.change.merge) <= set(finding.works)
            others = finding.evidence.get("others_ms", 0.0)
            assert finding.saving.high - others <= given_back(of, finding) * slower + 1e-6
            say_no_more_than_named(of, finding)
    step, idle = of.hosts.step_ms_without_recorder.expect, (of.split.period - of.split.busy) / 1e6
    for finding in of.findings:
        saves = finding.saving
        assert 0 <= saves.low <= saves.expected <= saves.high <= step + 1e-9
        if finding.rule in {"host-launch", "host-sync"}:
            assert saves.high <= idle * max(1.0, step / (of.split.period / 1e6)) + 1e-9
    assert all(finding.on_top >= 0 for finding in of.findings)
    assert sum(finding.on_top for finding in of.findings) <= step + 1e-9
    first, *others = of.findings or (None,)
    for other in others:
        if not is_shown(of, other):
            continue  # the bar shows next to nothing of its cause: it is never first
        assert is_shown(of, first)
        sure = first.saving.low > other.saving.low
        half = first.saving.expected >= 0.5 * other.saving.expected
        before_graph = bool(first.waits_before_graph)
        large = first.saving.expected >= other.saving.expected
        assert large or (sure and half) or before_graph


DELAYED = ("delay", "graph", "load", "lose")
MORE_PARTS = st.one_of(
    PART,
    st.tuples(st.sampled_from(DELAYED), st.sampled_from(KERNELS), st.floats(1.0, 2e4)),
    st.tuples(st.just("pinned"), st.sampled_from(("HtoD", "DtoH")), st.floats(1e5, 5e7)),
    st.tuples(st.just("after"), st.sampled_from(KERNELS), st.floats(1.0, 500.0)),
    st.tuples(st.just("reduce"), st.just(""), st.floats(1.0, 2e3)),
)
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def do_more(program: Program, what: str, name: str, much: float) -> None:
    """A part of a step that a recording may have: graphs, streams, delays, what is lost, collectives."""
    if what == "delay":
        program.delay(much)
        program.launch(name, 20.0)
    elif what == "graph":
        program.graph([(name, 20.0), (MUL, 10.0)] * 6, lag=much / 10)
    elif what == "load":
        program.load(name, 20.0, loading=max(50.0, much))
    elif what == "lose":
        program.launch(name, min(much, 500.0))
        program.lose()
    elif what == "pinned":
        program.copy(int(much), 50.0, direction=name, pageable=False)
    elif what == "after":
        program.launch(name, much, stream=11, after=7)
        program.launch(GEMM, 5.0, after=11)
    elif what == "reduce":
        program.launch(ALL_REDUCE, much, stream=20, after=7)
        program.launch(GEMM, 5.0, after=20)
    else:
        _do(program, what, name, much)


def build(
    parts: list[tuple[str, str, float]], count: int, host: float, odd: tuple[str, str, float] | None
) -> Program:
    program = Program(host)
    for number in range(count):
        with program.step():
            program.launch(GEMM, 5.0)
            for part in parts:
                do_more(program, *part)
            if odd and number == 1:
                do_more(program, *odd)
    return program


def read_as(program: Program, how: str, rank: int | None = None) -> Timeline:
    header = {"distributedInfo": {"rank": rank, "world_size": 2}} if rank is not None else {}
    with tempfile.TemporaryDirectory() as folder:
        path = program.write(Path(folder) / "trace.json", **header)
        return replace(torch_trace.read_torch_trace(path), how=how)


def test_a_step_whose_work_runs_beyond_its_end_is_not_healthy_by_it() -> None:
    parts = [("after", GEMM, 11.0)]
    say_what_is_known(triage_timeline(read_as(build(parts, 3, 1.0, None), "torch trace")))


@pytest.mark.slow
@settings(
    max_examples=choose_count(300, 100), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    parts=st.lists(MORE_PARTS, min_size=1, max_size=8),
    odd=st.one_of(st.none(), MORE_PARTS),
    count=st.integers(2, 5),
    host=st.floats(0.5, 60.0),
    how=st.sampled_from(("torch trace", "nsys", "cupti")),
    plain=st.one_of(st.none(), st.floats(0.01, 200.0)),
    ranks=st.booleans(),
)
def test_nothing_false_is_said_of_any_recording(
    parts: list[tuple[str, str, float]],
    odd: tuple[str, str, float] | None,
    count: int,
    host: float,
    how: str,
    plain: float | None,
    ranks: bool,
) -> None:
    timelines = [read_as(build(parts, count, host, odd), how, 0 if ranks else None)]
    if ranks:
        timelines.append(read_as(build(parts, count, 1.5 * host, odd), how, 1))
    timeline = merge_timelines(timelines)
    of = triage_timeline(timeline, unprofiled_step_ms=plain)
    if plain is not None:
        assert of.hosts.step_ms_without_recorder.expect == pytest.approx(plain, rel=1e-6)
        assert (
            of.hosts.step_ms_without_recorder.low
            == of.hosts.step_ms_without_recorder.expect
            == of.hosts.step_ms_without_recorder.high
        )
    document = make_triage_document(of)
    json.dumps(document, allow_nan=False)
    assert document["first"]["say"]
    if plain is None or plain <= of.split.period / 1e6:
        holds(of)


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", take_part(sorted(p.name for p in find_files(DATA, "*.json.gz")), one_of=3)
)
def test_it_holds_of_every_recorded_program(file: str) -> None:
    assert said(file)["first"]["say"]


def test_a_host_that_the_queue_hides_needs_no_longer_than_the_step() -> None:
    """It was "the host works 2.26 ms per step" of 1.44 ms, in which the GPU is never idle."""
    program = Program()
    for number in range(4):
        with program.step():
            for i in range(10):
                program.work(2000.0 if number == 2 and i == 5 else 0.0)
                program.launch(GEMM, 144.0)
    of = judged(program)
    assert of.findings == []
    assert sum(e.gap + e.busy for e in of.hosts.others[0].events) <= of.split.period
