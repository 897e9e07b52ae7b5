"""An answer  ->  the same as data for an agent: what its text says, about as short as the text.

Some clients show a model the data, some the text, some both. So the data has the keys of the document
that the command line prints, and of these only what an agent goes on with: no counters, no source
text, figures of four digits, short names of kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from os.path import basename
from typing import TYPE_CHECKING, Any

from profkit.diagnosis.launches import JudgedLaunch, LaunchRow
from profkit.diagnosis.rule import LaunchFinding, SourceShare
from profkit.diagnosis.rules import BY_ID
from profkit.evidence.causes import EstimateAndGain
from profkit.evidence.compare import Compared, RunComparison
from profkit.evidence.counters import LaunchChange
from profkit.program.document import SecondTriageDocument
from profkit.program.steps.places import shorten_line_path
from profkit.show.text import words
from profkit.show.text.escape import shorten_name
from profkit.show.text.words import find_fix_to_name_first, get_first_clause_of_advice
from profkit.show.views.comparison import BRIEF_METRICS, choose_metrics_to_show
from profkit.show.views.diagnosis import (
    FINDINGS,
    list_commands_for_agents,
    list_doubts_of_measurement,
)
from profkit.show.views.triage import (
    FIRST,
    GROUPS,
    split_large_and_small_kernels,
    sum_rows_by_origin,
)

if TYPE_CHECKING:
    from profkit.units import KernelJson, OriginKind, TriageJson


DIGITS = 4  # of a figure: nobody has measured more
NAME = 60  # characters of a kernel's name
PLACES = 2  # source lines of a finding
Entry = dict[str, Any]


def make_launches_entry(
    runs: Sequence[JudgedLaunch],
    report_names: Sequence[str],
    row_count: int,
    problems: Sequence[str],
) -> Entry:
    """Return launches, worst first, of so many rows; an agent calls their reports by these names."""
    kernels: list[Entry] = []
    for run, name in zip(runs, report_names, strict=True):
        if kernels:
            kernels.append(make_further_launch_entry(run, name))
        else:
            kernels.append(make_first_launch_entry(run, name))
    more = row_count - len(runs)
    return drop_unknown_values(
        {"kernels": kernels, "more_kernels": more or None, "problems": list(problems)}
    )


def select_answer(rows: Sequence[LaunchRow], most_rows: int, problems: Sequence[str]) -> Entry:
    """Return what a brief says of rows, worst first: the answer, `most_rows` of them, and the doubts."""
    runs = [row.median_launch for row in rows[:most_rows]]
    names = [str(run.report) for run in runs]
    entry: Entry = {"answer": " ".join(words.write_headline(rows))}
    entry |= make_launches_entry(runs, names, len(rows), problems)
    entry["notes"] = list_doubts_of_measurement(rows)
    entry["next"] = list_commands_for_agents(runs[0]) if runs else []
    return drop_unknown_values(entry)


def make_first_launch_entry(run: JudgedLaunch, report: str) -> Entry:
    """Return the launch that leads, with its first findings and the advice of the first of them."""
    findings = list_firing_causes(run)[:FINDINGS]
    entry = make_identity_entry(run, report)
    if findings:
        entry["findings"] = [make_short_finding_entry(finding) for finding in findings]
        for finding, said in zip(findings, entry["findings"], strict=True):
            if finding in (run.top, find_fix_to_name_first(run)):
                said["try"] = get_first_clause_of_advice(finding.advice)
    else:
        entry["because"] = run.diagnosis.because
    return drop_unknown_values(entry)


def make_further_launch_entry(run: JudgedLaunch, report: str) -> Entry:
    """Return a launch behind the first: its leading finding in a line, as the text has it."""
    findings = list_firing_causes(run)[:1]
    entry = make_identity_entry(run, report)
    if findings:
        entry["findings"] = [make_short_finding_entry(findings[0], most_places=1)]
    else:
        entry["because"] = run.diagnosis.because
    return drop_unknown_values(entry)


def make_identity_entry(run: JudgedLaunch, report: str) -> Entry:
    """Return which launch it is, its time and its verdict; `report`: what the agent calls its file."""
    diagnosis = run.diagnosis
    return {
        "report": report,
        "index": run.index,
        "kernel": shorten_name(run.kernel, NAME),
        "device": run.device,
        "time_s": run.time,
        "bound": diagnosis.bound,
        "limiter": diagnosis.limiter,
        "saves_s": diagnosis.estimate_saved_time(run.time) or None,
    }


def list_firing_causes(run: JudgedLaunch) -> list[LaunchFinding]:
    """Return what fires, without doubts of the measurement and without what says another again."""
    causes = [f for f in run.diagnosis.findings if f.status == "fires" and not f.note]
    return [finding for finding in causes if not finding.repeats]


def make_short_finding_entry(finding: LaunchFinding, most_places: int = PLACES) -> Entry:
    """Return what a rule says, with the source lines that have most of its cause."""
    expect = finding.expect
    entry: Entry = {"rule": finding.rule, "cause": finding.cause}
    if expect:
        entry["expected"] = expect.gain
        entry["interval"] = [round_figure(expect.low), round_figure(expect.high)]
    entry["at_most"] = finding.gain  # `gain` in the document, which names the expected one so, too
    entry["where"] = [make_line_entry(line) for line in finding.where[:most_places]]
    return drop_unknown_values(entry)


def make_line_entry(line: SourceShare) -> Entry:
    """Return a source line with its part of a cause; its folder is that of the build, so left out."""
    entry = {"file": basename(line.file), "line": line.line, "share": line.share}
    if line.called_at:
        entry["called_from"] = f"{basename(line.called_at.file)}:{line.called_at.line}"
    return drop_unknown_values(entry)


def make_comparison_entry(compared: Compared) -> Entry:
    """Return what became of the time, the findings and the counters that say why."""
    changes = [make_run_change_entry(change) for change in compared.changes]
    problems = [problem.message for problem in compared.problems]
    return drop_unknown_values({"changes": changes, "problems": problems})


def make_run_change_entry(change: RunComparison) -> Entry:
    """Return the comparison of two runs."""
    time: Entry = {"answer": "cannot tell", "sentence": change.time_note}
    if change.time:
        speedup = change.time.speedup
        time = {"answer": change.time.answer, "sentence": change.time.sentence}
        if speedup:
            time["speedup"] = round_known_figures(speedup, ("median", "low", "high"))
        time["before"] = round_figure(change.time.before.median)
        time["after"] = round_figure(change.time.after.median)
    entry = {
        "before": change.before,
        "after": change.after,
        "refusals": [refusal.sentence for refusal in change.refusals],
        "time": time,
        "estimate": make_estimate_entry(change.estimate),
        "launches": [make_launch_change_entry(launch) for launch in change.launches],
    }
    return drop_unknown_values(entry)


def make_estimate_entry(estimate: EstimateAndGain | None) -> Entry | None:
    """Return what was expected of the fix, and what was measured."""
    if estimate is None:
        return None
    names = ("expected", "low", "high", "measured")
    outcome = f"{estimate.outcome} the interval"
    return {"rule": estimate.rule, **round_known_figures(estimate, names), "outcome": outcome}


def make_launch_change_entry(launch: LaunchChange) -> Entry:
    """Return what became of a launch: its bound, its findings, the metrics that say why."""
    moved = []
    for metric in choose_metrics_to_show(launch, BRIEF_METRICS):
        moved.append({"metric": metric.metric, **round_known_figures(metric, ("before", "after"))})
    findings = [finding for finding in launch.findings if not BY_ID[finding.rule].note]
    gone = []
    new = []
    still_there: dict[str, dict[str, str]] = {}
    for finding in findings:
        if finding.what == "gone":
            gone.append(finding.rule)
        elif finding.what == "new":
            new.append(finding.rule)
        elif finding.what in ("hidden", "uncovered"):
            still_there.setdefault(finding.what, {})[finding.rule] = finding.why
    entry = {
        "kernel": shorten_name(launch.kernel.after, NAME),
        "bound": {"before": launch.bound.before, "after": launch.bound.after},
        "profiled_time_s": round_known_figures(launch.profiled_time, ("before", "after")),
        "gone": gone,
        "new": new,
        **still_there,
        "moved": moved,
    }
    return drop_unknown_values(entry)


def round_known_figures(figures_holder: object, names: Sequence[str]) -> Entry:
    """Return the figures of these names."""
    return drop_unknown_values({name: getattr(figures_holder, name) for name in names})


def make_program_change_entry(comparison: Mapping[str, Any]) -> Entry:
    """Return what became of the findings of a program."""
    names = ("answer", "before_ms", "after_ms", "saved_ms", "kept", "outcome", "new", "notes")
    entry = {name: comparison[name] for name in names}
    entry["promises"] = []
    for row in comparison["promises"]:
        expect, low, high = row["said"]
        promise = {"category": row["category"], "state": row["state"], "left": row["left"]}
        promise["said"] = drop_unknown_values({"expect": expect, "low": low, "high": high})
        entry["promises"].append(drop_unknown_values(promise))
    return drop_unknown_values(entry)


def make_triage_entry(document: SecondTriageDocument) -> Entry:
    """Return the step of a "profkit.triage/2" document: findings, and kernels that take longest."""
    step = document["step"]
    first = document["first"]
    idle = [drop_unknown_values({"cause": row["cause"], "ms": row["ms"]}) for row in step["idle"]]
    shown, _ = split_large_and_small_kernels(document["kernels"])
    says_more = not document["findings"]
    entry: Entry = {
        "schema": document["schema"],
        "device": document["program"]["device"],
        "step": drop_unknown_values(
            {"ms": step["ms"], "gpu_busy_ms": step["gpu_busy_ms"], "idle": idle}
        ),
        "first": {"rule": first["rule"], "cause": first["cause"] if says_more else None},
        "findings": [make_step_finding_entry(row) for row in document["findings"][:FIRST]],
        "more_findings": max(0, len(document["findings"]) - FIRST) or None,
        "kernels": [make_short_kernel_entry(row) for row in shown],
        "notes": list(document["notes"]),
    }
    entry["first"] = drop_unknown_values(entry["first"])
    return drop_unknown_values(entry)


def make_step_finding_entry(row: Mapping[str, Any]) -> Entry:
    """Return a finding of a step."""
    entry = {name: row[name] for name in ("rule", "cause", "saving", "advice", "where")}
    entry["saving"] = drop_unknown_values(row["saving"])
    return drop_unknown_values(entry)


def list_origin_entries(document: TriageJson, by: OriginKind) -> list[Entry]:
    """Return a step's GPU time by line, module or operator: what the text's table has."""
    rows = []
    for row in sum_rows_by_origin(document, by)[:GROUPS]:
        entry = {by: row["name"], "ms": row["ms"], "share": row["share"], "calls": row["calls"]}
        if by == "line":
            entry["in"] = row["function"]
        rows.append(drop_unknown_values(entry))
    return rows


def make_short_kernel_entry(row: KernelJson) -> Entry:
    """Return one kernel of a step."""
    names = ("id", "op", "calls", "ms", "limiter")
    entry = {name: row[name] for name in names}
    entry["name"] = shorten_name(row["name"], NAME)
    entry["line"] = shorten_line_path(row["line"] or "")
    if not row["op"]:
        entry["category"] = row["category"]
    return drop_unknown_values(entry)


def drop_unknown_values(entry: Mapping[str, Any]) -> Entry:
    """Return an entry without what is not known or empty; a figure has the digits that are said."""
    kept = {}
    for key, given in entry.items():
        value = given
        if isinstance(given, float):
            value = round_figure(given)
        if value is not None and value not in ("", [], {}):
            kept[key] = value
    return kept


def round_figure(value: float) -> float | None:
    """Return a figure with the digits that are said; None where it is not known."""
    if isfinite(value):
        return float(f"{value:.{DIGITS}g}")
    return None
