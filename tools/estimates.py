"""Do the estimates of counters agree with what was measured by taking causes away?

    python tools/score.py estimates [--verbose]

Each probe was profiled, and its causes were removed one at a time. A finding has an expected speed-up
with an interval; the ablation that a fix can reach of the same cause has a measured one. Both are of the
code as it is: no fixed copy is needed, so a record of any kernel with a report is a case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

import ablations
import verdicts

from profkit.diagnosis.ablated import add_measured_gains
from profkit.diagnosis.verdict import NOTHING_TO_WIN, judge_launch
from profkit.model.scenario import Expectation
from profkit.records.ablation import AblationRecord
from profkit.reports.reader import read_report_files


@dataclass(frozen=True)
class Estimate:
    """A finding of a probe: what was expected of fixing its cause, and what removing it brought."""

    probe: str
    rule: str
    expected: Expectation
    measured: float

    @property
    def is_inside(self) -> bool:
        return self.expected.low <= self.measured <= self.expected.high

    @property
    def factor(self) -> float:
        """How far the expected speed-up is from the measured one, as a factor of 1 or more."""
        return exp(abs(log(self.expected.gain / self.measured)))


def read_estimates() -> list[Estimate]:
    """Find each finding of the recorded probes that has both numbers."""
    reports = read_report_files(sorted(verdicts.RECORDED.glob("probes-*.ncu-rep*")))
    launches, found = verdicts.main_launches(reports), []
    headers = verdicts.truths()
    paths = headers.probes(verdicts.PROBES)
    for probe, document in ablations.read_records().items():
        record = AblationRecord.from_record(document)
        if probe not in launches or record is None:
            continue
        declared = verdicts.declared(headers.header(paths[probe]))
        diagnosis = add_measured_gains(judge_launch({**launches[probe], **declared}), record)
        for finding in diagnosis.findings:
            if finding.status == "fires" and finding.expect and finding.measured_reachable_gain:
                found.append(
                    Estimate(probe, finding.rule, finding.expect, finding.measured_reachable_gain)
                )
    return found


def describe_estimates(found: Sequence[Estimate]) -> str:
    """Return one line for estimates of one kind; there is one at least."""
    inside = sum(one.is_inside for one in found)
    factor = exp(sum(log(one.factor) for one in found) / len(found))
    return f"{len(found)} findings, {inside} inside the interval, {factor:.2f}x off in the mean"


def main(words: Sequence[str]) -> int:
    found = sorted(read_estimates(), key=lambda one: -one.factor)
    if "--verbose" in words:
        for one in found:
            expected = one.expected
            print(
                f"{one.probe:22}{one.rule:24}expected {expected.gain:6.2f}x "
                f"({expected.low:.2f} to {expected.high:.2f}), measured {one.measured:6.2f}x"
            )
    worth = [one for one in found if one.measured >= NOTHING_TO_WIN]
    nothing = [one for one in found if one.measured < NOTHING_TO_WIN]
    for name, part in (("removing the cause helps", worth), ("it brings nothing", nothing)):
        if part:
            print(f"{name}: {describe_estimates(part)}")
    return 0
