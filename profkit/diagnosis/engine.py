"""One launch  ->  its verdict and findings: every rule asked, the verdict's cause first."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from profkit.diagnosis.rule import Diagnosis, Finding, Rule
from profkit.diagnosis.rules import ALL, BY_ID
from profkit.diagnosis.verdict import Verdict, decide_bound
from profkit.model.estimate import AT_ROOF, headroom
from profkit.model.launch import Launch, Missing, NotCollected
from profkit.reports.metrics import CATALOGUE

WORTH_NAMING = 1.1  # gain from which a special cause is named before the plain one
RECORD = "run record"  # the section of what profkit writes beside a report
ROOF = "at its roof: only less work helps"
FAILED = "ncu gave up on this launch: the kernel or its replay died, and no counter is valid"


def judge_launch(
    values: Mapping[str, Any],
    status: str = "ok",
    more: Sequence[Rule] = (),
    also: Mapping[str, float] | None = None,
) -> Diagnosis:
    """The verdict on one launch.

    Args:
        values: Short metric name -> SI value, NaN or absent when not collected. Of the other keys
            (the identity columns of a frame's row) only ncu_version is looked at: what that ncu
            does not count is not asked for.
        status: The launch's status in the frame: ok or failed.
        more: Rules of somebody's own, asked like profkit's.
        also: What these may index besides the metrics: numbers by any name, NaN not collected.

    Returns:
        Verdict with its findings: firing ones first, the cause of the verdict before all others,
        then by what to expect of them, then notes on the measurement; then unknown ones, then clear
        ones.
    """
    if status != "ok":
        return Diagnosis("unknown", None, FAILED, (), (Missing("", FAILED),))
    metrics = {k: float(v) for k, v in values.items() if k in CATALOGUE}
    launch = Launch(metrics)
    verdict = decide_bound(launch)
    rules = (*ALL, *more)
    ncu = str(values.get("ncu_version") or "")
    room = headroom(launch)
    counted = frozenset(CATALOGUE[name].section for name in metrics if name in launch)
    wider = Launch(ChainMap(metrics, also)) if also else launch  # type: ignore[arg-type]
    findings: list[Finding] = []
    for rule in rules:
        found = _ask(rule, launch if rule.id in BY_ID else wider, counted, ncu)
        if rule.otherwise and any(f.status == "fires" and not f.note for f in findings):
            found = found if found.status == "unknown" else _clear(rule.id, rule.note, rule.title)
        findings.append(found)
    findings = _ordered(_roofs(findings, rules, room), verdict, rules)
    return Diagnosis(
        verdict.bound,
        verdict.limiter,
        verdict.because,
        tuple(findings),
        verdict.missing,
        near_border=verdict.near_border,
        headroom=room,
    )


def _ordered(findings: Sequence[Finding], verdict: Verdict, rules: Sequence[Rule]) -> list[Finding]:
    """Firing ones first, the verdict's cause before all others; then unknown, then clear ones."""
    order = {"fires": 0, "unknown": 1, "clear": 2}
    lead = _leads(verdict, rules, {f.rule: f for f in findings if f.status == "fires"})
    return sorted(
        findings,
        key=lambda f: (
            order[f.status],
            f.note,
            lead.index(f.rule) if f.rule in lead else len(lead),
            -f.worth,
        ),
    )


def gains(finding: Finding | None) -> dict[str, float]:
    """gain, expect, expect_low and expect_high as a frame has them: NaN for what is not known."""
    hope = finding.expect if finding else None
    return {
        "gain": or_nan(finding.gain if finding else None),
        "expect": or_nan(hope.gain if hope else None),
        "expect_low": or_nan(hope.low if hope else None),
        "expect_high": or_nan(hope.high if hope else None),
    }


def or_nan(value: float | None) -> float:
    """A number as frames have it: NaN for None."""
    return float("nan") if value is None else value


def _ask(rule: Rule, launch: Launch, counted: frozenset[str], ncu: str) -> Finding:
    try:
        asked = rule.ask(launch)
    except NotCollected as absent:
        metric = CATALOGUE.get(absent.metric)
        among = metric is not None and metric.section in counted
        return _unknown(rule.id, rule.note, absent.metric, ncu, among)
    if asked is None:
        return _clear(rule.id, rule.note, rule.title)
    hit, worth = asked
    return Finding(
        rule.id,
        "fires",
        hit.cause,
        worth.gain,
        {name: launch.get(name) for name in hit.looked},
        advice=hit.advice or rule.advice,
        note=rule.note,
        expect=worth.expect,
    )


# One object for all launches: a report may have a hundred thousand, and most rules say the same of each.
@lru_cache(4096)
def _clear(rule: str, note: bool, title: str) -> Finding:
    return Finding(rule, "clear", title, note=note)


@lru_cache(4096)
def _unknown(rule: str, note: bool, name: str, ncu: str, among: bool) -> Finding:
    """A finding that lacks a metric; `among` others of its section, which were counted."""
    why, advice = _lack(name, ncu, among)
    return Finding(rule, "unknown", why, evidence={name: None}, advice=advice, note=note)


def _lack(name: str, ncu: str, among: bool) -> tuple[str, str]:
    """Why a metric is not there, and what collects it; "" where nothing would."""
    metric = CATALOGUE.get(name)
    if metric is None:
        return f"needs {name}: neither a metric nor a column nor a raw counter of this launch", ""
    if metric.section == RECORD:
        return f"needs {name}: the run record has it", "profkit profile"
    wrote = re.match(r"\d+\.\d+", ncu)
    version = wrote[0] if wrote else ""
    since = metric.since
    if version and since and _number(version) < _number(since):
        return (f"needs {name}: this ncu ({version}) did not count it; from {since} on",
                f"profile with ncu {since} or newer")  # fmt: skip
    if among:
        which = f"this ncu ({version})" if version else "ncu"
        return f"needs {name}: {which} did not count it on this GPU in this launch", ""
    return f"needs {name}: collect {metric.section}", f"--section {metric.section}"


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _roofs(
    findings: Sequence[Finding], rules: Sequence[Rule], room: float | None
) -> Sequence[Finding]:
    """The findings, those marked whose unit does the problem's own work as fast as it can.

    Where some of that work is redundant by another finding, less of it helps and nothing is marked.
    """
    fires = [(f, rule) for f, rule in zip(findings, rules, strict=True) if f.status == "fires"]
    redundant = any(rule.less_work and f.worth >= WORTH_NAMING for f, rule in fires)
    if room is None or room > AT_ROOF or redundant:
        return findings
    full = {rule.id for _, rule in fires if rule.own_work}
    return [
        replace(f, cause=f"{f.cause}; {ROOF}", expect=None, at_roof=True) if f.rule in full else f
        for f in findings
    ]


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
    # One that no counter bounds (contended atomics) comes first: nothing says that it is small.
    special.sort(key=lambda r: (fires[r].gain is not None, -fires[r].worth))
    return first + special + plain
