"""Every rule's examples are its tests; the vocabulary and the catalogue hold them together."""

import re

import pytest

from profkit.diagnosis.rule import LaunchRule
from profkit.diagnosis.rules import ALL, BY_ID
from profkit.diagnosis.rules.waits import WAITING
from profkit.diagnosis.verdict import judge_launch
from profkit.errors import ProfkitError
from profkit.model.launch import Launch, NotCollected
from profkit.model.resources import RESOURCES
from profkit.reports.metrics import CATALOGUE
from profkit.reports.metrics.warps import STATES

ASKED_FOR = """
grid-too-small tail-effect workload-imbalance short-kernel dram-bandwidth l2-bandwidth
l1-bandwidth shared-bandwidth shared-bank-conflicts uncoalesced-access atomics-contention
register-spills local-memory constant-divergence texture-bandwidth low-l2-hit cache-resident
tensor-pipe fp32-pipe fp64-pipe fp16-pipe int-pipe xu-pipe issue-slots tensor-idle non-fused-math
thread-divergence redundant-exp long-scoreboard short-scoreboard barrier-wait fixed-latency membar
sleeping instruction-cache mio-throttle lg-throttle occupancy-registers occupancy-shared
occupancy-blocks operations-mismatch clocks-unsteady replay-unsteady
""".split()


FIRES = [(rule, values) for rule in ALL for values in rule.fires]
CLEAR = [(rule, values) for rule in ALL for values in rule.clear]


def status(rule, values):
    return next(f.status for f in judge_launch(values).findings if f.rule == rule.id)


@pytest.mark.parametrize(("rule", "values"), FIRES, ids=[rule.id for rule, _ in FIRES])
def test_fires_on_its_examples(rule, values):
    hit = rule.check(Launch(values))
    assert hit is not None
    assert hit.cause
    assert hit.gain is None, "the model prices"
    assert status(rule, values) == "fires", "diagnose says the same"
    assert set(hit.looked) | set(values) <= set(CATALOGUE)


@pytest.mark.parametrize(("rule", "values"), CLEAR, ids=[rule.id for rule, _ in CLEAR])
def test_is_clear_on_its_other_examples(rule, values):
    assert set(values) <= set(CATALOGUE)
    assert status(rule, values) == "clear"


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_says_which_metric_of_the_catalogue_is_missing(rule):
    assert rule.fires
    assert rule.clear
    with pytest.raises(NotCollected) as absent:
        rule.check(Launch({}))
    assert absent.value.metric in CATALOGUE


def test_one_example_that_is_no_tuple_is_told_so():
    words = {"id": "mine", "title": "t", "meaning": "m", "advice": "a"}
    with pytest.raises(ProfkitError, match="rule mine: fires is a single dict"):
        LaunchRule(**words, check=lambda _: None, fires={"time": 1.0}, clear=({"time": 1.0},))


def test_metrics_that_are_one_text_are_told_so():
    words = {"id": "mine", "title": "t", "meaning": "m", "advice": "a"}
    examples = {"fires": ({"time": 1.0},), "clear": ({"time": 1.0},)}
    with pytest.raises(ProfkitError, match="rule mine: looks is a single text") as error:
        LaunchRule(**words, **examples, check=lambda _: None, looks="time waves")
    assert "('time', 'waves')" in error.value.hint


def test_ids_are_unique_kebab_case_and_all_that_were_asked_for():
    assert len(BY_ID) == len(ALL)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.id) for rule in ALL)
    assert set(ASKED_FOR) <= set(BY_ID)


def test_every_limiter_has_a_rule_that_names_it():
    explained = {limiter for rule in ALL for limiter in rule.explains}
    assert {r.limiter for r in RESOURCES} <= explained
    assert {rule.shape for rule in ALL} - {""} <= explained
    assert set(WAITING) <= explained


def test_resources_and_shapes_name_rules_that_exist():
    assert {r.rule for r in RESOURCES} <= set(BY_ID)
    assert {r.shape for r in ALL if r.shape} == {"too_short", "grid_too_small", "tail", "imbalance"}
    assert all(r.shape in r.explains for r in ALL if r.shape)


def test_queues_are_warp_states_and_thresholds_are_in_order():
    for resource in RESOURCES:
        assert set(resource.queue) <= set(STATES)
        assert 0 < resource.peak.likely < resource.peak.sure < 1
        assert 0 < resource.peak.queued < 1


# Nothing that Triton's compiler makes has the cause, or what is said of it names no language.
WITHOUT_TRITON = {
    "debug-build",
    "texture-bandwidth",
    "tex-throttle",
    "constant-divergence",
    "constant-miss",
    "partial-warps",
    "cache-resident",
    "operations-mismatch",
    "clocks-unsteady",
    "replay-unsteady",
    "nothing-stands-out",
}
CUDAS = re.compile(r"cp\.async|ldmatrix|wgmma|mma\.sync|launch bounds|-fmad|float4")


def test_advice_for_triton_is_in_its_words():
    assert {rule.id for rule in ALL if not rule.triton} == WITHOUT_TRITON
    assert [rule.id for rule in ALL if CUDAS.search(rule.triton)] == []
