"""A ledger of predictions and what came of them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from profkit.diagnosis.rules import ALL, BY_ID
from profkit.errors import ProfkitError
from profkit.evidence import ledger as books
from profkit.evidence.ledger import (
    PACKAGE,
    Ledger,
    calibration,
    edges_today,
    joint_prediction,
    outcomes_of,
    predictions_of,
    read_ledger,
    rule_version,
    score_ledger,
    update,
)
from profkit.evidence.runs import Evidence, Run
from tests.conftest import ROOT
from tests.evidence.made import frame, row, run, samples
from tests.found import find_files

RULE = BY_ID["long-scoreboard"]


def made(tmp_path: Path, variant: str, fires: bool, time: float, **facts) -> Run:
    """A run with a report file (of any content) that fires RULE, or does not."""
    report = tmp_path / f"{variant}.B.ncu-rep"
    report.write_text(variant)
    metrics = (RULE.fires if fires else RULE.clear)[0]
    warm = samples(time, seed=len(variant))
    built = run(variant, launches=[row(variant, **metrics)], warm=warm, **facts)
    return replace(built, report=report)


class Known(Evidence):
    def names(self):
        return sorted(self._runs)


def ladder(tmp_path: Path, child_time: float = 8e-5) -> Known:
    parent = made(tmp_path, "stage1", True, 1e-4)
    child = made(tmp_path, "stage2", False, child_time, after="stage1", fixes=(RULE.id,))
    return Known(tmp_path, {("stage1", "B"): parent, ("stage2", "B"): child})


def test_a_firing_rule_with_a_gain_predicts(tmp_path):
    found = {p.rule: p for p in predictions_of(made(tmp_path, "stage1", True, 1e-4))}
    assert found[RULE.id].gain > 1
    assert found[RULE.id].version == rule_version(RULE.id)
    assert RULE.id not in {p.rule for p in predictions_of(made(tmp_path, "x", False, 1e-4))}


def test_an_outcome_stands_beside_its_prediction(tmp_path):
    evidence = ladder(tmp_path)
    outcome = next(
        o
        for o in outcomes_of(evidence.load("stage1", "B"), evidence.load("stage2", "B"))
        if o.rule == RULE.id
    )
    assert (outcome.child, outcome.finding, outcome.meant) == ("stage2", "gone", True)
    assert outcome.speedup == pytest.approx(1.25, rel=0.01)
    assert outcome.low < outcome.speedup < outcome.high


def test_nothing_is_written_twice_or_over(tmp_path):
    evidence = ladder(tmp_path)
    file = tmp_path / "ledger.jsonl"
    first = update(evidence)
    assert first.predictions
    assert first.outcomes
    before = file.read_bytes()
    assert update(evidence) == Ledger()
    assert file.read_bytes() == before
    # A re-measured child is a new report: its outcome is added, the old one stays.
    (tmp_path / "stage2.B.ncu-rep").write_text("again")
    again = update(evidence)
    assert again.outcomes
    assert file.read_bytes().startswith(before)
    ledger = read_ledger(file)
    assert len(ledger.outcomes) == len(first.outcomes) + len(again.outcomes)
    assert len([s for s in score_ledger(ledger) if s.prediction.rule == RULE.id]) == 1


def test_damaged_lines_are_counted_and_kept(tmp_path):
    evidence = ladder(tmp_path)
    file = tmp_path / "ledger.jsonl"
    file.write_text('{"kind": "prediction", "rule": "x"}\nnot json\n[]\n{"kind": "cut')
    new = update(evidence)
    ledger = read_ledger(file)
    assert ledger.damaged == (1, 2, 3, 4)
    assert ledger.predictions == new.predictions
    with pytest.raises(ProfkitError, match="none"):
        read_ledger(tmp_path / "none.jsonl")


def test_calibration_counts_only_causes_that_were_removed(tmp_path):
    update(ladder(tmp_path, child_time=8e-5))
    ledger = read_ledger(tmp_path / "ledger.jsonl")
    score = next(s for s in score_ledger(ledger) if s.prediction.rule == RULE.id)
    found = {c.rule: c for c in calibration([score])}[RULE.id]
    gain = score.prediction.gain
    assert found.tried == 1
    assert found.ratio == pytest.approx(1.25 / gain, rel=0.02)
    assert found.bounded == (gain >= 1.25)
    kept = replace(score, outcome=replace(score.outcome, finding="stays"))
    assert calibration([kept])[0].tried == 0
    assert calibration([kept])[0].ratio is None


def test_entries_are_plain_json(tmp_path):
    update(ladder(tmp_path))
    for line in (tmp_path / "ledger.jsonl").read_text().splitlines():
        assert json.loads(line)["schema"] == "profkit.ledger/1"


def test_the_version_follows_code_and_thresholds(tmp_path):
    """That of all that judges and prices; what a page says is none of it."""
    assert len({rule_version(r.id) for r in ALL}) == len(ALL)
    packages = [tmp_path / name for name in ("was", "page", "number")]
    for package in packages:
        shutil.copytree(PACKAGE / "diagnosis", package / "diagnosis")
        shutil.copytree(PACKAGE / "model", package / "model")
    assert rule_version(RULE.id, packages[0]) == rule_version(RULE.id)
    (packages[1] / "diagnosis/rules/pages/membar.md").write_text("other words")
    assert rule_version(RULE.id, packages[1]) == rule_version(RULE.id)
    checks = packages[2] / "diagnosis/rules/checks.py"
    checks.write_text(checks.read_text("utf-8").replace("1.1", "1.2"))
    assert rule_version(RULE.id, packages[2]) != rule_version(RULE.id)


def test_what_is_said_of_a_program_has_the_version_of_its_findings_and_replay(tmp_path):
    packages = [PACKAGE, *(tmp_path / name for name in ("was", "findings", "replay"))]
    for package in packages[1:]:
        for folder in ("findings", "replay"):
            shutil.copytree(PACKAGE / "program" / folder, package / "program" / folder)
    for package in packages[2:]:
        (package / "program" / package.name / "one_more.py").write_text("MORE = 1\n")
    versions = [rule_version("triage:host", package) for package in packages]
    assert versions[0] == versions[1]
    assert len(set(versions)) == 3


def test_a_run_without_a_report_predicts_nothing():
    assert predictions_of(run()) == []
    assert predictions_of(Run("x", "B", None, frame(), None)) == []


def test_only_what_was_measured_is_written(tmp_path):
    evidence = ladder(tmp_path)
    other = made(tmp_path, "other", True, 1e-4)
    evidence._runs[("other", "B")] = other
    for run_ in evidence._runs.values():
        record = {
            "schema": "profkit.run/1",
            "variant": run_.variant,
            "case": "B",
            "header": {"after": run_.record.header.after},
            "source": {"sha256": "x"},
        }
        (tmp_path / f"{run_.variant}.B.json").write_text(json.dumps(record))
    first = update(evidence, only=[("stage1", "B")])
    assert {p.variant for p in first.predictions} == {"stage1"}
    assert {o.child for o in first.outcomes} == {"stage2"}
    later = update(evidence)
    assert {p.variant for p in later.predictions} == {"stage2", "other"} - (
        {"stage2"} if not predictions_of(evidence.load("stage2", "B")) else set()
    )
    assert later.outcomes == ()


def test_a_damaged_record_stops_no_other(tmp_path):
    class Half(Known):
        def load(self, variant, case):
            if variant == "stage1":
                raise ProfkitError("stage1.B.json: not JSON")
            return super().load(variant, case)

    known = ladder(tmp_path)
    new = update(Half(tmp_path, {**known._runs}))
    assert [p.message for p in new.problems] == ["stage1.B.json: not JSON"]
    assert new.outcomes == ()


def test_a_newer_version_or_report_is_counted_once(tmp_path):
    first = update(ladder(tmp_path))
    old = next(o for o in first.outcomes if o.rule == RULE.id)
    made_ = next(p for p in first.predictions if p.rule == RULE.id)
    newer = (replace(made_, version="new", gain=9.0), replace(old, version="new", speedup=1.5))
    again = (
        replace(made_, report="sha of a new report"),
        replace(old, report="sha of a new report"),
    )
    for pair in (newer, again):
        both = Ledger((made_, pair[0]), (old, pair[1]))
        (score,) = score_ledger(both)
        assert score.prediction == pair[0]
        assert calibration([score])[0].tried == 1


TWO = ("long-scoreboard", "short-scoreboard")


def step(tmp_path: Path, fires: bool, variant: str, time: float, **facts) -> Run:
    """A run on which both of TWO fire, or neither."""
    metrics = {} if fires else {"stall_wait": 0.9}
    waits = {"stall_long_scoreboard": 0.4, "stall_short_scoreboard": 0.3} if fires else metrics
    idle = {f"stall_{s}": 0.0 for s in ("long_scoreboard", "short_scoreboard")}
    launch = row(variant, **{"stall_selected": 0.1, "issue_busy": 0.1, **idle, **waits})
    report = tmp_path / f"{variant}.B.ncu-rep"
    report.write_text(variant)
    built = run(variant, launches=[launch], warm=samples(time, seed=len(variant)), **facts)
    return replace(built, report=report)


def pair(tmp_path: Path, child_time: float = 4e-5, **facts) -> Known:
    parent = step(tmp_path, True, "stage1", 1e-4)
    child = step(
        tmp_path, False, "stage2", child_time, **{"after": "stage1", "fixes": TWO, **facts}
    )
    return Known(tmp_path, {("stage1", "B"): parent, ("stage2", "B"): child})


def test_causes_mended_at_once_get_one_joint_estimate(tmp_path):
    evidence = pair(tmp_path)
    parent, child = evidence.load("stage1", "B"), evidence.load("stage2", "B")
    joint = joint_prediction(parent, child)
    single = {p.rule: p for p in predictions_of(parent)}
    assert joint is not None
    assert joint.rule == "+".join(TWO)
    assert joint.expect > max(single[rule].expect for rule in TWO)
    assert joint.low < joint.expect < joint.high <= joint.gain
    meant = [o.rule for o in outcomes_of(parent, child) if o.meant]
    assert meant == [joint.rule]
    assert joint_prediction(parent, step(tmp_path, False, "x", 1e-5, fixes=TWO[:1])) is None


def test_only_steps_of_today_and_what_their_headers_mean_count(tmp_path):
    update(pair(tmp_path))
    ledger = read_ledger(tmp_path / "ledger.jsonl")
    today = {("stage2", "B"): ("stage1", frozenset(TWO))}
    assert [s.prediction.rule for s in score_ledger(ledger, today) if s.tried] == ["+".join(TWO)]
    for moved in (
        {},
        {("stage2", "B"): ("stage0", frozenset(TWO))},
        {("stage2", "B"): ("stage1", frozenset(TWO[:1]))},
    ):
        assert [s for s in score_ledger(ledger, moved) if s.tried] == []


def test_edges_are_those_of_the_records(tmp_path):
    evidence = pair(tmp_path)
    for (variant, case), run_ in evidence._runs.items():
        record = {
            "schema": "profkit.run/1",
            "variant": variant,
            "case": case,
            "header": {
                "after": run_.record.header.after,
                "fixes": " ".join(run_.record.header.fixes),
            },
            "source": {"sha256": "x"},
        }
        (tmp_path / f"{variant}.{case}.json").write_text(json.dumps(record))
    assert edges_today(evidence) == {
        ("stage1", "B"): (None, frozenset()),
        ("stage2", "B"): ("stage1", frozenset(TWO)),
    }


def test_children_that_became_slower_stand_apart(tmp_path):
    update(pair(tmp_path, child_time=3e-4))
    table = {c.rule: c for c in calibration(score_ledger(read_ledger(tmp_path / "ledger.jsonl")))}
    assert (table[books.ALL].tried, table[books.ALL].slower) == (0, 1)
    assert table[books.ALL].factor is None


def test_coverage_and_factor_are_of_what_was_expected(tmp_path):
    update(pair(tmp_path))
    (score,) = [s for s in score_ledger(read_ledger(tmp_path / "ledger.jsonl")) if s.tried]
    came = replace(score, outcome=replace(score.outcome, speedup=2.0))
    sure = replace(score.prediction, expect=3.0, low=1.5, high=3.5, gain=1.95)
    table = calibration([replace(came, prediction=sure)])[0]
    assert (table.rule, table.tried, table.bounds, table.bounded) == (books.ALL, 1, 1, 1)
    assert (table.near, table.inside, table.factor) == (1, 1, pytest.approx(2.0))
    far = replace(sure, expect=9.0, low=4.0, high=12.0, gain=1.8)
    table = calibration([replace(came, prediction=far)])[0]
    assert (table.bounded, table.near, table.inside) == (0, 0, 0)
    unbounded = calibration([replace(came, prediction=replace(sure, gain=None))])[0]
    assert (unbounded.bounds, unbounded.ratio, unbounded.near) == (0, None, 1)


@pytest.mark.slow
def test_updates_at_once_double_nothing(tmp_path):
    for name in ("stage0", "stage3a", "stage3b", "v1", "v2"):
        for file in find_files(ROOT / "artifacts/attention/B", f"{name}.*"):
            (tmp_path / "attention/B").mkdir(parents=True, exist_ok=True)
            shutil.copy(file, tmp_path / "attention/B")
    words = ("claims", "--ledger", "--update", "--artifacts", str(tmp_path))
    command = [sys.executable, "-m", "profkit", *words]
    both = [subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=tmp_path) for _ in range(3)]
    assert [p.wait(600) for p in both] == [0, 0, 0]
    lines = (tmp_path / "ledger.jsonl").read_text().splitlines()
    assert lines
    assert len(set(lines)) == len(lines)
    kept = read_ledger(tmp_path / "ledger.jsonl")
    assert kept.damaged == ()
    keys = [(p.report, p.rule, p.version) for p in kept.predictions]
    assert len(set(keys)) == len(keys)


STALLS = ("stall_selected", "stall_wait", *(f"stall_{r.replace('-', '_')}" for r in TWO))


@pytest.mark.parametrize(
    ("left", "became"),
    [
        ({}, ("gone", "gone", "gone")),
        ({"stall_short_scoreboard": 0.3}, ("gone", "changed", "changed")),
        ({"stall_long_scoreboard": 0.4}, ("changed", "gone", "changed")),
        ({"stall_short_scoreboard": 0.6, "stall_long_scoreboard": 0.2}, ("changed",) * 3),
        (dict.fromkeys(STALLS, float("nan")), ("unknown",) * 3),
    ],
)
def test_causes_mended_at_once_are_gone_when_all_are(tmp_path, left, became):
    """Else the joint estimate has what became of the first that is not; only it was meant."""
    parent = step(tmp_path, True, "stage1", 1e-4)
    child = step(tmp_path, False, "stage2", 4e-5, after="stage1", fixes=TWO)
    child = replace(child, _launches=child.launches.assign(**left))
    came = {o.rule: (o.finding, o.meant) for o in outcomes_of(parent, child)}
    names = (*TWO, "+".join(TWO))
    assert [came[name][0] for name in names] == list(became)
    assert [name for name, (_, meant) in came.items() if meant] == [names[2]]
    alone = step(tmp_path, False, "stage2", 4e-5, after="stage1", fixes=TWO[1:])
    meant = {o.rule for o in outcomes_of(parent, alone) if o.meant}
    assert meant == {TWO[1]}, "of one cause there is no joint estimate"


def test_a_child_that_cannot_be_compared_has_no_outcomes(tmp_path):
    parent = step(tmp_path, True, "stage1", 1e-4)
    given = {"after": "stage1", "fixes": TWO}
    assert outcomes_of(parent, step(tmp_path, False, "stage2", 4e-5, **given))
    for facts in ({"correct": False}, {"sass": "sass of stage1"}, {"gpu": "NVIDIA L4"}):
        assert outcomes_of(parent, step(tmp_path, False, "stage2", 4e-5, **given, **facts)) == []
    child = step(tmp_path, False, "stage2", 4e-5, **given)
    untimed = replace(child, record=replace(child.record, timing=None))
    for blind in (untimed, replace(child, report=None), replace(child, record=None)):
        assert outcomes_of(parent, blind) == []
    quiet = step(tmp_path, False, "stage1", 1e-4)
    assert RULE.id not in {o.rule for o in outcomes_of(quiet, child)}, "it predicted nothing"


def test_what_a_triage_promised_and_what_a_later_one_says(tmp_path):
    """Saved seconds become speed-ups of the whole step; what several saved together is no one's."""
    files = [tmp_path / name / "triage.json" for name in ("before", "after")]
    for file in files:
        file.parent.mkdir()
        file.write_text(file.parent.name)
    host = {"category": "host", "say": "the host is late", "said": (20.0, 0.0, 50.0)}
    copies = {"category": "copies", "say": "copies", "said": (100.0, 75.0, 120.0)}
    idle = {"category": "idle", "say": "idle", "said": (50.0, 50.0, 50.0)}
    states = [{**host, "state": "gone"}, {**copies, "state": "smaller"}, {**idle, "state": "there"}]
    change = {"before_ms": 100.0, "after_ms": 80.0, "answer": "faster", "promises": states}
    found = books.entries_of_program(*files, change)
    assert [p.rule for p in found.predictions] == ["triage:host", "triage:copies", "triage:idle"]
    first, far, _ = found.predictions
    assert (first.variant, first.case, first.cause) == ("before", "program", "the host is late")
    assert (first.gain, first.expect, first.low, first.high) == (None, 1.25, 1.0, 2.0)
    assert (far.expect, far.low, far.high) == (1000.0, 4.0, 1000.0), "never more than there is"
    assert [(o.finding, o.meant) for o in found.outcomes] == [
        ("gone", True),
        ("changed", False),
        ("stays", False),
    ]
    assert {(o.child, o.answer, o.speedup, o.low, o.high) for o in found.outcomes} == {
        ("after", "faster", 1.25, None, None)
    }
    assert {o.report for o in found.outcomes} == {first.report}
    assert {o.child_report for o in found.outcomes}.isdisjoint({first.report})
    both = {**change, "promises": [{**s, "state": "gone"} for s in states[:2]]}
    assert not any(o.meant for o in books.entries_of_program(*files, both).outcomes)
    assert len(score_ledger(found, {})) == 3, "a program has no header of today"
    assert [s.prediction.rule for s in score_ledger(found, {}) if s.tried] == ["triage:host"]


def scored(rule: str = "r", speedup: float = 2.0, answer: str = "faster", **said) -> books.Score:
    """A prediction of a removed cause with what came of it."""
    known = {"gain": None, "expect": None, "low": None, "high": None} | said
    made_ = books.Prediction("sha", "v1", "B", rule, "1", cause="", **known)
    came = ("sha", rule, "1", "v2", "sha2", "gone", True, answer, speedup, None, None)
    return books.Score(made_, books.Outcome(*came))


@pytest.mark.parametrize(
    ("said", "speedup", "held", "inside", "error"),
    [
        ({}, 2.0, None, None, None),
        ({"gain": 2.0}, 2.1, True, None, None),  # 5 % over a bound are timing's own spread
        ({"gain": 2.0}, 2.11, False, None, None),
        ({"low": 1.5, "high": 2.0}, 2.0, None, True, None),
        ({"low": 2.0, "high": 2.5}, 2.0, None, True, None),
        ({"low": 1.5, "high": 1.9}, 2.0, None, False, None),
        ({"low": 2.1, "high": 2.5}, 2.0, None, False, None),
        ({"low": 1.5}, 2.0, None, None, None),
        ({"high": 2.5}, 2.0, None, None, None),
        ({"expect": 4.0}, 2.0, None, None, 3.0),
        ({"expect": 1.5}, 2.0, None, None, 0.5),
        ({"expect": 90.0}, 2.0, None, None, 20.0),  # one miss is not the mean of all
        ({"expect": 1.0}, 2.0, None, None, 1 / 20),
        ({"expect": 4.0}, 1.0, None, None, None),  # nothing was gained: there is no factor
        ({"expect": 4.0}, 0.5, None, None, None),
    ],
)
def test_how_a_prediction_came_out(said, speedup, held, inside, error):
    score = scored(speedup=speedup, **said)
    assert (score.held, score.inside, score.error) == (held, inside, error)


def test_the_table_of_rules_has_all_first_and_then_the_most_tried():
    scores = [
        scored("b", 1.5, gain=3.0, expect=2.25, low=1.5, high=2.0),  # at the borders: close, near
        scored("b", 2.1, gain=2.0, expect=1.4, low=1.0, high=2.0),  # bounded
        scored("b", 2.2, gain=2.0, expect=5.0),  # over its bound, far
        scored("a", 1.0, gain=4.0),
        scored("c", 3.0),
        scored("c", 0.5, "slower", gain=2.0, expect=2.0),
    ]
    table = calibration(scores)
    assert [(c.rule, c.tried, c.slower) for c in table] == [
        ("all", 5, 1),
        ("b", 3, 0),
        ("a", 1, 0),
        ("c", 1, 1),
    ]
    b, a, c = table[1:]
    assert (b.bounds, b.bounded, b.close, b.ratio) == (3, 2, 2, 1.05)
    assert (b.expected, b.near, b.inside) == (3, 2, 1)
    errors = (1.25 / 0.5, 1.1 / 0.4, 4.0 / 1.2)  # the larger over the smaller, of what is gained
    assert b.factor == pytest.approx((errors[0] * errors[1] * errors[2]) ** (1 / 3))
    assert (a.bounds, a.bounded, a.close, a.ratio, a.factor) == (1, 1, 0, 0.25, None)
    assert (c.bounds, c.ratio, c.expected, c.near) == (0, None, 0, 0), "slower ones stand apart"
    assert calibration([])[0].rule == "all"


def test_a_line_cut_off_by_a_crash_swallows_no_other(tmp_path):
    file = tmp_path / "ledger.jsonl"
    entries = [scored(rule).prediction for rule in ("a", "b", "c")]
    books.add(file, Ledger((entries[0],)))
    assert file.read_bytes().count(b"\n") == 1, "no empty line before the next"
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:20])
    new = books.add(file, Ledger((*entries, entries[1])))
    assert new.predictions == tuple(entries[1:]), "once, and not what is there"
    kept = read_ledger(file)
    assert (kept.predictions, kept.damaged) == (tuple(entries), (2,))


def test_an_update_of_some_runs_reads_and_writes_nothing_of_others(tmp_path):
    """Of a parent or of a child their step; a report without a record predicts for itself."""
    steps = {}
    for one, two in (("stage1", "stage2"), ("v1", "v2")):
        steps[(one, "B")] = step(tmp_path, True, one, 1e-4)
        steps[(two, "B")] = step(tmp_path, False, two, 4e-5, after=one, fixes=TWO)
    steps[("bare", "B")] = replace(step(tmp_path, True, "bare", 1e-4), record=None)

    class Half(Known):
        def load(self, variant, case):
            if variant == "v2":
                raise ProfkitError("v2.B: broken")
            return super().load(variant, case)

        def recorded(self, variant, case):
            return self._runs[variant, case]

    for name, predicted in (("stage1", {"stage1"}), ("stage2", {"stage1"}), ("bare", {"bare"})):
        file = tmp_path / f"{name}.jsonl"
        new = update(Half(tmp_path, dict(steps)), file, only=[(name, "B")])
        assert new.problems == (), "nobody asked for v2"
        assert predicted <= {p.variant for p in new.predictions}
        assert {o.child for o in new.outcomes} == (set() if name == "bare" else {"stage2"})
    every = update(Half(tmp_path, dict(steps)), tmp_path / "all.jsonl")
    assert [p.message for p in every.problems] == ["v2.B: broken"]


def test_what_a_header_says_of_another_case_is_not_meant_at_this_one(tmp_path):
    parent = step(tmp_path, True, "stage1", 1e-4)
    for said_of, meant in (("B", ["+".join(TWO)]), ("C", [])):
        child = step(tmp_path, False, "stage2", 4e-5, after="stage1", fixes=TWO, said_of=said_of)
        assert [o.rule for o in outcomes_of(parent, child) if o.meant] == meant
    assert predictions_of(replace(parent, case=None)) == [], "nobody knows of which case"
