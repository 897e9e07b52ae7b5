"""Options  ->  the problem, variants, references and cases that a verb works on, built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.measure.build import build
from profkit.measure.build.build import Build
from profkit.measure.cuda import device
from profkit.measure.variants import problem, variants
from profkit.measure.variants.problem import Problem
from profkit.measure.variants.variants import Variant

SUPPORT = Path(__file__).parent / "cuda" / "support.cu"


@dataclass(frozen=True)
class Target:
    """What a verb is asked to work on: variants and references of one problem.

    Attributes:
        problem: The problem.
        variants: In ladder order.
        references: Library calls of the problem.
        cases: Names of cases.
        folder: The build folder.
    """

    problem: Problem
    variants: tuple[Variant, ...]
    references: tuple[str, ...]
    cases: tuple[str, ...]
    folder: Path


@dataclass(frozen=True)
class Places:
    """Where things are, as options and environment say; None takes the default.

    Attributes:
        kernels: --kernels.
        build: --build-dir.
        artifacts: --artifacts.
    """

    kernels: Path | None = None
    build: Path | None = None
    artifacts: Path | None = None

    def kernels_dir(self) -> Path:
        """The folder of problems."""
        return variants.kernels_dir(self.kernels)

    def build_dir(self) -> Path:
        """The build folder."""
        return build.build_dir(self.kernels_dir(), self.build)

    def artifacts_dir(self) -> Path:
        """Where reports and records go: beside kernels/."""
        return self.artifacts or self.kernels_dir().parent / "artifacts"


def choose(
    places: Places, names: Sequence[str], every: bool, cases: Sequence[str], references: bool
) -> Target:
    """Find what the options name.

    Args:
        places: Where to look.
        names: --variant, also references; empty with every.
        every: --all: the whole ladder of every problem that has the cases, and its references.
        cases: --case; empty takes the problem's first.
        references: Whether the problem's references are always included.
    """
    kernels = places.kernels_dir()
    everything = variants.find(kernels)
    problems = {
        d.name: problem.load(d) for d in sorted(kernels.iterdir()) if problem.is_complete(d)
    }
    known = [v for v in everything if v.problem in problems]
    if every:
        fitting = [p for p in problems.values() if all(c in p.cases for c in cases)]
        wanted = {p.name for p in fitting}
        chosen = [v for v in known if v.problem in wanted]
        named = [r for p in fitting for r in p.references]
    else:
        named = [n for n in names if any(n in p.references for p in problems.values())]
        chosen = [_select(n, known, everything) for n in names if n not in named]
        wanted = {v.problem for v in chosen} or {
            p.name for p in problems.values() if set(named) & set(p.references)
        }
    if len(wanted) != 1:
        said = ", ".join(sorted(wanted)) or "none"
        raise ProfkitError(
            f"these variants are of {len(wanted)} problems: {said}",
            "name variants of one problem with --variant, or a --case that only one has",
        )
    (of,) = wanted
    the = problems[of]
    picked = tuple(cases) or tuple(the.cases)[:1]
    for case in picked:
        the.case(case)
    calls = the.references if references else tuple(r for r in the.references if r in named)
    once = {v.path: v for v in chosen}
    return Target(the, tuple(once.values()), calls, picked, places.build_dir())


def _select(name: str, known: Sequence[Variant], everything: Sequence[Variant]) -> Variant:
    """A variant that can be run; one without a problem can only be built."""
    if any(name in (v.id, f"{v.problem}/{v.id}") for v in known):
        return variants.select(known, name)
    problem.load(variants.select(everything, name).path.parent)  # says what is missing
    raise ProfkitError(f"--variant {name}: no such variant")


def every_case(target: Target) -> Target:
    """The same at every case that the problem has."""
    return replace(target, cases=tuple(target.problem.cases))


def builds(target: Target, arch: str | None = None) -> tuple[list[Build], Path]:
    """Build the variants and support.cu for the GPU present; (builds, support library)."""
    arch = arch or device.gpu().arch
    support = variants.read(SUPPORT)
    *made, tools = build.build([*target.variants, support], [arch], target.folder)
    library = build.need(tools).library
    if library is None:
        raise ProfkitError(f"{SUPPORT} was not built")
    return made, library
