"""A frame  ->  findings: every rule asked of every launch, the verdict's cause first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from profkit.diagnosis.estimate.estimate import AT_ROOF, OWN_WORK, estimate, headroom
from profkit.diagnosis.rule import Diagnosis, Finding, Hit, Launch, Missing, NotCollected, Rule
from profkit.diagnosis.rules import ALL
from profkit.diagnosis.verdict import Verdict, decide
from profkit.reports.metrics import CATALOGUE

if TYPE_CHECKING:
    from pandas import DataFrame

WORTH_NAMING = 1.1  # gain from which a special cause is named before the plain one
ROOF = "at its roof: only less work helps"
# Findings of work that need not be done: with one of them a full unit is not at its roof.
LESS_WORK = (
    "uncoalesced-access", "low-l2-hit", "register-spills", "local-memory", "thread-divergence",
    "non-fused-math", "redundant-exp", "tensor-idle",
)  # fmt: skip
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
        then by what to expect of them; then unknown ones, then clear ones.
    """
    if status != "ok":
        return Diagnosis("unknown", None, FAILED, (), (Missing("", FAILED),))
    launch = Launch({k: float(v) for k, v in values.items() if k in CATALOGUE})
    verdict = decide(launch)
    rules = (*ALL, *more)
    room = headroom(launch)
    findings = _roofs([_ask(rule, launch) for rule in rules], room)
    order = {"fires": 0, "unknown": 1, "clear": 2}
    lead = _leads(verdict, rules, {f.rule: f for f in findings if f.status == "fires"})
    findings.sort(
        key=lambda f: (
            order[f.status],
            lead.index(f.rule) if f.rule in lead else len(lead),
            -f.worth,
        )
    )
    return Diagnosis(
        verdict.bound, verdict.limiter, verdict.because, tuple(findings), verdict.missing, room
    )


def diagnose(runs: DataFrame, rules: Sequence[Rule] = ()) -> DataFrame:
    """Every finding of every launch.

    Args:
        runs: A frame from `profkit.load`, one row per launch.
        rules: Rules of your own, asked beside profkit's.

    Returns:
        One row per launch and rule, in the order of the launches: report, launch, kernel, variant,
        case, bound, limiter, because, headroom (speed-up left with the same work), saves (s that the
        leading finding is expected to save; all of the launch), rule, status (fires, clear, unknown),
        cause, gain (speed-up factor, an upper bound), expect, expect_low, expect_high (what people got
        who mended it, and the interval that holds four times of five), evidence, where, try. NaN where
        a number is not known.
    """
    import pandas as pd

    rows = [
        {
            **{key: run.get(key) for key in ("report", "launch", "kernel", "variant", "case")},
            "bound": found.bound,
            "limiter": found.limiter,
            "because": found.because,
            "headroom": number(found.headroom),
            "saves": found.saves(number(run.get("time"))),
            "rule": finding.rule,
            "status": finding.status,
            "cause": finding.cause,
            **gains(finding),
            "evidence": dict(finding.evidence),
            "where": finding.where,
            "try": finding.advice,
        }
        for run in ({str(k): v for k, v in r.items()} for r in runs.to_dict("records"))
        for found in (judge(run, str(run.get("status", "ok")), rules),)
        for finding in found.findings
    ]
    return pd.DataFrame(rows, columns=_COLUMNS)


_COLUMNS = ["report", "launch", "kernel", "variant", "case", "bound", "limiter", "because",
            "headroom", "saves", "rule", "status", "cause", "gain", "expect", "expect_low",
            "expect_high", "evidence", "where", "try"]  # fmt: skip


def gains(finding: Finding | None) -> dict[str, float]:
    """gain, expect, expect_low and expect_high as a frame has them: NaN for what is not known."""
    hope = finding.expect if finding else None
    return {
        "gain": number(finding.gain if finding else None),
        "expect": number(hope.gain if hope else None),
        "expect_low": number(hope.low if hope else None),
        "expect_high": number(hope.high if hope else None),
    }


def number(value: float | None) -> float:
    """A number as frames have it: NaN for None."""
    return float("nan") if value is None else value


def _ask(rule: Rule, launch: Launch) -> Finding:
    try:
        hit = rule.check(launch)
    except NotCollected as absent:
        section = CATALOGUE[absent.metric].section or "every report"
        return Finding(rule.id, "unknown", f"needs {absent.metric}: collect {section}",
                       evidence={absent.metric: None}, advice=f"--section {section}")  # fmt: skip
    if hit is None:
        return Finding(rule.id, "clear", rule.title)
    worth = estimate(launch, rule.id, hit.gain)
    evidence = _evidence(hit, launch)
    return Finding(rule.id, "fires", hit.cause, worth.gain, evidence, (), rule.advice, worth.expect)


def _roofs(findings: Sequence[Finding], room: float | None) -> list[Finding]:
    """The findings, those marked whose unit does the problem's own work as fast as it can.

    Where some of that work is redundant by another finding, less of it helps and nothing is marked.
    """
    redundant = any(
        f.status == "fires" and f.rule in LESS_WORK and f.worth >= WORTH_NAMING for f in findings
    )
    if room is None or room > AT_ROOF or redundant:
        return list(findings)
    return [
        replace(f, cause=f"{f.cause}; {ROOF}", expect=None, at_roof=True)
        if f.status == "fires" and f.rule in OWN_WORK
        else f
        for f in findings
    ]


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
    # One that no counter bounds (contended atomics) comes first: nothing says that it is small.
    special.sort(key=lambda r: (fires[r].gain is not None, -fires[r].worth))
    return special + plain
