"""Two records of ablations say what a cause was worth before a change, and what is left of it."""

import copy
import json
from pathlib import Path

import pytest

from profkit.evidence.ablated import check_fix_by_ablation, list_ablation_notes
from profkit.evidence.compare import compare_sides
from profkit.records.record import Record, parse_record

RECORDED = Path(__file__).parents[1] / "ablation" / "recorded"
CONFLICTS = "shared-bank-conflicts"


def read_document(variant: str) -> dict:
    return json.loads((RECORDED / "attention" / "B" / f"{variant}.json").read_text())


def read_changed(variant: str, **conflict_free: object) -> Record:
    """A record whose ablation of bank conflicts came out otherwise."""
    document = copy.deepcopy(read_document(variant))
    for row in document["ablation"]["measured"]:
        if row["ablation"] == "conflict-free":
            row.update(conflict_free)
    return parse_record(document)


def test_compare_says_what_removing_a_cause_brought_before_and_after() -> None:
    (change,) = compare_sides("stage2", "stage2swizzle", artifacts=RECORDED).changes
    assert (
        "ablated: without shared bank conflicts 1.57x before the change, 1.02x after it"
        in change.notes
    )
    promised = {promise.rule: promise for promise in change.promises}
    assert promised[CONFLICTS].kept is True
    assert promised[CONFLICTS].because == "removing it brought 1.57x, and brings 1.02x now"
    assert (
        promised["shared_wavefronts<0.7x"].kept is None
        if "shared_wavefronts<0.7x" in promised
        else True
    )


@pytest.mark.parametrize(
    ("low", "gain", "kept"), [(1.3, 1.31, False), (1.06, 1.08, None), (0.99, 1.0, True)]
)
def test_a_fix_is_kept_where_nothing_is_left_to_win(
    low: float, gain: float, kept: bool | None
) -> None:
    before = read_changed("stage2")
    after = read_changed("stage2swizzle", low=low, gain=gain, control=1.0)
    assert check_fix_by_ablation(CONFLICTS, before, after)[0] is kept


def test_nothing_is_said_of_what_was_not_measured() -> None:
    before, after = read_changed("stage2"), read_changed("stage2swizzle")
    document = read_document("stage2swizzle")
    bare = parse_record({**document, "ablation": None})
    assert check_fix_by_ablation(CONFLICTS, before, bare) == (None, "")
    assert check_fix_by_ablation(CONFLICTS, bare, after) == (None, "")
    assert check_fix_by_ablation("uncoalesced-access", before, after) == (None, "")
    assert not list(list_ablation_notes(before, bare))


def test_a_cause_of_which_nothing_is_left_is_gone() -> None:
    document = read_document("stage2swizzle")
    found = document["ablation"]
    found["measured"] = [row for row in found["measured"] if row["ablation"] != "conflict-free"]
    gone = {"code": "nothing-to-take-away", "observed": "", "threshold": "", "remedy": ""}
    found["refused"] = [{"ablation": "conflict-free", **gone}]
    kept, because = check_fix_by_ablation(CONFLICTS, read_changed("stage2"), parse_record(document))
    assert kept is True
    assert because == "removing it brought 1.57x, and there is nothing left of it"
