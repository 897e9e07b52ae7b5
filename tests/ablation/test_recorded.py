"""What was recorded of the probes: the table of the page, and that no rewriting did other work."""

import json
import shutil
import sys
from pathlib import Path

import msgspec
from typer.testing import CliRunner

from profkit.cli.app import app
from profkit.records.ablation import AblationRecord

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import ablations  # noqa: E402


def test_the_page_holds_the_table_of_the_records() -> None:
    page = ablations.PAGE.read_text("utf-8")
    assert ablations.put_into(page) == page, "python tools/ablations.py --write"


def test_every_record_reads_as_one_of_today() -> None:
    for probe, record in ablations.read_records().items():
        found = AblationRecord.of_record(record)
        assert found is not None, probe
        for row in found.measured:
            assert row.executed is None or row.executed <= 0.05, (probe, row.ablation)
            assert row.control <= 1.5, (probe, row.ablation)
        assert msgspec.to_builtins(found)["base"] == record["base"]


def test_every_probe_was_measured_and_few_are_wrong() -> None:
    answers = ablations.judge_probes(ablations.read_records())
    assert answers.keys() == ablations.read_records().keys()
    assert sum(answer == "wrong" for answer in answers.values()) <= 3


def test_diagnose_shows_what_was_measured_beside_what_is_expected(tmp_path: Path) -> None:
    """The report of stage2 with an ablation in the record next to it: that of a probe, for its form."""
    record = json.loads((ROOT / "artifacts/stage2.B.json").read_text())
    record["ablation"] = ablations.read_records()["transpose-conflict"]
    (tmp_path / "stage2.B.json").write_text(json.dumps(record))
    shutil.copy(ROOT / "artifacts/stage2.B.ncu-rep", tmp_path)
    shown = CliRunner().invoke(app, ["diagnose", str(tmp_path / "stage2.B.ncu-rep")]).stdout
    words = " ".join(shown.split())
    assert "Measured by taking it away: stage2.B" in words
    assert "shared-bank-conflicts: without shared bank conflicts 1.74x (measured); expect" in words
    plain = CliRunner().invoke(app, ["diagnose", str(ROOT / "artifacts/stage2.B.ncu-rep")]).stdout
    assert "taking it away" not in plain


def test_a_recorded_ablation_is_shown_as_text(tmp_path: Path) -> None:
    record = json.loads((ROOT / "artifacts/stage2.B.json").read_text())
    record["ablation"] = ablations.read_records()["gather-l2"]
    (tmp_path / "stage2.B.json").write_text(json.dumps(record))
    words = ["ablate", "stage2", "--recorded", "--artifacts", str(tmp_path)]
    shown = " ".join(CliRunner().invoke(app, words).stdout.split())
    assert "scattered access" in shown
    assert "at most 8.99x" in shown
    assert "uncoalesced-access" in shown
