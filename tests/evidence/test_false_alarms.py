"""One kernel measured twice: how often each way to compare sees a difference, and what it does see.

First real A/A comparisons (`profkit bench --aa`, kept in artifacts/history): each kernel twice in
turns in one process, and one process against the next. Then noise drawn from real samples and from
what is known to fool timings: clock states that hold for 15 samples, noise that hangs together,
processes that differ. A gate alarms when the answer is "slower" or "faster" at one in a thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from profkit.evidence import stats
from profkit.evidence.history import History
from profkit.evidence.noise import estimate_spread_by_gpu, widen_spread_for_few_runs
from profkit.evidence.stats import (
    PROCESS_SPREAD,
    Taken,
    TimeComparison,
    compare_samples,
    is_speedup_significant,
)
from profkit.evidence.tables import HistoryTwin
from profkit.records.paths import HISTORY, find_all_run_files
from profkit.records.record import read_record

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
GATE = replace(stats.GATE, resamples=300)
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
    for several in find_all_run_files(ROOT / "artifacts").values():
        for files in several:
            samples = (
                np.array(read_record(files.record).warm_samples) if files.record else np.empty(0)
            )
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
    return time.answer in ("faster", "slower") and is_speedup_significant(time)


def alarms(scenario: Scenario, n: int, runs: int, rng: np.random.Generator) -> int:
    """How many A/A comparisons of that many samples a gate alarms on."""
    sides = (scenario.make(rng, n) for _ in range(runs))
    return sum(
        closed(compare_samples(*pair, taken=scenario.taken, thresholds=GATE)) for pair in sides
    )


def real(
    twins: list[HistoryTwin], n: int, factor: float = 1.0
) -> Iterator[tuple[str, list[TimeComparison]]]:
    """Real comparisons of the first n rounds, in one process and one against the next.

    The second side's times are multiplied with the factor: 1 is an A/A comparison.
    """
    turns = [(t.samples[:n], [factor * x for x in t.again[:n]]) for t in twins]
    yield (
        "interleaved",
        [compare_samples(*sides, taken="interleaved", thresholds=stats.GATE) for sides in turns],
    )
    spreads = estimate_spread_by_gpu((), twins)
    kernels: dict[tuple[str | None, ...], list[HistoryTwin]] = {}
    for twin in twins:
        kernels.setdefault((twin.gpu_uuid, twin.sass, twin.case), []).append(twin)
    for name, known in (("apart, assumed", False), ("apart, measured", True)):
        found = []
        for (uuid, *_), runs in kernels.items():
            sigma = widen_spread_for_few_runs(spreads[uuid or ""]) if known else PROCESS_SPREAD
            numbers = replace(stats.GATE, process_spread=sigma)
            for before, after in pairwise(runs):
                sides = before.samples[:n], [factor * x for x in after.again[:n]]
                found.append(compare_samples(*sides, taken="apart", thresholds=numbers))
        yield name, found


POOL = real_noise()
SCENARIOS = {s.name: s for s in scenarios(POOL)}


@pytest.fixture(scope="module")
def twins() -> list[HistoryTwin]:
    return History(ROOT / HISTORY).list_aa_runs()[0]


@pytest.mark.slow
@pytest.mark.parametrize("n", [30, 120])
def test_a_gate_is_silent_on_a_kernel_against_itself(twins: list[HistoryTwin], n: int) -> None:
    for taken, found in real(twins, n):
        assert len(found) > 200, taken
        assert not sum(map(closed, found)), taken


@pytest.mark.slow
def test_a_change_of_two_percent_is_seen_in_turns(twins: list[HistoryTwin]) -> None:
    """98.9 % of 270 with 30 rounds, all with 60."""
    for n, least in ((30, 0.97), (60, 0.99)):
        found = dict(real(twins, n, 1.02))["interleaved"]
        assert sum(map(is_speedup_significant, found)) / len(found) >= least


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_gate_is_silent_where_noise_is_known_to_fool(name: str) -> None:
    """At one in a thousand: two alarms in 60 comparisons would be one such test in 600."""
    scenario, rng = SCENARIOS[name], np.random.default_rng(0)
    for n in scenario.sizes:
        assert alarms(scenario, n, 60, rng) <= 1, n
