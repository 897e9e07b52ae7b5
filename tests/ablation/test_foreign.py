"""A kernel of somebody's source becomes a problem that is launched as its file says."""

import subprocess
from pathlib import Path

import numpy
import pytest
from typer.testing import CliRunner

from profkit.cli.app import app
from profkit.collect.tools import find_tool
from profkit.errors import ProfkitError
from profkit.lab.ablation.binary import list_parameter_types, write_problem_of_binary
from profkit.lab.ablation.foreign import CASE, read_launch_file, write_problem_of_source_file
from profkit.lab.measure.cuda.library import load_launcher_library
from profkit.lab.measure.data import load_or_compute_case_data
from profkit.lab.measure.targets import LabFolders, find_target_by_options
from profkit.lab.verbs.ablate import HINTS, choose_hint
from profkit.records.header import parse_header
from profkit.records.record import Record

SOURCE = """
template <class T> __global__ void scale(const T* x, T* y, const int* order, float by, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[order[i]] * by;
}
int main() { return 0; }
"""
LAUNCH = """
grid = [4, 1, 1]
block = [256, 1, 1]
[[argument]]
array = "float32"
count = 1000
[[argument]]
array = "float32"
count = 1000
output = true
[[argument]]
array = "int32"
count = 1000
fill = "index"
[[argument]]
value = 2.5
[[argument]]
value = 1000
"""
LAST = "[[argument]]\nvalue = 1000\n"


def put_files(folder: Path, launch: str = LAUNCH) -> tuple[Path, Path]:
    source, file = folder / "My Kernel.cu", folder / "launch.toml"
    source.write_text(SOURCE)
    file.write_text(launch)
    return source, file


def test_its_problem_has_the_arrays_in_the_order_of_the_arguments(tmp_path: Path) -> None:
    source, file = put_files(tmp_path)
    name = write_problem_of_source_file(
        source, "scale<float>", read_launch_file(file), tmp_path / "kernels"
    )
    target = find_target_by_options(LabFolders(tmp_path / "kernels"), [name], False, (CASE,), False)
    module = target.problem.module
    floats, order = module.inputs(None, 0)
    assert (floats.dtype, order.tolist()) == ("float32", list(range(1000)))
    assert module.outputs(None) == (((1000,), "float32"),)
    prepared = load_or_compute_case_data(target.problem, CASE, 0, tmp_path / "build", None)
    assert prepared.outputs == (((1000,), "float32"),)
    assert [array.dtype for array in prepared.load_inputs()] == ["float32", "int32"]
    (written,) = (tmp_path / "kernels" / name).glob("*.cu")
    arguments = "ProfkitArray{a->in[0]}, ProfkitArray{a->out[0]}, ProfkitArray{a->in[1]}, 2.5, 1000"
    assert f"function<<<dim3(4, 1, 1), dim3(256, 1, 1), 0, a->stream>>>({arguments});" in (
        written.read_text()
    )


STRUCT = """
#include <lib/factor.h>
struct Part { float by; const float* from; int3 size; };
__global__ void parts(Part part, float* y, bool all) { if (all) *y = *part.from * FACTOR; }
"""
IN_STRUCT = """
include = ["headers"]
flags = ["-DUNUSED=1"]
grid = [1, 1, 1]
block = [32, 1, 1]
argument = [
  { fields = [
    { value = 0.5 },
    { array = "float32", count = 64 },
    { fields = [{ value = 1 }, { value = 2 }, { value = 3 }] },
  ] },
  { array = "float32", count = 32, output = true },
  { value = true },
]
"""


def put_struct(folder: Path) -> None:
    source, file = put_files(folder, IN_STRUCT)
    source.write_text(STRUCT)
    (folder / "headers/lib").mkdir(parents=True, exist_ok=True)
    (folder / "headers/lib/factor.h").write_text("#define FACTOR 2\n")
    write_problem_of_source_file(source, "parts", read_launch_file(file), folder / "kernels")


@pytest.mark.nvcc
def test_a_struct_has_its_members_and_headers_lie_in_a_folder(tmp_path: Path) -> None:
    put_struct(tmp_path)
    assert ".entry _Z5parts4PartPfb" in compile_variant(tmp_path)


def test_another_header_makes_another_code(tmp_path: Path) -> None:
    put_struct(tmp_path)
    (written,) = (tmp_path / "kernels").glob("*/*.cu")
    before = written.read_text()
    assert "({0.5, ProfkitArray{a->in[0]}, {1, 2, 3}}, ProfkitArray{a->out[0]}, true);" in before
    assert f"flags: -I{tmp_path}/headers -DUNUSED=1" in before
    put_struct(tmp_path)
    assert written.read_text() == before
    (tmp_path / "headers/lib/more.cuh").write_text("#define MORE 1\n")
    put_struct(tmp_path)
    assert written.read_text() != before


def test_a_kernel_may_have_no_array_at_all(tmp_path: Path) -> None:
    source, file = put_files(
        tmp_path, "grid = [1, 1, 1]\nblock = [32, 1, 1]\nargument = [{ value = 3 }]"
    )
    name = write_problem_of_source_file(
        source, "count", read_launch_file(file), tmp_path / "kernels"
    )
    target = find_target_by_options(LabFolders(tmp_path / "kernels"), [name], False, (CASE,), False)
    assert target.problem.module.inputs(None, 0) == ()
    assert len(target.problem.module.outputs(None)) == 1, "a problem has one at least"


LIBRARY = """
int other_file(int);
int helper(int x) { return other_file(x); }
int profkit_launch(void* a) { return 7; }
"""


def test_functions_of_other_files_are_looked_up_when_called(tmp_path: Path) -> None:
    source, made = tmp_path / "part.c", tmp_path / "part.so"
    source.write_text(LIBRARY)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", made, source], check=True)
    with pytest.raises(ProfkitError, match="other_file"):
        load_launcher_library(made)
    assert load_launcher_library(made, are_all_symbols_defined=False).profkit_launch(None) == 7
    with pytest.raises(ProfkitError, match="cannot load"):
        load_launcher_library(tmp_path / "none.so", are_all_symbols_defined=False)


def test_two_kernels_of_a_file_are_two_variants(tmp_path: Path) -> None:
    source, file = put_files(tmp_path)
    names = []
    for kernel in ("scale<float>", "scale<double>", "My_Kernel"):
        names.append(
            write_problem_of_source_file(
                source, kernel, read_launch_file(file), tmp_path / "kernels"
            )
        )
    assert names == ["my-kernel-scale-float", "my-kernel-scale-double", "my-kernel-my-kernel"]


POINTERS = """
struct Pair { int a, b; };
__global__ void mixed(const char* x, float4* y, volatile Pair* pairs, void* any) {}
"""


@pytest.mark.nvcc
def test_an_array_is_of_whatever_type_the_kernel_takes(tmp_path: Path) -> None:
    arrays = "".join(
        f'[[argument]]\narray = "{kind}"\ncount = 64\n' for kind in ("int8", "float32")
    )
    rest = '[[argument]]\narray = "int32"\ncount = 64\noutput = true\n' * 2
    source, file = put_files(tmp_path, f"grid = [1, 1, 1]\nblock = [32, 1, 1]\n{arrays}{rest}")
    source.write_text(POINTERS)
    write_problem_of_source_file(source, "mixed", read_launch_file(file), tmp_path / "kernels")
    compile_variant(tmp_path)


def put_rows(folder: Path, **launch: str) -> Path:
    """A launch whose first array is in a file, and whose second is worked on in place."""
    numpy.save(folder / "rows.npy", numpy.array([0, 8, 24], numpy.int32))
    words = "".join(f"{key} = {value}\n" for key, value in launch.items())
    file = folder / "launch.toml"
    file.write_text(
        "grid = [1, 1, 1]\nblock = [32, 1, 1]\n"
        f'[[argument]]\nfile = "rows.npy"\n{words}'
        '[[argument]]\narray = "float32"\ncount = 24\nfill = "index"\noutput = true\n'
    )
    return file


def load_inputs(folder: Path) -> list[list[float]]:
    folder.joinpath("my.cu").write_text(SOURCE)
    launch = read_launch_file(folder / "launch.toml")
    name = write_problem_of_source_file(
        folder / "my.cu", "scale<float>", launch, folder / "kernels"
    )
    target = find_target_by_options(LabFolders(folder / "kernels"), [name], False, (CASE,), False)
    assert len(target.problem.module.outputs(None)) == 1
    prepared = load_or_compute_case_data(target.problem, CASE, 0, folder / "build", None)
    return [array.tolist() for array in prepared.load_inputs()]


def test_values_come_from_a_file_and_what_is_read_and_written_is_filled(tmp_path: Path) -> None:
    put_rows(tmp_path)
    assert load_inputs(tmp_path) == [[0, 8, 24], list(range(24))]
    numpy.save(tmp_path / "rows.npy", numpy.array([0, 1, 2], numpy.int32))
    assert load_inputs(tmp_path)[0] == [0, 1, 2]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"array": '"int64"'}, "rows.npy holds 3 elements of int32"),
        ({"count": "4"}, "rows.npy holds 3 elements of int32"),
        ({"below": '2\n[[argument]]\nfile = "none.npy"'}, "none.npy holds no array of numpy"),
    ],
)
def test_a_file_that_does_not_fit_is_said(tmp_path: Path, given: dict[str, str], says: str) -> None:
    with pytest.raises(ProfkitError, match=says) as error:
        read_launch_file(put_rows(tmp_path, **given))
    assert error.value.hint


def compile_variant(folder: Path) -> str:
    """The PTX of the only variant below a folder."""
    (written,) = (folder / "kernels").glob("*/*.cu")
    made = folder / "kernel.ptx"
    flags = parse_header(written.read_text(), written.name).flags
    command = [find_tool("nvcc"), "-arch=sm_90", *flags, "-ptx", "-o", made, written]
    subprocess.run(command, check=True)
    return made.read_text()


@pytest.mark.nvcc
def test_what_is_written_compiles(tmp_path: Path) -> None:
    source, file = put_files(tmp_path)
    write_problem_of_source_file(
        source, "scale<float>", read_launch_file(file), tmp_path / "kernels"
    )
    assert ".entry _Z5scaleIfEvPKT_PS0_PKifi" in compile_variant(tmp_path)


@pytest.mark.nvcc
@pytest.mark.parametrize(
    ("kernel", "last", "helps"),
    [
        ("scale", LAST, "a template is named with its arguments"),
        ("scales<float>", LAST, "names it as the source does"),
        ("scale<float>", "", "for each of its parameters"),
        ("scale<float>", '[[argument]]\narray = "int8"\ncount = 4\n', "is the parameter a number"),
        ("missing<float>", LAST, "names folders of headers"),
        ("broken<float>", LAST, "names folders of headers"),
    ],
)
def test_what_nvcc_refuses_is_helped_with(
    tmp_path: Path, kernel: str, last: str, helps: str
) -> None:
    assert LAUNCH.endswith(LAST)
    source, file = put_files(tmp_path, LAUNCH.removesuffix(LAST) + last)
    if kernel == "missing<float>":
        source.write_text('#include "missing.h"\n' + SOURCE)
    if (
        kernel == "broken<float>"
    ):  # of headers that are there, in another version: what follows is no hint
        source.write_text("ours::list of;\nint one = of;\n" + SOURCE)
    write_problem_of_source_file(source, kernel, read_launch_file(file), tmp_path / "kernels")
    (written,) = (tmp_path / "kernels").glob("*/*_as_launched.cu")
    command = [find_tool("nvcc"), "-arch=sm_90", "-ptx", "-o", tmp_path / "k.ptx", written]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert helps in choose_hint(done.stdout + done.stderr, HINTS)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("grid = [4, 1, 1]", "grid = [4, 1]", "grid"),
        ("grid = [4, 1, 1]", "grid = [0, 1, 1]", "no GPU launches"),
        ("block = [256, 1, 1]", "block = [256, 8, 1]", "no GPU launches"),
        ('array = "int32"', 'array = "int23"', "argument 3: int23 is not an element type"),
        ("count = 1000\nfill", "fill", "argument 3: count is 0"),
        ("value = 2.5", "", "argument 4 is neither an array nor a value"),
        ("value = 2.5", "values = 2.5", "values"),
        ("value = 2.5", "fields = [{ count = 3 }]", "argument 4, field 1 is neither"),
        ("grid =", 'include = ["none"]\ngrid =', "none is no folder"),
        ("[[argument]]", "[[argument", "launch.toml"),
    ],
)
def test_a_launch_that_cannot_be_is_said(
    tmp_path: Path, before: str, after: str, says: str
) -> None:
    assert before in LAUNCH
    _, file = put_files(tmp_path, LAUNCH.replace(before, after, 1))
    with pytest.raises(ProfkitError) as error:
        read_launch_file(file)
    assert says in error.value.message
    assert error.value.hint


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["my.cu"], "needs --kernel and --launch"),
        (["my.cu", "--kernel", "mine"], "needs --kernel and --launch"),
        (["my.cu", "--kernel", "mine", "--launch", "no.toml"], "no.toml: there is no such file"),
        (["no.cu", "--kernel", "a b", "--launch", "launch.toml"], "no.cu: there is no such file"),
        (["My Kernel.cu", "--kernel", "a;b", "--launch", "launch.toml"], "names no kernel"),
    ],
)
def test_what_is_missing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    put_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["ablate", *words])
    assert isinstance(done.exception, ProfkitError | SystemExit) or done.exit_code
    shown = done.output + str(done.exception)
    assert says in " ".join(shown.split())


def test_a_variant_that_cannot_be_ablated_leaves_the_others_to_be(monkeypatch) -> None:
    from types import SimpleNamespace

    from profkit.lab.ablation import run
    from profkit.records.ablation import AblationRecord
    from tests.ablation.test_recorded import ablations

    found = AblationRecord.from_record(ablations.read_records()["conflict8"])
    names = ("broken", "copies", "good")

    def make_build(name: str) -> SimpleNamespace:
        failure = ProfkitError(f"{name}: no library") if name == "broken" else None
        return SimpleNamespace(variant=SimpleNamespace(id=name), failure=failure)

    def ablate_case(_target, built, *_):
        if built.variant.id == "copies":
            raise ProfkitError("copies: a call that copies memory")
        return found, None

    monkeypatch.setattr(run, "build_target", lambda _: ([*map(make_build, names)], Path()))
    monkeypatch.setattr(run.device, "add_gpu_uuid_and_driver", lambda _: None)
    monkeypatch.setattr(run.device, "query_first_gpu", lambda: None)
    monkeypatch.setattr(run, "_ablate_case", ablate_case)
    monkeypatch.setattr(
        run, "make_record_without_timing", lambda _run, name, case: Record(variant=name, case=case)
    )
    said: list[ProfkitError] = []
    target = SimpleNamespace(cases=("A",))
    records = list(run.ablate_target(target, lambda _: None, said.append))
    assert [record.variant for record in records] == ["good"]
    assert [error.message.partition(":")[0] for error in said] == ["broken", "copies"]


PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry _Z5scalePKfPfji(
	.param .u64 _Z5scalePKfPfji_param_0,
	.param .u64 _Z5scalePKfPfji_param_1,
	.param .u32 _Z5scalePKfPfji_param_2,
	.param .align 8 .b8 _Z5scalePKfPfji_param_3[16]
)
{
	ret;
}
.visible .entry _Z4emptyv()
{
	ret;
}
"""


def test_a_pointer_of_a_kernel_may_say_where_it_points_to() -> None:
    """Triton and newer versions of nvcc write `.ptr` behind the type."""
    said = PTX.replace(".param .u64 _Z5scalePKfPfji_param_0", ".param .u64 .ptr .global .align 1 a")
    said = said.replace(".param .u64 _Z5scalePKfPfji_param_1", ".param .u64 .ptr b")
    kinds = list_parameter_types(said, "_Z5scalePKfPfji")
    assert kinds == list_parameter_types(PTX, "_Z5scalePKfPfji")
    assert kinds == ["unsigned long long", "unsigned long long", "unsigned", ""]


CUOBJDUMP = """#!/bin/sh
case $1 in
--extract-ptx) cp "$3.text" program.1.sm_90.ptx;;
*) printf 'elf .text._Z5scalePKfPfji\\0code' > program.1.sm_90.cubin;;
esac
"""
ARRAYS = """
grid = [4, 1, 1]
block = [256, 1, 1]
[[argument]]
array = "float32"
count = 1000
[[argument]]
array = "float32"
count = 1000
output = true
[[argument]]
value = 7
"""


def put_program(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    """A program whose PTX a stand-in for cuobjdump takes out."""
    (folder / "bin").mkdir()
    (folder / "bin" / "cuobjdump").write_text(CUOBJDUMP)
    (folder / "bin" / "cuobjdump").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/usr/bin:/bin")
    (folder / "a.out").write_text("a program")
    (folder / "a.out.text").write_text(text)
    (folder / "launch.toml").write_text(ARRAYS)
    return folder / "a.out"


def test_a_kernel_of_a_program_is_launched_with_the_code_that_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = PTX.replace(",\n\t.param .align 8 .b8 _Z5scalePKfPfji_param_3[16]", "")
    program = put_program(tmp_path, monkeypatch, plain)
    launch = read_launch_file(tmp_path / "launch.toml")
    name = write_problem_of_binary(program, "scale", launch, tmp_path / "kernels", "90")
    target = find_target_by_options(LabFolders(tmp_path / "kernels"), [name], False, (CASE,), False)
    (variant,) = target.variants
    source = variant.path.read_text()
    assert "unsigned value2 = (unsigned)7;" in source
    assert 'cudaLibraryGetKernel(&kernel, library, "_Z5scalePKfPfji")' in source
    assert variant.path.with_suffix(".cubin").read_bytes().endswith(b"code")
    assert variant.path.with_suffix(".ptx").read_text() == plain


@pytest.mark.parametrize(
    ("text", "kernel", "says"),
    [
        (PTX, "scale", "has 4 parameters, and 3 are described"),
        (PTX, "scalar", "no kernel of its PTX is called scalar"),
        (PTX.replace("_Z4empty", "_Z5scale"), "scale", "2 kernels are called scale"),
        (PTX.replace(".u32 _Z", ".align 4 .b8 _Z").replace("2,", "2[8],"), "scale", "parameters"),
    ],
)
def test_what_a_program_lacks_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, kernel: str, says: str
) -> None:
    program = put_program(tmp_path, monkeypatch, text)
    launch = read_launch_file(tmp_path / "launch.toml")
    with pytest.raises(ProfkitError, match=says) as error:
        write_problem_of_binary(program, kernel, launch, tmp_path / "kernels", "90")
    assert error.value.hint
