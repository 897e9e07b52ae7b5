"""What a launcher would start, without a GPU; and the calculator behind it."""

import shutil
from math import isnan
from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.lab.measure.cuda.resources import compute_occupancy, compute_waves
from profkit.lab.measure.variants import build, dry, variants
from profkit.records.header import VariantHeader
from tests.copies import replace

ROOT = Path(__file__).parents[2]

PROBLEM = """
ATOL = RTOL = 0
SEEDS = ()
CASES = {"small": 100, "large": 100_000}
CHECKS = {}
inputs = outputs = reference = operations = compulsory_bytes = None


def arguments(case):
    return {"size": (case,), "causal": True}
"""
KERNEL = """/* T
   budget: smem=64K
*/
#include "../common/variant.cuh"
__global__ void first(float* out) { extern __shared__ float s[]; out[0] = s[threadIdx.x]; }
__global__ void second(float* out) { __shared__ float s[256]; s[threadIdx.x] = 1; out[0] = s[3]; }
extern "C" int profkit_launch(const ProfkitArgs* a) {
  int sms = 0, optin = 0;
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
  cudaDeviceGetAttribute(&optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
  size_t bytes = a->size[0] > 1000 ? 70000 : 1000;
  if (bytes > size_t(optin)) return cudaErrorNotSupported;
  cudaFuncSetAttribute(first, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  float* out = static_cast<float*>(a->out[0]);
  first<<<dim3(sms, 2), 256, bytes, a->stream>>>(out);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(a->size[0] / 100));
  config.blockDim = dim3(128);
  cudaLaunchKernelEx(&config, second, out);
  return cudaGetLastError();
}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    folder = tmp_path / "kernels/p"
    folder.mkdir(parents=True)
    (tmp_path / "kernels/common").mkdir()
    (tmp_path / "build").mkdir()
    shutil.copy(ROOT / "kernels/common/variant.cuh", tmp_path / "kernels/common")
    (folder / "problem.py").write_text(PROBLEM)
    (folder / "v1_x.cu").write_text(KERNEL)
    return tmp_path


@pytest.mark.nvcc
def test_a_launcher_says_what_it_starts(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = place / "kernels/p"
    variant = variants.read_variant(folder / "v1_x.cu")
    l4, h200 = build.compile_variants_not_built_yet([variant], ["89", "90"], place / "build")
    shapes = dry.load_dry_launches_by_case(h200, folder)
    assert shapes is not None
    first, second = shapes["large"]
    assert (first.kernel, first.grid, first.block) == ("first(float*)", (132, 2, 1), (256, 1, 1))
    assert (first.dynamic_smem, first.blocks_per_sm) == (70000, 3)
    assert (second.grid, second.dynamic_smem, second.static_smem) == ((1000, 1, 1), 0, 1024)
    on_l4 = dry.load_dry_launches_by_case(l4, folder)
    assert on_l4
    assert on_l4["large"][0].grid == (58, 2, 1)
    assert on_l4["large"][0].blocks_per_sm == 1

    dynamic = {x.kernel: x.dynamic_smem for x in shapes["large"]}
    assert build.describe_budget_excesses(h200) == []
    assert build.describe_budget_excesses(h200, dynamic) == [
        "v1_x.cu sm_90 first: smem=70000, budget 65536"
    ]

    monkeypatch.setattr(dry, "run_command", None)
    assert dry.load_dry_launches_by_case(h200, folder) == shapes, "kept beside the build"


@pytest.mark.nvcc
def test_what_the_stub_does_not_have_is_not_known(place: Path) -> None:
    path = place / "kernels/p/v2_x.cu"
    path.write_text(
        KERNEL.replace(
            "return cudaGet", "cudaDeviceSetLimit(cudaLimitStackSize, 1);\n  return cudaGet"
        )
    )
    (built,) = build.compile_variants_not_built_yet(
        [variants.read_variant(path)], ["90"], place / "build"
    )
    assert built.error is None
    assert dry.load_dry_launches_by_case(built, path.parent) is None


def test_without_a_problem_nothing_is_known(tmp_path: Path) -> None:
    built = build.Build(
        variants.Variant("v", "p", tmp_path / "v.cu", VariantHeader("T")), "90", "", tmp_path
    )
    assert dry.load_dry_launches_by_case(built, tmp_path) is None
    assert dry.load_dry_launches_by_case(replace(built, library=None), tmp_path) is None


@pytest.mark.parametrize(
    ("arch", "regs", "threads", "smem", "blocks", "limiter"),
    [
        # Of the record: 71,168 bytes are one block on an L4; 37.1 KB are two.
        ("89", 64, 256, 71168, 1, "shared"),
        ("89", 96, 128, 43008, 2, "shared"),
        ("90", 96, 128, 43008, 5, "registers"),  # as the driver says on an H200
        ("90", 255, 256, 0, 1, "registers"),
        ("90", 32, 1024, 0, 2, "warps"),
        ("90", 16, 32, 0, 32, "blocks"),
        ("90a", 168, 384, 200 * 1024, 1, "registers"),
        ("80", 128, 128, 0, 4, "registers"),
        ("89", 40, 128, 0, 12, "warps"),
        ("90", 32, 128, 240 * 1024, 0, "shared"),
    ],
)
def test_occupancy(
    arch: str, regs: int, threads: int, smem: int, blocks: int, limiter: str
) -> None:
    found = compute_occupancy(arch, regs, threads, smem)
    assert (found.blocks, found.limiter) == (blocks, limiter)


def test_waves() -> None:
    assert compute_waves((16, 8, 1), 2, 58) == pytest.approx(1.103, abs=1e-3)
    assert isnan(compute_waves((1, 1, 1), 0, 58))
    with pytest.raises(ProfkitError, match="sm_42"):
        compute_occupancy("42", 32, 128, 0)
