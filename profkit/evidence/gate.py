"""Records of a base and of a head  ->  one answer each, and the exit status with every reason for it.

What HEAD's record says is wrong is wrong, whatever else is the same: that is asked first.
Machine code that did not change is never judged by its time: a gate that does is wrong once in a
while on every pull request. What did change is judged at one false alarm in a thousand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from operator import eq

from profkit.errors import ProfkitError
from profkit.evidence.compare import SpreadOf, compare_runs, nobody_measured
from profkit.evidence.gate_conditions import (
    RunFound,
    control_of,
    machine_differences,
    method_differences,
)
from profkit.evidence.gate_report import Cause, GateAnswer, GateReport, GateSubject
from profkit.evidence.power import (
    GATE,
    samples_for,
    significant,
    smallest_change,
)
from profkit.evidence.runs import Evidence, Run
from profkit.evidence.stats import TimeComparison
from profkit.records.artifacts import RunName
from profkit.records.record import Record, SourceFile, read_record
from profkit.records.store import digest

SEES = 0.02  # what "the same" means: a change of so much would have been seen
_METHOD, _MACHINE = {"ncu", "case"}, {"device", "clocks"}
_SHOWN = 3  # counters that moved, named in a reason


@dataclass(frozen=True)
class GateSide:
    """One side of a gate."""

    evidence: Evidence  # its folder of artifacts
    # problem/variant -> its file; empty where no kernels lie beside the artifacts
    sources: Mapping[str, SourceFile] = field(default_factory=dict)

    def code(self, record: Record) -> str | None:
        """Hash of the variant's code as it is today; as it was measured, where no file is there."""
        file = self.sources.get(f"{record.problem}/{record.variant}")
        return file.sha256 if file and record.source else record.source_hash


def judge_gate(
    base: GateSide,
    head: GateSide,
    case: str | None = None,
    strict: bool = False,
    spread_of: SpreadOf = nobody_measured,
) -> GateReport:
    """What moved from one folder of artifacts to another.

    `strict`: whether "cannot tell" closes the gate too. `spread_of`: what the processes of a GPU
    differ by, where that was measured.

    Raises:
        ProfkitError: A side has no runs at all.
    """
    problems: list[ProfkitError] = []
    sides = [_records(side.evidence, case, problems) for side in (base, head)]
    for side, records in zip((base, head), sides, strict=True):
        if not records and not problems:
            at = f" at case {case}" if case else ""
            raise ProfkitError(f"{side.evidence.root}: no run{at}", "profkit profile --all")
    control = control_of(sides[0], sides[1], spread_of, problems)
    renamed = _renamed(sides[0], sides[1])
    subjects = []
    for name in sorted({*sides[0], *sides[1]}):
        before, after = sides[0].get(renamed.get(name, name)), sides[1].get(name)
        if name in renamed.values():
            continue
        if asked_first := _stale(name, (base, head), (before, after)) or _wrong(
            name, before, after
        ):
            subjects.append(asked_first)
        elif _is_control(before, after):
            continue
        elif name in renamed:
            subjects.append(_renamed_subject(name, renamed[name]))
        elif before is None or after is None:
            subjects.append(_one_sided(name, before is None))
        else:
            subjects.append(_subject(name, (base, head), (before, after), control, spread_of))
    return GateReport(tuple(subjects), tuple(problems), strict)


def _records(
    evidence: Evidence, case: str | None, problems: list[ProfkitError]
) -> dict[RunName, RunFound]:
    """Every run of a side, without its report."""
    found: dict[RunName, RunFound] = {}
    for name in evidence.names():
        if case not in (None, name[1]):
            continue
        try:
            files = evidence.files(*name)
            if files and files.record:
                found[name] = read_record(files.record)
            elif files and files.report:
                found[name] = digest(files.report)
        except ProfkitError as problem:
            problems.append(problem)
    return found


def _is_control(*found: RunFound | None) -> bool:
    """Library calls are not judged: their code is not ours. They show what the machine did."""
    return all(isinstance(f, Record) and f.reference for f in found if f is not None)


def _renamed(
    base: Mapping[RunName, RunFound], head: Mapping[RunName, RunFound]
) -> dict[RunName, RunName]:
    """Name in the head -> name in the base, of one machine code at one case."""
    gone = {n: r for n, r in base.items() if n not in head and isinstance(r, Record)}
    new = {n: r for n, r in head.items() if n not in base and isinstance(r, Record)}
    pairs: dict[RunName, RunName] = {}
    for name, after in new.items():
        old = [
            n
            for n, r in gone.items()
            if n[1] == name[1] and r.machine_code.same_as(after.machine_code)
        ]
        if len(old) == 1:
            pairs[name] = old[0]
    return pairs


def _stale(
    name: RunName, sides: tuple[GateSide, GateSide], found: tuple[RunFound | None, RunFound | None]
) -> GateSubject | None:
    """A subject whose code moved on since HEAD measured it: nothing in its record is of today's."""
    before, after = found
    if not (isinstance(before, Record) and isinstance(after, Record)):
        return None
    if not code_moved_on(sides, before, after):
        return None
    because = f"its code has changed since it was measured: {_again(name)}"
    return GateSubject(".".join(name), "stale", because)


def _again(name: RunName) -> str:
    return f"profkit profile --variant {name[0]} --case {name[1]}"


def _wrong(name: RunName, before: RunFound | None, after: RunFound | None) -> GateSubject | None:
    """A subject that HEAD's record calls wrong: new or old, timed or not, a library call too."""
    if not isinstance(after, Record) or not after.faults:
        return None
    label, said = ".".join(name), f"HEAD: {', '.join(after.faults)}"
    if not (isinstance(before, Record) and before.machine_code.same_as(after.machine_code)):
        return GateSubject(label, "wrong", said, "" if after.reference else "code")
    was = "was measured right" if before.correct else "was not checked"
    was = f"was wrong too ({', '.join(before.faults)})" if before.faults else was
    return GateSubject(
        label, "wrong", f"{said}: the same code was measured wrong; in BASE it {was}"
    )


def _renamed_subject(name: RunName, old: RunName) -> GateSubject:
    because = f"the machine code of {old[0]} under another name"
    return GateSubject(".".join(name), "same", because)


def _one_sided(name: RunName, new: bool) -> GateSubject:
    answer: GateAnswer = "new" if new else "gone"
    return GateSubject(".".join(name), answer, f"only {'HEAD' if new else 'BASE'} has it")


def _subject(
    name: RunName,
    sides: tuple[GateSide, GateSide],
    found: tuple[RunFound, RunFound],
    control: Mapping[str, TimeComparison],
    spread_of: SpreadOf,
) -> GateSubject:
    label = ".".join(name)
    before, after = found
    if isinstance(before, str) or isinstance(after, str):
        return _report_alone(label, before == after)
    if unchanged := _unchanged(before, after):
        return GateSubject(label, "same", unchanged)
    if untimed := _untimed(label, before, after, _again(name)):
        return untimed
    runs = [side.evidence.load(*name) for side in sides]
    return _judged(label, runs[0], runs[1], control.get(name[1]), spread_of)


def _untimed(label: str, before: Record, after: Record, again: str) -> GateSubject | None:
    """Why two times are not compared: of two kinds, or one is not there; None where they are."""
    if differ := method_differences(before, after):
        return GateSubject(label, "cannot tell", f"{'; '.join(differ)}: {again}", "method")
    if before.warm and after.warm:
        return None
    side = "HEAD" if before.warm else "BASE"
    how = "timed with a cold L2 only" if before.cold and after.cold else "not timed"
    return GateSubject(label, "no time", f"{side} was {how}: {again}")


def _report_alone(label: str, same: bool) -> GateSubject:
    if same:
        return GateSubject(label, "same", "the same report")
    because = "a report without a run record has no time: profkit profile writes both"
    return GateSubject(label, "no time", because)


def code_moved_on(sides: tuple[GateSide, GateSide], before: Record, after: Record) -> bool:
    """Whether the code differs between the sides and AFTER was measured before that."""
    code = sides[1].code(after)
    return code not in (after.source_hash, sides[0].code(before))


def _unchanged(before: Record, after: Record) -> str:
    """Why the time of two records is not looked at; "" where it is."""
    if before.machine_code.same_as(after.machine_code):
        return f"the machine code is unchanged (SASS {(after.sass or '')[:12]})"
    once = after.warm and before.session == after.session and _equal(before.warm, after.warm)
    return "nothing was recorded anew" if once else ""


def _equal(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether these are the same numbers; NaN is none."""
    return len(before) == len(after) and all(map(eq, before, after))


def _judged(
    name: str, before: Run, after: Run, control: TimeComparison | None, spread_of: SpreadOf
) -> GateSubject:
    """A subject whose code changed and that has a time on both sides."""
    change = compare_runs(before, after, thresholds=GATE, spread_of=spread_of)
    if {r.code for r in change.refusals} == {"ncu"}:  # counters do not compare, times do
        waived = compare_runs(before, after, anyway=True, thresholds=GATE, spread_of=spread_of)
        change = replace(waived, launches=())
    if not change.compared or change.time is None:
        because = "; ".join(r.sentence for r in change.refusals) or change.time_note
        codes = {r.code for r in change.refusals}
        cause: Cause = "machine" if codes & _MACHINE else "method" if codes & _METHOD else ""
        if change.compared:
            return GateSubject(name, "no time", because, "method", change=change)
        return GateSubject(name, "cannot tell", because, cause, change=change)
    time = change.time
    smallest = smallest_change(time)
    fewest = min(len(run.samples) for run in (before, after))
    more = samples_for(SEES, smallest, fewest, time.reason)
    found = GateSubject(
        name,
        "cannot tell",
        "",
        time=time,
        smallest_change=smallest,
        samples_needed=more,
        change=change,
    )
    if time.answer == "same":
        return replace(found, answer="same", because=time.sentence, cause="noise")
    if significant(time):
        return _moved(found, time, control, _machine(before, after))
    if smallest <= SEES:
        because = f"a change of {smallest:.1%} would have been seen"
        return replace(found, answer="same", because=because, cause="noise")
    return replace(found, because=_why_not(time, smallest, more), cause="noise")


def _why_not(time: TimeComparison, smallest: float, more: int | None) -> str:
    """Why nothing can be said, and what would help."""
    if isnan(smallest):
        return time.sentence
    seen = f"only a change of {smallest:.1%} would have been seen"
    if more is None:
        return f"{seen}: {time.sentence}"
    return f"{seen}; {SEES:.0%} takes {more} samples of each"


def _moved(
    found: GateSubject,
    time: TimeComparison,
    control: TimeComparison | None,
    machine: list[str],
) -> GateSubject:
    """A difference that is real: the machine's, where the references moved with it, or the code's.

    Without references, of two machines nobody can say whose it is.
    """
    if control is None and machine:
        because = (
            f"{time.sentence}, on {', '.join(machine)}: only references timed in the same turns "
            "tell the machine from the code (profkit profile --all)"
        )
        return replace(found, because=because, cause="machine")
    if control is not None and significant(control) and _together(time, control):
        because = (
            f"{time.sentence}, and so were the references measured beside it "
            f"({1 / control.speedup.median:.3g}x their time): the machine, not the code"
        )
        return replace(found, because=because, cause="machine")
    answer: GateAnswer = "slower" if time.speedup.median < 1 else "faster"
    return replace(found, answer=answer, because=f"{time.sentence}{_with(found)}", cause="code")


def _machine(before: Run, after: Run) -> list[str]:
    if before.record is None or after.record is None:
        return []
    return machine_differences(before.record, after.record)


def _together(time: TimeComparison, control: TimeComparison) -> bool:
    """Whether the references explain a difference: the same way, and nothing beside them is left."""
    ratio = time.speedup.median / control.speedup.median
    low, high = time.speedup.low / time.speedup.median, time.speedup.high / time.speedup.median
    return ratio * low <= 1 <= ratio * high or abs(ratio - 1) <= SEES / 2


def _with(found: GateSubject) -> str:
    """The counters that moved farthest with it."""
    launches = found.change.launches if found.change else ()
    moved = [
        f"{m.metric} {m.factor:.2g}x" for launch in launches[:1] for m in launch.moved[:_SHOWN]
    ]
    return f"; {', '.join(moved)}" if moved else ""
