"""From a diagnosis to configurations."""

from pathlib import Path

import pytest

from profkit.diagnosis.rules import ALL
from profkit.errors import ProfkitError
from profkit.lab.measure.variants import tunables
from profkit.lab.measure.variants.tunables import Config
from profkit.lab.tune import steer
from profkit.lab.tune.result import FiringRule
from profkit.lab.tune.steer import Proposal, list_proposals_of_findings
from profkit.records.header import VariantHeader

KEYS = {
    "tune": "M=64,16,32 W=4,1,2 S=2,3,4",
    "where": "M % (16 * W) == 0",
    "takes": "smem=1024*M+8192*S threads=32*W",
    "steer": "grid-too-small=M- long-scoreboard=S+",
}
SPACE = tunables.read_tunable_space(VariantHeader("T", keys=KEYS), Path("x.cu"))
POSSIBLE = [
    c
    for c in SPACE.list_all_configs_even_refused()
    if SPACE.find_arithmetic_refusal(c, "90", tunables.Budget()) is None
]


def config(*values: str) -> Config:
    return SPACE.make_declared_config(dict(zip(SPACE.macros, values, strict=True)))


HERE = config("64", "4", "2")


def firing(rule: str, **evidence: float) -> FiringRule:
    return FiringRule(rule, evidence=evidence)


def test_a_rule_asks_for_one_step_and_one_further() -> None:
    found = list_proposals_of_findings(SPACE, HERE, [firing("grid-too-small")], POSSIBLE)
    assert found == [
        Proposal(config("32", "2", "2"), "grid-too-small"),
        Proposal(config("16", "1", "2"), "grid-too-small"),
    ]


def test_shared_memory_goes_below_the_step_to_another_block() -> None:
    found = list_proposals_of_findings(
        SPACE, config("64", "4", "4"), [firing("occupancy-shared")], POSSIBLE
    )
    assert found[0] == Proposal(config("64", "4", "3"), "occupancy-shared")
    step = firing("occupancy-shared", shared_step=20_000.0)
    (first, *_) = list_proposals_of_findings(SPACE, config("64", "4", "4"), [step], POSSIBLE)
    here = SPACE.evaluate_quantities(config("64", "4", "4"))["smem"]
    assert here - SPACE.evaluate_quantities(first.config)["smem"] >= 20_000


def test_the_first_cause_comes_first_and_nothing_twice() -> None:
    both = [firing("long-scoreboard"), firing("grid-too-small")]
    found = list_proposals_of_findings(SPACE, HERE, both, POSSIBLE)
    assert [p.rule for p in found] == ["long-scoreboard"] * 2 + ["grid-too-small"] * 2
    left = [c for c in POSSIBLE if c not in {p.config for p in found}]
    again = list_proposals_of_findings(SPACE, HERE, both, left)
    assert not {p.config for p in again} & {p.config for p in found}


def test_rules_that_name_no_tunable_propose_nothing() -> None:
    assert (
        list_proposals_of_findings(
            SPACE, HERE, [firing("xu-pipe"), firing("occupancy-registers")], POSSIBLE
        )
        == []
    )
    assert list_proposals_of_findings(SPACE, HERE, [firing("grid-too-small")], []) == []


def test_what_is_asked_of_any_kernel_names_rules_that_are_there() -> None:
    assert {w.rule for w in steer.ALWAYS} <= {r.id for r in ALL}
    assert set(steer._STEPS) <= {r.id for r in ALL}
    wrong = tunables.read_tunable_space(
        VariantHeader("T", keys={"tune": "M=1,2", "steer": "grid-to-small=M-"}), Path("x.cu")
    )
    with pytest.raises(ProfkitError, match="grid-to-small") as caught:
        steer.map_rules_to_directions(wrong)
    assert "grid-too-small" in caught.value.hint
