"""One launch  ->  its verdict and findings: every rule asked, the verdict's cause first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from profkit.diagnosis.rule import Diagnosis, Finding, Hit, Launch, Missing, NotCollected, Rule
from profkit.diagnosis.rules import ALL
from profkit.diagnosis.verdict import Verdict, decide
from profkit.reports.metrics import CATALOGUE

WORTH_NAMING = 1.1  # gain from which a special cause is named before the plain one
RECORD = "run record"  # the section of what profkit writes beside a report
FAILED = "ncu gave up on this launch: the kernel or its replay died, and no counter is valid"


def judge(values: Mapping[str, Any], status: str = "ok", more: Sequence[Rule] = ()) -> Diagnosis:
    """The verdict on one launch.

    Args:
        values: Short metric name -> SI value, NaN or absent when not collected. Of the other keys
            (the identity columns of a frame's row) only ncu_version is looked at: what that ncu
            does not count is not asked for.
        status: The launch's status in the frame: ok or failed.
        more: Rules of somebody's own, asked like profkit's.

    Returns:
        Verdict with its findings: firing ones first, the cause of the verdict before all others,
        then by gain, then notes on the measurement; then unknown ones, then clear ones.
    """
    if status != "ok":
        return Diagnosis("unknown", None, FAILED, (), (Missing("", FAILED),))
    launch = Launch({k: float(v) for k, v in values.items() if k in CATALOGUE})
    verdict = decide(launch)
    rules = (*ALL, *more)
    ncu = str(values.get("ncu_version") or "")
    findings = [_ask(rule, launch, ncu) for rule in rules]
    order = {"fires": 0, "unknown": 1, "clear": 2}
    lead = _leads(verdict, rules, {f.rule: f for f in findings if f.status == "fires"})
    findings.sort(
        key=lambda f: (
            order[f.status],
            f.note,
            lead.index(f.rule) if f.rule in lead else len(lead),
            -(f.gain or 0.0),
        )
    )
    return Diagnosis(
        verdict.bound,
        verdict.limiter,
        verdict.because,
        tuple(findings),
        verdict.missing,
        verdict.near_border,
    )


def _ask(rule: Rule, launch: Launch, ncu: str) -> Finding:
    try:
        hit = rule.check(launch)
    except NotCollected as absent:
        why, advice = _lack(absent.metric, launch, ncu)
        return Finding(
            rule.id, "unknown", why, evidence={absent.metric: None}, advice=advice, note=rule.note
        )
    if hit is None:
        return Finding(rule.id, "clear", rule.title, note=rule.note)
    evidence, advice = _evidence(hit, launch), hit.advice or rule.advice
    return Finding(rule.id, "fires", hit.cause, hit.gain, evidence, (), advice, rule.note)


def _lack(name: str, launch: Launch, ncu: str) -> tuple[str, str]:
    """Why a metric is not there, and what collects it; "" where nothing would."""
    metric = CATALOGUE[name]
    if metric.section == RECORD:
        return f"needs {name}: the run record has it", "profkit profile"
    wrote = re.match(r"\d+\.\d+", ncu)
    version = wrote[0] if wrote else ""
    since = metric.since
    if version and since and _number(version) < _number(since):
        return (f"needs {name}: this ncu ({version}) did not count it; from {since} on",
                f"profile with ncu {since} or newer")  # fmt: skip
    if any(
        other != name and CATALOGUE[other].section == metric.section
        for other in launch
        if other in launch
    ):
        which = f"this ncu ({version})" if version else "ncu"
        return f"needs {name}: {which} did not count it on this GPU in this launch", ""
    return f"needs {name}: collect {metric.section}", f"--section {metric.section}"


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _evidence(hit: Hit, launch: Launch) -> dict[str, float | None]:
    return {name: launch.get(name) for name in hit.looked}


def _leads(verdict: Verdict, rules: Sequence[Rule], fires: Mapping[str, Finding]) -> list[str]:
    """Rules that name the verdict's cause, the first one first.

    A rule explains a limiter when it stands behind it. A special cause with something to gain
    (bank conflicts) is named before the plain one (shared-memory bandwidth).
    """
    limiters = set((verdict.limiter or "").split("+"))
    plain, special = [], []
    first = [rule.id for rule in rules if rule.leads and rule.id in fires]
    for rule in rules:
        if rule.id not in fires or rule.note or not limiters & set(rule.explains):
            continue
        if rule.explains in tuple((limiter,) for limiter in limiters):
            plain.append(rule.id)
        elif (fires[rule.id].gain or WORTH_NAMING) >= WORTH_NAMING:
            special.append(rule.id)
    special.sort(key=lambda r: -(fires[r].gain or float("inf")))
    return first + special + plain
