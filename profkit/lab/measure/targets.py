"""Options  ->  the problem, variants, references and cases that a verb works on; what came of one.

What was built and measured becomes a run record, and the plan of one call under a profiler.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from math import isnan, prod
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs

from profkit.collect.tools import read_cached_object
from profkit.errors import ProfkitError
from profkit.files import list_folder_entries
from profkit.lab.measure import data
from profkit.lab.measure.bench import Times, summarize_times_as_json
from profkit.lab.measure.check import Check
from profkit.lab.measure.cuda import device
from profkit.lab.measure.cuda.device import Gpu
from profkit.lab.measure.cuda.library import GraphLaunch, LaunchPlan
from profkit.lab.measure.cuda.resources import LIMITS, compute_waves
from profkit.lab.measure.languages.language import find_package_version
from profkit.lab.measure.variants import build, problem, variants
from profkit.lab.measure.variants.build import Build
from profkit.lab.measure.variants.problem import Problem
from profkit.lab.measure.variants.variants import Variant
from profkit.records.parts import LaunchShape, Timing
from profkit.records.record import Record, parse_record
from profkit.records.store import Document, JsonObject, read_struct

if TYPE_CHECKING:
    from profkit.units import CaseName, Seconds, SmArch, UnitName


@dataclass(frozen=True)
class Target:
    """What is to be measured: variants and references of a problem, at some cases."""

    problem: Problem
    variants: tuple[Variant, ...]  # in ladder order
    references: tuple[str, ...]
    cases: tuple[str, ...]
    folder: Path  # the build folder
    # CUDA_VISIBLE_DEVICES of each worker, one a GPU; None leaves it as it is
    visible: tuple[str | None, ...] = (None,)


@dataclass(frozen=True)
class LabFolders:
    """Where things are, as options and environment say; None takes the default."""

    kernels: Path | None = None  # --kernels
    build: Path | None = None  # --build-dir
    artifacts: Path | None = None  # --artifacts

    def kernels_dir(self) -> Path:
        """Return the folder of the kernels."""
        return variants.find_kernels_dir(self.kernels)

    def build_dir(self) -> Path:
        """Return the folder that holds builds."""
        return build.choose_build_folder_of_kernels(self.kernels_dir(), self.build)

    def artifacts_dir(self) -> Path:
        """Return where reports and records go: next to kernels/."""
        return self.artifacts or self.kernels_dir().parent / "artifacts"


def find_target_by_options(
    places: LabFolders,
    names: Sequence[str],
    are_all_variants_meant: bool,
    cases: Sequence[str],
    with_references: bool,
) -> Target:
    """Find what the options name.

    With `are_all_variants_meant`, the whole ladder of each problem that has the cases, and its
    references; without cases, the problem's first. References alone are of the problems that have the
    cases.
    """
    kernels = places.kernels_dir()
    known_variants = variants.read_all_variants(kernels)
    problems = _load_problems(kernels)
    with_cases = [known for known in problems if set(cases) <= known.cases.keys()]
    if are_all_variants_meant:
        references = _list_references(with_cases)
        names_of_problems = {known.name for known in with_cases}
        chosen = [variant for variant in known_variants if variant.problem in names_of_problems]
    else:
        references = set(names) & _list_references(problems)
        variant_names = [name for name in names if name not in references]
        chosen = _select_runnable_variants(variant_names, known_variants, problems)
        names_of_problems = {variant.problem for variant in chosen}
    if not names_of_problems:
        for known in with_cases:
            if references.intersection(known.references):
                names_of_problems.add(known.name)
    target_problem = _select_problem(problems, names_of_problems)
    called = target_problem.references
    if not with_references:
        called = tuple(name for name in called if name in references)
    return Target(
        problem=target_problem,
        variants=tuple({variant.path: variant for variant in chosen}.values()),
        references=called,
        cases=target_problem.choose_cases(cases),
        folder=places.build_dir(),
    )


def _load_problems(kernels: Path) -> list[Problem]:
    """Return the problems of a folder, without those that lack a file."""
    problems = []
    for folder in sorted(list_folder_entries(kernels)):
        if problem.is_complete_problem_folder(folder):
            problems.append(problem.load_problem(folder))
    return problems


def _select_problem(problems: Sequence[Problem], names: Collection[str]) -> Problem:
    """Return the problem that all variants are of; a ProfkitError where they are of several."""
    if len(names) != 1:
        listed = ", ".join(sorted(names)) or "none"
        raise ProfkitError(
            f"these variants are of {len(names)} problems: {listed}",
            "name variants of one problem with --variant, or a --case that only one has",
        )
    (name,) = names
    return {known.name: known for known in problems}[name]


def _list_references(problems: Sequence[Problem]) -> set[str]:
    return set(chain.from_iterable(p.references for p in problems))


def _select_runnable_variants(
    names: Sequence[str], known: Sequence[Variant], problems: Sequence[Problem]
) -> list[Variant]:
    """Return the variants of these names; a ProfkitError for one whose problem is incomplete."""
    complete = {p.name for p in problems}
    runnable = [v for v in known if v.problem in complete]
    return [_select_runnable_variant(name, known, runnable) for name in names]


def _select_runnable_variant(
    name: str, known: Sequence[Variant], runnable: Sequence[Variant]
) -> Variant:
    if any(name in (v.id, f"{v.problem}/{v.id}") for v in runnable):
        return variants.select_variant_by_id(runnable, name)
    # Says what is missing.
    problem.load_problem(
        variants.find_problem_folder_of_kernel(variants.select_variant_by_id(known, name).path)
    )
    raise ProfkitError(f"--variant {name}: no such variant")


class BuiltTarget(NamedTuple):
    """The builds of a target's variants, and the library of support.cu."""

    builds: list[Build]
    support: Path


def build_target(target: Target, arch: SmArch | None = None) -> BuiltTarget:
    """Build the variants and support.cu, for the GPU present unless an architecture is given."""
    arch = arch or device.query_first_gpu().arch
    support = variants.read_variant(build.SUPPORT)
    *builds, tools = build.compile_variants_not_built_yet(
        [*target.variants, support], [arch], target.folder
    )
    return BuiltTarget(builds, build.require_library(tools))


class TimedRow(Document, frozen=True, kw_only=True):
    """One variant or reference at a case; timing as a run record has it."""

    name: str = ""
    backend: str | None = None
    launches: tuple[GraphLaunch, ...] = ()
    timing: JsonObject = msgspec.field(default_factory=dict)


class BenchDocument(Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.bench/1"):
    """What `profkit bench --json` prints: case -> what was timed, and on which GPU."""

    gpu: JsonObject = msgspec.field(default_factory=dict)
    gpus: dict[str, Gpu] = msgspec.field(default_factory=dict)
    cases: dict[str, tuple[TimedRow, ...]] = msgspec.field(default_factory=dict)


@dataclass
class Measurements:
    """What was measured so far, and on which GPUs."""

    gpu: Gpu | None = None  # the GPU; None before a worker has opened it
    checks: dict[str, Check] = field(default_factory=dict)  # name -> its verdict
    times: dict[tuple[str, str], Times] = field(default_factory=dict)  # (name, case) -> samples
    # (name, case) -> kernel launches of one call
    launches: dict[tuple[str, str], tuple[GraphLaunch, ...]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # name -> why it has no times
    # (name, case) -> the GPU that launched it there; all of one case are on one
    gpus: dict[tuple[str, str], Gpu] = field(default_factory=dict)
    # what became of GPUs and workers that failed on the way
    lost: list[str] = field(default_factory=list)

    def describe_checks(self) -> list[JsonObject]:
        """Return the checks as plain dicts."""
        return [asdict(check) for check in self.checks.values()]


@dataclass(frozen=True)
class TargetRun:
    """A target with its builds and what was measured of it."""

    target: Target
    builds: Mapping[str, Build]  # variant -> its build, also those that failed (see Build.error)
    support: Path  # the library of support.cu
    measured: Measurements = field(default_factory=Measurements)


def make_profile_plan(run: TargetRun, name: str, case: CaseName) -> LaunchPlan:
    """Return what profkit.lab.measure.launch is given for one call."""
    target = run.target
    built = run.builds.get(name)
    problem = target.problem
    inputs_key = library = None
    if built:
        inputs_key = built.variant.header.inputs
        if built.library:
            library = str(built.library)
    at = data.load_or_compute_case_data(problem, case, 0, target.folder, inputs_key)
    input_files = []
    for number in range(len(at.shapes)):
        input_files.append(str(at.folder / f"in{number}"))
    return LaunchPlan(
        label=f"profkit:{name}:{case}",
        support=str(run.support),
        library=library,
        inputs=tuple(input_files),
        outputs=tuple(at.list_output_sizes()),
        begins=at.begins,
        values=problem.module.arguments(problem.get_case(case)),
        reference=None if built else name,
        problem=str(problem.path.parent),
        build=str(target.folder),
        case=case,
    )


def _describe_least_work(problem: Problem, case: CaseName, gpu: Gpu | None) -> JsonObject:
    """Return what a case computes and moves at least, and how long a GPU takes for that at best."""
    module = problem.module
    of = problem.get_case(case)
    exponentials = None
    if hasattr(module, "exponentials"):
        exponentials = module.exponentials(of)
    floors = {}
    if gpu:
        floors = compute_least_seconds_by_unit(problem, case, gpu)
    return {
        "operations": module.operations(of),
        "compulsory_bytes": module.compulsory_bytes(of),
        "exponentials": exponentials,
        "floors": floors,
    }


def _describe_versions(times: Times | None, built: Build | None) -> JsonObject:
    """Return the versions of what compiled and ran, also of what a subject brought with it."""
    versions: JsonObject = {"torch": find_package_version("torch")}
    if times:
        versions |= times.brought
    if built:
        versions |= {"nvcc": built.nvcc, "compiler": built.compiler}
    return versions


def _describe_build(problem: Problem, built: Build) -> JsonObject:
    """Return resources of a variant's kernels, its file and the hashes of what was made of it."""
    source = {
        "file": f"{problem.name}/{built.variant.path.name}",
        "sha256": built.source,
        "sass": built.sass,
        "host": built.host,
        "arch": built.arch,
        "flags": built.flags,
    }
    return {"resources": [asdict(kernel) for kernel in built.kernels], "source": source}


def _take_kept_sanitizer_verdicts(check: Check, built: Build) -> Check:
    """Return a check with what the sanitizer found in this very binary."""
    if built.library is None:
        return check
    return replace(check, sanitizer=read_cached_object(built.library.with_name("sanitizer.json")))


def make_record_without_timing(run: TargetRun, name: str, case: CaseName) -> Record:
    """Return the run record of a variant at a case, without its timing and its report."""
    problem = run.target.problem
    measured = run.measured
    built = run.builds.get(name)
    launches = measured.launches.get((name, case), ())
    times = measured.times.get((name, case))
    gpu = measured.gpus.get((name, case), measured.gpu)
    check = measured.checks.get(name)
    if check and built:
        check = _take_kept_sanitizer_verdicts(check, built)
    document: JsonObject = {
        "variant": name,
        "problem": problem.name,
        "case": case,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "launches": [asdict(launch) for launch in launches],
        "check": asdict(check) if check else None,
        "gpu": asdict(gpu) if gpu else {},
        "versions": _describe_versions(times, built),
        "work": _describe_least_work(problem, case, gpu),
    }
    if built:
        document |= _describe_build(problem, built)
    shape = _describe_launch_shapes(launches, gpu.sms) if gpu else ()
    record = parse_record(document)
    if built:
        return structs.replace(record, shape=shape, header=built.variant.header)
    backend = _detect_backend(problem, launches)
    return structs.replace(record, shape=shape, backend=backend)


def summarize_timing(run: TargetRun, name: str, case: CaseName) -> JsonObject | None:
    """Return times with intervals; apart from the record, as the statistics take a while to load."""
    times = run.measured.times.get((name, case))
    return summarize_times_as_json(times) if times else None


def add_timing_of_run(record: Record, run: TargetRun) -> Record:
    """Return a record with the run's times of its variant and case; none where there are none."""
    times = summarize_timing(run, record.variant, record.case)
    return structs.replace(record, timing=read_struct(Timing, times) if times else None)


def list_timed_rows(run: TargetRun, case: CaseName) -> tuple[TimedRow, ...]:
    """Return everything that was timed at a case: name, backend of a reference, launches and timing."""
    rows = []
    for name in (*run.builds, *run.target.references):
        if timed := summarize_timing(run, name, case):
            launches = run.measured.launches.get((name, case), ())
            backend = None
            if name not in run.builds:
                backend = _detect_backend(run.target.problem, launches)
            row = TimedRow(name=name, backend=backend, launches=tuple(launches), timing=timed)
            rows.append(row)
    return tuple(rows)


def _detect_backend(problem: Problem, launches: Sequence[GraphLaunch]) -> str | None:
    """Return which backend a reference really ran, read from its kernels' names."""
    if not hasattr(problem.module, "backend_of") or not launches:
        return None
    return str(problem.module.backend_of([launch.kernel for launch in launches]))


_EXP = 16  # ex2 results per SM and clock, on every one of them


def compute_least_seconds_by_unit(
    problem: Problem, case: CaseName, gpu: Gpu
) -> dict[UnitName, Seconds]:
    """Return seconds that each unit (tensor, dram, exp) needs for the work itself, as far as known.

    From data sheets, at the highest clock, for machines where counters may not be read: where there
    is a report, its own ceilings count instead.
    """
    module = problem.module
    shape = problem.get_case(case)
    clocks = gpu.sms * gpu.sm_clock
    seconds: dict[str, float] = {}
    sm = LIMITS.get(gpu.arch.rstrip("af"))
    if sm and sm.tensor and clocks:
        seconds["tensor"] = module.operations(shape) / (sm.tensor * clocks)
    if gpu.dram_bandwidth:
        seconds["dram"] = module.compulsory_bytes(shape) / gpu.dram_bandwidth
    if clocks and hasattr(module, "exponentials"):
        seconds["exp"] = module.exponentials(shape) / (_EXP * clocks)
    return seconds


def _describe_launch_shapes(
    launches: Sequence[GraphLaunch], sm_count: int
) -> tuple[LaunchShape, ...]:
    """Return blocks, waves and idle SMs of each launch, from what the driver says fits on an SM."""
    shapes = []
    for launch in launches:
        blocks = prod(launch.grid)
        waves = compute_waves(launch.grid, launch.blocks_per_sm, sm_count)
        shape = LaunchShape(
            kernel=launch.kernel,
            blocks=blocks,
            blocks_per_sm=launch.blocks_per_sm,
            waves=None if isnan(waves) else waves,
            idle_sms=max(0, sm_count - blocks),
        )
        shapes.append(shape)
    return tuple(shapes)
