"""Runs over time  ->  what processes differ by on each GPU; what changed at each run, and was it real.

Two sources: A/A runs (`profkit bench --aa`), and every machine code that was ever measured in more
than one session. What is estimated from few sessions counts for more than it is: see `spread_for`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from math import isnan, log, nan, sqrt
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import structs

from profkit.errors import ProfkitError
from profkit.evidence import stats
from profkit.evidence.ablated import HistoryAblation, describe_causes_that_cost_more
from profkit.evidence.compare import STRICT, Policy, compare_warm_times
from profkit.evidence.history import History
from profkit.evidence.samples import (
    THRESHOLDS,
    Spread,
    estimate_spread_within_groups,
    find_two_sided_quantile,
)
from profkit.evidence.stats import ALPHA, TimeComparison
from profkit.evidence.tables import HistoryRun, HistoryTwin
from profkit.files import is_folder
from profkit.records.store import Document, Unprinted

if TYPE_CHECKING:
    from profkit.units import GpuName, GpuUuid, Seconds, Share


_LEAST = 2  # degrees of freedom: one difference is no spread
# Processes of one sitting share temperature, neighbours and driver: on an H200, 43 in two minutes
# differed by 0.01 to 0.02 %. Until a GPU was measured on two days, it is taken to differ by this.
SITTING = 0.0025
_DAY = 20 * 3600.0  # seconds


def _get_median_time(row: HistoryRun | HistoryTwin) -> Seconds | None:
    """Return the median time of a measurement, in s; None where there are no samples."""
    if isinstance(row, HistoryRun):
        return row.median
    if row.samples:
        return median(row.samples)
    return None


@dataclass
class _GpuMedians:
    """What was measured on one GPU."""

    # (machine code, case) -> session -> the logarithm of its median
    logs: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)  # when, as far as known


def _group_log_medians_and_times(
    rows: Iterable[HistoryRun | HistoryTwin],
) -> dict[GpuUuid, _GpuMedians]:
    """Return the measurements of each GPU (uuid)."""
    by_gpu: dict[str, _GpuMedians] = {}
    for row in rows:
        middle = _get_median_time(row)
        if row.gpu_uuid and row.sass and row.session and middle:
            gpu = by_gpu.setdefault(row.gpu_uuid, _GpuMedians())
            gpu.logs.setdefault((row.sass, row.case), {})[row.session] = log(middle)
            timestamp = parse_timestamp(row.made)
            if timestamp is not None:
                gpu.times.append(timestamp)
    return by_gpu


def estimate_spread_by_gpu(
    runs: Iterable[HistoryRun],
    twins: Iterable[HistoryTwin] = (),
    least_in_one_sitting: Share = SITTING,
) -> dict[GpuUuid, Spread]:
    """Return GPU (uuid) -> relative standard deviation of a median from one process to the next.

    A GPU with fewer than two differences is not there; one that was measured in one sitting only is
    taken to differ by `least_in_one_sitting` at least.
    """
    spreads = {}
    for uuid, gpu in _group_log_medians_and_times([*runs, *twins]).items():
        spread = estimate_spread_within_groups(
            [[*by_session.values()] for by_session in gpu.logs.values()]
        )
        if not spread or (spread.dof or 0) < _LEAST:
            continue
        sigma = spread.sigma
        if not gpu.times or max(gpu.times) - min(gpu.times) < _DAY:
            sigma = max(sigma, least_in_one_sitting)
        spreads[uuid] = Spread(sigma, spread.dof)
    return spreads


class KnownSpreads:
    """What a history knows of GPUs, read when it is first asked: a GPU (uuid) -> what to assume."""

    def __init__(self, place: str | Path, alpha: float = 1 - THRESHOLDS.level) -> None:
        # What of the history cannot be read: then what nobody measured is assumed, as without one.
        self.problems: list[ProfkitError] = []
        self._place = str(place)
        self._alpha = alpha

    def __call__(self, uuid: str) -> float | None:
        """Return the standard deviation that a test at this level assumes; None if never measured."""
        spread = self._spreads_by_gpu.get(uuid)
        return widen_spread_for_few_runs(spread, self._alpha) if spread else None

    def read_history(self) -> KnownSpreads:
        """Read it now, for its problems."""
        self("")
        return self

    @cached_property
    def _spreads_by_gpu(self) -> dict[GpuUuid, Spread]:
        if "://" not in self._place and not is_folder(Path(self._place)):
            return {}
        kept = History(self._place)
        try:
            (runs, wrong), (twins, bad) = kept.list_runs(), kept.list_aa_runs()
        except ProfkitError as error:
            self.problems.append(error)
            return {}
        self.problems += wrong + bad
        return estimate_spread_by_gpu(runs, twins)


def parse_timestamp(timestamp: str | None) -> Seconds | None:
    """Return when something was measured, in seconds; None where that is not known."""
    if not timestamp:
        return None
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return None


def widen_spread_for_few_runs(spread: Spread, alpha: float = ALPHA) -> Share:
    """Return the standard deviation that a test at this level has to assume.

    A spread from few differences may be far too small: what is added is what Student's t is wider
    than the normal distribution at this level (4.6 times at three, 1.1 at thirty).
    """
    if spread.dof is None:
        return spread.sigma
    return (
        spread.sigma
        * find_two_sided_quantile(1 - alpha, spread.dof)
        / find_two_sided_quantile(1 - alpha)
    )


class MachineNoise(Document, frozen=True, kw_only=True):
    """What A/A runs on one GPU found."""

    gpu: str = ""
    gpu_uuid: str = ""
    processes: int = 0  # how many there were
    pairs: int = 0  # A/A comparisons inside a process
    rounds: int = 0  # samples a side, the fewest
    # relative standard deviation of the ratio of the two medians inside a process
    within: float = nan
    # of a median from process to process, and of how many differences; None of fewer than three
    between: float | None = None
    between_degrees: int | None = None
    compare_alarms: int = 0  # how many pairs compare called faster or slower
    gate_alarms: int = 0  # how many of them a gate would have


class NoiseDocument(Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.noise/1"):
    """What `profkit bench --aa N --json` prints."""

    machines: tuple[MachineNoise, ...] = ()


def measure_aa_noise_by_gpu(twins: Sequence[HistoryTwin]) -> list[MachineNoise]:
    """Return how far repeated runs of one code differ, for each GPU."""
    by_gpu: dict[tuple[str, str], list[HistoryTwin]] = {}
    for twin in twins:
        if twin.samples and len(twin.samples) == len(twin.again):
            by_gpu.setdefault((twin.gpu or "", twin.gpu_uuid or ""), []).append(twin)
    spreads = estimate_spread_by_gpu((), twins, 0.0)
    machines = []
    for (gpu, uuid), mine in sorted(by_gpu.items()):
        machines.append(_measure_machine(gpu, uuid, mine, spreads.get(uuid)))
    return machines


def _measure_machine(
    gpu: GpuName, uuid: GpuUuid, twins: Sequence[HistoryTwin], process_spread: Spread | None
) -> MachineNoise:
    """Return the noise of one GPU by its A/A runs; `process_spread`: the spread of its processes."""
    squares = 0.0
    alarms = []
    for twin in twins:
        squares += log(median(twin.samples) / median(twin.again)) ** 2
        found = stats.compare_samples(twin.samples, twin.again, taken="interleaved")
        if found.answer in ("faster", "slower"):
            alarms.append(found)
    return MachineNoise(
        gpu=gpu,
        gpu_uuid=uuid,
        processes=len({twin.session for twin in twins}),
        pairs=len(twins),
        rounds=min(len(twin.samples) for twin in twins),
        within=sqrt(squares / len(twins)),
        between=process_spread.sigma if process_spread else None,
        between_degrees=process_spread.dof if process_spread else None,
        compare_alarms=len(alarms),
        gate_alarms=sum(stats.is_speedup_significant(alarm) for alarm in alarms),
    )


# What changed at each run of a subject.

StepAnswer = Literal[
    "first", "faster", "slower", "same", "cannot tell", "same code", "other machine", "no time"
]


class HistoryStep(Document, frozen=True, kw_only=True):
    """One run against the one before it on the same GPU; null where not known."""

    subject: str = ""
    commit: str | None = None
    commit_from: str | None = None
    made: str | None = None
    gpu: str | None = None
    median: float | None = msgspec.field(default=None, name="median_s")
    low: float | None = msgspec.field(default=None, name="low_s")
    high: float | None = msgspec.field(default=None, name="high_s")
    sass: str | None = None
    # what became of its time; "same code" where the machine code is unchanged
    answer: StepAnswer = "no time"
    time: TimeComparison | None = None  # the comparison; None where none was made
    # the smallest change that would have been seen; None without a comparison
    smallest_change: float | None = None
    # what else is odd: one machine code with two times, or known by another name before
    note: str | None = None
    run: Unprinted[HistoryRun]  # what was measured


class HistoryDocument(
    Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.history/1"
):
    """What `profkit history --json` prints."""

    steps: tuple[HistoryStep, ...] = ()


def make_history_step(
    run: HistoryRun,
    answer: StepAnswer,
    time: TimeComparison | None = None,
    smallest_change: float | None = None,
    note: str = "",
) -> HistoryStep:
    """Return a run's step in a history, with the answer on the change before it."""
    return HistoryStep(
        subject=run.subject,
        commit=run.commit,
        commit_from=run.commit_from,
        made=run.made,
        gpu=run.gpu,
        median=run.median,
        low=run.low,
        high=run.high,
        sass=run.sass,
        answer=answer,
        time=time,
        smallest_change=smallest_change,
        note=note or None,
        run=run,
    )


def compare_consecutive_runs(
    runs: Iterable[HistoryRun],
    spreads: Mapping[GpuUuid, Spread] | None = None,
    ablations: Iterable[HistoryAblation] = (),
) -> list[HistoryStep]:
    """Return each run of each subject against the one before it, subject by subject, oldest first.

    `spreads`: GPU (uuid) -> what its processes differ by; None asks the runs themselves.
    `ablations`: of any runs: a cause that costs more than at the last ablation before is a note.
    """
    ordered = list(runs)
    if spreads is None:
        spreads = estimate_spread_by_gpu(ordered)
    scaled: dict[str, float] = {}
    for gpu, spread in spreads.items():
        scaled[gpu] = widen_spread_for_few_runs(spread)
    policy = replace(STRICT, spread_of=scaled.get)
    measured = _group_measurements(ordered)
    found: list[HistoryStep] = []
    for _, mine in sorted(measured.by_subject.items()):
        for n, run in enumerate(mine):
            found.append(judge_history_step(mine[:n], run, policy, measured.by_machine_code))
    by_record: dict[str, list[HistoryAblation]] = {}
    for row in ablations:
        by_record.setdefault(measured.first_record.get(row.record, ""), []).append(row)
    return add_notes_on_dearer_causes(found, by_record)


@dataclass(frozen=True)
class _Measurements:
    """Runs in order, each measurement once."""

    by_subject: dict[str, list[HistoryRun]]
    by_machine_code: dict[tuple[str, str], list[HistoryRun]]  # (SASS, case); every record counts
    first_record: dict[str, str]  # record -> the first one of the same measurement


def _group_measurements(ordered: Iterable[HistoryRun]) -> _Measurements:
    """Group runs by subject and by machine code.

    A record whose header was mended is another file of one measurement: of a subject the first
    file counts.
    """
    measured = _Measurements({}, {}, {})
    for run in ordered:
        mine = measured.by_subject.setdefault(run.subject, [])
        if run.sass:
            measured.by_machine_code.setdefault((run.sass, run.case), []).append(run)
        first = _find_same_measurement(mine, run)
        measured.first_record[run.record] = (first or run).record
        if first is None:
            mine.append(run)
    return measured


def _find_same_measurement(earlier: Iterable[HistoryRun], run: HistoryRun) -> HistoryRun | None:
    """Return the run that was made at the same time in the same session; None if there is none."""
    for other in earlier:
        if other.made and other.made == run.made and other.session == run.session:
            return other
    return None


def add_notes_on_dearer_causes(
    steps: Sequence[HistoryStep], by_record: Mapping[str, Sequence[HistoryAblation]]
) -> list[HistoryStep]:
    """Return the steps, with a note where a cause costs more than at the last ablation of its GPU."""
    before: dict[tuple[str, str | None], Sequence[HistoryAblation]] = {}
    noted = []
    for step in steps:
        rows = by_record.get(step.run.record, ())
        place = (step.run.subject, step.run.gpu_uuid or step.run.gpu)
        dearer = describe_causes_that_cost_more(before.get(place, ()), rows)
        if rows:
            before[place] = rows
        said = [step.note] if step.note else []
        said += dearer.values()
        noted.append(structs.replace(step, note="; ".join(said) or None))
    return noted


def _make_first_step_with_other_name(
    run: HistoryRun, runs_with_same_sass: Sequence[HistoryRun]
) -> HistoryStep:
    """Return a first run, with the other name of its code among runs whose code may be the same."""
    note = ""
    for old in runs_with_same_sass:
        if old.code_identity.is_surely_same(run.code_identity):
            if old.subject != run.subject:
                note = f"the machine code of {old.subject}"
            break
    return make_history_step(run, "first", note=note)


def judge_history_step(
    earlier_runs_of_subject: Sequence[HistoryRun],
    run: HistoryRun,
    policy: Policy,
    runs_by_code: Mapping[tuple[str, str], Sequence[HistoryRun]],
) -> HistoryStep:
    """Return a run against the latest before it on its GPU; of a first one, its code's other name."""
    if not earlier_runs_of_subject:
        return _make_first_step_with_other_name(
            run, runs_by_code.get((run.sass or "", run.case), ())
        )
    before = None
    for earlier in earlier_runs_of_subject:
        if (earlier.gpu_uuid or earlier.gpu) == (run.gpu_uuid or run.gpu):
            before = earlier
    same_code = run.code_identity.is_surely_same(
        (before or earlier_runs_of_subject[-1]).code_identity
    )
    if before is None:
        return make_history_step(run, "same code" if same_code else "other machine")
    if not (before.samples and run.samples):
        return make_history_step(run, "same code" if same_code else "no time")
    time = compare_warm_times(before.timed, run.timed, policy)
    answer = policy.answer_comparison(time)
    if same_code:
        odd = ""
        if answer in ("faster", "slower"):
            cause = "the method or the machine caused it"
            odd = f"identical machine code, but {time.sentence}: {cause}"
        return make_history_step(run, "same code", note=odd)
    smallest = stats.compute_detectable_change(time)
    return make_history_step(run, answer, time, None if isnan(smallest) else smallest)
