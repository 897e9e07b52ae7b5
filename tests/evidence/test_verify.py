"""Files of claims, tried on a folder of artifacts."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.evidence.claims import (
    at_least,
    choose_exit_status,
    decide,
    gate,
    timed,
    verify_claim_files,
)
from profkit.evidence.runs import Evidence, MissingEvidence
from profkit.evidence.stats import Interval
from profkit.records.store import make_json_safe
from tests.evidence.made import run, samples
from tests.evidence.test_ladder import folder as evidence_of

HEAD = """\
'''Is the kernel as fast as they say?'''
from profkit.evidence.claims import claim, decide, gate, undecided
"""
HOLDS = """
@claim(who="the status document")
def arithmetic(evidence):
    '''Two and two
    are four.

    Not part of the sentence.
    '''
    return decide(2 + 2 == 4, "it is 4", sum=4).elsewhere("on an L4 it is 4 too")
"""
FAILS = """
@claim(who="nobody")
def wrong(evidence):
    '''Two and two are five.'''
    return decide(2 + 2 == 5, "it is 4", sum=4.0, unknown=float("nan"))
"""
MISSING = """
@claim(who="the plan", needs=["v2.B", "v3.B"])
def later(evidence):
    '''Needs a run.'''
    raise AssertionError("never reached")
"""
RAISES = """
@claim(who="a careless one")
def broken(evidence):
    '''Divides.'''
    return 1 / 0

@claim(who="a forgetful one")
def forgets(evidence):
    '''Returns nothing.'''
"""


def written(folder: Path, *parts: str, name: str = "question.py") -> Path:
    path = folder / name
    path.write_text(HEAD + "".join(parts))
    return path


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    return Evidence(tmp_path / "artifacts")


def outcomes(results) -> dict[str, str]:
    return {j.name: j.outcome for f in results for j in f.claims}


def test_each_outcome_and_the_rest_goes_on(tmp_path, evidence):
    path = written(tmp_path, HOLDS, RAISES, FAILS, MISSING)
    results = verify_claim_files([path], evidence)
    assert results[0].title == "Is the kernel as fast as they say?"
    assert outcomes(results) == {
        "arithmetic": "holds",
        "broken": "errored",
        "forgets": "errored",
        "wrong": "fails",
        "later": "undecided",
    }
    assert choose_exit_status(results) == 2
    by_name = {j.name: j for j in results[0].claims}
    assert by_name["arithmetic"].sentence == "Two and two are four."
    assert by_name["arithmetic"].computed == ("on an L4 it is 4 too",)
    assert "ZeroDivisionError" in by_name["broken"].because
    assert "line " in by_name["broken"].because
    assert by_name["later"].collect == (
        "profkit profile --variant v2 --case B",
        "profkit profile --variant v3 --case B",
    )


def test_a_failing_claim_is_an_answer_and_a_closed_gate_is_not(tmp_path, evidence):
    assert choose_exit_status(verify_claim_files([written(tmp_path, HOLDS, FAILS)], evidence)) == 0
    closed = written(tmp_path, HOLDS, MISSING, "\nGATE = gate('v3', [arithmetic, later])\n")
    results = verify_claim_files([closed], evidence)
    assert choose_exit_status(results) == 1
    assert results[0].gates[0].failing == ("later",)
    assert [j.name for j in results[0].claims] == ["arithmetic", "later"]
    told = written(tmp_path, FAILS, "\nGATE = gate('v3', [wrong], binding=False)\n")
    assert choose_exit_status(verify_claim_files([told], evidence)) == 0
    opened = written(tmp_path, HOLDS, "\nGATE = gate('v3', [arithmetic])\n")
    assert verify_claim_files([opened], evidence)[0].gates[0].met


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("this is no python", "SyntaxError"),
        ("raise RuntimeError('at import')", "RuntimeError: at import"),
        ("@claim(who='x')\ndef silent(e):\n    return None\n", "no docstring"),
        ("gate('open', [])", "no claims"),
        ("raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_file_that_does_not_load_stops_no_other(tmp_path, evidence, text, said):
    bad = written(tmp_path, text, name="bad.py")
    good = written(tmp_path, HOLDS)
    results = verify_claim_files([bad, tmp_path / "absent.py", good], evidence)
    assert said in results[0].error
    assert "no such file" in results[1].error
    assert outcomes(results) == {"arithmetic": "holds"}
    assert choose_exit_status(results) == 2


def test_a_file_may_import_its_neighbour_and_have_no_claims(tmp_path, evidence):
    table = (
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "@dataclass(frozen=True)\n"
        "class Device:\n"
        "    sms: int\n"
        "SMS = Device({}).sms\n"
    )
    uses = (
        "from table import SMS\n"
        "@claim(who='x')\n"
        "def count(evidence):\n"
        "    '''It has 58.'''\n"
        "    from table import SMS as again\n"
        "    return decide(SMS == again == 58, str(SMS))\n"
    )
    paths = []
    for folder, sms in (("l4", 58), ("h200", 132)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "table.py").write_text(table.format(sms))
        paths += [tmp_path / folder / "table.py", written(tmp_path / folder, uses)]
    before = list(sys.path)
    results = verify_claim_files(paths, evidence)
    assert [[j.outcome for j in f.claims] for f in results] == [[], ["holds"], [], ["fails"]]
    assert choose_exit_status(results) == 0
    assert sys.path == before
    assert "table" not in sys.modules


def test_json_has_everything_and_no_nan(tmp_path, evidence):
    results = verify_claim_files([written(tmp_path, HOLDS, FAILS, RAISES)], evidence)
    text = json.dumps(make_json_safe({"files": results}), allow_nan=False)
    claims = json.loads(text)["files"][0]["claims"]
    assert claims[1]["numbers"] == {"sum": 4.0, "unknown": None}
    assert claims[0]["who"] == "the status document"
    assert claims[2]["outcome"] == "errored"


def test_a_metric_that_was_not_collected_names_its_section(tmp_path, evidence):
    path = written(
        tmp_path,
        "from profkit.model.launch import Launch\n"
        "@claim(who='x')\n"
        "def hit(evidence):\n"
        "    '''The L2 hits.'''\n"
        "    return decide(Launch({'l2_hit': float('nan')})['l2_hit'] > 0.9, 'hit')\n",
    )
    answer = verify_claim_files([path], evidence)[0].claims[0]
    assert answer.outcome == "undecided"
    assert answer.collect == ("profkit profile --section MemoryWorkloadAnalysis",)


def test_a_record_that_cannot_be_read_is_an_error_not_a_gap(tmp_path, evidence):
    evidence.root.mkdir()
    (evidence.root / "v2.B.json").write_text("{")
    path = written(
        tmp_path,
        "@claim(who='x', needs=['v2.B'])\n"
        "def reads(evidence):\n"
        "    '''Reads.'''\n"
        "    return decide(True, 'read')\n",
    )
    judged = verify_claim_files([path], evidence)[0].claims[0]
    assert judged.outcome == "errored"
    assert "v2.B.json: not JSON" in judged.because


def test_a_gate_needs_claims():
    with pytest.raises(ProfkitError, match="no claims"):
        gate("open", [])


@pytest.mark.parametrize(
    ("low", "high", "bound", "answer"),
    [
        (1.0, 2.0, 1.0, True),
        (1.0, 2.0, 0.9, True),
        (1.0, 2.0, 1.5, None),
        (1.0, 2.0, 2.0, None),
        (1.0, 2.0, 2.1, False),
        (float("nan"), float("nan"), 1.0, None),
    ],
)
def test_a_value_is_at_least_a_bound_when_all_of_its_interval_is(low, high, bound, answer):
    assert at_least(Interval(1.5, low, high), bound) is answer
    assert decide(answer, "x").verdict == {True: "holds", False: "fails", None: "undecided"}[answer]


def test_times_that_must_not_be_compared_leave_a_claim_undecided():
    known = evidence_of(
        run(), run("stage2", warm=samples(5e-5, seed=1)), run("stage3", correct=False)
    )
    assert timed(known, "stage1.B", "stage2.B").speedup.median == pytest.approx(2, rel=0.01)
    with pytest.raises(MissingEvidence, match=r"stage1\.B and stage3\.B are not compared: .*wrong"):
        timed(known, "stage1.B", "stage3.B")


def test_a_gate_takes_claims_of_other_files_and_names_all_that_do_not_hold(tmp_path, evidence):
    last = "\nGATE = gate('v3', [later, arithmetic, wrong])\nOPEN = gate('v2', [arithmetic])\n"
    (file,) = verify_claim_files([written(tmp_path, FAILS, HOLDS, MISSING, last)], evidence)
    assert [(g.name, g.met, g.failing) for g in file.gates] == [
        ("v3", False, ("later", "wrong")),
        ("v2", True, ()),
    ]
    assert [j.name for j in file.claims] == ["wrong", "arithmetic", "later"]
    assert choose_exit_status([file]) == 1
    bad = verify_claim_files([tmp_path / "absent.py"], evidence)
    assert choose_exit_status([file, *bad]) == 2, "what could not be tried is worse"
