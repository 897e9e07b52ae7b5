"""A CUDA source, a kernel in it and how it is launched  ->  a problem whose only variant it is.

The launch is a TOML file:

    grid = [4096, 1, 1]
    block = [256, 1, 1]
    shared = 0                # bytes of dynamic shared memory
    include = ["include"]     # folders of headers, from this file's folder on
    flags = ["-DUSE_FLOAT"]   # further ones of nvcc, which only change code

    [[argument]]              # in the order of the kernel's parameters
    array = "float32"
    count = 1048576
    fill = "random"           # or zeros, or index; numbers below `below` where whole

    [[argument]]
    array = "float32"
    count = 1048576
    output = true             # with `fill` or `file`: it is read as well as written

    [[argument]]
    file = "rows.npy"         # its values, where the work follows from them; in this folder

    [[argument]]
    value = 1048576

    [[argument]]              # a struct: its members in order
    fields = [{ value = 0.5 }, { array = "float32", count = 1024 }]
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from profkit.errors import ProfkitError, suggest_nearest_names
from profkit.files import (
    is_file,
    is_folder,
    list_files_below,
    open_regular_file,
    read_bytes,
    read_text,
    resolve_path,
    write_text,
)

if TYPE_CHECKING:
    from profkit.units import CppText, FilePath, KernelName, PythonText, VariantName


CASE = "launch"
_TYPES = {
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "float32": "float",
    "float64": "double",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int32": "int",
    "uint32": "unsigned",
    "int64": "long long",
}
_KERNEL = re.compile(r"[A-Za-z_]\w*(::[A-Za-z_]\w*)*(<[\w:, ]*>)?", re.ASCII)
_INPUTS, _OUTPUTS = 32, 16  # arrays that a launcher is given at most
_MOST_THREADS = 1024  # of a block
_LARGEST = 1 << 36  # elements of an array
_HEADERS = (".h", ".hpp", ".cuh", ".inl")
SOURCES = (".cu", *_HEADERS)  # what nvcc can be given


class Argument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One parameter of the kernel, or a member of one: an array, a number, or a struct."""

    array: str = ""  # the type of its elements
    count: int = 0
    fill: Literal["", "random", "zeros", "index"] = ""  # of what is read
    below: int = 2  # whole numbers are smaller, where they are random
    file: str = ""  # of what is read: its values, of numpy's format
    output: bool = False
    value: bool | int | float | None = None
    fields: tuple[Argument, ...] = ()  # of a struct: its members in order

    @property
    def is_read(self) -> bool:
        """Return whether it holds something before the launch."""
        return not self.output or bool(self.fill or self.file)


class LaunchFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    argument: tuple[Argument, ...] = ()
    shared: int = 0
    include: tuple[str, ...] = ()  # folders
    flags: tuple[str, ...] = ()  # of nvcc


# The shortest form that a launch file can have, for whoever has none.
_FORM = (
    "grid = [4096, 1, 1], block = [256, 1, 1], and for each parameter [[argument]] with value = 7, "
    'or with array = "float32" and count = 1024; output = true where it is only written'
)


def read_launch_file(file: Path) -> LaunchFile:
    if not is_file(file):
        raise ProfkitError(f"{file}: there is no such file", _FORM)
    try:
        launch = msgspec.toml.decode(read_text(file), type=LaunchFile)
    except msgspec.DecodeError as error:
        raise ProfkitError(f"{file}: {error}", "grid, block, shared and [[argument]]") from error
    return check_and_complete_launch(launch, file)


def check_and_complete_launch(launch: LaunchFile, file: Path) -> LaunchFile:
    """Check what a file describes, and read how large the arrays are that files beside it hold."""
    if min(*launch.grid, *launch.block) < 1 or prod(launch.block) > _MOST_THREADS:
        raise ProfkitError(f"{file}: no GPU launches grid and block of this size", "1 and more")
    arguments = _complete_arguments(f"{file}: argument", launch.argument, file.parent)
    arrays = list(iterate_array_arguments(arguments))
    written = sum(not argument.is_read for argument in arrays)
    if written > _OUTPUTS or len(arrays) - written > _INPUTS:
        hint = f"{_OUTPUTS} arrays that are only written, and {_INPUTS} others at most"
        raise ProfkitError(f"{file}: {written} of {len(arrays)} arrays are only written", hint)
    include = []
    for folder in launch.include:
        place = resolve_path(file.parent / folder)
        if not is_folder(place):
            raise ProfkitError(f"{file}: {place} is no folder", "include: folders of headers")
        include.append(str(place))
    return msgspec.structs.replace(launch, argument=arguments, include=tuple(include))


def _complete_arguments(
    place_in_errors: str, arguments: Sequence[Argument], folder: Path
) -> tuple[Argument, ...]:
    """Check parameters, or the members of one."""
    complete = []
    for number, given in enumerate(arguments, 1):
        place = f"{place_in_errors} {number}"
        argument = given
        if argument.fields:
            fields = _complete_arguments(f"{place}, field", argument.fields, folder)
            argument = msgspec.structs.replace(argument, fields=fields)
        else:
            if argument.file:
                argument = _add_type_and_count_of_values_file(
                    place, argument, folder / argument.file
                )
            _check_argument(place, argument)
        complete.append(argument)
    return tuple(complete)


def iterate_array_arguments(arguments: Sequence[Argument]) -> Iterator[Argument]:
    """Yield each array, those that are members of structs too."""
    for argument in arguments:
        if argument.array:
            yield argument
        yield from iterate_array_arguments(argument.fields)


def _add_type_and_count_of_values_file(
    place_in_errors: str, argument: Argument, values: Path
) -> Argument:
    """Return an argument whose values a file holds, with the type and the number of them."""
    import numpy as np

    try:
        array = np.load(resolve_path(values), mmap_mode="r")
    except (OSError, ValueError) as error:
        hint = 'numpy.save("values.npy", array) writes such a file'
        raise ProfkitError(f"{place_in_errors}: {values} holds no array of numpy", hint) from error
    kind = argument.array or str(array.dtype)
    held = "uint16" if kind == "bfloat16" else kind
    if kind not in _TYPES or str(array.dtype) != held or argument.count not in (0, array.size):
        seen = f"{array.size} elements of {array.dtype}"
        hint = f"types are: {', '.join(_TYPES)}; of bfloat16 the bits as uint16"
        raise ProfkitError(f"{place_in_errors}: {values} holds {seen}", hint)
    return msgspec.structs.replace(
        argument, array=kind, count=array.size, file=str(resolve_path(values))
    )


def _check_argument(place_in_errors: str, argument: Argument) -> None:
    if not argument.array and argument.value is None:
        raise ProfkitError(
            f"{place_in_errors} is neither an array nor a value", 'array = "float32", or value = 7'
        )
    if argument.array and argument.array not in _TYPES:
        hint = suggest_nearest_names(argument.array, _TYPES, f"there are: {', '.join(_TYPES)}")
        raise ProfkitError(f"{place_in_errors}: {argument.array} is not an element type", hint)
    if argument.array and not 0 < argument.count <= _LARGEST:
        raise ProfkitError(
            f"{place_in_errors}: count is {argument.count}", "how many elements it has"
        )


def write_problem_of_source_file(
    source: Path, kernel: KernelName, launch: LaunchFile, folder: Path
) -> VariantName:
    """Write the problem below a folder of kernels, and return its variant's name."""
    if not is_file(source):
        raise ProfkitError(f"{source}: there is no such file", "a CUDA source with the kernel")
    place = str(resolve_path(source))
    if not _KERNEL.fullmatch(kernel):
        raise ProfkitError(f"--kernel {kernel}: this names no kernel", "mine, or mine<float>")
    if re.search(r'["\\\n]', place):
        raise ProfkitError(f"{source}: no #include can name it", "rename the file")
    name = make_variant_name(source, kernel)
    write_text(folder / name / "problem.py", write_problem_source(launch))
    write_text(
        folder / name / f"{name}_as_launched.cu", _write_variant_source(place, kernel, launch)
    )
    return name


def make_variant_name(file: Path, kernel: KernelName) -> VariantName:
    """Name the variant of one kernel of a file: of another kernel there are other records."""
    words = [file.stem.lower(), kernel.lower()]
    if words[0] == words[1]:
        words.pop()
    return re.sub(r"[^a-z0-9]+", "-", " ".join(words)).strip("-")


STRUCT = """struct ProfkitLaunch {  // what a launcher is given, with room for all arrays
  void *in[4], *out[2];
  long long size[6], stride[6];
  float scale;
  int causal;
  cudaStream_t stream;
  void *more_in[28], *more_out[14];
};
struct ProfkitArray {  // of whatever type the parameter points to: float4, char, a struct
  void* address;
  template <class T> operator T*() const { return (T*)address; }
};
"""
_LAUNCHER = """/* A kernel from your own source, launched as described.

flags: @FLAGS@
*/
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include "@SOURCE@"
@HEADERS@

@STRUCT@
extern "C" int profkit_launch(const ProfkitLaunch* a) {
  auto function = @KERNEL@;
  if (@SHARED@ > 49152)
    cudaFuncSetAttribute((const void*)function, cudaFuncAttributeMaxDynamicSharedMemorySize, @SHARED@);
  function<<<dim3(@GRID@), dim3(@BLOCK@), @SHARED@, a->stream>>>(@ARGUMENTS@);
  return cudaGetLastError();
}
"""


def _write_variant_source(source: FilePath, kernel: KernelName, launch: LaunchFile) -> CppText:
    flags = [f"-I{folder}" for folder in launch.include]
    headers = ""
    if launch.include:  # with other headers it is other code
        headers = f'#define PROFKIT_HEADERS "{_hash_headers(launch.include)}"'
    words = list_launch_placeholders(launch) | {
        "@STRUCT@": STRUCT,
        "@SOURCE@": source,
        "@FLAGS@": " ".join([*flags, *launch.flags]),
        "@HEADERS@": headers,
        "@KERNEL@": kernel,
        "@ARGUMENTS@": ", ".join(write_cpp_arguments(launch.argument)),
    }
    return re.sub("|".join(words), lambda mark: words[mark[0]], _LAUNCHER)


def _hash_headers(folders: Sequence[str]) -> str:
    """Hash every header of some folders."""
    digest = hashlib.sha256()
    for folder in folders:
        for file in list_files_below(folder)[0]:
            if file.suffix in _HEADERS:
                digest.update(read_bytes(file))
    return digest.hexdigest()[:16]


def list_launch_placeholders(launch: LaunchFile) -> dict[str, str]:
    """Return what stands for the marks of a launch in a launcher's source."""
    return {
        "@SHARED@": str(launch.shared),
        "@GRID@": ", ".join(map(str, launch.grid)),
        "@BLOCK@": ", ".join(map(str, launch.block)),
    }


def write_cpp_arguments(arguments: Sequence[Argument]) -> list[CppText]:
    """Return the kernel's arguments in C++: arrays by their place among inputs or outputs."""
    places = iter(_iterate_cpp_array_names(arguments))
    return [_write_cpp_argument(argument, places) for argument in arguments]


def _iterate_cpp_array_names(arguments: Sequence[Argument]) -> Iterator[str]:
    inputs = outputs = 0
    for array in iterate_array_arguments(arguments):
        if array.is_read:
            yield f"in[{inputs}]" if inputs < 4 else f"more_in[{inputs - 4}]"
            inputs += 1
        else:
            yield f"out[{outputs}]" if outputs < 2 else f"more_out[{outputs - 2}]"
            outputs += 1


def _write_cpp_argument(argument: Argument, places: Iterator[str]) -> CppText:
    if argument.fields:
        members = [_write_cpp_argument(member, places) for member in argument.fields]
        return f"{{{', '.join(members)}}}"
    if argument.array:
        return f"ProfkitArray{{a->{next(places)}}}"
    return repr(argument.value).lower()


_PROBLEM = '''"""A kernel as it was launched: nothing here knows what it should compute."""

import numpy as np

ATOL = RTOL = 0.0
SEEDS = (0,)
CASES = CHECKS = {"@CASE@": None}
INPUTS = @INPUTS@  # type, elements, how they are filled, below what, the file that holds them
OUTPUTS = @OUTPUTS@  # type, elements
CONTENTS = @CONTENTS@  # of the files: with others it is another problem


def arguments(case):
    return {}


def dtype_of(kind):
    return np.dtype("uint16" if kind == "bfloat16" else kind)


def fill(kind, count, how, below, file, random):
    dtype = dtype_of(kind)
    if file:
        return np.load(file).reshape(-1)
    if how == "index":
        return np.arange(count).astype(dtype)
    if how == "zeros" or (not how and dtype.kind in "iu" and kind != "bfloat16"):
        return np.zeros(count, dtype)
    if kind == "bfloat16":
        return (random.random(count, dtype=np.float32).view(np.uint32) >> 16).astype(dtype)
    if dtype.kind in "iu":
        return random.integers(0, below, count).astype(dtype)
    return random.standard_normal(count, dtype=np.float32).astype(dtype)


def inputs(case, seed, grid=None):
    random = np.random.default_rng(seed)
    return tuple(fill(*array, random) for array in INPUTS)


def outputs(case):
    return tuple(((count,), str(dtype_of(kind))) for kind, count in OUTPUTS)


def reference(case, given):  # nobody said what it computes: check compares with nothing but zeros
    return tuple(np.zeros(count, np.float32) for _, count in OUTPUTS)


def operations(case):
    return 0


def compulsory_bytes(case):
    return sum(count * dtype_of(kind).itemsize for kind, count, *_ in (*INPUTS, *OUTPUTS))
'''
_UNUSED = ("float32", 1)  # an output that no kernel is given: a problem has one at least


def _hash_file(file: Path) -> str:
    with open_regular_file(file) as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:16]


def write_problem_source(launch: LaunchFile) -> PythonText:
    inputs = []
    outputs = []
    contents = []
    for one in iterate_array_arguments(launch.argument):
        if one.file:
            contents.append(_hash_file(Path(one.file)))
        if one.is_read:
            inputs.append((one.array, one.count, one.fill, one.below, one.file))
        else:
            outputs.append((one.array, one.count))
    words = {
        "@CASE@": CASE,
        "@CONTENTS@": repr(contents),
        "@INPUTS@": repr(inputs),
        "@OUTPUTS@": repr(outputs or [_UNUSED]),
    }
    return re.sub("|".join(words), lambda mark: words[mark[0]], _PROBLEM)
