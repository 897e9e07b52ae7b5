"""The numbers that decide: what holds each of them, and that no probe is right only by its own."""

from __future__ import annotations

import pytest

from profkit.diagnosis.rules import BY_ID
from profkit.diagnosis.verdict import decide_bound, judge_launch
from profkit.model.launch import Launch
from profkit.reports.metrics import CATALOGUE
from tests.kernels import thresholds
from tests.kernels.test_probes import NO_PROBE
from tests.kernels.test_verdicts import ROOT

pytestmark = pytest.mark.slow

# Numbers that no probe holds: for reports with fewer sections, other GPUs, real kernels' mixtures.
NOT_HELD = {
    "verdict.MORE_THAN_THE_WAIT": "words for a ceiling above a wait's share; it decides no verdict",
    "L2.queued": "a wait per load of 1,500 cycles comes with it; alone it only spares the question",
    "L1TEX.queued": "holds a library's FP32 product (sdpa-math.B), whose shared memory is 60 % busy",
    "verdict.AS_GOOD_AS": "ridge-at is balanced whatever it is, with issue slots near from 70 % on",
    "ISSUE.queued": "probes that fill the schedulers fill them beyond `sure`",
    "resources.ALONE": "held from 0.56 on (sleep), where ready warps outweigh nothing any more",
    "resources.THROTTLED": "reports without instruction counts, whose wait per load is unknown",
    "resources.FOREMOST": "probes wait for one thing; real kernels for several",
    "launch.HALF": "a probe's L2 serves atomics only or hardly any",
    "launch.NEARLY_ALL": "a probe fetches through texture only or not at all",
    "launch.WAVEFRONT": "tells a shared-memory kernel's entry from another's; probes use one alone",
    "launch.HEAVY": "reports without opcodes",
    "launch.FILLED": "sizes a gain: fuller grids of probes are full, emptier ones a sixteenth",
    "launch.ENDS_MOST": "reports of ncu before 2024.1, which has no busiest SM; probes have it",
    "launch.TOLERANCE": "of what counters of different passes differ by; probes ran at one DRAM clock",
    "launch.HALVES": "a DRAM clock counted once: probes have one whose clock is counted twice",
    "waste.ATOMIC": "probes' L2 serves atomics only, or hardly any",
    "launch.UNUSED": "probes waste half of their sectors or hardly any",
    "launch.ADDRESSED": "what wider loads are worth; it decides no verdict",
    "launch.MASKED": "no probe masks accesses for a whole warp",
    "launch.OF_ACCESSES": "no probe masks accesses for a whole warp",
    "launch.HALF_WIDE": "a probe's accesses are narrow everywhere or nowhere",
    "launch.READ_AGAIN": "what wider loads are worth; it decides no verdict",
    "launch.STEP": "no probe is a tree: pairs of others hold it (tools/score.py gains)",
    "launch.DIVISION": "counted in nvcc's machine code; it sizes a share",
    "launch.OF_A_DIVISION": "counted in nvcc's machine code; it sizes a share",
    "launch._IMAD_OF_A_DIVISION": "counted in nvcc's machine code",
    "launch.FLOATS": "no probe converts between integers and floats",
    "launch.ALL_LANES": "probes that waste sectors have all lanes at work",
    "launch.ROUNDED": "no probe converts between integers and floats",
    "launch.AT_WORK": "no probe is a tree: pairs of others hold it (tools/score.py gains)",
    "waste.TRIP": "sizes what scattered loads are expected to gain; it decides no verdict",
    "waste.WIDER": "what is worth a line; it decides no verdict",
    "waste.USED_ONCE": "what the sentence advises; it decides no verdict",
    "launch.UNEQUAL": "what the sentence advises; it decides no verdict",
    "verdict.NO_ROOM": "which of two sentences is said of a launch near its limit",
    "verdict.LITTLE_TO_WIN": "what is worth a line; it decides no verdict",
    "launch.LANE_BYTES": "the hardware's widest access of a lane",
    "launch.NOT_SHARED": "probes read words that all lanes share or that none does",
    "launch.HIDES_LITTLE": "probes fill the schedulers or leave them to one warp",
    "launch.IDLE_SCHEDULER": "probes fill the schedulers or leave them to one warp",
    "launch._LEAST": "a bound of what a counter can be, not of a verdict",
    "launch._MOST_OF_ALL": "a bound of what a counter can be, not of a verdict",
    "launch._ORDINARY": "spares a look-up, and decides nothing",
    "resources.MIXED": "reports without the share of writes; probes have it",
    "verdict.MOST": "probes have one cause, which explains the wait whole",
}


NEVER = {
    "operations-mismatch",
    "constant-miss",
    "debug-build",
    "partial-warps",
    "short-blocks",
    "nothing-stands-out",
}


@pytest.fixture(scope="module")
def probes():
    return thresholds.Probes()


@pytest.fixture(scope="module")
def ranges(probes):
    return thresholds.ranges(probes)


def test_every_verdict_is_right_where_the_numbers_are(probes):
    assert probes.wrong() == set()


def test_moving_a_number_is_undone(probes, ranges):
    assert probes.wrong() == set()
    assert {r.name: r.value for r in ranges} == {t.name: t.value for t in thresholds.thresholds()}


def test_every_number_lies_inside_its_range(ranges):
    for r in ranges:
        assert r.lower is None or r.lower[1] < r.value, r.name
        assert r.upper is None or r.value < r.upper[1], r.name


def test_every_number_is_held_or_says_why_not(ranges):
    assert {r.name for r in ranges if not r.low and not r.high} == set(NOT_HELD)


def test_no_probe_hangs_on_its_own_number(probes, ranges):
    """All but a few: each of these is alone on its side of a number."""
    wrong = thresholds.left_out(probes, ranges)
    assert set(wrong) <= {"imbalance", "issue", "stencil", "tensor-idle"}
    assert len(wrong) <= 0.05 * len(probes.launches)
    stay = len(probes.launches) - len(wrong)
    page = " ".join((ROOT / "docs/why/verdict.md").read_text("utf-8").split())
    assert f"{stay} of {len(probes.launches)} verdicts stay" in page


def test_every_rule_fires_on_a_probe_and_is_clear_on_another(probes):
    said = {rule: set() for rule in BY_ID}
    for values in probes.values.values():
        for f in judge_launch(values).findings:
            said[f.rule].add(f.status)
    never = {rule for rule, statuses in said.items() if "fires" not in statuses}
    assert never == NEVER <= set(NO_PROBE)
    assert {rule for rule, s in said.items() if "clear" not in s} == {"operations-mismatch"}


@pytest.mark.parametrize("without", [("WarpStateStats", "SourceCounters"), None])
def test_bounds_hold_on_reports_with_fewer_sections(probes, without):
    """Without warp states, and with ncu's basic set alone: only hot atomics and gathers are missed."""
    basic = {"", "SpeedOfLight", "LaunchStats", "Occupancy", "WorkloadDistribution"}
    wrong = set()
    for name, launch in probes.launches.items():
        sections = {m: CATALOGUE[m].section for m in launch if m in launch}
        kept = {m for m, s in sections.items() if (s not in without if without else s in basic)}
        said = decide_bound(Launch({m: launch[m] for m in kept}))
        if said.bound != probes.truth[name][0]:
            wrong.add(name)
    assert wrong <= {"atomic-bins", "atomic-same", "gather-dram"}
