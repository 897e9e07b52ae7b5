"""Variants  ->  shared libraries, with what ptxas and the machine code say about them.

One library per variant and architecture, in a folder named by the hash of everything that goes
into it: a second build finds the folder and starts nothing. How a file is compiled is its language's
business (profkit/lab/measure/languages).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from profkit.collect import tools
from profkit.collect.process import Tool, make_thread_pool
from profkit.errors import ProfkitError
from profkit.files import (
    get_file_size_or_zero,
    get_home_folder,
    is_file,
    is_writable,
    list_folder_entries,
    make_temporary_folder,
    move_file,
    read_json,
    resolve_path,
    write_text,
)
from profkit.lab.measure.cuda import device
from profkit.lab.measure.cuda.code_hash import hash_all_machine_code, hash_host_code
from profkit.lab.measure.cuda.resources import (
    CARDS,
    KernelResources,
    parse_ptxas_log,
)
from profkit.lab.measure.languages.language import CompileJob, Language
from profkit.lab.measure.variants.variants import Variant, find_problem_folder_of_kernel
from profkit.records.header import Budget
from profkit.records.record import CodeIdentity
from profkit.reports.figures import get_base_name_of_kernel

if TYPE_CHECKING:
    from profkit.units import BuildKey, ByteCount, KernelName, Sentence, Sha256, SmArch


# What is built beside the variants: calls that workers need, and no launcher.
SUPPORT = Path(__file__).resolve().parents[1] / "cuda" / "support.cu"
NO_LAUNCH = 'no profkit_launch: define extern "C" int profkit_launch(const ProfkitArgs*)'
OBJECT = "variant.o"  # beside the library
_WARNING = re.compile(r"\bwarning\b", re.IGNORECASE)
_FORMAT = 5  # part of every key: raise it when what is stored changes


@dataclass(frozen=True)
class Build:
    """A variant that was compiled for one architecture, or why it could not be."""

    variant: Variant
    arch: str  # `90`, `90a`
    key: str  # hash of the text of source and headers, flags, compiler and architecture
    library: Path | None
    kernels: tuple[KernelResources, ...] = ()
    sass: str | None = None  # hash of the machine code and resources; None if it cannot be read
    # hash of the launcher's machine code and constants; None if it cannot be read
    host: str | None = None
    text: str = ""  # hash of the source and its headers to the letter
    source: str = ""  # hash of their code: Variant.source_hash
    flags: tuple[str, ...] = ()  # all flags that nvcc was given
    nvcc: str | None = None  # version of nvcc; None where another compiler made it
    compiler: str = ""
    warnings: tuple[str, ...] = ()  # what the compiler warned of
    error: str | None = None  # what the compiler said, whole, if it did not compile
    seconds: float = 0.0  # how long the compiler took; 0 if nothing had to be done

    @property
    def code_identity(self) -> CodeIdentity:
        """Return what it runs, as far as that is known without starting it."""
        return CodeIdentity(frozenset({self.source}), self.flags, self.sass, self.host, ())

    @property
    def failure(self) -> ProfkitError | None:
        """Return an error with the compiler's whole output; None if it compiled."""
        if self.error is None:
            return None
        return ProfkitError(
            f"{self.variant.path} does not compile for sm_{self.arch}\n{self.error}"
        )


def choose_build_folder_of_kernels(
    kernels_folder: Path, build_dir_option: str | Path | None = None
) -> Path:
    """Return --build-dir, PROFKIT_BUILD, build/ beside kernels/, or the user's cache."""
    named = build_dir_option or os.environ.get("PROFKIT_BUILD")
    if named:
        folder = Path(named)
    else:
        folder = kernels_folder.parent / "build"
    if not named and not is_writable(kernels_folder.parent):
        cache = os.environ.get("XDG_CACHE_HOME") or get_home_folder() / ".cache"
        place = hashlib.sha256(str(kernels_folder).encode()).hexdigest()[:12]
        folder = Path(cache) / "profkit" / place
    if not is_file(folder / ".gitignore"):
        write_text(folder / ".gitignore", "*\n")
    return resolve_path(folder)


def compile_variants_not_built_yet(
    variants: Iterable[Variant],
    archs: Sequence[SmArch],
    build_folder: Path,
    most_at_once: int | None = None,
) -> list[Build]:
    """Compile side by side what is not compiled yet; what a header rules out is left out.

    Look at `error` of each. None for `most_at_once` leaves their number to ninja.
    """
    tools.require_tool_with_version(
        "nvcc", build_folder
    )  # support.cu is built with every variant: without it, say so now
    plans = []
    for variant, arch in product(variants, archs):
        target = variant.choose_compile_target_for(arch)
        if target is not None:
            plans.append(_make_build_plan(variant, target, build_folder))
    done: dict[str, Build] = {}
    missing: dict[str, Build] = {}
    for plan in plans:
        built = _load_earlier_build(plan, build_folder)
        if built is None:
            missing[plan.key] = plan
        else:
            done[plan.key] = built
    if missing:
        done |= _compile_plans(list(missing.values()), build_folder, most_at_once)
    return [done[plan.key] for plan in plans]


def has_build_of_current_source(variant: Variant, build_folder: Path) -> bool:
    """Return whether some build of a variant is of its source as it is now."""
    text = variant.language.text_hash(variant.path)
    for place in list_folder_entries(build_folder / variant.problem):
        is_own = place.name.startswith(f"{variant.id}-sm_")
        if is_own and tools.read_cached_object(place / "build.json").get("text") == text:
            return True
    return False


def require_library(built: Build) -> Path:
    """Return the library of a build; raise what stopped it where there is none."""
    if built.library is None:
        raise built.failure or ProfkitError(f"{built.variant.path} was not built")
    return built.library


def _make_build_plan(variant: Variant, arch: SmArch, folder: Path) -> Build:
    language = variant.language
    programs = _find_programs(variant.language, folder)
    language.refuse_unsafe_flags(variant.header, variant.path.name)
    flags = (*language.own_flags(arch), *variant.flags)
    text = language.text_hash(variant.path)
    around = language.surroundings(_make_compile_job(variant, arch, flags))
    # Path and text are part of the key because line tables follow both, and ncu reads them there.
    used = []
    for p in programs.values():
        used.append((str(p.path), p.version))
    key = [_FORMAT, str(variant.path), text, flags, used, list(around)]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
    return Build(
        variant,
        arch,
        digest,
        library=None,
        text=text,
        source=variant.source_hash,
        flags=flags,
        nvcc=programs["nvcc"].version if "nvcc" in programs else None,
        compiler=language.compiler(programs),
    )


def _find_programs(language: Language, folder: Path) -> dict[str, Tool]:
    return {name: tools.require_tool_with_version(name, folder) for name in language.programs}


def _make_compile_job(variant: Variant, arch: SmArch, flags: tuple[str, ...]) -> CompileJob:
    return CompileJob(
        path=variant.path,
        problem=find_problem_folder_of_kernel(variant.path),
        arch=arch,
        flags=flags,
        defines=variant.defines,
        grid=variant.header.inputs,
        sms=_count_sms(arch) if variant.language.needs_sms else 0,
    )


def _count_sms(arch: SmArch) -> int:
    """Return how many SMs: of the GPU present if it is of this architecture, else of the usual card."""
    number = arch.rstrip("af")
    try:
        gpu = device.query_first_gpu()
    except ProfkitError:
        if number in CARDS:
            return CARDS[number].sms
        return 0
    if gpu.arch == number or number not in CARDS:
        return gpu.sms
    return CARDS[number].sms


def _choose_build_folder(plan: Build, folder: Path) -> Path:
    name = f"{plan.variant.id}-sm_{plan.arch}-{plan.key[:12]}"
    return folder / plan.variant.problem / name


def _load_earlier_build(plan: Build, folder: Path) -> Build | None:
    """Return what an earlier build left, if it is whole."""
    place = _choose_build_folder(plan, folder)
    library = place / "variant.so"
    try:
        kept = read_json(place / "build.json")
        if kept["key"] != plan.key or get_file_size_or_zero(library) != kept["bytes"]:
            return None
        return _restore_build(plan, library, kept)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _restore_build(plan: Build, library: Path, build_json: Mapping[str, Any]) -> Build:
    return replace(
        plan,
        library=library,
        kernels=tuple(KernelResources(**k) for k in build_json["kernels"]),
        sass=build_json["sass"],
        host=hash_host_code(library.with_name(OBJECT)),  # not kept: older builds have none
        warnings=tuple(build_json["warnings"]),
    )


def _compile_plans(
    plans: Sequence[Build], folder: Path, jobs_per_language: int | None
) -> dict[BuildKey, Build]:
    """Compile what each language has to compile, all languages side by side."""
    groups: dict[int, list[Build]] = {}
    for plan in plans:
        groups.setdefault(id(plan.variant.language), []).append(plan)
    with make_thread_pool(len(groups)) as pool:
        done = pool.map(
            lambda group: _compile_builds_of_language(group, folder, jobs_per_language),
            groups.values(),
        )
        return {built.key: built for built in chain.from_iterable(done)}


def _compile_builds_of_language(
    plans: Sequence[Build], folder: Path, most_at_once: int | None
) -> list[Build]:
    language = plans[0].variant.language
    work = [_make_compile_job(plan.variant, plan.arch, plan.flags) for plan in plans]
    built = []
    with make_temporary_folder(folder) as place:
        times = language.compile(work, place, _find_programs(language, folder), most_at_once)
        for number, plan in enumerate(plans):
            compiled = _store_compiled(plan, place / str(number), folder)
            built.append(replace(compiled, seconds=times.get(number, 0.0)))
    return built


def _move_compiled(path_without_suffix: Path, target: Path) -> None:
    """Move what a compiler wrote to its place, the library last."""
    move_file(
        path_without_suffix.with_suffix(".o"), target / OBJECT
    )  # dry.py links it without CUDA
    if is_file(
        path_without_suffix.with_suffix(".json")
    ):  # its launches, where they are known ahead
        move_file(path_without_suffix.with_suffix(".json"), target / "plan.json")
    if is_file(path_without_suffix.with_suffix(".ptx")):  # of a language whose compiler leaves it
        move_file(path_without_suffix.with_suffix(".ptx"), target / "kernel.ptx")
    move_file(path_without_suffix.with_suffix(".so"), target / "variant.so")


def _store_compiled(plan: Build, path_without_suffix: Path, folder: Path) -> Build:
    """Read one compiler's log and move its library to its place; build.json comes last."""
    compiled = path_without_suffix.with_suffix(".so")
    log = path_without_suffix.with_suffix(".log")
    output = "not started"
    if is_file(log):
        output = log.read_text(encoding="utf-8", errors="replace")
    if not is_file(compiled):
        return replace(plan, error=output.strip())
    if plan.variant.path != SUPPORT and b"profkit_launch" not in compiled.read_bytes():
        return replace(plan, error=NO_LAUNCH)
    kernels = parse_ptxas_log(output)
    place = _choose_build_folder(plan, folder)
    place.mkdir(parents=True, exist_ok=True)
    warnings = []
    for line in output.splitlines():
        if _WARNING.search(line):
            warnings.append(line.strip())
    kept = {
        "key": plan.key,
        "bytes": get_file_size_or_zero(compiled),
        "kernels": [asdict(kernel) for kernel in kernels],
        "sass": _hash_with_resources(hash_all_machine_code(compiled), kernels),
        "warnings": warnings,
        "flags": plan.flags,
        "text": plan.text,
    }
    _move_compiled(path_without_suffix, place)
    write_text(place / "compiler.log", output)
    write_text(place / "build.json", json.dumps(kept, indent=1))
    return _restore_build(plan, place / "variant.so", kept)


def _hash_with_resources(
    machine_code_hash: Sha256 | None, kernels: Sequence[KernelResources]
) -> Sha256 | None:
    """Return the hash of the machine code together with what each kernel takes of an SM."""
    if machine_code_hash is None:
        return None
    taken = sorted((k.regs, k.smem, k.stack) for k in kernels)
    return hashlib.sha256(f"{machine_code_hash}{taken}".encode()).hexdigest()


class OverBudget(NamedTuple):
    """One resource of one kernel that is over its budget."""

    kernel: str
    resource: str
    taken: int
    most: int


def describe_budget_excesses(
    built: Build, dynamic_smem_bytes_by_kernel: Mapping[KernelName, ByteCount] | None = None
) -> list[Sentence]:
    """Return what a build takes over the budget in its header, one line each.

    `dynamic_smem_bytes_by_kernel`: demangled name -> the most that its launcher asks for.
    """
    variant = built.variant
    dynamic = dynamic_smem_bytes_by_kernel or {}
    lines = []
    for over in iterate_budget_excesses(built.kernels, variant.budget, dynamic):
        where = f"{variant.path.name} sm_{built.arch} {over.kernel}"
        lines.append(f"{where}: {over.resource}={over.taken}, budget {over.most}")
    return lines


def iterate_budget_excesses(
    kernels: Iterable[KernelResources],
    budget: Budget,
    dynamic_smem_bytes_by_kernel: Mapping[KernelName, ByteCount],
) -> Iterator[OverBudget]:
    """Yield what is over a budget; `dynamic_smem_bytes_by_kernel` as above."""
    for kernel in kernels:
        taken = {
            "regs": kernel.regs,
            "smem": kernel.smem + dynamic_smem_bytes_by_kernel.get(kernel.name, 0),
            "spills": kernel.spills,
            "stack": kernel.stack,
        }
        for what, most in asdict(budget).items():
            if most is not None and taken[what] > most:
                yield OverBudget(get_base_name_of_kernel(kernel.name), what, taken[what], most)
