"""A build and a machine  ->  what the launcher would start there. No GPU, no driver.

The variant's object file is linked with a CUDA runtime that prints launches (dry.cpp) and run.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from profkit.collect import tools
from profkit.collect.process import run_command
from profkit.files import (
    is_file,
    make_temporary_folder,
    move_file,
    read_bytes,
    read_json,
    write_text,
)
from profkit.lab.measure.cuda.library import GraphLaunch, Numbers
from profkit.lab.measure.cuda.resources import (
    CARDS,
    LIMITS,
    Card,
    KernelResources,
    compute_occupancy,
)
from profkit.lab.measure.variants.build import OBJECT, Build
from profkit.lab.measure.variants.problem import Problem, is_complete_problem_folder, load_problem
from profkit.records.store import JsonObject

if TYPE_CHECKING:
    from profkit.units import CaseName, SmArch


_COMPILE_SECONDS = 600.0  # for the stub or a program of it: three seconds are usual
_RUN_SECONDS = 120.0  # for a launcher on the stub: a tenth of a second is usual

STUB = Path(__file__).with_name("dry.cpp")
_NOT_SUPPORTED = 801


def list_launches_by_dry_run(
    built: Build, problem: Problem, case: CaseName
) -> list[GraphLaunch] | None:
    """Return what a launcher would start on the usual card of its architecture, in order.

    Empty if it does not support the case there. None if it cannot be known: no such card here, or it
    needs something of the runtime that the stub does not have.
    """
    machine = CARDS.get(built.arch.rstrip("af"))
    if built.library is None or machine is None:
        return None
    if is_file(ahead := built.library.with_name("plan.json")):
        rows = read_json(ahead).get(case)  # its language knew them when it compiled
        kernels = {k.name: k for k in built.kernels}
        if rows is None:
            return None
        return _make_dry_launches(rows, kernels, built.arch)
    program = _compile_dry_program(built.library.parent)
    values = problem.module.arguments(problem.get_case(case))
    done = None
    if program:
        done = run_command(
            [program, *_list_stub_answers(built, values, machine)], timeout_s=_RUN_SECONDS
        )
    if done and done.status == 0:
        return _parse_stub_output(done.output, built)
    return None


def load_dry_launches_by_case(
    built: Build, problem_folder: Path
) -> dict[CaseName, list[GraphLaunch]] | None:
    """Return case -> dry_launches, kept beside the build; None too where there is no problem.py."""
    known_card = built.arch.rstrip("af") in CARDS
    if built.library is None or not known_card or not is_complete_problem_folder(problem_folder):
        return None
    source = problem_folder / "problem.py"
    memory = built.library.with_name("shapes.json")
    key = hashlib.sha256(read_bytes(source) + _hash_source_of_driver_stub().encode()).hexdigest()
    kept = tools.read_cached_object(memory)
    if kept.get("key") != key or "shapes" not in kept:
        loaded = load_problem(problem_folder)
        by_case = {}
        for c in loaded.cases:
            by_case[c] = list_launches_by_dry_run(built, loaded, c)
        known = None not in by_case.values()
        kept = {"key": key, "shapes": msgspec.to_builtins(by_case) if known else None}
        write_text(memory, json.dumps(kept))
    return msgspec.convert(kept["shapes"], dict[str, list[GraphLaunch]] | None)


def compile_driver_stub_once(build_folder: Path) -> Path | None:
    """Compile dry.cpp, once per build folder; None if this toolkit's headers do not take it."""
    return _compile_with_nvcc(
        build_folder / f"dry-{_hash_source_of_driver_stub()}.o", ["-O1", "-std=c++17", "-c", STUB]
    )


def _compile_with_nvcc(target: Path, words: Sequence[str | Path]) -> Path | None:
    """Return what nvcc makes; None if it does not."""
    if not is_file(target):
        with make_temporary_folder(target.parent) as folder:
            made = folder / target.name
            command = [tools.require_tool("nvcc"), *words, "-o", made]
            if run_command(command, timeout_s=_COMPILE_SECONDS).status != 0:
                return None
            move_file(made, target)
    return target


@functools.cache
def _hash_source_of_driver_stub() -> str:
    return hashlib.sha256(STUB.read_bytes()).hexdigest()[:12]


def _compile_dry_program(folder_of_build: Path) -> Path | None:
    """Return the program of a build; None if it needs more than the stub has."""
    program = folder_of_build / f"dry-{_hash_source_of_driver_stub()}"
    if is_file(program):
        return program
    stub = compile_driver_stub_once(folder_of_build.parents[1])
    return stub and _compile_with_nvcc(
        program, ["--cudart", "none", folder_of_build / OBJECT, stub]
    )


def _list_stub_answers(built: Build, problem_arguments: JsonObject, usual_card: Card) -> list[str]:
    """Return what the stub answers its program: attributes of the device, numbers, kernels."""
    limits = LIMITS[usual_card.arch]
    numbers = Numbers.from_problem_arguments(problem_arguments)
    answers: dict[str, float] = {
        "attribute16": usual_card.sms,
        "attribute38": usual_card.l2,
        "attribute75": int(usual_card.arch[:-1]),
        "attribute76": int(usual_card.arch[-1]),
        "attribute81": limits.smem,
        "attribute97": limits.smem - limits.reserved,
        "attribute106": limits.blocks,
        "attribute39": limits.warps * 32,
        "attribute95": 1,
        "blocks": limits.blocks,
        "warps": limits.warps,
        "reserved": limits.reserved,
        "scale": numbers.scale,
        "causal": int(numbers.causal),
    }
    for index, number in enumerate(numbers.size):
        answers[f"size{index}"] = number
    for index, number in enumerate(numbers.stride):
        answers[f"stride{index}"] = number
    for kernel in built.kernels:
        answers[f"regs:{kernel.mangled}"] = kernel.regs
        answers[f"smem:{kernel.mangled}"] = kernel.smem
    return [f"{name}={answer}" for name, answer in answers.items()]


def _make_dry_launches(
    rows: Sequence[JsonObject], kernels: Mapping[str, KernelResources], arch: SmArch
) -> list[GraphLaunch] | None:
    """Return None if one of the kernels is not of the build."""
    if any(row["kernel"] not in kernels for row in rows):
        return None
    return [_make_dry_launch(row, kernels[row["kernel"]], arch) for row in rows]


def _make_dry_launch(row: JsonObject, kernel: KernelResources, arch: SmArch) -> GraphLaunch:
    across, down, deep = row["grid"]
    x, y, z = row["block"]
    dynamic = row["dynamic_smem"]
    fits = compute_occupancy(arch, kernel.regs, x * y * z, kernel.smem + dynamic)
    return GraphLaunch(
        kernel=kernel.name,
        grid=(across, down, deep),
        block=(x, y, z),
        dynamic_smem=dynamic,
        static_smem=kernel.smem,
        regs=kernel.regs,
        blocks_per_sm=fits.blocks,
    )


def _parse_stub_output(output: str, built: Build) -> list[GraphLaunch] | None:
    *lines, last = output.splitlines() or [""]
    if last == f"code|{_NOT_SUPPORTED}":
        return []
    words = [line.split("|") for line in lines]
    if last != "code|0" or any(len(w) != 5 for w in words):
        return None
    rows: list[JsonObject] = []
    for kernel, grid, block, dynamic, _cluster in words:
        shape = {"grid": map(int, grid.split()), "block": map(int, block.split())}
        rows.append({"kernel": kernel, **shape, "dynamic_smem": int(dynamic)})
    return _make_dry_launches(rows, {k.mangled: k for k in built.kernels}, built.arch)
