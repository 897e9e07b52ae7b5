"""Options  ->  the problem, variants, references and cases that a verb works on, built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.measure.cuda import device
from profkit.measure.variants import build, problem, variants
from profkit.measure.variants.build import Build
from profkit.measure.variants.problem import Problem
from profkit.measure.variants.variants import Variant


@dataclass(frozen=True)
class Target:
    """What a verb is asked to work on: variants and references of one problem."""

    problem: Problem
    variants: tuple[Variant, ...]  # in ladder order
    references: tuple[str, ...]
    cases: tuple[str, ...]
    folder: Path  # the build folder
    # CUDA_VISIBLE_DEVICES of each worker, one a GPU; None leaves it as it is
    visible: tuple[str | None, ...] = (None,)


@dataclass(frozen=True)
class Places:
    """Where things are, as options and environment say; None takes the default."""

    kernels: Path | None = None  # --kernels
    build: Path | None = None  # --build-dir
    artifacts: Path | None = None  # --artifacts

    def kernels_dir(self) -> Path:
        """The folder of problems."""
        return variants.kernels_dir(self.kernels)

    def build_dir(self) -> Path:
        """The build folder."""
        return build.build_dir(self.kernels_dir(), self.build)

    def artifacts_dir(self) -> Path:
        """Where reports and records go: beside kernels/."""
        return self.artifacts or self.kernels_dir().parent / "artifacts"


def choose_target(
    places: Places, names: Sequence[str], every: bool, cases: Sequence[str], references: bool
) -> Target:
    """Find what the options name.

    With `every`, the whole ladder of each problem that has the cases, and its references; without cases,
    the problem's first.
    """
    catalogue = _catalogue(places.kernels_dir())
    picked = _every(catalogue, cases) if every else _named(catalogue, names, cases)
    problem = _only_problem(catalogue, picked)
    chosen_cases = tuple(cases) or tuple(problem.cases)[:1]
    for case in chosen_cases:
        problem.case(case)
    named = tuple(r for r in problem.references if r in picked.references)
    calls = problem.references if references else named
    once = {v.path: v for v in picked.variants}
    return Target(problem, tuple(once.values()), calls, chosen_cases, places.build_dir())


@dataclass(frozen=True)
class _Catalogue:
    """What there is to choose from: all variants, and the problems that can be run."""

    variants: tuple[Variant, ...]
    problems: Mapping[str, Problem]

    @property
    def runnable(self) -> list[Variant]:
        """The variants of problems that can be run; the others can only be built."""
        return [v for v in self.variants if v.problem in self.problems]


@dataclass(frozen=True)
class _Picked:
    """What options name: variants, references, and the problems that these are of."""

    variants: Sequence[Variant]
    references: Sequence[str]
    problems: frozenset[str]


def _catalogue(kernels: Path) -> _Catalogue:
    folders = [d for d in sorted(kernels.iterdir()) if problem.is_complete(d)]
    return _Catalogue(
        tuple(variants.find_variants(kernels)), {d.name: problem.load_problem(d) for d in folders}
    )


def _every(catalogue: _Catalogue, cases: Sequence[str]) -> _Picked:
    """The whole ladder of every problem that has the cases, and its references."""
    fitting = [p for p in catalogue.problems.values() if all(c in p.cases for c in cases)]
    names = frozenset(p.name for p in fitting)
    chosen = [v for v in catalogue.runnable if v.problem in names]
    return _Picked(chosen, list(chain.from_iterable(p.references for p in fitting)), names)


def _named(catalogue: _Catalogue, names: Sequence[str], cases: Sequence[str]) -> _Picked:
    """Variants and references by name; references alone are of the problems that have the cases."""
    problems = catalogue.problems.values()
    references = [n for n in names if any(n in p.references for p in problems)]
    chosen = [_select(n, catalogue) for n in names if n not in references]
    fitting = [p for p in problems if all(c in p.cases for c in cases)]
    of_references = (p.name for p in fitting if set(references) & set(p.references))
    return _Picked(
        chosen, references, frozenset(v.problem for v in chosen) or frozenset(of_references)
    )


def _only_problem(catalogue: _Catalogue, picked: _Picked) -> Problem:
    if len(picked.problems) != 1:
        listed = ", ".join(sorted(picked.problems)) or "none"
        raise ProfkitError(
            f"these variants are of {len(picked.problems)} problems: {listed}",
            "name variants of one problem with --variant, or a --case that only one has",
        )
    (name,) = picked.problems
    return catalogue.problems[name]


def _select(name: str, catalogue: _Catalogue) -> Variant:
    """A variant that can be run; one without a problem can only be built."""
    if any(name in (v.id, f"{v.problem}/{v.id}") for v in catalogue.runnable):
        return variants.select(catalogue.runnable, name)
    # Says what is missing.
    problem.load_problem(variants.problem_of(variants.select(catalogue.variants, name).path))
    raise ProfkitError(f"--variant {name}: no such variant")


def every_case(target: Target) -> Target:
    """The same at every case that the problem has."""
    return replace(target, cases=tuple(target.problem.cases))


def build_target(target: Target, arch: str | None = None) -> tuple[list[Build], Path]:
    """Build the variants and support.cu for the GPU present; (builds, support library)."""
    arch = arch or device.gpu().arch
    support = variants.read_variant(build.SUPPORT)
    *builds, tools = build.compile_variants([*target.variants, support], [arch], target.folder)
    library = build.need_build(tools).library
    if library is None:
        raise ProfkitError(f"{build.SUPPORT} was not built")
    return builds, library
