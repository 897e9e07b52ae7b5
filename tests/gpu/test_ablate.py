"""Ablation on a GPU: a known fix brings what was measured, and no rewritten kernel leaves its arrays."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.collect.tools import find_tool

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.gpu


def ablate(*names: str, folder: Path) -> dict[str, dict]:
    command = [sys.executable, "-m", "profkit", "ablate", *names, "--case", "B", "--json"]
    command += ["--artifacts", str(folder), "--build-dir", str(folder / "build")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return {run["variant"]: run["ablation"] for run in json.loads(done.stdout)["runs"]}


@pytest.mark.alone
def test_conflicts_taken_away_bring_what_the_swizzle_brings(tmp_path: Path) -> None:
    found = ablate("stage2", "stage2swizzle", folder=tmp_path)
    gains = {row["ablation"]: row["gain"] for row in found["stage2"]["measured"]}
    real = found["stage2"]["base"] / found["stage2swizzle"]["base"]
    assert found["stage2"]["verdict"]["cause"] == "shared-bank-conflicts"
    assert 0.8 <= gains["conflict-free"] / real <= 1.25
    assert found["stage2"]["rebuilt"] == pytest.approx(1, abs=0.02)


SOURCE = """
__global__ void pick(const float* x, float* y, unsigned stride, unsigned n) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i * stride % n];
}
"""
LAUNCH = """
grid = [65536, 1, 1]
block = [256, 1, 1]
[[argument]]
array = "float32"
count = 16777216
[[argument]]
array = "float32"
count = 16777216
output = true
[[argument]]
value = 1237
[[argument]]
value = 16777216
"""


@pytest.mark.alone
def test_a_source_is_ablated_as_it_is_launched(tmp_path: Path) -> None:
    (tmp_path / "pick.cu").write_text(SOURCE)
    (tmp_path / "launch.toml").write_text(LAUNCH)
    command = [sys.executable, "-m", "profkit", "ablate", tmp_path / "pick.cu", "--kernel", "pick"]
    command += ["--launch", tmp_path / "launch.toml", "--json", "--artifacts", tmp_path]
    command += ["--build-dir", tmp_path / "build"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    (run,) = json.loads(done.stdout)["runs"]
    gains = {row["ablation"]: row["gain"] for row in run["ablation"]["measured"]}
    assert run["ablation"]["kernels"] == ["_Z4pickPKfPfjj"]
    assert gains["coalesced"] > 1.5
    assert run["ablation"]["verdict"]["cause"] == "uncoalesced-access"


@pytest.mark.skipif(find_tool("compute-sanitizer") is None, reason="needs compute-sanitizer")
def test_memcheck_is_clean_on_every_rewritten_probe(tmp_path: Path) -> None:
    probes = ("conflict8", "gather-l2", "transpose-naive", "histogram", "atomic-bins", "constant")
    command = [sys.executable, ROOT / "kernels/probes/ablate.py", "--sanitize", "--out", tmp_path]
    done = subprocess.run(
        [*command, *probes], capture_output=True, text=True, check=False, cwd=ROOT
    )
    records = json.loads((tmp_path / "sanitized.json").read_text())
    assert records.keys() == set(probes), done.stdout
    for name, record in records.items():
        assert record["status"] == 0, (name, done.stdout)
        assert record["ablations"], name
