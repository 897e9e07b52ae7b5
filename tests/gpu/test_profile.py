"""check, bench and profile on a GPU, as a user starts them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]


def profkit(*words: str, status: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "profkit", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_check_judges_every_size(tmp_path: Path) -> None:
    said = json.loads(profkit("check", "--variant", "v1", "--case", "B", "--json"))
    (check,) = said["checks"]
    assert check["status"] == "right"
    assert {"S1", "S17-causal", "S300-D128", "B"} <= {c["case"] for c in check["cases"]}
    assert max(c["max_abs"] for c in check["cases"]) < 2e-3


def test_bench_names_the_backend_that_ran() -> None:
    said = json.loads(profkit("bench", "--variant", "v1", "--case", "A", "--json"))
    rows = {r["name"]: r for r in said["cases"]["A"]}
    assert rows["sdpa"]["backend"] in {"cudnn", "flash", "efficient", "math"}
    for backend in ("flash", "efficient", "math"):
        assert rows[f"sdpa-{backend}"]["backend"] == backend
    for row in rows.values():
        warm = row["timing"]["l2"]["warm"]
        if warm["width"] is not None:
            assert warm["low"] <= warm["median"] <= warm["high"]
        if warm["width"] is None or warm["width"] > 0.01:
            assert "warm" in row["timing"]["why_wide"]
        assert warm["median"] < row["timing"]["l2"]["cold"]["median"] * 1.05


@pytest.mark.parametrize("name", ["v1", "sdpa-flash"])
def test_profile_captures_exactly_one_call(tmp_path: Path, name: str) -> None:
    profkit("profile", "--variant", name, "--case", "A", "--artifacts", str(tmp_path))
    from profkit.reports.reader import read_report_files

    at = tmp_path / "attention" / "A"
    found = read_report_files([at / f"{name}.ncu-rep"]).launches
    said = json.loads((at / f"{name}.json").read_text())
    assert len(found) == len(said["launches"]) == said["report"]["launches"]
    assert set(found["variant"]) == {name}
    assert set(found["case"]) == {"A"}
    assert set(found["nvtx"]) == {f"profkit:{name}:A"}
    assert said["check"]["status"] == "right"
    assert said["gpu"]["uuid"]


def test_profile_wraps_any_command(tmp_path: Path) -> None:
    program = (
        "import torch\nx = torch.ones(1 << 20, device='cuda')\n"
        "for _ in range(5): x = x.cos()\nfor _ in range(3): x = x.sin()\ntorch.cuda.synchronize()"
    )
    report = tmp_path / "wrapped.ncu-rep"
    options = [
        "--kernel",
        "cos",
        "--skip",
        "1",
        "--count",
        "2",
        "--set",
        "basic",
        "-o",
        str(report),
    ]
    profkit("profile", *options, "--", sys.executable, "-c", program)
    from profkit.reports.reader import read_report_files

    found = read_report_files([report]).launches
    assert len(found) == 2
    assert all("cos" in k for k in found["kernel"])
