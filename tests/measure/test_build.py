import os
import shutil
import time
from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.lab.measure.cuda import resources
from profkit.lab.measure.languages import cuda
from profkit.lab.measure.languages.language import CompileJob
from profkit.lab.measure.variants import build, variants
from profkit.lab.measure.variants.variants import Variant
from profkit.records.header import VariantHeader
from profkit.reports.figures import get_base_name_of_kernel
from tests.copies import replace

ROOT = Path(__file__).parents[2]
NVCC = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")

KERNEL = """/* {title}
   {keys}
*/
#include "../common/variant.cuh"
__global__ void scale(const float* in, float* out, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = {factor} * in[i];
}}
extern "C" int profkit_launch(const ProfkitArgs* a) {{
  int n = int(a->size[0]);
  scale<<<(n + 127) / 128, 128, 0, a->stream>>>(
      (const float*)a->in[0], (float*)a->out[0], n);
  return cudaGetLastError();
}}
"""


def write(kernels: Path, name: str, keys: str = "", factor: str = "2.f") -> Variant:
    folder = kernels / "scaling"
    folder.mkdir(parents=True, exist_ok=True)
    (kernels / "common").mkdir(exist_ok=True)
    shutil.copy(ROOT / "kernels/common/variant.cuh", kernels / "common")
    path = folder / name
    path.write_text(KERNEL.format(title=name, keys=keys, factor=factor))
    return variants.read_variant(path)


LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN12_GLOBAL__N_13fooILi3EEEvPf' for 'sm_90a'
ptxas info    : Function properties for _ZN12_GLOBAL__N_13fooILi3EEEvPf
    48 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 168 registers, used 5 barriers, 48 bytes cumulative stack size, 24960 bytes smem
ptxas info    : Compiling entry function 'bar' for 'sm_90a'
ptxas info    : Function properties for bar
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers, 400 bytes cmem[0]
"""


def test_ptxas_output() -> None:
    foo, bar = resources.parse_ptxas_log(LOG)
    assert (foo.arch, foo.regs, foo.smem, foo.spills, foo.stack) == ("90a", 168, 24960, 28, 48)
    assert get_base_name_of_kernel(foo.mangled) == "foo"
    assert get_base_name_of_kernel(foo.name) == "foo"
    assert (bar.name, bar.regs, bar.smem, bar.spills, bar.stack) == ("bar", 10, 0, 0, 0)


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("void ns::kern<(int)3, ns::T>(float*, int)", "kern"),
        ("void (anonymous namespace)::kern<3>(float const*)", "kern"),
        ("kern(int)", "kern"),
        ("kern", "kern"),
        ("_Z4kernPKfi", "kern"),
        ("_ZN2ns4kernILi3EEEvPf", "kern"),
    ],
)
def test_base_name(name: str, base: str) -> None:
    assert get_base_name_of_kernel(name) == base


def test_check_budget() -> None:
    keys = {"budget": "regs=10 smem=1K spills=0 stack=0"}
    variant = Variant("v", "p", Path("v.cu"), VariantHeader("T", keys=keys))
    kernel = resources.KernelResources("k(int)", "k", "90", 11, 1000, 4, 0)
    built = build.Build(variant, "90", "", None, (kernel,))
    assert build.describe_budget_excesses(built) == [
        "v.cu sm_90 k: regs=11, budget 10",
        "v.cu sm_90 k: spills=4, budget 0",
    ]
    assert len(build.describe_budget_excesses(built, {"k(int)": 100})) == 3
    fits = replace(kernel, regs=10, spills=0)
    assert build.describe_budget_excesses(replace(built, kernels=(fits,))) == []


def test_where_builds_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROFKIT_BUILD", raising=False)
    kernels = tmp_path / "kernels"
    kernels.mkdir()
    assert build.choose_build_folder_of_kernels(kernels) == tmp_path / "build"
    assert (tmp_path / "build/.gitignore").read_text() == "*\n"
    assert build.choose_build_folder_of_kernels(kernels, tmp_path / "x") == tmp_path / "x"
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert build.choose_build_folder_of_kernels(kernels).parent == tmp_path / "cache/profkit"


def test_without_nvcc_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("profkit.collect.tools.find_tool", lambda _: None)
    with pytest.raises(ProfkitError, match="nvcc was not found"):
        build.compile_variants_not_built_yet([], ["90"], tmp_path)


def test_a_path_that_nvcc_would_expand_is_refused(tmp_path: Path) -> None:
    job = CompileJob(tmp_path / "a$(touch x).cu", tmp_path, "90")
    with pytest.raises(ProfkitError, match=r"'\$'"):
        cuda.make_text_of_ninja_file([job], Path("/bin/nvcc"))


@NVCC
@pytest.mark.nvcc
def test_build_caches_and_hashes(tmp_path: Path) -> None:
    kernels, folder = tmp_path / "it's a kernels", tmp_path / "build"
    folder.mkdir()
    one = write(kernels, "one_x.cu")
    same = write(kernels, "same_y.cu", keys="flags: -DNOTHING=1")
    other = write(kernels, "other_z.cu", factor="3.f")
    hopper = write(kernels, "hopper_z.cu", keys="arch: 90a")
    first = build.compile_variants_not_built_yet([one, same, other, hopper], ["80", "90"], folder)
    assert [(b.variant.id, b.arch) for b in first] == [
        *(("one", "80"), ("one", "90"), ("same", "80"), ("same", "90")),
        *(("other", "80"), ("other", "90"), ("hopper", "90a")),
    ]
    assert all(b.error is None and b.library and b.library.is_file() for b in first)
    assert all(b.seconds > 0 and b.kernels[0].name.startswith("scale(") for b in first)
    one80, one90, _, same90, _, other90, _ = first
    assert one90.sass == same90.sass, "a flag that changes nothing has the same machine code"
    assert len({one80.sass, one90.sass, other90.sass, None}) == 4

    started = time.process_time(), os.times().children_user
    second = build.compile_variants_not_built_yet([one, same, other, hopper], ["80", "90"], folder)
    assert time.process_time() - started[0] < 0.3
    assert os.times().children_user == started[1], "no compiler was started"
    assert [replace(b, seconds=0.0) for b in first] == second

    one.path.write_text(one.path.read_text() + "// a comment\n")
    (third,) = build.compile_variants_not_built_yet(
        [variants.read_variant(one.path)], ["90"], folder
    )
    assert third.seconds > 0
    assert third.source == one90.source
    assert third.key != one90.key, "the line tables moved"
    assert third.sass == one90.sass


@NVCC
@pytest.mark.nvcc
def test_a_compile_error_is_shown_whole_and_the_rest_is_built(tmp_path: Path) -> None:
    good = write(tmp_path / "kernels", "good_x.cu")
    bad = write(tmp_path / "kernels", "bad_x.cu", factor="no_such_thing")
    built, failed = build.compile_variants_not_built_yet([good, bad], ["90"], tmp_path)
    assert built.library
    assert failed.error
    assert not failed.library
    with pytest.raises(ProfkitError) as caught:
        build.require_library(failed)
    assert str(bad.path) in caught.value.message
    assert 'identifier "no_such_thing" is undefined' in caught.value.message
    assert not list(tmp_path.glob("tmp-*"))


@NVCC
@pytest.mark.nvcc
def test_a_damaged_build_is_built_again(tmp_path: Path) -> None:
    variant = write(tmp_path / "kernels", "one_x.cu")
    (first,) = build.compile_variants_not_built_yet([variant], ["90"], tmp_path)
    assert first.library
    first.library.write_bytes(b"short")
    (again,) = build.compile_variants_not_built_yet([variant], ["90"], tmp_path)
    assert again.seconds > 0
    assert again.sass == first.sass
