"""Variants  ->  shared libraries, with what ptxas and the machine code say about them.

One library per variant and architecture, in a folder named by the hash of everything that goes
into it: a second build finds the folder and starts nothing. ninja runs all compilers side by side.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.measure.build import ptxas, toolchain
from profkit.measure.build.ptxas import Kernel
from profkit.measure.cuda import cubin
from profkit.measure.cuda.names import base_name
from profkit.measure.variants.variants import Variant
from profkit.records import source_hash as source
from profkit.records.store import write_text

# -lineinfo: reports show source lines. --no-compress: the machine code can be hashed.
# The CUDA runtime is linked statically, so a library loads beside any other runtime (torch's).
FLAGS = (
    *("-O3", "-std=c++17", "-lineinfo", "-Xcompiler", "-fPIC"),
    *("-Xptxas", "-v", "--no-compress"),
)
_FORMAT = 3  # part of every key: raise it when what is stored changes


@dataclass(frozen=True)
class Build:
    """One variant compiled for one architecture.

    Attributes:
        variant: What was compiled.
        arch: `90`, `90a`.
        key: Hash of the text of source and headers, flags, compiler and architecture.
        library: The shared library; None if it did not compile.
        kernels: What ptxas says of each kernel function.
        sass: Hash of the machine code and resources; None if it cannot be read.
        text: Hash of the source and its headers to the letter.
        source: Hash of their code: Variant.source_hash.
        flags: All flags that nvcc was given.
        nvcc: Version of nvcc.
        warnings: What the compiler warned of.
        error: What nvcc said, whole, if it did not compile.
        seconds: How long nvcc took; 0 if nothing had to be done.
    """

    variant: Variant
    arch: str
    key: str
    library: Path | None
    kernels: tuple[Kernel, ...] = ()
    sass: str | None = None
    text: str = ""
    source: str = ""
    flags: tuple[str, ...] = ()
    nvcc: str | None = None
    warnings: tuple[str, ...] = ()
    error: str | None = None
    seconds: float = 0.0


def build_dir(kernels: Path, given: str | Path | None = None) -> Path:
    """Where libraries go: --build-dir, PROFKIT_BUILD, build/ beside kernels/, or the user's cache.

    Args:
        kernels: The folder of problems.
        given: What --build-dir said; None if it was not given.
    """
    named = given or os.environ.get("PROFKIT_BUILD")
    folder = Path(named) if named else kernels.parent / "build"
    if not named and not os.access(kernels.parent, os.W_OK):
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        place = hashlib.sha256(str(kernels).encode()).hexdigest()[:12]
        folder = Path(cache) / "profkit" / place
    if not (folder / ".gitignore").is_file():
        write_text(folder / ".gitignore", "*\n")
    return folder.resolve()


def build(
    variants: Iterable[Variant],
    archs: Sequence[str],
    folder: Path,
    jobs: int | None = None,
) -> list[Build]:
    """Compile what is not compiled yet, all side by side.

    Args:
        variants: What to compile.
        archs: For which architectures: `90`. A variant that its header rules out is left out.
        folder: The build folder.
        jobs: Compilers at a time; None leaves it to ninja.

    Returns:
        One Build per variant and architecture that fit, in order; look at `error`.
    """
    nvcc = toolchain.tool("nvcc", folder)
    targets = [(v, v.target(arch)) for v in variants for arch in archs]
    plans = [_plan(v, target, nvcc) for v, target in targets if target is not None]
    done = {p.key: b for p in plans if (b := _load(p, folder)) is not None}
    missing = {p.key: p for p in plans if p.key not in done}
    if missing:
        done |= _compile(list(missing.values()), nvcc.path, folder, jobs)
    return [done[p.key] for p in plans]


def is_built(variant: Variant, folder: Path) -> bool:
    """Whether this very text is compiled for any architecture."""
    text = source.text_hash(variant.path)
    for kept in (folder / variant.problem).glob(f"{variant.id}-sm_*/build.json"):
        try:
            if json.loads(kept.read_text())["text"] == text:
                return True
        except (OSError, ValueError, KeyError):
            continue
    return False


def need(built: Build) -> Build:
    """The build itself, or an error that shows everything the compiler said."""
    if built.error is None:
        return built
    raise ProfkitError(f"{built.variant.path} does not compile for sm_{built.arch}\n{built.error}")


def _plan(variant: Variant, arch: str, nvcc: toolchain.Tool) -> Build:
    """A Build that nothing has been compiled for yet."""
    gencode = f"-gencode=arch=compute_{arch},code=sm_{arch}"
    flags = (*FLAGS, gencode, *variant.flags)
    text = source.text_hash(variant.path)
    around = [os.environ.get(k, "") for k in ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")]
    # Path and text are part of the key because line tables follow both, and ncu reads them there.
    key = [_FORMAT, str(variant.path), text, flags, str(nvcc.path), nvcc.version, around]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
    plan = Build(variant, arch, digest, None, text=text, flags=flags, nvcc=nvcc.version)
    return replace(plan, source=variant.source_hash)


def _place(plan: Build, folder: Path) -> Path:
    name = f"{plan.variant.id}-sm_{plan.arch}-{plan.key[:12]}"
    return folder / plan.variant.problem / name


def _load(plan: Build, folder: Path) -> Build | None:
    """What an earlier build left, if it is whole."""
    place = _place(plan, folder)
    library = place / "variant.so"
    try:
        kept = json.loads((place / "build.json").read_text())
        if kept["key"] != plan.key or library.stat().st_size != kept["bytes"]:
            return None
        kernels = tuple(Kernel(**k) for k in kept["kernels"])
        warnings = tuple(kept["warnings"])
        return replace(plan, library=library, kernels=kernels, sass=kept["sass"], warnings=warnings)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _compile(plans: list[Build], nvcc: Path, folder: Path, jobs: int | None) -> dict[str, Build]:
    ninja = toolchain.need("ninja")
    with tempfile.TemporaryDirectory(dir=folder, prefix="tmp-") as scratch:
        work = Path(scratch)
        (work / "build.ninja").write_text(_ninja_file(plans, nvcc), encoding="utf-8")
        command = [str(ninja), "-C", scratch, "-k", "0", *(["-j", str(jobs)] if jobs else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not any(work.glob("*.log")):
            raise ProfkitError(f"ninja could not start: {(done.stdout + done.stderr).strip()}")
        times = _seconds(work / ".ninja_log")
        built = [_take(p, work / str(i), folder) for i, p in enumerate(plans)]
        return {b.key: replace(b, seconds=times.get(f"{i}.so", 0.0)) for i, b in enumerate(built)}


def _seconds(log: Path) -> dict[str, float]:
    """Output -> how long its command took, from ninja's own log."""
    try:
        rows = [line.split("\t") for line in log.read_text().splitlines()]
    except OSError:
        return {}
    return {r[3]: (int(r[1]) - int(r[0])) / 1000 for r in rows if len(r) == 5}


def _ninja_file(plans: list[Build], nvcc: Path) -> str:
    """A ninja file with one edge per library: i.o, i.so and everything nvcc said in i.log."""
    lines = ["rule nvcc", "  command = { $compile && $link ; } > $log 2>&1"]
    for i, plan in enumerate(plans):
        start = [str(nvcc), *plan.flags, "-o"]
        compiling = [*start, f"{i}.o", "-c", str(plan.variant.path)]
        linking = [*start, f"{i}.so", "-shared", f"{i}.o"]
        if bad := re.search(r'[$`"\\\n]', "".join(compiling)):
            raise ProfkitError(
                f"{plan.variant.path}: {bad[0]!r} in its path or its flags",
                "nvcc hands both to a shell, which would read it; rename the folder or the flag",
            )
        lines += [f"build {i}.so: nvcc", f"  log = {i}.log"]
        lines += [f"  compile = {shlex.join(compiling)}", f"  link = {shlex.join(linking)}"]
    return "\n".join(lines) + "\n"


def _take(plan: Build, stem: Path, folder: Path) -> Build:
    """Read one compiler's log and move its library to its place; build.json comes last."""
    made, log = stem.with_suffix(".so"), stem.with_suffix(".log")
    output = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else "not started"
    if not made.is_file():
        return replace(plan, error=output.strip())
    kernels = tuple(ptxas.parse(output))
    built = replace(
        plan,
        kernels=kernels,
        sass=_with_resources(cubin.sass_hash(made), kernels),
        warnings=tuple(
            s.strip() for s in output.splitlines() if re.search(r"\bwarning\b", s, re.I)
        ),
    )
    place = _place(plan, folder)
    place.mkdir(parents=True, exist_ok=True)
    kept = {
        "key": plan.key,
        "bytes": made.stat().st_size,
        "kernels": [asdict(k) for k in kernels],
        "sass": built.sass,
        "warnings": built.warnings,
        "flags": plan.flags,
        "text": plan.text,
    }
    os.replace(stem.with_suffix(".o"), place / "variant.o")  # dry.py links it without CUDA
    os.replace(made, place / "variant.so")
    write_text(place / "nvcc.log", output)
    write_text(place / "build.json", json.dumps(kept, indent=1))
    return replace(built, library=place / "variant.so")


def _with_resources(code: str | None, kernels: tuple[Kernel, ...]) -> str | None:
    """The hash of the machine code together with what each kernel takes of an SM."""
    if code is None:
        return None
    taken = sorted((k.regs, k.smem, k.stack) for k in kernels)
    return hashlib.sha256(f"{code}{taken}".encode()).hexdigest()


def check_budget(built: Build, dynamic: Mapping[str, int] | None = None) -> list[str]:
    """What a build takes over the budget in its header, one line each.

    Args:
        built: A build that compiled.
        dynamic: Demangled name -> the most dynamic shared memory in bytes that its launcher asks
            for, where that is known.
    """
    budget, over = built.variant.budget, []
    for kernel in built.kernels:
        taken = {
            "regs": kernel.regs,
            "smem": kernel.smem + (dynamic or {}).get(kernel.name, 0),
            "spills": kernel.spills,
            "stack": kernel.stack,
        }
        for what, most in asdict(budget).items():
            if most is not None and taken[what] > most:
                where = f"{built.variant.path.name} sm_{built.arch} {base_name(kernel.name)}"
                over.append(f"{where}: {what}={taken[what]}, budget {most}")
    return over
