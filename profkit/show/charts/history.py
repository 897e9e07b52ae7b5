"""Steps of a history  ->  the points to draw: when, how long, on which machine, and was it real."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from profkit.evidence.history.steps import HistoryStep

REAL = ("faster", "slower")


@dataclass(frozen=True)
class HistoryPoint:
    """One run. Seconds.

    Attributes:
        order: Its place among the subject's runs, from 0.
        median: With a warm L2; low and high are its 95 % interval, equal to it where there is none.
        machine: The GPU that it was measured on, told apart by uuid: "NVIDIA H200 2".
        answer: What became of its time against the run before it.
        commit: The first letters of its commit; "" where that is not known.
        made: The day on which it was measured.
        factor: Speed-up of a real change; "" otherwise.
    """

    order: int
    median: float
    low: float
    high: float
    machine: str
    answer: str
    commit: str
    made: str
    factor: str

    @property
    def real(self) -> bool:
        """Whether its time changed, beyond noise, method and machine."""
        return self.answer in REAL

    @property
    def told(self) -> str:
        """All of it as one line."""
        words = (self.made, self.commit, self.machine, self.answer, self.factor)
        return ", ".join(filter(None, words))


def history_points(steps: Sequence[HistoryStep]) -> dict[str, list[HistoryPoint]]:
    """Subject -> its timed runs, oldest first."""
    machines: dict[str, str] = {}
    counts: dict[str, int] = {}
    for step in steps:
        run = step.run
        name, key = run.gpu or "unknown GPU", run.gpu_uuid or run.gpu or ""
        if key not in machines:
            counts[name] = counts.get(name, 0) + 1
            machines[key] = f"{name} {counts[name]}"
    points: dict[str, list[HistoryPoint]] = {}
    for step in steps:
        run = step.run
        if run.median is None:
            continue
        timed = points.setdefault(run.subject, [])
        factor = f"{step.time.speedup.median:.3g}x" if step.time and step.answer in REAL else ""
        timed.append(
            HistoryPoint(
                len(timed),
                run.median,
                run.low if run.low is not None else run.median,
                run.high if run.high is not None else run.median,
                machines[run.gpu_uuid or run.gpu or ""],
                step.answer,
                (run.commit or "")[:8],
                (run.made or "")[:10],
                factor,
            )
        )
    return points
