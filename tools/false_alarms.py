"""Times of one kernel measured twice  ->  how often each way to compare them sees a difference.

Noise is drawn from the committed samples and from what is known to fool timings: clock states that
hold for 15 samples, noise that hangs together, processes that differ. A gate alarms when the answer
is "slower" or "faster" at one in a thousand; compare's own answer stands beside it. Then the power:
how often a real change of 2 % is seen, and one as small as the gate says that it sees.

    python tools/false_alarms.py --runs 1000
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isnan, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from profkit.evidence.gate.power import PROCESS_SPREAD, significant, smallest_change
from profkit.evidence.timing.stats import THRESHOLDS, Taken, compare_samples
from profkit.records.artifacts import run_files
from profkit.records.record import read_record

ROOT = Path(__file__).resolve().parents[1]
FAST = replace(THRESHOLDS, resamples=300)
GATE = replace(FAST, process_spread=PROCESS_SPREAD)  # what a gate assumes of unmeasured processes
Array = NDArray[np.float64]
Make = Callable[[np.random.Generator, int], Array]


@dataclass(frozen=True)
class Scenario:
    """One way in which both sides are measured."""

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
    """Samples of one record, drawn one by one: its noise without its order."""
    return lambda rng, n: rng.choice(pool[int(rng.integers(len(pool)))], n)


def in_order(pool: list[Array]) -> Make:
    """A stretch of one record's samples as they were taken: its noise with its order."""
    long = [samples for samples in pool if samples.size >= 120]

    def make(rng: np.random.Generator, n: int) -> Array:
        samples = long[int(rng.integers(len(long)))]
        start = int(rng.integers(samples.size - min(n, samples.size) + 1))
        return samples[start : start + n]

    return make


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
    return lambda rng, n: make(rng, n) * np.exp(rng.normal(0, sigma))


def scenarios(pool: list[Array]) -> list[Scenario]:
    """What is tried."""
    plain = drawn(pool)
    return [
        Scenario("committed noise", plain, "interleaved", (30, 120)),
        Scenario("committed noise, in order", in_order(pool), "interleaved", (30, 120)),
        Scenario("committed noise, in order", in_order(pool), "one process", (30, 120)),
        Scenario("clock states of 15", clock_states, "one process", (10, 30, 120, 240)),
        Scenario("AR(0.8)", hanging_together, "one process", (10, 30, 120)),
        Scenario("AR(0.8)", hanging_together, "interleaved", (10, 30, 120)),
        Scenario("processes 1 % apart", of_a_process(plain, 0.01), "apart", (30, 120)),
        Scenario("processes 3 % apart", of_a_process(plain, 0.03), "apart", (30, 120)),
    ]


def alarms(scenario: Scenario, n: int, runs: int, rng: np.random.Generator) -> tuple[float, float]:
    """Shares of A/A comparisons that compare and a gate alarm on."""
    told = gated = 0
    for _ in range(runs):
        sides = scenario.make(rng, n), scenario.make(rng, n)
        time = compare_samples(*sides, taken=scenario.taken, thresholds=FAST)
        told += time.answer in ("faster", "slower")
        if scenario.taken == "apart":
            time = compare_samples(*sides, taken=scenario.taken, thresholds=GATE)
        gated += time.answer in ("faster", "slower") and significant(time)
    return told / runs, gated / runs


def power(
    pool: list[Array], n: int, runs: int, rng: np.random.Generator
) -> tuple[float, float, float]:
    """Of interleaved rounds: the smallest change named; how often it is seen in them; and 2 %."""
    smallest, seen = [], [0, 0]
    for _ in range(runs):
        noise = pool[int(rng.integers(len(pool)))]
        before, after = rng.choice(noise, n), rng.choice(noise, n)
        time = compare_samples(before, after, taken="interleaved", thresholds=FAST)
        if isnan(change := smallest_change(time)):
            continue
        smallest.append(change)
        for i, factor in enumerate((1 + change, 1.02)):
            later = compare_samples(before, factor * after, taken="interleaved", thresholds=FAST)
            seen[i] += significant(later)
    return float(np.median(smallest)), seen[0] / len(smallest), seen[1] / len(smallest)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    runs = parser.parse_args().runs
    rng, pool = np.random.default_rng(0), real_noise()
    print(f"{'A/A':27} {'taken':12} {'samples':>7} {'compare':>8} {'gate':>8}")
    for scenario in scenarios(pool):
        for n in scenario.sizes:
            told, gated = alarms(scenario, n, runs, rng)
            print(f"{scenario.name:27} {scenario.taken:12} {n:7} {told:8.2%} {gated:8.2%}")
    print(f"\n{'power, interleaved':27} {'samples':>7} {'smallest':>9} {'seen':>7} {'2 % seen':>9}")
    for n in (30, 60, 120):
        smallest, own, two = power(pool, n, max(runs // 5, 20), rng)
        print(f"{'committed noise':27} {n:7} {smallest:9.2%} {own:7.1%} {two:9.1%}")


if __name__ == "__main__":
    main()
