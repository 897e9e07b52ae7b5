"""Ladders and sides, from folders of records written by hand."""

from __future__ import annotations

import json

import pytest

from profkit.errors import ProfkitError
from profkit.evidence import runs as runs_module
from profkit.evidence.compare import compare_sides
from profkit.evidence.ladder import build_ladder, order_variants_after_parents
from profkit.evidence.runs import (
    Evidence,
    Run,
    load_runs_of_side,
    match_runs,
)
from tests.copies import replace
from tests.evidence.made import frame, row, run, samples


def folder(*made: Run) -> Evidence:
    """Evidence that has been read already."""
    from pathlib import Path

    class Known(Evidence):
        def list_names(self):
            return sorted(self._runs)

    return Known(Path("nowhere"), {(r.variant, str(r.case)): r for r in made})


def test_every_step_comes_after_its_parent():
    parents = {"b": "a", "c": "b", "a": None, "d": "a", "x": "absent"}
    order, lost = order_variants_after_parents(parents)
    assert order == [("a", 0), ("b", 1), ("c", 2), ("d", 1), ("x", 0)]
    assert lost == []


def test_a_circle_is_named_and_the_rest_goes_on():
    order, lost = order_variants_after_parents({"a": None, "b": "c", "c": "b"})
    assert (order, lost) == ([("a", 0), ("b", 0), ("c", 0)], ["b", "c"])
    assert order_variants_after_parents({"a": "a"}) == ([("a", 0)], ["a"])
    found = build_ladder(folder(run("a"), run("b", after="c"), run("c", after="b")), "B")
    assert [s.variant for s in found.steps] == ["a", "b", "c"]
    assert [p.message for p in found.problems] == [
        "case B: the `after:` headers form a cycle: b, c"
    ]


def test_the_ablation_table():
    evidence = folder(
        run("stage0", title="The first", warm=samples(2e-4)),
        run("stage1", after="stage0", warm=samples(1e-4)),
        run("lost", after="never", warm=()),
        run("stage1", "C", after="stage0"),
        run("sdpa", source=None, sass=None, warm=samples(2e-5, seed=5)),
    )
    found = build_ladder(evidence, "B")
    assert [s.variant for s in found.steps] == ["lost", "stage0", "stage1"]
    lost, first, second = found.steps
    assert lost.note == "its parent never is not among these runs"
    assert lost.time is None
    assert first.change is None
    assert first.title == "The first"
    assert second.depth == 1
    assert second.change.time.speedup.median == pytest.approx(2, rel=0.01)
    assert second.references["sdpa"].speedup.median == pytest.approx(0.2, rel=0.01)
    assert second.references["sdpa"].answer == "slower"
    json.dumps(found.to_json(), allow_nan=False)


@pytest.mark.parametrize("bad", [(-1e-4, 1e-4, 1e-4), (0.0, 1e-4, 1e-4)])
def test_samples_that_are_no_times_are_named_and_the_rest_goes_on(bad):
    evidence = folder(run("stage0", warm=bad), run("stage1", after="stage0", warm=samples(1e-4)))
    found = build_ladder(evidence, "B")
    assert ["warm samples of stage0" in p.message for p in found.problems] == [True]
    assert [s.time is None for s in found.steps] == [True, False]
    assert build_ladder(folder(run("stage0")), "B").problems == ()


def test_the_best_reference_is_the_fastest():
    evidence = folder(
        run("stage0", warm=samples(1e-4)),
        *(
            run(n, source=None, sass=None, warm=samples(t, seed=5))
            for n, t in (("a", 5e-5), ("b", 2e-5))
        ),
    )
    (step,) = build_ladder(evidence, "B").steps
    assert step.compare_with_fastest_reference == step.references["b"]
    assert build_ladder(folder(run("stage0")), "B").steps[0].compare_with_fastest_reference is None


def test_a_wrong_kernel_gets_no_time():
    found = build_ladder(
        folder(run("stage0", correct=False), run("sdpa", source=None, sass=None)), "B"
    )
    assert found.steps[0].time is None
    assert found.steps[0].references == {}


def test_a_case_that_was_not_recorded():
    with pytest.raises(ProfkitError) as raised:
        build_ladder(folder(run("stage0")), "D")
    assert raised.value.hint == "recorded cases: B"


def test_a_variant_stands_for_all_its_cases():
    evidence = folder(run("stage1"), run("stage1", "C"), run("stage2"))
    assert [r.name for r in load_runs_of_side("stage1", evidence)] == ["stage1.B", "stage1.C"]
    assert [r.name for r in load_runs_of_side("stage1.C", evidence)] == ["stage1.C"]
    assert [r.name for r in load_runs_of_side("stage1", evidence, "B")] == ["stage1.B"]
    with pytest.raises(ProfkitError) as raised:
        load_runs_of_side("stage7", evidence)
    assert raised.value.hint == "did you mean stage2 or stage1?"
    with pytest.raises(ProfkitError, match="no such file"):
        load_runs_of_side("lost/stage1.B.ncu-rep", evidence)


def test_runs_pair_by_case_and_by_variant():
    pairs, alone = match_runs([run("a"), run("a", "C")], [run("b"), run("b", "D")])
    assert [(b.name, a.name) for b, a in pairs] == [("a.B", "b.B")]
    assert alone == ("a.C", "b.D")
    pairs, alone = match_runs([run("a"), run("b")], [run("b"), run("c")])
    assert [(b.name, a.name) for b, a in pairs] == [("b.B", "b.B")]
    assert alone == ("a.B", "c.B")


def test_two_runs_with_nothing_in_common():
    two = [run("a"), run("a", "C")]
    evidence_free = [replace(r, case="D") for r in two]
    assert match_runs(two, evidence_free)[0] == []


def test_compare_takes_runs_and_reports(tmp_path, monkeypatch):
    rows = [row("stage1"), row("stage2")]
    for one in rows:
        one["report"] = str(tmp_path / "both.ncu-rep")
    monkeypatch.setattr(
        "profkit.evidence.runs.read_undamaged_launches", lambda reports: frame(*rows)
    )
    report = tmp_path / "both.ncu-rep"
    report.write_bytes(b"")
    found = load_runs_of_side(report, Evidence(tmp_path))
    assert [r.name for r in found] == ["stage1.B", "stage2.B"]
    compared = compare_sides(found[0], found[1])
    assert len(compared.changes) == 1
    assert compared.to_json()["schema"] == "profkit.compare/1"
    with pytest.raises(ProfkitError, match="no run at case Z"):
        compare_sides(report, report, case="Z")


def test_a_folder_is_every_run_in_it(tmp_path, monkeypatch):
    monkeypatch.setattr(runs_module, "read_undamaged_launches", lambda reports: frame())
    for name in ("stage1.B", "stage1.C", "sdpa-cudnn.B"):
        (tmp_path / f"{name}.ncu-rep").write_bytes(b"")
    (tmp_path / "README.md").write_text("not a run")
    found = load_runs_of_side(tmp_path, Evidence(tmp_path), case="B")
    assert sorted(r.name for r in found) == ["sdpa-cudnn.B", "stage1.B"]


def test_nothing_recorded_is_said_and_half_of_it_is_no_nothing():
    with pytest.raises(ProfkitError, match="no run record at case B in nowhere") as raised:
        build_ladder(folder(), "B")
    assert raised.value.hint == "profkit profile --all"
    library = run("sdpa", source=None, sass=None)
    with pytest.raises(ProfkitError):
        build_ladder(folder(library), "B")
    bare = replace(run("stage0"), record=None)
    with pytest.raises(ProfkitError):
        build_ladder(folder(bare), "B")

    class Broken(type(folder())):
        def load(self, variant, case):
            raise ProfkitError(f"{variant}: broken")

    found = build_ladder(Broken(folder().root, {("a", "B"): bare, ("b", "C"): bare}), "B")
    assert (found.steps, [p.message for p in found.problems]) == ((), ["a: broken"])
    mixed = build_ladder(folder(run("stage0"), replace(run("x"), record=None), library), "B")
    assert [s.variant for s in mixed.steps] == ["stage0"]


def test_a_reference_whose_samples_are_no_times_is_named_and_left_out():
    bad = run("sdpa", source=None, sass=None, warm=(float("nan"), 1e-5))
    good = run("cudnn", source=None, sass=None, warm=samples(2e-5, seed=5))
    untimed = run("flash", source=None, sass=None, warm=())
    found = build_ladder(folder(run("stage0"), bad, good, untimed), "B")
    assert [sorted(s.references) for s in found.steps] == [["cudnn"]]
    assert ["warm samples of sdpa.B: 1 of 2" in p.message for p in found.problems] == [True]


def test_a_step_says_its_bound_and_a_racing_kernel_has_no_time():
    raced = run("stage1", after="stage0", sanitizers={"racecheck": "1 errors"})
    first = run("stage0", launches=[])
    found = build_ladder(folder(first, raced, run("sdpa", source=None, sass=None)), "B")
    one, two = found.steps
    assert (one.bound, one.time is None, one.depth, one.note) == (None, False, 0, None)
    assert (two.bound, two.time, two.depth, two.parent) == (
        raced.diagnosis().label,
        None,
        1,
        "stage0",
    )
    assert (two.references, two.change.compared, sorted(one.references)) == ({}, False, ["sdpa"])


def test_siblings_and_their_children_stay_in_order():
    parents = {"z": None, "b": "z", "a": "z", "c": "b", "y": None, "d": "c"}
    assert order_variants_after_parents(parents) == (
        [("z", 0), ("b", 1), ("c", 2), ("d", 3), ("a", 1), ("y", 0)],
        [],
    )


def test_a_report_of_no_variant_is_called_as_its_file_and_beside_variants_left_out(
    tmp_path, monkeypatch
):
    report = tmp_path / "some.ncu-rep"
    report.write_bytes(b"")
    for rows, names in (
        ([], ["some"]),
        ([row(None, None), row(None, None)], ["some"]),
        ([row("b"), row(None, None), row("a"), row("b")], ["a.B", "b.B"]),
        ([row("a", "C"), row("a", "B")], ["a.B", "a.C"]),
    ):
        read = frame(*rows).astype({"variant": object, "case": object})
        for mark in ("variant", "case"):  # as a report's rows have it
            read[mark] = read[mark].where(read[mark].notna(), None)
        monkeypatch.setattr(runs_module, "read_undamaged_launches", lambda _, read=read: read)
        found = load_runs_of_side(report, Evidence(tmp_path))
        assert [r.name for r in found] == names
        assert sum(len(r.launches) for r in found) == len([r for r in rows if r["variant"]]) or (
            names == ["some"] and len(found[0].launches) == len(rows)
        )
