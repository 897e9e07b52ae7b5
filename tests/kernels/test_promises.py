"""What the headers of the ladder promise, held against the committed reports.

`fixes:` fires for the parent and is clear here; `fixes-not:` fires on both; `moves:` is how far a
counter went, `moves-not:` how far it was to go and did not. With other code than was measured the
promises are of the old one, and `profkit list` says stale: they are held all the same.
"""

from __future__ import annotations

import pytest

from profkit.cli.sources import open_evidence
from profkit.diagnosis.rules import BY_ID
from profkit.evidence.counters import HeaderPrediction, judge_predictions_of_header
from profkit.evidence.runs import Evidence, Run
from profkit.lab.measure.variants.problem import load_problem
from tests.conftest import ROOT
from tests.copies import replace

pytestmark = pytest.mark.slow

ARTIFACTS = ROOT / "artifacts"
HEADERS = open_evidence(ARTIFACTS).headers
EVIDENCE = Evidence(ARTIFACTS)
NAMES = frozenset(EVIDENCE.list_names())
# Of every problem: runs are told apart by variant and case, so ids differ between problems too.
LADDER = {
    key.rpartition("/")[2]: file.header
    for key, file in HEADERS.items()
    if not key.startswith("probes/")
}


def cases_of(variant: str) -> list[str]:
    """Where it has a record and a report, and its parent a report; nothing is read to find them."""
    parent = LADDER[variant].after
    if not parent:
        return []
    cases = sorted(case for name, case in NAMES if name == variant and (parent, case) in NAMES)
    return [c for c in cases if _is_whole(variant, c) and _has_report(parent, c)]


def _is_whole(variant: str, case: str) -> bool:
    files = EVIDENCE.find_files_of_run(variant, case)
    return bool(files and files.record and files.report)


def _has_report(variant: str, case: str) -> bool:
    files = EVIDENCE.find_files_of_run(variant, case)
    return bool(files and files.report)


def recorded(variant: str) -> list[tuple[Run, Run]]:
    """Parent and variant, with its header of today, at every case at which both were recorded."""
    runs = []
    for case in cases_of(variant):
        run, parent = EVIDENCE.load(variant, case), EVIDENCE.load(LADDER[variant].after, case)
        today = replace(run.record, header=LADDER[variant])
        runs.append((parent, replace(run, record=today)))
    return runs


def broken(variant: str) -> list[tuple[str, HeaderPrediction]]:
    """Case and promise of what does not hold, or cannot be told where it is said to."""
    return [
        (after.name, promise)
        for before, after in recorded(variant)
        for promise in judge_predictions_of_header(before, after)
        if promise.kept is not True and not promise.because.startswith("applies to case")
    ]


@pytest.mark.parametrize("variant", sorted(filter(cases_of, LADDER)))
def test_what_the_header_promises_holds(variant):
    assert broken(variant) == []


def test_the_ladder_was_recorded_and_promises_were_tried():
    tried = [p for v in LADDER for b, a in recorded(v) for p in judge_predictions_of_header(b, a)]
    assert len([v for v in LADDER if cases_of(v)]) >= 20
    assert len(tried) >= 40


def test_no_two_problems_call_a_variant_or_a_case_alike():
    keys = [key for key in HEADERS if not key.startswith("probes/")]
    assert len(keys) == len(LADDER)
    folders = {key.partition("/")[0] for key in keys}
    cases = [c for f in sorted(folders) for c in load_problem(ROOT / "kernels" / f).cases]
    assert len(cases) == len(set(cases))


@pytest.mark.parametrize("variant", sorted(v for v, h in LADDER.items() if h.after))
def test_every_rung_says_before_it_is_profiled_what_should_move(variant):
    header = LADDER[variant]
    assert header.fixes or header.fixes_not or header.moves or header.moves_not


@pytest.mark.parametrize("variant", sorted(LADDER))
def test_promises_name_rules(variant):
    header = LADDER[variant]
    assert set(header.fixes) | set(header.fixes_not) <= set(BY_ID)


@pytest.mark.parametrize(
    "variant", sorted(v for v, h in LADDER.items() if h.moves_not or h.fixes_not)
)
def test_what_did_not_come_true_is_said_in_words(variant):
    words = (LADDER[variant].title + LADDER[variant].text).lower()
    assert any(w in words for w in ("what came", "negative", "stay", "slower")), words
