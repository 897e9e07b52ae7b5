"""A program, a library or PTX, and a kernel in it  ->  a problem whose only variant is that kernel.

What is timed is the machine code that the file holds for this GPU; what is rewritten is the PTX beside
it. cuobjdump, of the CUDA toolkit, takes both out. A file of PTX is assembled here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.collect import process, tools
from profkit.errors import ProfkitError, suggest_nearest_names
from profkit.files import (
    is_file,
    list_matching_paths,
    make_temporary_folder,
    read_bytes,
    read_text,
    resolve_path,
    write_bytes,
    write_text,
)
from profkit.lab.ablation import assemble, foreign
from profkit.lab.ablation.foreign import LaunchFile

if TYPE_CHECKING:
    from profkit.units import (
        ByteCount,
        CppText,
        KernelName,
        MachineCode,
        MangledName,
        PtxText,
        SmArch,
        VariantName,
    )


_SECONDS = 120.0  # that cuobjdump may take
_PARAMETERS = re.compile(
    r"\.param\s+(\.align\s+\d+\s+)?\.(\w+)\s+"
    r"(?:\.ptr\s+(?:\.\w+\s+)*?(?:\.align\s+\d+\s+)?)?"  # where it points to, and how far apart
    r"[\w$%]+(\[\d+\])?"
)
_ENTRY = re.compile(r"\.entry\s+([\w$%]+)\s*\(([^)]*)\)")
# The type of a parameter in PTX -> the one in C++ that a number is given as.
_TYPES = {
    "u64": "unsigned long long",
    "s64": "long long",
    "b64": "unsigned long long",
    "u32": "unsigned",
    "s32": "int",
    "b32": "unsigned",
    "u16": "unsigned short",
    "s16": "short",
    "u8": "unsigned char",
    "s8": "signed char",
    "f32": "float",
    "f64": "double",
}


def write_problem_of_binary(
    binary: Path, kernel: KernelName, launch: LaunchFile, folder: Path, arch: SmArch
) -> VariantName:
    """Write the problem below a folder of kernels, and return its variant's name."""
    if not is_file(binary):
        raise ProfkitError(f"{binary}: there is no such file", "a program, a library or PTX")
    name = foreign.make_variant_name(binary, kernel)
    place = resolve_path(folder) / name
    write_text(place / "problem.py", foreign.write_problem_source(launch))
    text, entry = find_ptx_of_kernel(extract_all_ptx(binary, place), kernel, str(binary))
    code = place / f"{name}_as_launched.cubin"
    found = _extract_machine_code(binary, entry, arch, place)
    machine = found or assemble.assemble_ptx(text, arch, (), place)
    write_bytes(code, machine)
    write_text(code.with_suffix(".ptx"), text)
    kinds = list_parameter_types(text, entry)
    loader = write_launcher_of_machine_code(str(code), entry, kinds, launch)
    key = hashlib.sha256(machine).hexdigest()[:16]  # of other code there are other records
    write_text(code.with_suffix(".cu"), loader.replace("@KEY@", key))
    return name


def extract_all_ptx(binary: Path, folder: Path) -> list[PtxText]:
    """Return every PTX that a file holds."""
    if binary.suffix == ".ptx":
        return [read_text(binary, assemble.PTX_LIMIT)]
    found = _list_extracted(binary, "--extract-ptx", "*.ptx", folder, assemble.PTX_LIMIT)
    return [content.decode("utf-8", "replace") for content in found]


def _extract_machine_code(
    binary: Path, entry: MangledName, arch: SmArch, folder: Path
) -> MachineCode | None:
    """Return the machine code of a file that has this kernel for this GPU.

    None where it has only PTX.
    """
    if binary.suffix == ".ptx":
        return None
    pattern = f"*sm_{arch}*.cubin"
    limit = assemble.CODE_LIMIT
    for code in _list_extracted(binary, "--extract-elf", pattern, folder, limit):
        if f".text.{entry}\0".encode() in code:
            return code
    return None


def _list_extracted(
    binary: Path, cuobjdump_option: str, pattern: str, folder: Path, most_bytes: ByteCount
) -> Iterator[bytes]:
    """Yield the files of a pattern that cuobjdump takes out of a program."""
    tool = tools.require_tool("cuobjdump")
    with make_temporary_folder(folder) as place:
        command: list[str | Path] = [tool, cuobjdump_option, "all", resolve_path(binary)]
        done = process.run_command(command, _SECONDS, folder=place)
        if done.status != 0:
            words = " ".join(done.output.split())[-300:]
            raise ProfkitError(
                f"{binary}: cuobjdump finds no code in it", words or "is it a program?"
            )
        for file in sorted(list_matching_paths(place / pattern)):
            yield read_bytes(file, most_bytes)


def find_ptx_of_kernel(
    texts: Sequence[PtxText], kernel: KernelName, file_in_errors: str
) -> tuple[PtxText, MangledName]:
    """Return the PTX that has a kernel of this name, and its whole name there."""
    found: dict[str, str] = {}
    every: list[str] = []
    for text in texts:
        for match in _ENTRY.finditer(text):
            every.append(match[1])
            if match[1] == kernel or f"{len(kernel)}{kernel}" in match[1]:
                found.setdefault(match[1], text)
    if not texts:
        hint = "build it with -gencode=arch=compute_90,code=[sm_90,compute_90]"
        raise ProfkitError(f"{file_in_errors}: it holds no PTX that could be rewritten", hint)
    if not found:
        names = sorted(set(every))
        hint = suggest_nearest_names(kernel, names, f"there are: {', '.join(names[:8])}")
        raise ProfkitError(f"{file_in_errors}: no kernel of its PTX is called {kernel}", hint)
    if kernel not in found and len(found) > 1:
        names = sorted(found)
        hint = f"give one of them whole: {', '.join(names[:8])}"
        raise ProfkitError(f"{file_in_errors}: {len(found)} kernels are called {kernel}", hint)
    entry = kernel if kernel in found else next(iter(found))
    return found[entry], entry


def list_parameter_types(text: PtxText, entry: MangledName) -> list[str]:
    """Return the C++ types of a kernel's parameters; empty for one that is a struct."""
    for match in _ENTRY.finditer(text):
        if match[1] == entry:
            found = _PARAMETERS.findall(match[2])
            return ["" if size else _TYPES.get(kind, "") for _, kind, size in found]
    return []


_LOADER = """/* A kernel of a program, launched as described: machine code @KEY@.
*/
#include <cuda_runtime.h>

@STRUCT@
extern "C" int profkit_launch(const ProfkitLaunch* a) {
  static cudaKernel_t kernel = nullptr;
  if (!kernel) {
    const char* code = "@CODE@";
    cudaLibrary_t library;
    auto failed = cudaLibraryLoadFromFile(&library, code, nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (!failed) failed = cudaLibraryGetKernel(&kernel, library, "@ENTRY@");
    const auto most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    if (!failed && @SHARED@ > 49152)
      failed = cudaFuncSetAttribute((const void*)kernel, most, @SHARED@);
    if (failed) return failed;
  }
@VALUES@
  void* arguments[] = {@PLACES@};
  const dim3 grid(@GRID@), block(@BLOCK@);
  return cudaLaunchKernel((const void*)kernel, grid, block, arguments, @SHARED@, a->stream);
}
"""


def write_launcher_of_machine_code(
    code: str, entry: MangledName, kinds: Sequence[str], launch: LaunchFile
) -> CppText:
    """Return the source of a launcher that loads machine code, and calls a kernel of it."""
    if re.search(r'["\\\n]', code):
        raise ProfkitError(f"{code}: no C++ can name this folder", "use another --build-dir")
    if len(kinds) != len(launch.argument):
        seen = f"{entry} has {len(kinds)} parameters, and {len(launch.argument)} are described"
        raise ProfkitError(seen, "[[argument]] for each, in their order")
    values = []
    words = foreign.write_cpp_arguments(launch.argument)
    for number, argument in enumerate(launch.argument):
        kind = "void*" if argument.array else kinds[number]
        if not kind:
            message = f"{entry}: parameter {number + 1} is a struct"
            raise ProfkitError(message, "ablate a source that calls it, with --kernel and --launch")
        values.append(f"  {kind} value{number} = ({kind}){words[number]};")
    filled = foreign.list_launch_placeholders(launch) | {
        "@STRUCT@": foreign.STRUCT,
        "@CODE@": code,
        "@ENTRY@": entry,
        "@VALUES@": "\n".join(values),
        "@PLACES@": ", ".join(f"&value{number}" for number in range(len(values))),
    }
    return re.sub("|".join(filled), lambda mark: filled[mark[0]], _LOADER)
