"""Records of a base and of a head  ->  one answer each, and the exit status with every reason for it.

What HEAD's record says is wrong is wrong, whatever else is the same: that is asked first.
Machine code that did not change is never judged by its time: a gate that does is wrong once in a
while on every pull request. What did change is judged at one false alarm in a thousand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import isnan, nan
from typing import TYPE_CHECKING, Literal, get_args

import msgspec
from msgspec import structs

from profkit.errors import ProfkitError
from profkit.evidence import compare, stats
from profkit.evidence.ablated import describe_causes_that_cost_more, make_history_rows_of_ablation
from profkit.evidence.compare import STRICT, Policy, RunComparison, SpreadBetweenProcesses, SpreadOf
from profkit.evidence.conditions import (
    list_machine_differences,
    list_timing_method_differences,
)
from profkit.evidence.runs import Evidence, Run
from profkit.evidence.stats import TimeComparison
from profkit.records.paths import RunName
from profkit.records.record import Record, suggest_run_command
from profkit.records.store import Document, Unprinted
from profkit.reports.figures import format_percent

if TYPE_CHECKING:
    from profkit.units import (
        CaseName,
        Clause,
        ClauseOrEmpty,
        FloatOrNan,
        Sentence,
        SentenceOrEmpty,
        Sha256,
    )


SEES = 0.02  # what "the same" means: a change of so much would have been seen
_METHOD = {"ncu", "case"}
_MACHINE = {"device", "clocks"}
_SHOWN = 3  # counters that moved, named in a reason
GateAnswer = Literal[  # in the order of the summary
    "wrong", "slower", "faster", "same", "cannot tell", "no time", "stale", "new", "gone"
]
_WORDS = {"same": "the same", "no time": "without a time"}  # what the summary calls otherwise
Cause = Literal["code", "method", "machine", "noise"]


class GateSubject(Document, frozen=True, kw_only=True):
    """One variant at one case, before and after; null where not known."""

    name: str = ""
    # what became of it; "wrong" where HEAD's values or accesses are, "no time" where it was
    # not timed, "stale" where its code changed since it was measured
    answer: GateAnswer = "no time"
    because: str = ""
    cause: Cause | None = None  # where a difference comes from
    time: TimeComparison | None = None  # the comparison; None where none was made
    # the smallest relative change that would have been seen; NaN where none was made
    smallest_change: float = nan
    # how many samples a side would see a change of SEES; None where that is not known
    samples_needed: int | None = None
    # what the processes were taken to differ by, where times were compared
    between_processes: SpreadBetweenProcesses | None = None


class GateReport(Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.gate/1"):
    """What a gate says of two folders: what `profkit gate --json` prints."""

    # 1 slower or wrong; 2 something that changed could not be judged; 0 otherwise
    status: int = 0
    summary: str = ""  # `0 slower, 1 faster, 34 the same, 2 cannot tell, 1 without a time`
    reasons: tuple[str, ...] = ()  # every reason for a status other than 0
    alpha: float = stats.ALPHA
    power: float = stats.POWER
    subjects: tuple[GateSubject, ...] = ()  # every variant at every case of either side
    problems: Unprinted[tuple[ProfkitError, ...]] = ()  # records that cannot be read
    # exit status -> the subjects that ask for it
    closing: Unprinted[Mapping[int, Sequence[GateSubject]]] = msgspec.field(default_factory=dict)

    @property
    def assumed_spread(self) -> SpreadBetweenProcesses | None:
        """Return how much processes are assumed to differ where nobody measured it; None elsewhere."""
        for subject in self.subjects:
            spread = subject.between_processes
            if spread and not spread.measured:
                return spread
        return None


def make_gate_report(
    subjects: Sequence[GateSubject],
    problems: Sequence[ProfkitError] = (),
    *,
    strict: bool = False,
) -> GateReport:
    """Return the report on these subjects; `strict`: whether "cannot tell" closes the gate too."""
    wrong = []
    slower = []
    undecided = []
    for subject in subjects:
        if subject.answer == "wrong":
            wrong.append(subject)
        elif subject.answer == "slower":
            slower.append(subject)
        elif subject.answer in ("no time", "stale") or (strict and subject.answer == "cannot tell"):
            undecided.append(subject)
    status = 0
    if wrong or slower:
        status = 1
    elif undecided or problems:
        status = 2
    reasons = [f"{subject.name}: {subject.because}" for subject in (*wrong, *slower, *undecided)]
    reasons += [problem.message for problem in problems]
    return GateReport(
        status=status,
        summary=say_answer_counts(subjects),
        reasons=tuple(reasons),
        subjects=tuple(subjects),
        problems=tuple(problems),
        closing={1: [*wrong, *slower], 2: undecided},
    )


def say_answer_counts(subjects: Iterable[GateSubject]) -> Clause:
    """Return how many subjects have each answer, in words."""
    counts = Counter(subject.answer for subject in subjects)
    always = ("slower", "faster", "same", "cannot tell")
    kinds = []
    for kind in get_args(GateAnswer):
        if counts[kind] or kind in always:
            kinds.append(kind)
    return ", ".join(f"{counts[kind]} {_WORDS.get(kind, kind)}" for kind in kinds)


def judge_head_against_base(
    base: Evidence,
    head: Evidence,
    case: CaseName | None = None,
    strict: bool = False,
    spread_of: SpreadOf = compare.nobody_measured,
) -> GateReport:
    """Return what moved from one folder of artifacts, which has runs, to another.

    `base`, `head`: with what the kernels beside them say today. `strict`: whether
    "cannot tell" closes the gate too. `spread_of`: what the processes of a GPU differ by, where that
    was measured.
    """
    problems: list[ProfkitError] = []
    was, now = read_runs_of_both_sides(base, head, case, problems)
    policy = replace(STRICT, spread_of=spread_of)
    control = compare_references_by_case(was, now, policy, problems)
    renamed = map_head_runs_to_renamed_base(was, now)
    subjects = []
    for key in sorted({*was, *now} - {*renamed.values()}):
        name = ".".join(key)
        before = was.get(renamed.get(key, key))
        after = now.get(key)
        if faulty := judge_stale_or_wrong_subject(
            name, get_record_of_optional_run(before), get_record_of_optional_run(after), base, head
        ):
            subjects.append(faulty)
        elif is_reference_or_missing_run(before) and is_reference_or_missing_run(after):
            continue  # a library call is not judged: it shows what the machine did
        elif key in renamed:
            because = f"the machine code of {renamed[key][0]}, renamed"
            subjects.append(GateSubject(name=name, answer="same", because=because))
        else:
            subjects.append(judge_subject(name, before, after, control.get(key[1]), policy))
    return make_gate_report(subjects, problems, strict=strict)


def get_record_of_optional_run(run: Run | None) -> Record | None:
    """Return the run record of a side that has a run."""
    if run is None:
        return None
    return run.record


def make_no_run_error(evidence: Evidence, case: CaseName | None) -> ProfkitError:
    """Return the error for a side that has no run, at a case if one is given."""
    at = ""
    if case:
        at = f" at case {case}"
    return ProfkitError(f"{evidence.root}: no run{at}", "profkit profile --all")


def is_reference_or_missing_run(run: Run | None) -> bool:
    """Return whether a run, if there is one, timed a library call."""
    if run is None:
        return True
    return bool(run.record and run.record.is_reference)


def judge_subject(
    name: str,
    before: Run | None,
    after: Run | None,
    reference_comparison: TimeComparison | None,
    policy: Policy,
) -> GateSubject:
    """Return the answer on a subject by its run on each side; one of them may be missing."""
    if before and after:
        untimed = judge_untimed_subject(name, before, after)
        return untimed or judge_timed_subject(before, after, reference_comparison, policy)
    return make_unpaired_subject(name, is_in_base=before is not None)


def make_unpaired_subject(name: str, *, is_in_base: bool) -> GateSubject:
    """Return a subject that only one side has."""
    if is_in_base:
        return GateSubject(name=name, answer="gone", because="only BASE has it")
    return GateSubject(name=name, answer="new", because="only HEAD has it")


def read_runs_of_both_sides(
    base: Evidence, head: Evidence, case: CaseName | None, problems_to_extend: list[ProfkitError]
) -> list[dict[RunName, Run]]:
    """Return the runs of each side; a ProfkitError of a side that has none, for no other reason."""
    sides = [read_runs_of_side(side, case, problems_to_extend) for side in (base, head)]
    for side, runs in zip((base, head), sides, strict=True):
        if not runs and not problems_to_extend:
            raise make_no_run_error(side, case)
    return sides


def read_runs_of_side(
    evidence: Evidence, case: CaseName | None, problems_to_extend: list[ProfkitError]
) -> dict[RunName, Run]:
    """Return every run of a side; its report is read where its time is judged."""
    found, wrong = evidence.load_all_usable_runs(
        lambda n: case in (None, n[1]), are_counters_needed=False
    )
    problems_to_extend += wrong
    return {(run.variant, str(run.case)): replace(run, stale=False) for run in found}


def map_head_runs_to_renamed_base(
    base: Mapping[RunName, Run], head: Mapping[RunName, Run]
) -> dict[RunName, RunName]:
    """Name in the head -> name in the base, of one machine code at one case."""
    gone = []
    for n, run in base.items():
        if n not in head and run.record:
            gone.append(n)
    pairs: dict[RunName, RunName] = {}
    for name, after in head.items():
        if name not in base and after.record:
            alike = []
            for n in gone:
                if n[1] == name[1] and compare.is_surely_same_code(base[n], after):
                    alike.append(n)
            if len(alike) == 1:
                pairs[name] = alike[0]
    return pairs


def compare_references_by_case(
    base: Mapping[RunName, Run],
    head: Mapping[RunName, Run],
    policy: Policy,
    problems_to_extend: list[ProfkitError],
) -> dict[CaseName, TimeComparison]:
    """Return case -> how the library calls that both sides timed compare: the most typical one.

    They say what the machine did, where the code cannot have. `problems_to_extend` takes samples that
    are no times.
    """
    by_case: dict[str, list[TimeComparison]] = {}
    for name, run in base.items():
        before = run.record
        after = head[name].record if name in head else None
        if before and after and are_timings_of_one_reference(before, after):
            try:
                time = compare.compare_warm_times(before, after, policy)
                by_case.setdefault(name[1], []).append(time)
            except ProfkitError as problem:
                problems_to_extend.append(
                    ProfkitError(f"{'.'.join(name)}: {problem}", problem.hint)
                )
    typical = {}
    for case, times in by_case.items():
        times.sort(key=lambda time: time.speedup.median)
        typical[case] = times[len(times) // 2]
    return typical


def are_timings_of_one_reference(before: Record, after: Record) -> bool:
    """Return whether two sessions timed one library call, of the same version and backend."""
    for record in (before, after):
        if not record.is_reference or not record.warm_samples or record.faults:
            return False
    is_same_call = (before.versions.torch, before.backend) == (after.versions.torch, after.backend)
    return is_same_call and before.timing_session != after.timing_session


def judge_stale_or_wrong_subject(
    name: str, before: Record | None, after: Record | None, base: Evidence, head: Evidence
) -> GateSubject | None:
    """Return a subject whose code moved on since HEAD measured it, or that HEAD's record calls wrong.

    New or old, timed or not, a library call too.
    """
    if after is None:
        return None
    if before and find_current_or_measured_hash(head, after) not in (
        after.source_hash,
        find_current_or_measured_hash(base, before),
    ):
        again = suggest_run_command(after.variant, after.case)
        because = f"its code has changed since it was measured: {again}"
        return GateSubject(name=name, answer="stale", because=because)
    if not after.faults:
        return None
    said = f"HEAD: {', '.join(after.faults)}"
    if before is None or not before.code_identity.is_surely_same(after.code_identity):
        return GateSubject(
            name=name,
            answer="wrong",
            because=said,
            cause=None if after.is_reference else "code",
        )
    was = "was not checked"
    if before.faults:
        was = f"was wrong too ({', '.join(before.faults)})"
    elif before.correct:
        was = "was measured right"
    because = f"{said}: the same code was measured wrong; in BASE it {was}"
    return GateSubject(name=name, answer="wrong", because=because)


def find_current_or_measured_hash(side: Evidence, record: Record) -> Sha256 | None:
    """Return the hash of the variant's code today; without its file, the hash that was measured."""
    file = side.headers.get(f"{record.problem}/{record.variant}")
    if file and record.source:
        return file.sha256
    return record.source_hash


def judge_untimed_subject(name: str, before: Run, after: Run) -> GateSubject | None:
    """Return a subject that is not judged by two times; None of one that is."""
    old = before.record
    new = after.record
    if (old is None) == (new is None) and compare.is_surely_same_code(before, after):
        code = ""
        if new:
            code = f"the machine code is unchanged (SASS {(new.sass_hash or '')[:12]})"
        return GateSubject(name=name, answer="same", because=code or "the same report")
    if old is None or new is None:
        because = "a report without a run record has no timing: profkit profile writes both"
        return GateSubject(name=name, answer="no time", because=because)
    if compare.is_same_timing(old, new):
        return GateSubject(name=name, answer="same", because="nothing new was recorded")
    again = suggest_run_command(after.variant, after.case)
    if differ := list_timing_method_differences(old, new):
        return GateSubject(
            name=name,
            answer="cannot tell",
            because=f"{'; '.join(differ)}: {again}",
            cause="method",
        )
    if old.warm_samples and new.warm_samples:
        return None
    if old.warm_samples:
        side = "HEAD"
    else:
        side = "BASE"
    if old.cold_samples and new.cold_samples:
        how = "timed with a cold L2 only"
    else:
        how = "not timed"
    return GateSubject(name=name, answer="no time", because=f"{side} was {how}: {again}")


def compare_by_times(before: Run, after: Run, policy: Policy) -> compare.RunComparison:
    """Compare two runs; where only their counters do not compare, their times alone."""
    change = compare.compare_runs(before, after, policy)
    if {reason.code for reason in change.refusals} != {"ncu"}:
        return change
    waived = compare.compare_runs(before, after, replace(policy, anyway=True))
    return structs.replace(waived, launches=())


def judge_timed_subject(
    before: Run, after: Run, reference_comparison: TimeComparison | None, policy: Policy
) -> GateSubject:
    """Return a subject whose code changed and that has a time on both sides."""
    change = compare_by_times(before, after, policy)
    time = change.time
    name = after.name
    if not change.compared or time is None:
        return make_uncompared_subject(name, change)
    judged = judge_time_comparison(name, time, min(len(before.samples), len(after.samples)), policy)
    causes = say_causes_that_cost_more(before.timed, after.timed)
    because = f"{judged.because}{causes}"
    judged = structs.replace(judged, because=because, between_processes=change.between_processes)
    if judged.answer not in ("faster", "slower"):
        return judged
    if machine := explain_machine_difference(time, reference_comparison, before.timed, after.timed):
        return structs.replace(judged, answer="cannot tell", because=machine, cause="machine")
    return structs.replace(
        judged, because=f"{time.sentence}{say_farthest_moved_metrics(change)}{causes}"
    )


def say_causes_that_cost_more(before: Record, after: Record) -> ClauseOrEmpty:
    """Return the causes that ablations of both sides say cost more now, as the end of a sentence."""
    rows = make_history_rows_of_ablation(before, ""), make_history_rows_of_ablation(after, "")
    return "".join(f"; {said}" for said in describe_causes_that_cost_more(*rows).values())


def judge_time_comparison(
    name: str, time: TimeComparison, fewest_samples: int, policy: Policy
) -> GateSubject:
    """Return the answer on two times, of which the side with fewer samples has so many."""
    smallest = stats.compute_detectable_change(time)
    more = stats.count_samples_needed_per_side(SEES, smallest, fewest_samples, time.reason)
    answer: GateAnswer = policy.answer_comparison(time)
    because = time.sentence
    if answer == "cannot tell" and smallest <= SEES:
        answer = "same"
        because = f"a change of {format_percent(smallest, 1)} would have been detected"
    elif answer == "cannot tell":
        because = explain_undecided(time, smallest, more)
    return GateSubject(
        name=name,
        answer=answer,
        because=because,
        cause="code" if answer in ("faster", "slower") else "noise",
        time=time,
        smallest_change=smallest,
        samples_needed=more,
    )


def make_uncompared_subject(name: str, change: RunComparison) -> GateSubject:
    """Say why two runs have no comparison of times: the method or the machine differs."""
    codes = {refusal.code for refusal in change.refusals}
    because = "; ".join(refusal.sentence for refusal in change.refusals) or change.time_note
    if change.compared:
        return GateSubject(name=name, answer="no time", because=because, cause="method")
    cause: Cause | None = None
    if codes & _MACHINE:
        cause = "machine"
    elif codes & _METHOD:
        cause = "method"
    return GateSubject(name=name, answer="cannot tell", because=because, cause=cause)


def explain_undecided(
    time: TimeComparison, smallest_change: FloatOrNan, samples_needed: int | None
) -> Sentence:
    """Return why nothing can be said, and what would help."""
    if isnan(smallest_change):
        return time.sentence
    seen = f"only a change of {format_percent(smallest_change, 1)} would have been detected"
    if samples_needed is None:
        return f"{seen}: {time.sentence}"
    return f"{seen}; {format_percent(SEES)} takes {samples_needed} samples of each"


def explain_machine_difference(
    time: TimeComparison, reference_comparison: TimeComparison | None, before: Record, after: Record
) -> SentenceOrEmpty:
    """Return why a difference that is real is the machine's: the references moved with it; "" elsewhere.

    Without references, of two machines nobody can say whose it is.
    """
    if reference_comparison is not None:
        if not (
            stats.is_speedup_significant(reference_comparison)
            and is_explained_by_references(time, reference_comparison)
        ):
            return ""
        factor = f"{1 / reference_comparison.speedup.median:.3g}x their time"
        also = f"the references measured with it changed as well ({factor})"
        return f"{time.sentence}, and {also}: the machine, not the code"
    machine = ", ".join(list_machine_differences(before, after))
    tell = "only references timed together can separate the machine from the code"
    if machine:
        return f"{time.sentence}, on {machine}: {tell} (profkit profile --all)"
    return ""


def is_explained_by_references(time: TimeComparison, reference_comparison: TimeComparison) -> bool:
    """Return whether the references explain a difference: the same way, and by as much."""
    speedup = time.speedup
    beyond_references = speedup.median / reference_comparison.speedup.median
    if abs(beyond_references - 1) <= SEES / 2:
        return True
    low = beyond_references * (speedup.low / speedup.median)
    high = beyond_references * (speedup.high / speedup.median)
    return low <= 1 <= high


def say_farthest_moved_metrics(change: RunComparison) -> ClauseOrEmpty:
    """Return the metrics that moved farthest as the end of a sentence; empty without any."""
    if change.launches:
        moved = change.launches[0].moved[:_SHOWN]
    else:
        moved = ()
    if moved:
        return f"; {', '.join(f'{m.metric} {m.factor:.2g}x' for m in moved)}"
    return ""
