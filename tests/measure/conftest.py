"""A machine without a GPU that behaves like one: see standin/."""

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from profkit.lab.measure.cuda import device

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

PROBLEM = '''"""out = 2 in."""
import numpy as np

ATOL = RTOL = 1e-3
SEEDS = (0, 1)
CASES = {"B": 500, "C": 600}
CHECKS = {"n1": 1, "n17": 17}


def arguments(case):
    return {"size": (case,), "stride": (1,), "scale": 2.0}


def inputs(case, seed, grid=None):
    return (np.random.default_rng(seed).standard_normal(case).astype(np.float16),)


def outputs(case):
    return (((case,), "float16"),)


def reference(case, given):
    return (2 * given[0].astype(np.float64),)


def operations(case):
    return float(case)


def compulsory_bytes(case):
    return 4.0 * case
'''

KERNEL = """/* {title}
   {keys}
*/
#include "../common/variant.cuh"
#include <cstdint>
#include <unistd.h>
#include <cstring>
// Halves are doubled by adding one to the exponent; zero and the smallest stay out of the tests.
static void twice(void* what) {{
  ProfkitArgs a;
  std::memcpy(&a, what, sizeof a);
  const uint16_t* in = static_cast<const uint16_t*>(a.in[0]);
  uint16_t* out = static_cast<uint16_t*>(a.out[0]);
  long long n = a.size[0];
  for (long long i = 0; i < n; ++i) out[i] = in[i] & 0x7fff ? in[i] + 0x400 : in[i];
  {inside}
}}
extern "C" int profkit_launch(const ProfkitArgs* a) {{
  {before}
  fake_launch({stream}, "_Z16attention_scalarv", unsigned(a->size[0] + 127) / 128, 128, 2048,
              twice, a, sizeof *a);
  return cudaSuccess;
}}
"""


@dataclass(frozen=True)
class Machine:
    """Folders of a stand-in machine, and how to put variants there."""

    root: Path

    @property
    def kernels(self) -> Path:
        return self.root / "kernels"

    @property
    def artifacts(self) -> Path:
        return self.root / "artifacts"

    def recorded(self, case: str) -> Path:
        """The folder of a case's records and reports."""
        return self.artifacts / "doubling" / case

    def write(
        self,
        name: str,
        keys: str = "",
        inside: str = "",
        before: str = "",
        stream: str = "a->stream",
    ) -> Path:
        """A variant whose kernel runs on the host."""
        path = self.kernels / "doubling" / name
        source = KERNEL.format(title=name, keys=keys, inside=inside, before=before, stream=stream)
        path.write_text(source)
        return path


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stand-in libcuda.so.1."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    folder = tmp_path_factory.mktemp("driver")
    library = folder / "libcuda.so.1"
    flags = ["-O1", "-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["gcc", *flags, "-o", library, HERE / "standin/libcuda.c"], check=True)
    return folder


@pytest.fixture
def machine(tmp_path: Path, driver: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Stand-ins for driver, nvcc and ncu in place, and an empty problem."""
    made = Machine(tmp_path / "work")
    (made.kernels / "doubling").mkdir(parents=True)
    (made.kernels / "common").mkdir()
    shutil.copy(ROOT / "kernels/common/variant.cuh", made.kernels / "common")
    (made.kernels / "doubling/problem.py").write_text(PROBLEM)
    path = os.pathsep.join([str(HERE / "standin"), os.environ["PATH"]])
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver))
    monkeypatch.setenv("STANDIN_LIB", str(driver))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))
    monkeypatch.setenv("FAKE_NCU_LOG", str(tmp_path / "ncu.log"))
    monkeypatch.setenv("FAKE_REPORT", str(ROOT / "artifacts/scalar.B.ncu-rep"))
    monkeypatch.setenv("PROFKIT_KERNELS", str(made.kernels))
    monkeypatch.delenv("PROFKIT_BUILD", raising=False)
    library = ctypes.CDLL(str(driver / "libcuda.so.1"))
    monkeypatch.setattr(device, "_load_driver", lambda: library)
    forget = (device.query_first_gpu, device.make_first_gpu_current, device._init_driver_once)
    for cached in forget:
        cached.cache_clear()
    yield made
    for cached in forget:
        cached.cache_clear()


@pytest.fixture
def processes() -> Callable[..., list[int]]:
    """Processes whose command line holds a text, and whose environment another."""

    def running(text: str, within: str = "") -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    ours = within.encode() in (entry / "environ").read_bytes()
                except OSError:
                    continue
                if ours and text in words:
                    found.append(int(entry.name))
        return found

    return running
