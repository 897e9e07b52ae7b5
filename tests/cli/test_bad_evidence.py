"""Evidence that is no evidence: a clear line, exit status 2, and the rest goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.test_judging import ladder, write  # noqa: F401 - a fixture
from tests.conftest import ROOT


def edited(path: Path, change) -> None:
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def samples(values):
    return lambda record: record["timing"]["l2"]["warm"].update(samples=values)


BAD_SAMPLES = [
    ([1e-5], "1 "),
    ([1e-5] * 5 + [float("nan")] * 5, "5 of 10 samples"),
    ([1e-5, None, "fast"] * 4, "8 of 12 samples"),
    ([1e-5, -1e-5] * 6, "6 of 12 samples"),
]


@pytest.mark.parametrize(("values", "said"), BAD_SAMPLES)
def test_samples_that_are_no_times(run, ladder, values, said):  # noqa: F811
    edited(ladder / "stage2.B.json", samples(values))
    found = run("compare", "stage1", "stage2", "--artifacts", ladder)
    assert found.exit_code == 2
    assert "Cannot tell" in found.stdout
    assert said in found.stdout
    assert "registers" in found.stdout  # what it cost is compared all the same


@pytest.mark.parametrize(("values", "said"), BAD_SAMPLES[1:])
@pytest.mark.parametrize("variant", ["stage2", "sdpa"])
def test_a_ladder_goes_on_without_them(run, ladder, variant, values, said):  # noqa: F811
    write(ladder, "stage3", 0.8e-5, after="stage1")
    edited(ladder / f"{variant}.B.json", samples(values))
    found = run("ladder", "--artifacts", ladder)
    assert found.exit_code == 2
    assert said in found.stderr
    assert f"{variant}.B" in found.stderr
    assert "stage3" in found.stdout
    assert "faster" in found.stdout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r["gpu"].update(name="NVIDIA L4"), "GPUs differ: NVIDIA H200 and NVIDIA L4"),
        (lambda r: r.update(ncu={"clock_control": "base"}), "clock controls differ"),
    ],
)
def test_other_conditions_are_said_and_waived_by_name(run, ladder, change, said):  # noqa: F811
    edited(ladder / "stage1.B.json", lambda r: r.update(ncu={"clock_control": "none"}))
    edited(ladder / "stage2.B.json", lambda r: r.update(ncu={"clock_control": "none"}))
    edited(ladder / "stage2.B.json", change)
    found = run("compare", "stage1", "stage2", "--artifacts", ladder)
    assert found.exit_code == 2
    assert said in found.stdout
    assert "faster than" not in found.stdout
    waived = run("compare", "stage1", "stage2", "--artifacts", ladder, "--anyway")
    assert waived.exit_code == 0
    assert "faster than stage1.B: 2.00x (" in waived.stdout
    assert said in waived.stdout


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """kernels/ with two variants and artifacts/ beside it, recorded from just this code."""
    problem = tmp_path / "kernels" / "p"
    problem.mkdir(parents=True)
    (tmp_path / "kernels" / "common").mkdir()
    shutil.copy(ROOT / "kernels/common/variant.cuh", tmp_path / "kernels/common")
    (problem / "stage1_x.cu").write_text("/* One.\n*/\nint x;\n")
    (problem / "stage2_x.cu").write_text("/* Two.\n after: stage1\n*/\nint y;\n")
    monkeypatch.setenv("PROFKIT_KERNELS", str(tmp_path / "kernels"))
    from profkit.lab.measure.variants.variants import read_all_variants

    folder = tmp_path / "artifacts"
    folder.mkdir()
    for v in read_all_variants(tmp_path / "kernels"):
        time = 2e-5 if v.id == "stage1" else 1e-5
        write(folder, v.id, time, after=v.header.after, problem="p")
        edited(folder / f"{v.id}.B.json", lambda r, v=v: r["source"].update(sha256=v.source_hash))
    return tmp_path


def test_a_stale_run_is_no_evidence(run, checkout):
    folder, file = checkout / "artifacts", checkout / "kernels/p/stage2_x.cu"
    fresh = run("compare", "stage1", "stage2", "--artifacts", folder)
    assert fresh.exit_code == 0, fresh.output
    file.write_text(file.read_text() + "// mended in words only\n")
    assert run("compare", "stage1", "stage2", "--artifacts", folder).exit_code == 0
    file.write_text(file.read_text() + "int z;\n")
    stale = run("compare", "stage1", "stage2", "--artifacts", folder)
    assert stale.exit_code == 2
    assert "stage2.B is stale" in stale.stdout
    assert "profkit profile --variant stage2 --case B" in " ".join(stale.stdout.split())
    assert run("compare", "stage1", "stage2", "--artifacts", folder, "--anyway").exit_code == 0
    table = run("ladder", "--artifacts", folder)
    assert "stage2.B is stale" in table.stdout
    assert run("decide", "stage2", "--artifacts", folder).exit_code == 2


def test_a_claim_on_a_stale_run_says_so(run, checkout):
    folder, claims = checkout / "artifacts", checkout / "claims.py"
    claims.write_text(
        "from profkit.evidence.claims import claim, decide\n"
        "@claim(who='x', needs=['stage2.B'])\n"
        "def timed(evidence):\n    '''It was timed.'''\n"
        "    return decide(bool(evidence.load('stage2', 'B').samples), 'samples')\n"
    )
    assert run("claims", claims, "--artifacts", folder).stderr == ""
    file = checkout / "kernels/p/stage2_x.cu"
    file.write_text(file.read_text() + "int z;\n")
    found = run("claims", claims, "--artifacts", folder)
    assert "stage2.B is stale" in found.stderr
    assert "holds: It was timed." in found.stdout


def test_a_missing_baseline_is_named_with_its_command(run, ladder):  # noqa: F811
    (ladder / "stage1.B.json").unlink()
    found = run("compare", "stage1", "stage2", "--artifacts", ladder)
    assert found.exit_code == 2
    assert "no run of stage1" in found.stderr
    table = run("ladder", "--artifacts", ladder)
    assert "its parent stage1 is not among these runs" in table.stdout
    assert "stage2" in table.stdout


@pytest.mark.parametrize("verb", ["diagnose", "report", "roofline", "compare", "gate", "triage"])
@pytest.mark.parametrize("name", ["x" * 5000, "x" * 300, "x/" * 3000, "x" * 5000 + "/y.ncu-rep"])
def test_a_name_that_no_disk_takes_is_one_line(run, verb, name):
    found = run(verb, *[name] * (2 if verb in ("compare", "gate") else 1))
    assert found.exit_code == 2, found.exception
    assert len(found.stderr.splitlines()) <= 3
    assert "Traceback" not in found.stderr


def test_a_circle_of_after_is_named_and_the_others_are_shown(run, ladder):  # noqa: F811
    write(ladder, "stage3", after="stage4")
    write(ladder, "stage4", after="stage3")
    found = run("ladder", "--artifacts", ladder)
    assert found.exit_code == 2
    assert "the `after:` headers form a cycle: stage3, stage4" in found.stderr
    assert "2.00x  faster" in found.stdout


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "other/1"}', ""])
def test_a_damaged_record_stops_no_other(run, ladder, text):  # noqa: F811
    (ladder / "broken.B.json").write_text(text)
    found = run("ladder", "--artifacts", ladder)
    assert found.exit_code == 2
    assert "broken.B.json" in found.stderr
    assert "2.00x  faster" in found.stdout


def test_a_claim_that_raises_is_said_and_the_rest_goes_on(run, ladder, tmp_path):  # noqa: F811
    claims = tmp_path / "claims.py"
    claims.write_text(
        "from profkit.evidence.claims import claim, decide\n"
        "@claim(who='x')\ndef raises(evidence):\n    '''It divides.'''\n    return 1 / 0\n"
        "@claim(who='x')\ndef holds(evidence):\n    '''It is so.'''\n    return decide(True, 'yes')\n"
    )
    found = run("claims", claims, "--artifacts", ladder)
    assert found.exit_code == 2
    assert "ZeroDivisionError" in found.stdout
    assert "holds: It is so." in found.stdout
