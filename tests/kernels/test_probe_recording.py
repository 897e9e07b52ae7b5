"""record.py on a stand-in machine: built, timed and profiled through profkit.lab.measure."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.measure.conftest import Machine, driver, machine  # noqa: F401 - fixtures

pytestmark = pytest.mark.slow

SOURCE = """/* {name}

   bound: memory   limiter: dram   cause: x   twin: {twin}   output: {output}
*/
#include "../common/variant.cuh"
#include <cstdlib>
#include <cstring>
static void scale(void* what) {{
  ProfkitArgs a;
  std::memcpy(&a, what, sizeof a);
  const float* in = static_cast<const float*>(a.in[0]);
  float* out = static_cast<float*>(a.out[0]);
  for (long long i = 0; i < a.size[0] / 4; ++i) out[i] = in[i] * {factor};
}}
extern "C" int profkit_launch(const ProfkitArgs* a) {{
  {before}
#ifdef PROFKIT_TWIN
  {twin_before}
#endif
  fake_launch(a->stream, "_Z16attention_scalarv", 1, 128, 0, scale, a, sizeof *a);
  return cudaSuccess;
}}
"""


@pytest.fixture
def probes(machine: Machine) -> Path:  # noqa: F811
    """kernels/probes with the real scripts, small buffers, and three probes that run on the host."""
    folder = machine.kernels / "probes"
    folder.mkdir()
    for name in ("driver.py", "record.py", "problem.py"):
        shutil.copy(ROOT / "kernels/probes" / name, folder)
    problem = folder / "problem.py"
    small = problem.read_text().replace("BYTES = 1 << 30", "BYTES = 1 << 16")
    problem.write_text(small.replace("TILE = 1 << 26", "TILE = 1 << 12"))
    usual = {"twin": "yes", "output": "same", "factor": "2", "before": "", "twin_before": ""}
    for name, how in {
        "double": {},
        "kills": {"twin": "no", "before": "std::abort();"},
        "other": {"factor": "3", "twin": "no"},
        "unlike": {"factor": "kScale"},
    }.items():
        text = SOURCE.format(name=name, **{**usual, **how})
        (folder / f"{name}_x.cu").write_text(text)
    unlike = folder / "unlike_x.cu"
    scale = "#ifdef PROFKIT_TWIN\nconst float kScale = 4;\n#else\nconst float kScale = 2;\n#endif\n"
    unlike.write_text(unlike.read_text().replace("static void", f"{scale}static void", 1))
    return folder


def record(probes: Path, out: Path, *words: str) -> str:
    command = [sys.executable, str(probes / "record.py"), "--out", str(out), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.usefixtures("machine")
def test_probes_are_built_timed_and_profiled(probes: Path, tmp_path: Path) -> None:
    pytest.importorskip("ncu_report")
    out = tmp_path / "out"
    said = record(probes, out)
    kept = json.loads((out / "times.json").read_text())
    assert kept["unit"] == "s"
    assert kept["gpu"].startswith("Stand-in GPU, ")
    times = kept["times"]
    assert set(times) == {"double", "other", "unlike"}, "the next went on behind the one that died"
    assert "kills" in said.split("timed")[1].splitlines()[0]
    assert times["double"]["fault"] == ""
    assert "differ" in times["unlike"]["fault"]
    assert set(times["other"]) == {"fault", "main", "main_samples"}
    for which in ("main", "twin"):
        assert times["double"][which] > 0
        assert len(times["double"][f"{which}_samples"]) == 15
    assert [p.name for p in out.glob("*.ncu-rep")] == ["probes-0.ncu-rep"]
    words = (tmp_path / "ncu.log").read_text().splitlines()[0].split("\0")
    assert words[words.index("--clock-control") + 1] == "none"
    assert words[words.index("--profile-from-start") + 1] == "off"
    assert words.count("--section") == 13
    assert "--set" not in words
    done = [json.loads(line) for line in (out / "build/profile-0.log").read_text().splitlines()]
    assert [line["done"] for line in done if "done" in line] == [
        "double.main",
        "double.twin",
        "other.main",
        "unlike.main",
        "unlike.twin",
    ]


@pytest.mark.usefixtures("machine")
def test_mains_alone_are_not_timed(probes: Path, tmp_path: Path) -> None:
    pytest.importorskip("ncu_report")
    said = record(probes, tmp_path / "out", "--mains", "double", "other")
    assert "timed" not in said
    assert "profiled 2, failed: none" in said
