"""Hashes of launchers: one text gives one, wherever it is built; another number gives another."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from profkit.lab.measure.cuda import code_hash
from profkit.lab.measure.cuda.code_hash import hash_host_code
from profkit.lab.measure.languages.plan import (
    CallPlan,
    CasePlan,
    KernelImage,
    KernelStart,
    Parameter,
)
from profkit.lab.measure.languages.triton import PLAYER

NVCC = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
HEADER = """\
#define CHECK(x) if (x) std::fprintf(stderr, "%s " __FILE__ ":" "7\\n", __FILE__), std::exit(1)
"""
LAUNCHER = """\
#include "check.h"
#include <cstdio>
#include <cstdlib>
namespace {
__constant__ float FACTORS[4];
template <int N> __global__ void scale(float* p, float s, int n) {
  int i = blockIdx.x * N + threadIdx.x;
  if (i < n) p[i] *= s * FACTORS[i & 3];
}
static const float TABLE[] = {1.5f, 2.25f, 3.125f};
const char* const ORDERS[] = {"forth", "back"};
}
static __device__ int calls;
static __global__ void count() { ++calls; }
extern "C" int profkit_launch(float* p, int n, int which) {
  float host[] = {0.5f, 0.25f, 0.5f, 1.f};
  cudaMemcpyToSymbol(FACTORS, host, sizeof host);
  scale<128><<<(n + 127) / 128, 128>>>(p, TABLE[which] * float(n), n);
  if (ORDERS[which & 1][0] == 'f') count<<<1, 1>>>();
  scale<64><<<n / 64, 64>>>(p, n * 0.125f, 1000);
  CHECK(cudaGetLastError());
  return 0;
}
"""


def compiled(folder: Path, text: str = LAUNCHER) -> Path:
    """The object of a launcher in a folder of its own, which is made."""
    folder.mkdir(parents=True)
    (folder / "check.h").write_text(HEADER)
    (folder / "v.cu").write_text(text)
    flags = ("-O3", "-lineinfo", "-Xcompiler", "-fPIC", "--no-compress", "-arch=sm_90")
    subprocess.run(["nvcc", *flags, "-c", "-o", folder / "v.o", folder / "v.cu"], check=True)
    return folder / "v.o"


@NVCC
@pytest.mark.nvcc
def test_one_text_has_one_hash_in_every_folder(tmp_path: Path) -> None:
    texts = LAUNCHER, f"// prose\n{LAUNCHER}"
    first, commented = (compiled(tmp_path / str(i), text) for i, text in enumerate(texts))
    far = compiled(tmp_path / "a folder with a name/that is longer than the other's" / ("x" * 40))
    assert first.read_bytes() != far.read_bytes()
    assert str(tmp_path).encode() in far.read_bytes(), "or nothing is left out"
    assert len({hash_host_code(o) for o in (first, far, commented)}) == 1
    assert hash_host_code(first) is not None


@NVCC
@pytest.mark.nvcc
def test_what_a_launcher_hands_over_is_in_its_hash(tmp_path: Path) -> None:
    changes = {
        "a float": ("0.125f", "0.75f"),
        "an integer": ("1000", "1024"),
        "a grid": ("(n + 127) / 128", "(n + 63) / 128"),
        "a block": ("n / 64, 64>>>", "n / 64, 32>>>"),
        "a table": ("2.25f", "2.75f"),
        "an array on the stack": ("0.25f, 0.5f, 1.f", "0.25f, 0.5f, 2.f"),
        "a string": ('"back"', '"fack"'),
        "which constant": ("float host[] = {0.5f, 0.25f", "float host[] = {0.25f, 0.5f"),
        "which kernel": ("scale<64><<<n / 64, 64>>>", "scale<128><<<n / 64, 64>>>"),
    }
    objects = {"": compiled(tmp_path / "first")}
    for name, (old, new) in changes.items():
        assert LAUNCHER.count(old) == 1, name
        objects[name] = compiled(tmp_path / name, LAUNCHER.replace(old, new))
    hashes = {name: hash_host_code(o) for name, o in objects.items()}
    assert len(set(hashes.values())) == len(objects), hashes
    alike = {
        code_hash.hash_all_machine_code(o) for name, o in objects.items() if name != "which kernel"
    }
    assert len(alike) == 1, "the kernels are the same"


def test_what_is_no_object_file_has_none(tmp_path: Path) -> None:
    file = tmp_path / "x.o"
    assert hash_host_code(file) is None
    for content in (b"", b"text", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 60):
        file.write_bytes(content)
        assert hash_host_code(file) is None


def played(folder: Path, cubins: tuple[bytes, bytes], offset: int = 64) -> Path:
    """The object of player.c with two kernels, of which the second is started."""
    folder.mkdir()
    start = KernelStart(1, (2, 1, 1), (128, 1, 1), 0, (Parameter("in", 0, offset),))
    images = [KernelImage(f"k{i}", f"k{i}", cubin) for i, cubin in enumerate(cubins)]
    (folder / "plan.h").write_text(CallPlan(images, [CasePlan("B", {}, (start,))]).write_c_tables())
    for i, image in enumerate(images):
        (folder / f"image{i}.cubin").write_bytes(image.cubin)
    inside = f"-I{folder}", f"-Wa,-I{folder}"
    out = folder / "v.o"
    subprocess.run(["gcc", "-O2", "-fPIC", *inside, "-c", "-o", out, PLAYER], check=True)
    return out


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_a_launcher_in_python_is_hashed_without_its_kernels(tmp_path: Path) -> None:
    first = played(tmp_path / "a", (b"line tables of /a", b"more"))
    longer = played(tmp_path / "b", (b"line tables of /a/longer/way" * 9, b"more"))
    moved = played(tmp_path / "c", (b"line tables of /a", b"more"), offset=128)
    assert hash_host_code(first) == hash_host_code(longer) != hash_host_code(moved)
    assert re.search(b"/a/longer/way", longer.read_bytes())
