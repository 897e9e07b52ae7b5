"""What was recorded of the probes: the table of the page, and that no rewriting did other work."""

import sys
from pathlib import Path

import msgspec

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
