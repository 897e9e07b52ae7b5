"""What the analyses of decode, gqa, layernorm and blocksparse share: no claims of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from statistics import median

from arithmetic import L4

from profkit.evidence.claims import Answer, at_least, decide, timed
from profkit.evidence.runs import Evidence, MissingEvidence
from profkit.lab.measure.variants.problem import Problem, load_problem

_KERNELS = Path(__file__).resolve().parents[1] / "kernels"


@cache
def problem(name: str) -> Problem:
    """kernels/<name>/problem.py."""
    return load_problem(_KERNELS / name)


def problem_bytes(name: str, case: str) -> float:
    """Compulsory traffic of a case."""
    return float(problem(name).module.compulsory_bytes(problem(name).get_case(case)))


def on_l4(name: str, case: str) -> str:
    """One line on what the case would take on an L4 at least."""
    of, module = problem(name).get_case(case), problem(name).module
    floors = {
        "DRAM": module.compulsory_bytes(of) / L4.dram,
        "tensor cores": module.operations(of) / L4.tensor,
    }
    unit = max(floors, key=lambda u: floors[u])
    return f"L4 (computed): {case} takes at least {floors[unit] * 1e6:.0f} us there, by its {unit}"


def fastest(evidence: Evidence, variants: Sequence[str], case: str) -> str:
    """Of the variants that were timed at a case, the fastest."""
    times = {}
    for variant in variants:
        if evidence.missing(f"{variant}.{case}") is None:
            times[variant] = median(evidence.load(variant, case).samples)
    if not times:
        raise MissingEvidence(f"none of {', '.join(variants)} was timed at {case}")
    return min(times, key=lambda variant: times[variant])


def share_of_copy(evidence: Evidence, variants: Sequence[str], case: str, wanted: float) -> Answer:
    """Whether the fastest variant takes at most 1 / wanted of the time of a copy of its bytes."""
    ours = fastest(evidence, variants, case)
    found = timed(evidence, f"copy.{case}", f"{ours}.{case}")
    return decide(
        at_least(found.speedup, wanted),
        f"{ours} at {case} moves its bytes at {found.speedup.median:.1%} of the copy's rate "
        f"({found.speedup.low:.1%} to {found.speedup.high:.1%}); wanted {wanted:.0%}",
        share=found.speedup.median,
        low=found.speedup.low,
        high=found.speedup.high,
    )


def answered_at(cases: Iterable[str], answer: Callable[[str], tuple[bool | None, str]]) -> Answer:
    """Whether something is true at every case; undecided where none says no and one cannot tell."""
    answers = [answer(case) for case in cases]
    return decide(all_of(true for true, _ in answers), "; ".join(line for _, line in answers))


def all_of(answers: Iterable[bool | None]) -> bool | None:
    """True where all are, False where one is, else None: not known."""
    known = list(answers)
    return False if False in known else None if None in known else True


def compared(
    evidence: Evidence, before: str, variants: Sequence[str], case: str, wanted: float = 1.0
) -> tuple[bool | None, str]:
    """Whether the fastest variant is at least `wanted` times as fast as another run, and how much."""
    ours = fastest(evidence, variants, case)
    found = timed(evidence, f"{before}.{case}", f"{ours}.{case}").speedup
    return at_least(found, wanted), f"{case}: {ours} {found.median:.2f}x {before}"
