"""What a pull request is told of one variant: the decision follows from the evidence."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from profkit.evidence.compare import GateResult
from profkit.evidence.ladder import decide_variant, summarize_gate, summarize_variant
from profkit.evidence.runs import MissingEvidence
from profkit.show.text.blocks import render_markdown
from profkit.show.views.comparison import show_ladder_summary
from tests.copies import replace
from tests.evidence.made import row, run, samples
from tests.evidence.test_ladder import folder

SDPA = {"source": None, "sass": None}


def made(**facts):
    """stage2 (changed by `facts`) after stage1, beside two references."""
    given = {"after": "stage1", "warm": samples(5e-5, seed=1)} | facts
    return folder(
        run("stage1"),
        run("stage2", launches=[row("stage2", l2_hit=0.8, tensor_busy=0.1)], **given),
        run("sdpa", warm=samples(6e-5, seed=2), **SDPA),
        run("sdpa-flash", warm=samples(4e-5, seed=3), **SDPA),
    )


def met(ok: bool, binding: bool = True) -> GateResult:
    return GateResult(name="V3", met=ok, binding=binding, failing=() if ok else ("latency",))


@pytest.mark.parametrize(
    ("facts", "gates", "decision", "said"),
    [
        ({}, (), "keep", "right, and against stage1.B 2.001x faster (1.998 to 2.002)"),
        ({}, (met(True),), "keep", "faster"),
        ({}, (met(False),), "reject", "gate not met: V3: latency"),
        ({}, (met(False, binding=False),), "keep", "faster"),
        ({"warm": samples(2e-4)}, (), "reject", "slower"),
        ({"warm": samples(seed=9)}, (), "no gain proven", "the same within"),
        ({"warm": ()}, (), "undecided", "stage2.B was never timed"),
        ({"correct": False}, (), "reject", "wrong results"),
        ({"correct": None}, (), "undecided", "not checked"),
        ({"sanitizers": {"racecheck": "3 hazards"}}, (), "reject", "racecheck found errors"),
        ({"sass": "sass of stage1"}, (), "undecided", "the same binary"),
        ({"after": None}, (), "undecided", "--against"),
    ],
)
def test_the_decision_and_its_reason(facts, gates, decision, said):
    found = summarize_variant(made(**facts), "stage2", "B", gates=gates)
    assert found.decision == decision
    assert said in found.because


def test_a_stale_variant_is_not_decided():
    change = summarize_variant(made(), "stage2", "B").change
    stale = replace(run("stage2"), stale=True)
    refused = structs.replace(change, compared=False, time=None)
    assert decide_variant(stale, refused)[0] == "undecided"


def test_the_table_has_baseline_and_references_fastest_first():
    found = summarize_variant(made(), "stage2", "B")
    assert [(s.name, s.role) for s in found.sides] == [
        ("stage2", "variant"),
        ("stage1", "baseline"),
        ("sdpa-flash", "reference"),
        ("sdpa", "reference"),
    ]
    assert found.sides[1].against.speedup.median == pytest.approx(2, rel=0.02)
    assert found.sides[2].against.answer == "slower"
    text = render_markdown(show_ladder_summary(found))
    assert "- **keep**: " in text
    assert "| L2 hit rate | 80 % | not collected |" in text
    assert "2.00x" in text
    json.dumps(found.to_json(), allow_nan=False)


def test_another_baseline_can_be_named_and_a_missing_one_is_said():
    found = summarize_variant(made(), "stage2", "B", against="sdpa")
    assert found.change.before == "sdpa.B"
    with pytest.raises(MissingEvidence) as raised:
        summarize_variant(made(), "stage2", "B", against="never")
    assert raised.value.hint == "profkit profile --variant never --case B"


def test_without_counters_the_figures_are_not_collected():
    text = render_markdown(
        show_ladder_summary(summarize_variant(folder(run("a", launches=[])), "a", "B"))
    )
    assert "not collected" in text
    assert "0 %" not in text


def test_right_comes_before_gates_and_gates_before_time():
    slow = made(warm=samples(2e-4), correct=False, sanitizers={"racecheck": "1", "memcheck": "2"})
    closed = (met(False), structs.replace(met(False), name="V4", failing=("a", "b")), met(True))
    assert summarize_variant(slow, "stage2", "B", gates=closed).because == (
        "stage2.B gives wrong results"
    )
    raced = made(sanitizers={"racecheck": "1", "memcheck": "2", "other": "clean"})
    assert summarize_variant(raced, "stage2", "B", gates=closed).because == (
        "racecheck, memcheck found errors"
    )
    found = summarize_variant(made(warm=samples(2e-4)), "stage2", "B", gates=closed)
    assert found.because == "gate not met: V3: latency; V4: a, b"
    assert found.gates == tuple(map(summarize_gate, closed))
    lost = summarize_variant(made(after=None), "stage2", "B", gates=closed)
    assert (lost.decision, lost.change) == ("reject", None)


def test_a_reference_without_times_stands_in_the_summary_without_an_answer():
    known = made()
    bad = run("cudnn", warm=(float("nan"),) * 9, **SDPA)
    known._runs[("cudnn", "B")] = bad
    known._runs[("flash", "C")] = run("flash", "C", **SDPA)
    found = summarize_variant(known, "stage2", "B")
    assert [(s.name, s.role, s.time is None, s.against is None) for s in found.sides] == [
        ("stage2", "variant", False, True),
        ("stage1", "baseline", False, False),
        ("cudnn", "reference", True, True),
        ("sdpa-flash", "reference", False, False),
        ("sdpa", "reference", False, False),
    ]
    assert set(found.sides[0].metrics) == {"l2_hit", "tensor_busy", "dram_busy", "registers"}
    assert found.sides[0].bound
    blind = folder(run("a", launches=[]))
    assert (summarize_variant(blind, "a", "B").sides[0].metrics, blind.list_names()) == (
        {},
        [("a", "B")],
    )


def test_a_faster_report_without_a_record_is_undecided():
    change = summarize_variant(made(), "stage2", "B").change
    bare = replace(run("stage2"), record=None)
    assert decide_variant(bare, change)[0] == "undecided"
    assert decide_variant(run("stage2"), change)[0] == "keep"
