"""Two records of ablations say what a cause was worth before a change, and what is left of it."""

import copy
import json
from pathlib import Path

import pytest

from profkit.evidence.ablated import (
    describe_causes_that_cost_more,
    describe_changed_ablation_gains,
    judge_fix_by_ablation,
    make_history_rows_of_ablation,
)
from profkit.evidence.compare import compare_sides
from profkit.evidence.history import History, add_artifacts_to_history, query_history
from profkit.evidence.noise import compare_consecutive_runs
from profkit.evidence.runs import Evidence
from profkit.records.record import Record, parse_record
from tests.copies import replace
from tests.evidence.test_gate import changed, folder, gated, made

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
    assert judge_fix_by_ablation(CONFLICTS, before, after)[0] is kept


def test_nothing_is_said_of_what_was_not_measured() -> None:
    before, after = read_changed("stage2"), read_changed("stage2swizzle")
    document = read_document("stage2swizzle")
    bare = parse_record({**document, "ablation": None})
    assert judge_fix_by_ablation(CONFLICTS, before, bare) == (None, "")
    assert judge_fix_by_ablation(CONFLICTS, bare, after) == (None, "")
    assert judge_fix_by_ablation("uncoalesced-access", before, after) == (
        None,
        "",
    )
    assert not list(describe_changed_ablation_gains(before, bare))


def test_a_cause_of_which_nothing_is_left_is_gone() -> None:
    document = read_document("stage2swizzle")
    found = document["ablation"]
    found["measured"] = [row for row in found["measured"] if row["ablation"] != "conflict-free"]
    gone = {"code": "nothing-to-take-away", "observed": "", "threshold": "", "remedy": ""}
    found["refused"] = [{"ablation": "conflict-free", **gone}]
    kept, because = judge_fix_by_ablation(CONFLICTS, read_changed("stage2"), parse_record(document))
    assert kept is True
    assert because == "removing it brought 1.57x, and there is nothing left of it"


DEARER = "shared bank conflicts cost 18.5 µs of a call, 678 ns before"


def read_ablation(variant: str, **conflict_free: object) -> dict:
    return dict(read_changed(variant, **conflict_free).ablation)


def refuse_conflicts(ablation: dict, code: str) -> dict:
    """The ablation in which conflicts could not be removed, for this reason."""
    others = [row for row in ablation["measured"] if row["ablation"] != "conflict-free"]
    why = {"ablation": "conflict-free", "code": code, "observed": "", "threshold": "", "remedy": ""}
    return {**ablation, "measured": others, "refused": [*ablation["refused"], why]}


def test_compare_says_what_a_cause_costs_that_came_back() -> None:
    (change,) = compare_sides("stage2swizzle", "stage2", artifacts=RECORDED).changes
    assert [note for note in change.notes if "conflicts" in note] == [f"ablated: {DEARER}"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("nothing-to-take-away", "shared bank conflicts cost 18.5 µs of a call, nothing before"),
        ("steers", None),  # nobody knows what it cost
    ],
)
def test_a_cause_that_was_not_measured_before(code: str, said: str | None) -> None:
    before = made("v1", ablation=refuse_conflicts(read_ablation("stage2swizzle"), code))
    after = made("v1", ablation=read_ablation("stage2"))
    rows = make_history_rows_of_ablation(before, ""), make_history_rows_of_ablation(after, "")
    assert describe_causes_that_cost_more(*rows).get("conflict-free") == said


def test_a_cause_that_costs_no_more_than_its_interval_allows_is_not_told() -> None:
    before = made("v1", ablation=read_ablation("stage2", gain=1.5, low=1.4, high=1.6))
    after = made("v1", ablation=read_ablation("stage2", gain=1.57, low=1.56, high=1.58))
    rows = make_history_rows_of_ablation(before, ""), make_history_rows_of_ablation(after, "")
    assert "conflict-free" not in describe_causes_that_cost_more(*rows)


@pytest.mark.parametrize("side", ["before", "after"])
def test_a_cost_without_an_interval_is_not_compared(side: str) -> None:
    """Too few times were taken for an interval: what it costs is not sure."""
    ablations = {"before": read_ablation("stage2swizzle"), "after": read_ablation("stage2")}
    unsure = {"before": "stage2swizzle", "after": "stage2"}[side]
    ablations[side] = read_ablation(unsure, low=None, high=None)
    before, after = (made("v1", ablation=ablations[name]) for name in ("before", "after"))
    rows = make_history_rows_of_ablation(before, ""), make_history_rows_of_ablation(after, "")
    assert "conflict-free" not in describe_causes_that_cost_more(*rows)


@pytest.mark.parametrize(("factor", "answer"), [(1.5, "slower"), (1.0, "same"), (0.9, "faster")])
def test_the_gate_says_which_cause_came_back(tmp_path: Path, factor: float, answer: str) -> None:
    before = made("v1", 1e-5, 1, ablation=read_ablation("stage2swizzle"))
    after = changed(before, factor * 1e-5, 2, ablation=read_ablation("stage2"))
    (subject,) = gated(tmp_path, [before], [after]).subjects
    assert (subject.answer, subject.because.endswith(f"; {DEARER}")) == (answer, True)
    (back,) = gated(tmp_path / "back", [after], [before]).subjects
    assert "conflicts" not in back.because


def test_the_history_keeps_every_ablation_and_says_which_cause_came_back(tmp_path: Path) -> None:
    first = made("v1", 1e-5, 1, "s1", made="2026-11-01T00:00:00+00:00")
    ablated = replace(first, ablation=read_ablation("stage2swizzle"))
    later = changed(ablated, 1.5e-5, 2, "s2", made="2026-11-02T00:00:00+00:00")
    slower = replace(later, ablation=read_ablation("stage2"))
    kept = History(tmp_path / "history")
    for number, record in enumerate((first, ablated, slower)):  # timed first, ablated later
        add_artifacts_to_history(kept, Evidence(folder(tmp_path / str(number), record)))
    (runs, _), (rows, problems) = kept.list_runs(), kept.list_ablations()
    assert (len(runs), problems) == (3, [])
    measured = {row.ablation for row in rows if row.gain}
    assert {"conflict-free", "no-barriers"} <= measured
    assert all((row.gain is None) == (row.refused is not None) for row in rows)
    steps = compare_consecutive_runs(runs, ablations=rows)
    assert [(step.answer, step.note) for step in steps] == [("first", None), ("slower", DEARER)]
    assert [step.note for step in compare_consecutive_runs(runs)] == [None, None]
    pytest.importorskip("duckdb")
    frame, _ = query_history(
        kept, "SELECT max(gain) AS most FROM ablations JOIN runs USING (record) WHERE reachable"
    )
    assert frame.most[0] == pytest.approx(1.57, abs=0.01)
