"""`profkit ablate` as a user starts it, on a stand-in machine: what is timed, kept and shown again."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Machine
from .test_verbs import profkit

pytest.importorskip("profkit.cli.options")
pytest.importorskip("scipy")


def ablate(*words: str) -> dict:
    (run,) = json.loads(profkit("ablate", "v1", "--case", "B", "--json", *words).stdout)["runs"]
    return run["ablation"]


def test_each_cause_is_taken_away_and_kept_with_the_run(machine: Machine) -> None:
    machine.write("v1_x.cu")
    found = ablate()
    measured = {row["ablation"] for row in found["measured"]}
    assert {"no-barriers", "no-stores"} <= measured | {r["ablation"] for r in found["refused"]}
    assert found["kernels"] == ["_Z16attention_scalarv"]
    record = json.loads((machine.recorded("B") / "v1.json").read_text())
    assert record["schema"] == "profkit.run/1"
    assert record["ablation"] == found
    assert ablate("--recorded") == found
    assert record["timing"]["l2"]["warm"]["median"] == found["base"]
    other = machine.root / "again"
    assert ablate("--artifacts", str(other))["base"]
    before, after = (machine.recorded("B") / "v1.json", *other.rglob("v1*.json"))
    compared = profkit("compare", str(before), str(after), "--anyway").stdout
    assert "no timing" not in compared, "an ablation's run was timed, as any other"


def test_every_refusal_says_four_things(machine: Machine) -> None:
    machine.write("v1_x.cu")
    for refusal in ablate()["refused"]:
        assert refusal.keys() == {"ablation", "code", "observed", "threshold", "remedy"}
        assert refusal["code"], refusal
        assert refusal["observed"], refusal


def test_without_ptx_the_launch_alone_is_varied(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.write("v1_x.cu")
    here = Path(__file__).parent / "standin"
    bare = tmp_path / "bare"
    bare.mkdir()
    for file in here.iterdir():
        if file.name != "kernel.ptx":
            (bare / file.name).symlink_to(file)
    (bare / "nvcc").unlink()
    text = (here / "nvcc").read_text().replace('"$here/kernel.ptx"', "/nowhere")
    text = text.replace('$(dirname "$(readlink -f "$0")")', str(here))
    (bare / "nvcc").write_text(text)
    (bare / "nvcc").chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(bare), os.environ["PATH"]]))
    found = ablate()
    assert not found["measured"]
    assert not found["seen"]
    assert found["rebuilt"] is None
    assert found["shape"]["cold"] is not None


def test_nothing_recorded_is_an_error_that_says_what_to_run(machine: Machine) -> None:
    machine.write("v1_x.cu")
    done = profkit("ablate", "v1", "--case", "B", "--recorded", status=2)
    assert "no record of v1 contains an ablation" in done.stderr
    assert "profkit ablate v1" in done.stderr


def test_where_counters_are_refused_the_error_says_what_does_without(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.write("v1_x.cu")
    monkeypatch.setenv("FAKE_NCU", "permission")
    done = subprocess.run(
        [sys.executable, "-m", "profkit", "profile", "--variant", "v1", "--case", "B"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "performance counters" in done.stderr
    assert "profkit profile --no-counters" in done.stderr
    assert "profkit ablate" in done.stderr
    words = ["profile", "--no-counters", "--variant", "v1", "--case", "B", "--json"]
    (run,) = json.loads(profkit(*words).stdout)["runs"]
    verdict = run["ablation"]["verdict"]
    missing = verdict["missing"]
    assert verdict["bound"]
    assert verdict["cause"] or all(
        missing[key] for key in ("code", "observed", "threshold", "remedy")
    )


@pytest.mark.slow
def test_what_hangs_is_left_out_and_the_rest_is_measured(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in's kernels end so often, and never again: the process is lost, another goes on."""
    machine.write("v1_x.cu")
    monkeypatch.setenv("FAKE_HANGS", "9")  # while its second change is counted
    found = ablate()
    lost = {refusal["ablation"] for refusal in found["refused"] if refusal["code"] == "lost"}
    tried = {refusal["ablation"] for refusal in found["refused"] if refusal["observed"]}
    assert lost
    assert lost < tried | {row["ablation"] for row in found["measured"]}
    assert found["rebuilt"] is not None, "the others were timed"
    assert all("did not finish" in r["observed"] for r in found["refused"] if r["code"] == "lost")
