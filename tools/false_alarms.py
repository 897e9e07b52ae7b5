"""Times of one kernel measured twice  ->  how often each way to compare them sees a difference.

First real A/A comparisons (`profkit bench --aa`, kept in artifacts/history): each kernel twice in
turns in one process, and one process against the next. Then noise drawn from real samples and from
what is known to fool timings: clock states that hold for 15 samples, noise that hangs together,
processes that differ. A gate alarms when the answer is "slower" or "faster" at one in a thousand;
compare's own answer stands beside it. Then the power: how often a real change of 2 % is seen, and
one as small as the gate says that it sees.

    python tools/false_alarms.py --runs 1000
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isnan, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from profkit.evidence.gate import power
from profkit.evidence.gate.power import PROCESS_SPREAD, significant, smallest_change
from profkit.evidence.history.dataset import History
from profkit.evidence.history.noise import process_spreads, spread_for
from profkit.evidence.history.tables import HistoryTwin
from profkit.evidence.timing.stats import THRESHOLDS, Taken, TimeComparison, compare_samples
from profkit.records.artifacts import HISTORY, run_files
from profkit.records.record import read_record

ROOT = Path(__file__).resolve().parents[1]
FAST = replace(THRESHOLDS, resamples=300)
GATE = replace(power.GATE, resamples=300)
Array = NDArray[np.float64]
Sides = tuple[Array, Array]
Make = Callable[[np.random.Generator, int], Sides]


@dataclass(frozen=True)
class Scenario:
    """One way in which both sides of one kernel are measured."""

    name: str
    make: Make
    taken: Taken
    sizes: tuple[int, ...]


def real_noise() -> list[Array]:
    """Each committed record's warm samples over their median."""
    pool = []
    for several in run_files(ROOT / "artifacts").values():
        for files in several:
            samples = np.array(read_record(files.record).warm) if files.record else np.empty(0)
            if samples.size >= 30:
                pool.append(samples / np.median(samples))
    return pool


def drawn(pool: list[Array]) -> Make:
    """Samples of one record for both sides, drawn one by one: its noise without its order."""

    def make(rng: np.random.Generator, n: int) -> Sides:
        noise = pool[int(rng.integers(len(pool)))]
        return rng.choice(noise, n), rng.choice(noise, n)

    return make


def in_order(pool: list[Array]) -> Make:
    """Two stretches of one record's samples as they were taken: its noise with its order."""
    long = [samples for samples in pool if samples.size >= 120]

    def make(rng: np.random.Generator, n: int) -> Sides:
        samples = long[int(rng.integers(len(long)))]
        starts = rng.integers(samples.size - min(n, samples.size) + 1, size=2)
        return samples[starts[0] :][:n], samples[starts[1] :][:n]

    return make


def each(side: Callable[[np.random.Generator, int], Array]) -> Make:
    """Both sides for themselves: nothing is shared, as if interleaving did not help."""
    return lambda rng, n: (side(rng, n), side(rng, n))


def clock_states(rng: np.random.Generator, n: int) -> Array:
    """Two levels 3 % apart, each held for 15 samples."""
    held = np.repeat(rng.integers(0, 2, n // 15 + 2), 15)[int(rng.integers(15)) :][:n]
    return np.asarray((1 + 0.03 * held) * (1 + rng.exponential(0.003, n)))


def hanging_together(rng: np.random.Generator, n: int, rho: float = 0.8) -> Array:
    """AR(1) noise of 1 %."""
    x = np.empty(n)
    x[0] = rng.normal(0, 0.01)
    for i in range(1, n):
        x[i] = rho * x[i - 1] + rng.normal(0, 0.01 * sqrt(1 - rho**2))
    return 1 + x


def of_a_process(make: Make, sigma: float) -> Make:
    """The same with a shift that is drawn anew for each process."""

    def shifted(rng: np.random.Generator, n: int) -> Sides:
        before, after = make(rng, n)
        return before * np.exp(rng.normal(0, sigma)), after * np.exp(rng.normal(0, sigma))

    return shifted


def scenarios(pool: list[Array]) -> list[Scenario]:
    """What is tried."""
    plain = drawn(pool)
    return [
        Scenario("committed noise", plain, "interleaved", (30, 60, 120)),
        Scenario("committed noise, in order", in_order(pool), "one process", (30, 60, 120)),
        Scenario("clock states of 15", each(clock_states), "one process", (10, 30, 60, 120, 240)),
        Scenario("AR(0.8)", each(hanging_together), "one process", (10, 30, 60, 120)),
        Scenario("AR(0.8), not shared", each(hanging_together), "interleaved", (10, 30, 60, 120)),
        Scenario("processes 1 % apart", of_a_process(plain, 0.01), "apart", (30, 120)),
        Scenario("processes 3 % apart", of_a_process(plain, 0.03), "apart", (30, 120)),
    ]


def closed(time: TimeComparison) -> bool:
    """Whether a gate sees a difference."""
    return time.answer in ("faster", "slower") and significant(time)


def told(time: TimeComparison) -> bool:
    """Whether compare does."""
    return time.answer in ("faster", "slower")


def alarms(scenario: Scenario, n: int, runs: int, rng: np.random.Generator) -> tuple[float, float]:
    """Shares of A/A comparisons that compare and a gate alarm on."""
    compared = gated = 0
    for _ in range(runs):
        sides = scenario.make(rng, n)
        time = compare_samples(*sides, taken=scenario.taken, thresholds=FAST)
        compared += told(time)
        gated += closed(compare_samples(*sides, taken=scenario.taken, thresholds=GATE))
    return compared / runs, gated / runs


def real(
    twins: list[HistoryTwin], n: int, factor: float = 1.0
) -> Iterator[tuple[str, list[TimeComparison]]]:
    """Real comparisons of the first n rounds: in one process, and one against the next.

    Args:
        twins: The A/A runs.
        n: Rounds.
        factor: What the second side's times are multiplied with: 1 is an A/A comparison.
    """
    turns = [(t.samples[:n], [factor * x for x in t.again[:n]]) for t in twins]
    yield (
        "interleaved",
        [compare_samples(*sides, taken="interleaved", thresholds=power.GATE) for sides in turns],
    )
    spreads = process_spreads((), twins)
    kernels: dict[tuple[str | None, ...], list[HistoryTwin]] = {}
    for twin in twins:
        kernels.setdefault((twin.gpu_uuid, twin.sass, twin.case), []).append(twin)
    for name, known in (("apart, assumed", False), ("apart, measured", True)):
        found = []
        for (uuid, *_), runs in kernels.items():
            sigma = spread_for(spreads[uuid or ""]) if known else PROCESS_SPREAD
            numbers = replace(power.GATE, process_spread=sigma)
            for before, after in pairwise(runs):
                sides = before.samples[:n], [factor * x for x in after.again[:n]]
                found.append(compare_samples(*sides, taken="apart", thresholds=numbers))
        yield name, found


def seen_changes(
    pool: list[Array], n: int, runs: int, rng: np.random.Generator
) -> tuple[float, float, float]:
    """Of interleaved rounds: the smallest change named; how often it is seen in them; and 2 %."""
    smallest, seen = [], [0, 0]
    for _ in range(runs):
        before, after = drawn(pool)(rng, n)
        time = compare_samples(before, after, taken="interleaved", thresholds=GATE)
        if isnan(change := smallest_change(time)):
            continue
        smallest.append(change)
        for i, factor in enumerate((1 + change, 1.02)):
            later = compare_samples(before, factor * after, taken="interleaved", thresholds=GATE)
            seen[i] += significant(later)
    return float(np.median(smallest)), seen[0] / len(smallest), seen[1] / runs


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--history", type=Path, default=ROOT / HISTORY)
    given = parser.parse_args()
    rng, pool = np.random.default_rng(0), real_noise()
    twins, _ = History(given.history).twins()
    head = f"{'taken':16} {'samples':>7} {'of':>6} {'compare':>8} {'gate':>8}"
    print(f"{'real A/A':27} {head} {'2 % seen':>10}")
    for n in (30, 60, 120) if twins else ():
        later = dict(real(twins, n, 1.02))
        for taken, found in real(twins, n):
            counts = sum(map(told, found)), sum(map(closed, found))
            seen = sum(map(significant, later[taken])) / len(found)
            row = f"{'':27} {taken:16} {n:7} {len(found):6}"
            print(f"{row} {counts[0]:8} {counts[1]:8} {seen:10.1%}", flush=True)
    print(f"\n{'simulated A/A':27} {head}")
    for scenario in scenarios(pool):
        for n in scenario.sizes:
            shares = alarms(scenario, n, given.runs, rng)
            row = f"{scenario.name:27} {scenario.taken:16} {n:7} {given.runs:6}"
            print(f"{row} {shares[0]:8.2%} {shares[1]:8.2%}", flush=True)
    print(f"\n{'power, interleaved':27} {'samples':>7} {'smallest':>9} {'seen':>7} {'2 % seen':>9}")
    for n in (30, 60, 120):
        smallest, own, two = seen_changes(pool, n, max(given.runs // 5, 20), rng)
        print(f"{'committed noise':27} {n:7} {smallest:9.2%} {own:7.1%} {two:9.1%}")


if __name__ == "__main__":
    main()
