"""Ten probes built and profiled again: the verdicts are those of the committed reports."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.test_verdicts import VERDICTS

pytestmark = [pytest.mark.gpu, pytest.mark.long]
ROOT = Path(__file__).parents[2]
AGAIN = (
    "dram-copy",
    "gather-l2",
    "conflict8",
    "xu-convert",
    "fp64",
    "icache",
    "barrier",
    "occupancy-shared",
    "tail",
    "grid-8",
)


def test_the_same_verdicts(tmp_path: Path) -> None:
    script = ROOT / "kernels" / "probes" / "record.py"
    subprocess.run(
        [sys.executable, str(script), "--out", str(tmp_path), "--mains", *AGAIN],
        check=True,
        timeout=300,
    )
    before = {r.probe: r.said for r in VERDICTS.rows()}
    again = {r.probe: r.said for r in VERDICTS.rows(tmp_path)}
    assert again == {name: before[name] for name in AGAIN}
