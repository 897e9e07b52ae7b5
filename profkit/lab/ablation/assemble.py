"""A variant's build  ->  its PTX; PTX  ->  machine code, each text once."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.collect import process, tools
from profkit.errors import ProfkitError
from profkit.files import (
    is_file,
    list_matching_paths,
    make_temporary_folder,
    read_bytes,
    read_text,
    write_bytes,
    write_text,
)
from profkit.lab.measure.languages.cuda import LANGUAGE as CUDA
from profkit.lab.measure.variants.build import Build

if TYPE_CHECKING:
    from profkit.units import MachineCode, PtxText, SmArch


PTX_LIMIT = 64 << 20  # bytes: unrolled kernels are long
CODE_LIMIT = 256 << 20  # bytes of machine code
_SECONDS = 120.0  # that one compilation may take
_NOT_FOR_PTX = {"--no-compress"}
# What is made for the features of one GPU, or of its family, is code for nothing else: `sm_90a`.
_OWN_TARGET = re.compile(r"^\.target\s+sm_(\d+[af])\b", re.MULTILINE)


def get_or_write_ptx(built: Build, folder: Path, more_flags: Sequence[str] = ()) -> PtxText:
    """Return the PTX that a build's machine code was made of; `more_flags` flags make other PTX."""
    beside = built.variant.path.with_suffix(".ptx")
    if is_file(beside):  # the kernel's own, where the source only loads its machine code
        return read_text(beside, PTX_LIMIT)
    if built.variant.language is not CUDA:
        return _read_stored_ptx(built)
    kept = find_ptx_file(built, folder, more_flags)
    if not is_file(kept):
        nvcc = tools.require_tool("nvcc")
        with make_temporary_folder(folder) as place:
            made = place / "kernel.ptx"
            flags = [
                _make_gencode_flag_virtual(flag) for flag in built.flags if flag not in _NOT_FOR_PTX
            ]
            command: list[str | Path] = [
                nvcc,
                *flags,
                *more_flags,
                "-ptx",
                "-o",
                made,
                built.variant.path,
            ]
            done = process.run_command(command, _SECONDS)
            if done.status != 0:
                raise ProfkitError(f"nvcc wrote no PTX of {built.variant.path}", done.output[-500:])
            write_text(kept, read_text(made, PTX_LIMIT))
    return read_text(kept, PTX_LIMIT)


def find_ptx_file(built: Build, folder: Path, more_flags: Sequence[str] = ()) -> Path:
    """Return where the PTX of a build is kept."""
    key = hashlib.sha256(f"{built.key}{more_flags}".encode()).hexdigest()[:16]
    return folder / "ptx" / f"{built.variant.id}-{key}.ptx"


def _make_gencode_flag_virtual(flag: str) -> str:
    """Return a flag that asks for PTX where it asked for code of a real architecture."""
    return flag.replace("code=sm_", "code=compute_") if flag.startswith("-gencode=") else flag


def _read_stored_ptx(built: Build) -> PtxText:
    """Return what a language left beside its library."""
    place = built.library.parent if built.library else None
    found = sorted(list_matching_paths(place / "*.ptx")) if place else []
    if not found:
        raise ProfkitError(
            f"there is no PTX of {built.variant.id}",
            "it was built by another profkit, or its language leaves none: build it again",
        )
    return read_text(found[0], PTX_LIMIT)


def select_ptxas_flags(flags: Sequence[str]) -> list[str]:
    """Return what nvcc hands on to ptxas, of its own flags."""
    kept: list[str] = []
    words = iter(flags)
    for word in words:
        if word in ("-Xptxas", "--ptxas-options"):
            kept += next(words, "").split(",")
        elif word.startswith(("-Xptxas=", "--ptxas-options=")):
            kept += word.partition("=")[2].split(",")
        elif word in ("-maxrregcount", "--maxrregcount"):
            kept.append(f"-maxrregcount={next(words, '')}")
        elif word.startswith(("-maxrregcount=", "--maxrregcount=")):
            kept.append(f"-maxrregcount={word.partition('=')[2]}")
    return [word for word in kept if word and word != "-v"]


def assemble_all_ptx_in_parallel(
    texts: Iterable[PtxText], arch: SmArch, flags: Sequence[str], folder: Path
) -> Mapping[PtxText, bytes | ProfkitError]:
    """Return text -> its machine code, or what ptxas said against it; side by side."""
    different = list(dict.fromkeys(texts))
    with process.make_thread_pool(process.count_usable_cores()) as pool:
        made = pool.map(
            lambda text: _assemble_or_return_error(text, arch, flags, folder), different
        )
        return dict(zip(different, made, strict=True))


def _assemble_or_return_error(
    text: PtxText, arch: SmArch, flags: Sequence[str], folder: Path
) -> MachineCode | ProfkitError:
    try:
        return assemble_ptx(text, arch, flags, folder)
    except ProfkitError as error:
        return error


def assemble_ptx(text: PtxText, arch: SmArch, flags: Sequence[str], folder: Path) -> MachineCode:
    own = _OWN_TARGET.search(text)
    if own and own[1][:-1] == arch.rstrip("af"):
        arch = own[1]
    key = hashlib.sha256(repr((text, arch, tuple(flags))).encode()).hexdigest()[:24]
    kept = folder / "cubin" / f"{key}.cubin"
    if not is_file(kept):
        ptxas = tools.find_tool("ptxas")
        if ptxas is None:
            raise ProfkitError(
                "ptxas was not found", "it comes with the CUDA toolkit, in the folder of nvcc"
            )
        with make_temporary_folder(folder) as place:
            source = place / "kernel.ptx"
            made = place / "kernel.cubin"
            write_text(source, text)
            command: list[str | Path] = [ptxas, f"-arch=sm_{arch}", *flags, source, "-o", made]
            done = process.run_command(command, _SECONDS)
            if done.status != 0 or not is_file(made):
                words = " ".join(done.output.split())[-300:]
                raise ProfkitError("ptxas refuses the rewritten PTX", words or "it took too long")
            write_bytes(kept, read_bytes(made, CODE_LIMIT))
    return read_bytes(kept, CODE_LIMIT)
