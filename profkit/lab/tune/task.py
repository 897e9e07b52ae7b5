"""What a search is about: the variant, the case, the space; how its configurations are built and gated.

Arithmetic refuses before building (tunables.py), ptxas after it, the check and the launches on the
GPU at last. Occupancy is reported and refuses nothing: a gate of 50 % would refuse FlashAttention-2.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, prod
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.collect.process import count_usable_cores, make_thread_pool
from profkit.errors import ProfkitError
from profkit.lab.measure.check import Check
from profkit.lab.measure.cuda import device
from profkit.lab.measure.cuda.library import GraphLaunch
from profkit.lab.measure.cuda.resources import LIMITS, KernelResources
from profkit.lab.measure.targets import Measurements, Target, TargetRun, build_target
from profkit.lab.measure.variants import build, dry, tunables
from profkit.lab.measure.variants.build import Build, iterate_budget_excesses
from profkit.lab.measure.variants.problem import CaseAndSeed, Problem
from profkit.lab.measure.variants.tunables import Config, InvalidConfig, Space
from profkit.lab.measure.variants.variants import Variant
from profkit.lab.measure.worker import Entry
from profkit.lab.tune.result import TrialResult
from profkit.records.store import JsonObject

if TYPE_CHECKING:
    from profkit.units import CaseName, KernelName, VariantName


@dataclass(frozen=True)
class SearchOptions:
    """How long a search may take, and whether it profiles."""

    trials: int = 60  # distinct configurations to try
    time: float | None = None  # seconds after which no trial begins; None for no end
    timeout: float = 30.0  # seconds without a word after which a worker is stopped
    profile: bool = True  # whether ncu looks at what was promoted, and proposes what comes next


@dataclass(frozen=True)
class ReadyBuild:
    """A build, and the kernels that the case launches of it (None: not known)."""

    built: Build
    used: tuple[str, ...] | None

    def list_used_kernels(self) -> list[KernelResources]:
        """Return the kernels that the case launches; all that were built where that is not known."""
        if self.used is None:
            return list(self.built.kernels)
        return [kernel for kernel in self.built.kernels if kernel.name in self.used]


@dataclass(frozen=True)
class Task:
    """What is tuned: one variant at one case, with its builds."""

    variant: Variant
    problem: Problem
    case: str
    arch: str
    folder: Path
    support: Path  # the library of support.cu
    reference: str | None  # what every trial is timed beside; None: the defaults are
    options: SearchOptions
    # compilers side by side, one a core; a configuration is built once
    _pool: ThreadPoolExecutor = field(
        default_factory=lambda: make_thread_pool(count_usable_cores(), "build")
    )
    _builds: dict[Config, Future[ReadyBuild]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def subject(self) -> str:
        """Return the name of its folder and its study: `v3.B`."""
        return f"{self.variant.id}.{self.case}"

    @property
    def space(self) -> Space:
        """Return the values of its macros that are tried."""
        return self.variant.space

    @cached_property
    def _arithmetic_refusals(self) -> dict[Config, InvalidConfig | None]:
        """Return every configuration, the default first -> why arithmetic refuses it."""
        arch = self.arch
        budget = self.variant.budget
        return {
            c: self.space.find_arithmetic_refusal(c, arch, budget)
            for c in self.space.list_all_configs_even_refused()
        }

    @property
    def refusal_counts(self) -> Counter[str]:
        """Return how many configurations were refused, by kind."""
        return Counter(r.kind for r in self._arithmetic_refusals.values() if r is not None)

    @cached_property
    def possible_configs(self) -> tuple[Config, ...]:
        """Return the configurations that arithmetic allows; a ProfkitError without the defaults."""
        reason = self._arithmetic_refusals[self.space.default]
        if reason is not None:
            raise ProfkitError(
                f"{self.space.file}: the defaults of 'tune:' cannot be: {reason.detail}",
                "the first value of each macro is the default",
            )
        return tuple(c for c, refusal in self._arithmetic_refusals.items() if refusal is None)

    @property
    def tuned_name(self) -> VariantName:
        """Return the name of a configuration's record: v3-tuned."""
        return f"{self.variant.id}-tuned"

    def make_config_run(self, config: Config, measured: Measurements) -> TargetRun:
        """Return a configuration as other verbs have a variant, under the name of `tuned`."""
        built = self.wait_for_build(config).built
        calls = []
        if self.reference:
            calls.append(self.reference)
        target = Target(self.problem, (built.variant,), tuple(calls), (self.case,), self.folder)
        return TargetRun(target, {self.tuned_name: built}, self.support, measured)

    def make_variant_name_of_config(self, config: Config) -> VariantName:
        """Return the name of a configuration: v3-64-64-4-2."""
        return f"{self.variant.id}-{config.name}"

    def make_trial_entry(self, config: Config) -> Entry:
        """Return a configuration for a worker; a ProfkitError if it does not build."""
        library = self.wait_for_build(config).built.library
        name = self.make_variant_name_of_config(config)
        if library is None:
            raise ProfkitError(f"{name} does not build any more")
        return Entry(name, library, self.variant.header.inputs)

    def make_reference_entry(self, reference: str) -> Entry:
        """Return the entry by which a worker knows the reference."""
        return Entry(reference, grid=self.variant.header.inputs)

    def list_required_checks(self) -> tuple[CaseAndSeed, ...]:
        """Return the pairs (case, seed) that every configuration must be right on."""
        return self.problem.list_case_seeds((self.case,))

    def start_build(self, config: Config) -> Future[ReadyBuild]:
        """Return the build of a configuration, begun now if it was not before."""
        with self._lock:
            if config not in self._builds:
                self._builds[config] = self._pool.submit(_build_config, self, config)
            return self._builds[config]

    def wait_for_build(self, config: Config) -> ReadyBuild:
        """Return the build of a configuration when it is done."""
        return self.start_build(config).result()

    def cancel_builds_not_begun(self) -> None:
        """Start nothing more; what runs is finished."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _build_config(task: Task, config: Config) -> ReadyBuild:
    variant = task.variant.with_tunables(**config.values_by_macro)
    (built,) = build.compile_variants_not_built_yet(
        [variant], [task.arch], task.folder, most_at_once=1
    )
    if built.error is not None:
        return ReadyBuild(built, None)
    return ReadyBuild(built, list_launched_kernels(built, task.problem, task.case))


def choose_variant_and_case_to_tune(target: Target) -> tuple[Variant, CaseName]:
    """Return the variant and the case of a search; a ProfkitError if there is nothing to tune."""
    if len(target.variants) != 1 or len(target.cases) != 1:
        raise ProfkitError("a search has one variant and one case", "--variant v3 --case B")
    (variant,), (case,) = target.variants, target.cases
    if not variant.space.values:
        raise ProfkitError(
            f"{variant.path.name} declares nothing to tune",
            "say in its header: tune: BLOCK_M=64,32,128 (the first is the default)",
        )
    return variant, case


def prepare_task(target: Target, options: SearchOptions) -> Task:
    """Build the defaults of a search; a ProfkitError if the variant does not run on this GPU."""
    variant, case = choose_variant_and_case_to_tune(target)
    arch = device.query_first_gpu().arch
    if variant.choose_compile_target_for(arch) is None:
        raise ProfkitError(f"{variant.path.name} does not run on sm_{arch}", "see 'arch:'")
    default = variant.with_tunables(**variant.space.default.values_by_macro)
    support = build_target(replace(target, variants=(default,)), arch).support  # side by side
    reference = next(iter(target.problem.references), None)
    return Task(variant, target.problem, case, arch, target.folder, support, reference, options)


def make_result_of_build(ready: ReadyBuild) -> TrialResult:
    """Begin a trial's result with what ptxas says of the kernels that the case launches."""
    kernels = ready.list_used_kernels()
    if not kernels:
        return TrialResult()
    return TrialResult(
        ptxas_regs=max(k.regs for k in kernels),
        spills=max(k.spills for k in kernels),
        build_seconds=ready.built.seconds,
    )


def find_build_refusal(ready: ReadyBuild) -> InvalidConfig | None:
    """Return why a build may not run; None if it may. The kernels of the case are held to the gates."""
    build = ready.built
    if build.error is not None:
        return InvalidConfig("does not compile", _find_error_line(build.error).strip()[:200])
    budget = build.variant.budget
    spills = budget.spills or 0
    regs = budget.regs or tunables.MOST_REGISTERS
    held_to = replace(budget, spills=spills, regs=regs, smem=None)  # memory is known at the launch
    for over in iterate_budget_excesses(ready.list_used_kernels(), held_to, {}):
        detail = f"{over.kernel}: {over.resource}={over.taken}, at most {over.most}"
        return InvalidConfig(_KINDS[over.resource], detail)
    return None


def _find_error_line(compiler_output: str) -> str:
    """Return the first line that says error, else the last one."""
    line = ""
    for line in compiler_output.splitlines():
        if "error" in line:
            return line
    return line


_KINDS = {"spills": "spills", "regs": "registers of a thread", "stack": "stack frame"}


def find_launch_refusal(build: Build, launches: Sequence[GraphLaunch]) -> InvalidConfig | None:
    """Return why the launches of a configuration are refused; None if they are not."""
    for launch in launches:
        taken = {"threads": prod(launch.block), "regs": launch.regs}
        taken["smem"] = launch.dynamic_smem + launch.static_smem
        if refusal := tunables.find_block_refusal(taken, build.arch, build.variant.budget):
            return refusal
    return None


def find_check_refusal(check: Check, supported: Sequence[str] | None) -> InvalidConfig | None:
    """Return why a configuration that was checked is refused; None if it is not.

    `supported`: cases that the defaults support; None for the defaults themselves.
    """
    if check.status in ("wrong", "failed"):
        return InvalidConfig(check.status, check.faults[0] if check.faults else check.status)
    lost = []
    for c in supported or ():
        if c not in check.correct_cases:
            lost.append(c)
    if check.status != "right" or lost:
        what = " on this GPU"
        if lost:
            what = f": {lost[0]}, which the defaults can"
        return InvalidConfig("not supported", f"not supported{what}")
    return None


def list_launched_kernels(
    build: Build, problem: Problem, case: CaseName
) -> tuple[KernelName, ...] | None:
    """Return the demangled names of the kernels that a case launches; None where that is not known."""
    launches = dry.list_launches_by_dry_run(build, problem, case)
    if launches is None:
        return None
    return tuple(launch.kernel for launch in launches)


def make_machine_code_key(build: Build) -> str | None:
    """Return what makes two builds one: the machine code of the kernels and of their launcher.

    A macro that only the launcher reads (a grid, a cluster size) leaves the kernels as they are and
    is a configuration of its own all the same. None where neither can be read.
    """
    if build.library is None:
        return None
    if build.sass is None and build.host is None:
        return None
    return f"{build.sass}:{build.host}"


def measure_launch_of_most_blocks(build: Build, launches: Sequence[GraphLaunch]) -> JsonObject:
    """Return what the largest launch takes of an SM, as a trial's result has it; empty without one.

    `occupancy` is the theoretical one; None where the architecture is not known.
    """
    if not launches:
        return {}
    largest = max(launches, key=lambda launch: prod(launch.grid))
    threads = prod(largest.block)
    limit = LIMITS.get(build.arch.rstrip("af"))
    warps = largest.blocks_per_sm * ceil(threads / 32)
    return {
        "blocks": prod(largest.grid),
        "threads": threads,
        "regs": largest.regs,
        "smem": largest.dynamic_smem + largest.static_smem,
        "blocks_per_sm": largest.blocks_per_sm,
        "occupancy": min(1.0, warps / limit.warps) if limit else None,
    }
