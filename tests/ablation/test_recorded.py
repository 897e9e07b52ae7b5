"""What was recorded of the probes: the table of the page, and that no rewriting did other work."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from profkit.cli.app import app
from profkit.diagnosis.ablated import add_measured_gains
from profkit.diagnosis.rule import Diagnosis, LaunchFinding
from profkit.judge import Estimate
from profkit.lab.ablation.judge import add_ablation_verdict
from profkit.records.ablation import AblationRecord
from profkit.records.record import parse_record

ROOT = Path(__file__).parents[2]
SMS, DRAM = 132, 3.352e12  # of the H100 that all were recorded on
sys.path.insert(0, str(ROOT / "tools"))
import ablations  # noqa: E402


def test_the_page_holds_the_table_of_the_records() -> None:
    page = ablations.PAGE.read_text("utf-8")
    assert ablations.put_into(page) == page, "python tools/ablations.py --write"


def test_every_record_reads_as_one_of_today() -> None:
    for probe, record in ablations.read_records().items():
        found = AblationRecord.from_record(record)
        assert found is not None, probe
        for row in found.measured:
            assert row.executed is None or row.executed <= 0.05, (probe, row.ablation)
            assert row.control <= 1.5, (probe, row.ablation)
        assert msgspec.to_builtins(found)["base"] == record["base"]


def test_what_was_not_measured_is_left_out_of_a_record_and_read_as_nothing() -> None:
    record = ablations.read_records()["transpose-conflict"]
    record.update(low=None, high=None, rebuilt=None)
    for row in record["measured"]:
        row.update(low=None, high=None, executed=None)
    kept = parse_record({"variant": "v", "case": "A", "problem": "p", "ablation": record}).ablation
    found = AblationRecord.from_record(kept)
    assert found is not None
    assert found.low is None
    assert len(found.measured) == len(record["measured"])


def test_every_probe_was_measured_and_few_are_wrong() -> None:
    answers = ablations.judge_probes(ablations.read_records())
    assert answers.keys() == ablations.read_records().keys()
    assert sum(answer == "wrong" for answer in answers.values()) <= 3


def test_a_control_is_known_by_what_its_change_did() -> None:
    assert f"below {ablations.BROUGHT}x it is a control" in ablations.PAGE.read_text("utf-8")
    kernels = ablations.read_public()
    assert len(kernels) == 36
    assert not [k.name for k in kernels if k.is_control and not k.is_right]
    fixed = ablations.read_fixed()
    assert [name for name, (_, shown) in fixed.items() if shown >= 1.1] == ["histogram-shared"]


def test_a_claim_that_a_change_of_ours_bears_out_is_of_no_control() -> None:
    listed = [
        *ablations.read_public(),
        *ablations.read_public(ablations.UNSEEN_LISTED, ablations.AGAIN),
    ]
    kernels = {kernel.name: kernel for kernel in listed}
    ours = [kernel for kernel in listed if kernel.of]
    assert len(ours) == 6
    for kernel in ours:
        claimed = kernels[kernel.of]
        assert claimed.real < ablations.BROUGHT, "its published change brought nothing"
        assert claimed.helped == kernel.real > 1.2
        assert not claimed.is_control


def test_no_pair_in_triton_that_gains_nothing_is_said_to_gain() -> None:
    kernels = ablations.read_public(ablations.TRITON_LISTED, ablations.TRITON)
    assert len(kernels) == 17
    controls = [kernel for kernel in kernels if kernel.is_control]
    assert len(controls) == 7
    assert all(kernel.is_right for kernel in controls)


def test_memcheck_saw_every_ablation() -> None:
    checked = ablations.read_checked()
    assert checked.keys() == ablations.read_planted().keys()
    assert not [probe for probe, row in checked.items() if row["status"] or "error" in row]
    assert not ablations.list_unchecked(ablations.read_records())


def test_verdicts_that_are_kept_are_those_of_the_rules() -> None:
    for file in (ablations.KEPT, ablations.VERDICTS):
        for name, record in ablations.read_records(file).items():
            found = AblationRecord.from_record(record.get("ablation", record))
            assert found is not None, name
            again = add_ablation_verdict(found, SMS, DRAM).verdict
            assert again == found.verdict, f"{name}: python kernels/probes/ablate.py --keep"


def test_steps_of_the_ladder_are_measured_by_what_stands_for_them() -> None:
    steps = {step.after: step for step in ablations.read_steps()}
    assert steps["stage2swizzle"].gain == pytest.approx(steps["stage2swizzle"].real, rel=0.05)
    assert steps["v3"].gain is None, "a bound stands for no step"


def put_beside(folder: Path, **changed: Any) -> Path:
    """The report of stage2 with an ablation in the record next to it: that of a probe, for its form."""
    record = json.loads((ROOT / "artifacts/stage2.B.json").read_text())
    record["ablation"] = ablations.read_records()["transpose-conflict"] | changed
    (folder / "stage2.B.json").write_text(json.dumps(record))
    return Path(shutil.copy(ROOT / "artifacts/stage2.B.ncu-rep", folder))


def diagnose(*words: str) -> str:
    return " ".join(CliRunner().invoke(app, ["diagnose", *words]).stdout.split())


def test_diagnose_shows_what_was_measured_beside_what_is_expected(tmp_path: Path) -> None:
    gpu = json.loads(diagnose(str(ROOT / "artifacts/stage2.B.ncu-rep"), "--json"))
    report = put_beside(tmp_path, gpu=gpu["launches"][0]["device"])
    shown = diagnose(str(report))
    assert "1.73x without shared bank conflicts" in shown, shown
    (launch,) = json.loads(diagnose(str(report), "--json"))["launches"]
    first = launch["findings"][0]
    assert (first["rule"], first["measured"]["ablation"]) == (
        "shared-bank-conflicts",
        "conflict-free",
    )
    assert launch["saves_s"] == pytest.approx(
        launch["time_s"] * (1 - 1 / first["measured"]["gain"])
    )
    assert not any("measured" in finding for finding in gpu["launches"][0]["findings"])


def test_what_was_measured_on_another_gpu_or_of_several_kernels_is_not_shown(
    tmp_path: Path,
) -> None:
    assert "measured 1.73x" not in diagnose(str(put_beside(tmp_path, gpu="NVIDIA L4")))
    gpu = json.loads(diagnose(str(tmp_path / "stage2.B.ncu-rep"), "--json"))["launches"][0][
        "device"
    ]
    several = put_beside(tmp_path, gpu=gpu, kernels=["a", "b"])
    assert "measured 1.73x" not in diagnose(str(several))


def test_what_a_fix_was_measured_to_reach_leads_and_a_bound_never_does() -> None:
    rows = ablations.read_records()["transpose-conflict"]
    found = AblationRecord.from_record(rows)
    assert found is not None
    bound = next(row for row in found.measured if not row.reachable and row.rules)
    gains = {"shared-bank-conflicts": 1.1, bound.rules[0]: 9.0, "tail-effect": 2.0}
    findings = []
    for rule, gain in gains.items():
        saving = Estimate(bound=gain)
        findings.append(LaunchFinding(rule=rule, status="fires", cause=rule, saving=saving))
    for gain, order in ((1.3, [0, 1, 2]), (1.0, [1, 2, 0])):
        measured = [
            msgspec.structs.replace(row, gain=gain if row.reachable else 50.0)
            for row in found.measured
        ]
        of = msgspec.structs.replace(found, measured=tuple(measured))
        ranked = add_measured_gains(Diagnosis("memory", None, "", tuple(findings)), of).findings
        assert [f.rule for f in ranked] == [list(gains)[at] for at in order]
        assert ranked[order.index(1)].measured is not None
        assert ranked[order.index(1)].ranking_gain == 9.0, "a bound is shown and does not rank"


def test_a_recorded_ablation_is_shown_as_text(tmp_path: Path) -> None:
    record = json.loads((ROOT / "artifacts/stage2.B.json").read_text())
    record["ablation"] = ablations.read_records()["gather-l2"]
    (tmp_path / "stage2.B.json").write_text(json.dumps(record))
    words = ["ablate", "stage2", "--recorded", "--artifacts", str(tmp_path)]
    shown = " ".join(CliRunner().invoke(app, words).stdout.split())
    assert "scattered access" in shown
    assert "at most 8.24x" in shown
    assert "uncoalesced-access" in shown
