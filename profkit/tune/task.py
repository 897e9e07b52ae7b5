"""What a search is about: the variant, the case, the space, and how its configurations are built."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.measure.cuda import device
from profkit.measure.process import cores
from profkit.measure.targets import Measurements, Target, TargetRun, build_target
from profkit.measure.variants import build, toolchain
from profkit.measure.variants.build import Build
from profkit.measure.variants.problem import Problem
from profkit.measure.variants.tunables import Config, InvalidConfig, Space
from profkit.measure.variants.variants import Variant
from profkit.tune import gates
from profkit.tune.result import TrialResult


@dataclass(frozen=True)
class SearchOptions:
    trials: int = 60  # distinct configurations to try
    time: float | None = None  # seconds after which no trial begins; None for no end
    seed: int = 0  # of sampler and startup
    steer: bool = True  # whether diagnoses propose configurations
    occupancy: float | None = None  # the least theoretical occupancy; None gates nothing
    timeout: float = 30.0  # seconds without a word after which a worker is stopped
    profile: bool = True  # whether ncu looks at what was promoted


@dataclass(frozen=True)
class ReadyBuild:
    """A build, and the kernels that the case launches of it (None: not known)."""

    built: Build
    used: tuple[str, ...] | None


@dataclass(frozen=True)
class Task:
    variant: Variant
    problem: Problem
    case: str
    arch: str
    folder: Path
    support: Path  # the library of support.cu
    reference: str | None  # what every trial is timed beside; None: the defaults are
    options: SearchOptions
    # compilers side by side, one a core; a configuration is built once
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(cores(), "build"))
    _builds: dict[Config, Future[ReadyBuild]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def subject(self) -> str:
        """`v3.B`: what its folder and its study are called after."""
        return f"{self.variant.id}.{self.case}"

    @property
    def space(self) -> Space:
        return self.variant.space

    @cached_property
    def _refusals(self) -> dict[Config, InvalidConfig | None]:
        """Every configuration, the default first -> why arithmetic refuses it."""
        arch, budget = self.arch, self.variant.budget
        return {c: self.space.refusal(c, arch, budget) for c in self.space.every()}

    @property
    def refused(self) -> Counter[str]:
        return Counter(r.kind for r in self._refusals.values() if r is not None)

    @cached_property
    def possible(self) -> tuple[Config, ...]:
        """The configurations that arithmetic lets through; ProfkitError without the defaults."""
        reason = self._refusals[self.space.default]
        if reason is not None:
            raise ProfkitError(
                f"{self.space.file}: the defaults of 'tune:' cannot be: {reason.detail}",
                "the first value of each macro is the default",
            )
        return tuple(c for c, refusal in self._refusals.items() if refusal is None)

    @property
    def tuned(self) -> str:
        """What a configuration's record is called: v3-tuned."""
        return f"{self.variant.id}-tuned"

    def run(self, config: Config, measured: Measurements) -> TargetRun:
        """A configuration as other verbs have a variant, under the name of `tuned`."""
        built, calls = self.built(config).built, (self.reference,) if self.reference else ()
        target = Target(self.problem, (built.variant,), calls, (self.case,), self.folder)
        return TargetRun(target, {self.tuned: built}, self.support, measured)

    def name(self, config: Config) -> str:
        """What a configuration is called: v3-64-64-4-2."""
        return f"{self.variant.id}-{config.name}"

    def checks(self) -> tuple[tuple[str, int], ...]:
        """(case, seed) that every configuration must be right on."""
        return self.problem.pairs((self.case,))

    def start(self, config: Config) -> Future[ReadyBuild]:
        """Build a configuration, or give the build that is known."""
        with self._lock:
            if config not in self._builds:
                self._builds[config] = self._pool.submit(_build, self, config)
            return self._builds[config]

    def built(self, config: Config) -> ReadyBuild:
        return self.start(config).result()

    def stop(self) -> None:
        """Start nothing more; what runs is finished."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _build(task: Task, config: Config) -> ReadyBuild:
    variant = task.variant.tuned(**config.named)
    (built,) = build.compile_variants([variant], [task.arch], task.folder, jobs=1)
    if built.error is not None:
        return ReadyBuild(built, None)
    nvcc = toolchain.need_tool("nvcc")
    return ReadyBuild(built, gates.kernels_used(built, task.problem, task.case, nvcc))


def subject_of(target: Target) -> tuple[Variant, str]:
    """The variant and the case that a search is about.

    Raises:
        ProfkitError: There is nothing to tune, or more than one variant or case.
    """
    if len(target.variants) != 1 or len(target.cases) != 1:
        raise ProfkitError("a search has one variant and one case", "--variant v3 --case B")
    (variant,), (case,) = target.variants, target.cases
    if not variant.space.values:
        raise ProfkitError(
            f"{variant.path.name} declares nothing to tune",
            "say in its header: tune: BLOCK_M=64,32,128 (the first is the default)",
        )
    return variant, case


def task_of(target: Target, options: SearchOptions) -> Task:
    """What a search is about, built.

    Raises:
        ProfkitError: As `subject_of`; or the variant does not run, or does not build, for this GPU.
    """
    variant, case = subject_of(target)
    arch = device.gpu().arch
    if variant.target(arch) is None:
        raise ProfkitError(f"{variant.path.name} does not run on sm_{arch}", "see 'arch:'")
    default = variant.tuned(**variant.space.default.named)
    _, support = build_target(replace(target, variants=(default,)), arch)  # side by side
    reference = next(iter(target.problem.references), None)
    return Task(variant, target.problem, case, arch, target.folder, support, reference, options)


def built_result(ready: ReadyBuild) -> TrialResult:
    """The beginning of a trial's result: what ptxas says of the kernels that the case launches."""
    kernels = [k for k in ready.built.kernels if ready.used is None or k.name in ready.used]
    if not kernels:
        return TrialResult()
    return TrialResult(
        ptxas_regs=max(k.regs for k in kernels),
        spills=max(k.spills for k in kernels),
        build_seconds=ready.built.seconds,
    )
