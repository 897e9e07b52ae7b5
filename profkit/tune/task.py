"""What a search is about: the variant, the case, the space, and how its configurations are built."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
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
    """What a user may ask of a search."""

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
    """One search."""

    variant: Variant
    problem: Problem
    case: str
    arch: str
    folder: Path
    support: Path  # the library of support.cu
    reference: str | None  # what every trial is timed beside; None: the defaults are
    options: SearchOptions
    builder: Builder  # compiles configurations

    @property
    def subject(self) -> str:
        """`v3.B`: what its folder and its study are called after."""
        return f"{self.variant.id}.{self.case}"

    @property
    def space(self) -> Space:
        """What the header declares."""
        return self.variant.space

    @cached_property
    def refused(self) -> Counter[str]:
        """Why -> how many configurations arithmetic refuses."""
        refusals = (self._refusal(c) for c in self.space.every())
        return Counter(r.kind for r in refusals if r is not None)

    @cached_property
    def possible(self) -> tuple[Config, ...]:
        """The configurations that arithmetic lets through.

        Raises:
            ProfkitError: The defaults are not among them.
        """
        reason = self._refusal(self.space.default)
        if reason is not None:
            raise ProfkitError(
                f"{self.space.file}: the defaults of 'tune:' cannot be: {reason.detail}",
                "the first value of each macro is the default",
            )
        return tuple(c for c in self.space.every() if self._refusal(c) is None)

    def _refusal(self, config: Config) -> InvalidConfig | None:
        return self.space.refusal(config, self.arch, self.variant.budget)

    @property
    def tuned(self) -> str:
        """What a configuration's record is called: v3-tuned."""
        return f"{self.variant.id}-tuned"

    def run(self, config: Config, measured: Measurements) -> TargetRun:
        """A configuration as other verbs have a variant, under the name of `tuned`."""
        built = self.built(config).built
        return TargetRun(self.target(built.variant), {self.tuned: built}, self.support, measured)

    def name(self, config: Config) -> str:
        """What a configuration is called: v3-64-64-4-2."""
        return f"{self.variant.id}-{config.name}"

    def checks(self) -> tuple[tuple[str, int], ...]:
        """(case, seed) that every configuration must be right on."""
        return self.problem.pairs((self.case,))

    def built(self, config: Config) -> ReadyBuild:
        """A build, waited for."""
        return self.builder.start(self, config).result()

    def target(self, variant: Variant) -> Target:
        """The same as other verbs have it, for records and plans."""
        calls = (self.reference,) if self.reference else ()
        return Target(self.problem, (variant,), calls, (self.case,), self.folder)


class Builder:
    """Compilers side by side, one a core; a configuration is built once."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(cores(), "build")
        self._known: dict[Config, Future[ReadyBuild]] = {}
        self._lock = threading.Lock()

    def start(self, task: Task, config: Config) -> Future[ReadyBuild]:
        """Build a configuration, or give the build that is known."""
        with self._lock:
            if config not in self._known:
                self._known[config] = self._pool.submit(_build, task, config)
            return self._known[config]

    def stop(self) -> None:
        """Start nothing more; what runs is finished."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _build(task: Task, config: Config) -> ReadyBuild:
    variant = task.variant.tuned(**config.named)
    (built,) = build.compile_variants([variant], [task.arch], task.folder, jobs=1)
    if built.error is not None:
        return ReadyBuild(built, None)
    used = gates.kernels_used(built, task.problem, task.case, toolchain.need_tool("nvcc"))
    return ReadyBuild(built, None if used is None else tuple(used))


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
    return Task(
        variant, target.problem, case, arch, target.folder, support, reference, options, Builder()
    )


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
