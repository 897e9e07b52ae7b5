import re
import subprocess
from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.lab.measure.cuda.library import Args
from profkit.lab.measure.variants import variants

ROOT = Path(__file__).parents[2]


def write(folder: Path, name: str, after: str = "", text: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"/* {name}\n   {f'after: {after}' if after else ''}\n*/\n{text}")
    return path


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    folder = tmp_path / "kernels"
    write(folder / "common", "variant.cuh")
    for name, after in [
        ("v1_scalar.cu", ""),
        ("v10_last.cu", "v2"),
        ("v2_wmma_two.cu", "v1"),
        ("v2tile_x.cu", "v2"),
        ("a_other.cu", ""),
    ]:
        write(folder / "attention", name, after)
    return folder


def test_ladder_order_and_ids(kernels: Path) -> None:
    found = variants.read_all_variants(kernels)
    assert [v.id for v in found] == ["a", "v1", "v2", "v2tile", "v10"]
    assert {v.problem for v in found} == {"attention"}
    assert variants.select_variant_by_id(found, "v2").path.name == "v2_wmma_two.cu"
    assert variants.select_variant_by_id(found, "attention/v2").header.title == "v2_wmma_two.cu"


def test_faults_name_the_file(kernels: Path) -> None:
    folder = kernels / "attention"
    twin = write(folder, "v1_again.cu")
    with pytest.raises(ProfkitError, match=r"v1_again\.cu|v1_scalar\.cu"):
        variants.read_all_variants(kernels)
    twin.unlink()
    orphan = write(folder, "x_orphan.cu", after="nobody")
    with pytest.raises(ProfkitError, match=r"x_orphan\.cu.*nobody"):
        variants.read_all_variants(kernels)
    orphan.unlink()
    write(folder, "r1_round.cu", after="r2")
    write(folder, "r2_round.cu", after="r1")
    with pytest.raises(
        ProfkitError, match=r"circle: r\d_round\.cu -> r\d_round\.cu -> r\d_round\.cu"
    ):
        variants.read_all_variants(kernels)


def test_an_unknown_variant_lists_the_known(kernels: Path) -> None:
    with pytest.raises(ProfkitError) as caught:
        variants.select_variant_by_id(variants.read_all_variants(kernels), "v3")
    assert "v10" in caught.value.hint


def test_an_id_in_two_problems_must_be_qualified(kernels: Path) -> None:
    write(kernels / "copy", "v1_copy.cu")
    found = variants.read_all_variants(kernels)
    with pytest.raises(ProfkitError, match="two problems"):
        variants.select_variant_by_id(found, "v1")
    assert variants.select_variant_by_id(found, "copy/v1").problem == "copy"
    assert [v.id for v in variants.read_all_variants(kernels, "copy")] == ["v1"]


def test_where_kernels_are(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROFKIT_KERNELS", raising=False)
    below = kernels / "attention"
    monkeypatch.chdir(below)
    assert variants.find_kernels_dir() == kernels
    monkeypatch.chdir("/")
    assert variants.find_kernels_dir() == ROOT / "kernels"
    monkeypatch.setenv("PROFKIT_KERNELS", str(kernels))
    assert variants.find_kernels_dir() == kernels
    monkeypatch.setenv("PROFKIT_KERNELS", "/nowhere")
    with pytest.raises(ProfkitError, match="PROFKIT_KERNELS /nowhere"):
        variants.find_kernels_dir()
    with pytest.raises(ProfkitError, match="--kernels /nor/here"):
        variants.find_kernels_dir("/nor/here")


def test_the_source_hash_follows_includes_and_not_places(tmp_path: Path) -> None:
    hashes = []
    for place, header in [("one", "int a;"), ("two", "int a;"), ("three", "int b;")]:
        folder = tmp_path / place
        path = write(folder / "p", "k_x.cu", text='#include "../common/h.cuh"\n#include "no.h"\n')
        (folder / "common").mkdir()
        (folder / "common" / "h.cuh").write_text(f'#include "h.cuh"\n{header}')
        hashes.append(variants.read_variant(path).source_hash)
    deep = write(tmp_path / "one/p/family", "k_x.cu", text='#include "../../common/h.cuh"\n')
    flat = write(tmp_path / "one/p", "l_x.cu", text='#include "../common/h.cuh"\n')
    assert hashes[0] == hashes[1] != hashes[2]
    assert variants.read_variant(deep).source_hash == variants.read_variant(flat).source_hash


def test_a_family_is_a_folder_of_its_problem(tmp_path: Path) -> None:
    (tmp_path / "p/family").mkdir(parents=True)
    (tmp_path / "p/problem.py").write_text("")
    write(tmp_path / "p/family", "k_x.cu")
    write(tmp_path / "p", "j_x.cu")
    assert [(v.problem, v.id) for v in variants.read_all_variants(tmp_path)] == [
        ("p", "j"),
        ("p", "k"),
    ]
    assert variants.find_named_variants(tmp_path, ["p/k"])[0].path.name == "k_x.cu"


def test_tuned_adds_declared_defines_only(tmp_path: Path) -> None:
    path = tmp_path / "k_x.cu"
    path.write_text("/* T\n tune: M=16,32\n flags: -Xptxas -O1\n*/")
    variant = variants.read_variant(path)
    assert variant.flags == ("-Xptxas", "-O1")
    assert variant.with_tunables(M="32").flags == ("-Xptxas", "-O1", "-DM=32")
    with pytest.raises(ProfkitError, match="M=64"):
        variant.with_tunables(M="64")


@pytest.mark.parametrize("name", ["1st.cu", "_x.cu", "a.b_x.cu"])
def test_a_bad_file_name_says_how_to_name_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProfkitError) as caught:
        variants.read_variant(write(tmp_path, name))
    assert "<id>_<words>.cu" in caught.value.hint


def test_args_mirrors_variant_cuh(tmp_path: Path) -> None:
    """Compile the struct itself and compare every offset."""
    header = (ROOT / "kernels/common/variant.cuh").read_text()
    body = re.search(r"struct ProfkitArgs \{.*?\};", header, re.S)
    assert body
    names = re.findall(r"^\s+\w[\w\s*]*?[\s*](\w+)(?:\[\d+\])?;", body[0], re.M)
    fields = [name for name, _ in Args._fields_ if not name.startswith("more_")]
    assert len(names) == len(fields)
    prints = "".join(f'std::printf("%zu ", offsetof(ProfkitArgs, {n}));' for n in names)
    source = tmp_path / "s.cpp"
    source.write_text(
        "#include <cstddef>\n#include <cstdio>\ntypedef struct CUstream_st* cudaStream_t;\n"
        f'{body[0]}\nint main() {{ {prints} std::printf("%zu", sizeof(ProfkitArgs)); }}\n'
    )
    subprocess.run(["g++", "-o", tmp_path / "s", source], check=True)
    out = subprocess.run([tmp_path / "s"], check=True, capture_output=True, text=True).stdout
    offsets = [getattr(Args, name).offset for name in fields]
    assert [int(n) for n in out.split()] == [*offsets, Args.more_input.offset]
