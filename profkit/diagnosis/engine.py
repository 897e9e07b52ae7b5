"""A frame  ->  findings: every rule asked of every launch, the verdict's cause first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from profkit.diagnosis.rule import Diagnosis, Finding, Hit, Launch, Missing, NotCollected, Rule
from profkit.diagnosis.rules import ALL
from profkit.diagnosis.verdict import Verdict, decide
from profkit.reports.metrics import CATALOGUE

if TYPE_CHECKING:
    from pandas import DataFrame

WORTH_NAMING = 1.1  # gain from which a special cause is named before the plain one
FAILED = "ncu gave up on this launch: the kernel or its replay died, and no counter is valid"


def judge(values: Mapping[str, Any], status: str = "ok", more: Sequence[Rule] = ()) -> Diagnosis:
    """The verdict on one launch.

    Args:
        values: Short metric name -> SI value, NaN or absent when not collected. Other keys (the
            identity columns of a frame's row) are ignored.
        status: The launch's status in the frame: ok or failed.
        more: Rules of somebody's own, asked like profkit's.

    Returns:
        Verdict with its findings: firing ones first, the cause of the verdict before all others,
        then by gain; then unknown ones, then clear ones.
    """
    if status != "ok":
        return Diagnosis("unknown", None, FAILED, (), (Missing("", FAILED),))
    launch = Launch({k: float(v) for k, v in values.items() if k in CATALOGUE})
    verdict = decide(launch)
    rules = (*ALL, *more)
    findings = [_ask(rule, launch) for rule in rules]
    order = {"fires": 0, "unknown": 1, "clear": 2}
    lead = _leads(verdict, rules, {f.rule: f for f in findings if f.status == "fires"})
    findings.sort(
        key=lambda f: (
            order[f.status],
            lead.index(f.rule) if f.rule in lead else len(lead),
            -(f.gain or 0.0),
        )
    )
    return Diagnosis(
        verdict.bound, verdict.limiter, verdict.because, tuple(findings), verdict.missing
    )


def diagnose(runs: DataFrame, rules: Sequence[Rule] = ()) -> DataFrame:
    """Every finding of every launch.

    Args:
        runs: A frame from `profkit.load`, one row per launch.
        rules: Rules of your own, asked beside profkit's.

    Returns:
        One row per launch and rule, in the order of the launches: report, launch, kernel, variant,
        case, bound, limiter, because (of the launch), rule, status (fires, clear, unknown), cause,
        gain (speed-up factor, an upper bound; NaN when none is given), evidence, where, try.
    """
    import pandas as pd

    rows = [
        {
            **{key: run.get(key) for key in ("report", "launch", "kernel", "variant", "case")},
            "bound": found.bound,
            "limiter": found.limiter,
            "because": found.because,
            "rule": finding.rule,
            "status": finding.status,
            "cause": finding.cause,
            "gain": float("nan") if finding.gain is None else finding.gain,
            "evidence": dict(finding.evidence),
            "where": finding.where,
            "try": finding.advice,
        }
        for run in ({str(k): v for k, v in r.items()} for r in runs.to_dict("records"))
        for found in (judge(run, str(run.get("status", "ok")), rules),)
        for finding in found.findings
    ]
    return pd.DataFrame(rows, columns=_COLUMNS)


_COLUMNS = ["report", "launch", "kernel", "variant", "case", "bound", "limiter", "because", "rule",
            "status", "cause", "gain", "evidence", "where", "try"]  # fmt: skip


def _ask(rule: Rule, launch: Launch) -> Finding:
    try:
        hit = rule.check(launch)
    except NotCollected as absent:
        section = CATALOGUE[absent.metric].section or "every report"
        return Finding(rule.id, "unknown", f"needs {absent.metric}: collect {section}",
                       evidence={absent.metric: None}, advice=f"--section {section}")  # fmt: skip
    if hit is None:
        return Finding(rule.id, "clear", rule.title)
    return Finding(rule.id, "fires", hit.cause, hit.gain, _evidence(hit, launch), (), rule.advice)


def _evidence(hit: Hit, launch: Launch) -> dict[str, float | None]:
    return {name: launch.get(name) for name in hit.looked}


def _leads(verdict: Verdict, rules: Sequence[Rule], fires: Mapping[str, Finding]) -> list[str]:
    """Rules that name the verdict's cause, the first one first.

    A rule explains a limiter when it stands behind it. A special cause with something to gain
    (bank conflicts) is named before the plain one (shared-memory bandwidth).
    """
    limiters = set((verdict.limiter or "").split("+"))
    plain, special = [], []
    for rule in rules:
        if rule.id not in fires or not limiters & set(rule.explains):
            continue
        if rule.explains in tuple((limiter,) for limiter in limiters):
            plain.append(rule.id)
        elif (fires[rule.id].gain or WORTH_NAMING) >= WORTH_NAMING:
            special.append(rule.id)
    special.sort(key=lambda r: -(fires[r].gain or float("inf")))
    return special + plain
