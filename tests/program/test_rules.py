"""Every rule of a step is whole, and its examples are its tests."""

from __future__ import annotations

import pytest

from profkit.errors import ProfkitError
from profkit.judge import Estimate
from profkit.program.example import run_example
from profkit.program.findings import ORDER, PAGES, StepRule
from profkit.program.rules import BY_ID, RULES, list_rule_texts
from profkit.program.triage import triage_timeline
from tests.found import find_files

EXAMPLES = [(rule, number) for rule in RULES for number in range(len(rule.fires))]
COUNTEREXAMPLES = [(rule, number) for rule in RULES for number in range(len(rule.clear))]
# design.md's: contracts.
CATEGORIES = (
    "host-launch host-sync copy collective optimizer attention-unfused fp32-matmul "
    "elementwise-chain layout atomics kernel redundant healthy unknown"
).split()


def test_no_category_is_gone() -> None:
    assert set(CATEGORIES) <= set(BY_ID)
    assert len(BY_ID) == len(RULES)


def test_every_check_belongs_to_one_rule() -> None:
    owned = [check for rule in RULES for check in rule.checks]
    assert len(owned) == len(set(owned))
    assert set(owned) == set(ORDER)


@pytest.mark.parametrize(("rule", "number"), EXAMPLES)
def test_an_example_is_what_is_said_first(rule: StepRule, number: int) -> None:
    of = triage_timeline(run_example(BY_ID[rule.id].fires[number]))
    assert (of.verdict.category or of.findings[0].rule) == rule.id
    if of.findings:
        saving = of.findings[0].saving
        assert saving.bound is not None
        assert 0 <= saving.low <= saving.expected <= saving.high <= saving.bound


@pytest.mark.parametrize(("rule", "number"), COUNTEREXAMPLES)
def test_an_example_that_is_none_is_not_said(rule: StepRule, number: int) -> None:
    of = triage_timeline(run_example(BY_ID[rule.id].clear[number]))
    said = {of.verdict.category, *(finding.rule for finding in of.findings)}
    assert rule.id not in said


def test_every_page_is_a_rules() -> None:
    assert {file.stem for file in find_files(PAGES, "*.md")} == set(BY_ID)


def test_what_is_found_has_words() -> None:
    for rule in RULES:
        assert bool(list_rule_texts(rule.id)) == bool(rule.checks)


def test_a_rule_without_an_example_is_refused() -> None:
    whole = RULES[0]
    with pytest.raises(ProfkitError, match="has no example"):
        StepRule(
            id=whole.id,
            title=whole.title,
            meaning=whole.meaning,
            advice=whole.advice,
            checks=(),
            fix="",
            fires=(),
            clear=whole.clear,
        )


def test_an_estimate_is_nowhere_above_its_bound() -> None:
    assert Estimate(1.0, 2.0, 3.0).limit_to(2.5).limit_to(4.0) == Estimate(1.0, 2.0, 2.5, 2.5)
