"""profkit decide VARIANT as a user types it."""

from __future__ import annotations

import json

import pytest

from tests.cli.test_judging import ladder, write  # noqa: F401 - a fixture

GATE = """
from profkit.evidence.claims import claim, decide, gate
@claim(who="the plan")
def {name}(evidence):
    '''It is so.'''
    return decide({verdict}, "it is said")
GATE = gate("plan", [{name}])
"""


@pytest.mark.parametrize(("variant", "status"), [("stage2", 0), ("stage2.B", 0)])
def test_a_faster_variant_is_kept(run, ladder, variant, status):  # noqa: F811
    found = run("decide", variant, "--artifacts", ladder, "--markdown")
    assert found.exit_code == status, found.output
    assert found.stdout.startswith("## stage2 at case B")
    assert "**keep**" in found.stdout
    assert "sdpa (reference)" in found.stdout


def test_a_slower_or_wrong_one_is_not(run, ladder):  # noqa: F811
    write(ladder, "slow", 9e-5, after="stage2")
    assert run("decide", "slow", "--artifacts", ladder).exit_code == 1
    write(ladder, "wrong", 1e-6, after="stage2", status="wrong")
    found = run("decide", "wrong", "--artifacts", ladder)
    assert found.exit_code == 1
    assert "gives wrong results" in found.stdout


def test_a_gate_decides(run, ladder, tmp_path):  # noqa: F811
    for verdict, status in ((True, 0), (False, 1)):
        file = tmp_path / f"gate{verdict}.py"
        file.write_text(GATE.format(name=f"so{verdict}", verdict=verdict))
        found = run("decide", "stage2", "--artifacts", ladder, "--gate", file, "--json")
        assert found.exit_code == status
        said = json.loads(found.stdout)["summaries"][0]
        assert said["gates"] == [
            {"name": "plan", "met": verdict, "failing": [] if verdict else ["soFalse"]}
        ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("never",), "no run of never"),
        (("stage2", "--against", "never"), "no run of never at case B"),
        (("stage2", "--json", "--markdown"), "cannot be combined"),
        (("stage2", "--gate", "absent.py"), "no such file"),
        (("stage2", "--case", "Z"), "no run of stage2 at case Z"),
        (("stage1", "stage2"), "too many arguments: "),
        ((), "missing argument 'VARIANT'"),
        (("tests",), "tests: decide takes a variant"),
        (("stage2", "--all"), "no such option --all"),
    ],
)
def test_mistakes_are_one_line_and_a_hint(run, ladder, words, said):  # noqa: F811
    found = run("decide", *words, "--artifacts", ladder)
    assert found.exit_code == 2
    assert said in found.stderr
    assert found.stdout == ""
