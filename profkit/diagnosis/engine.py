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
from profkit.diagnosis.verdict import decide_bound
from profkit.model.estimate import AT_ROOF, headroom
from profkit.model.launch import Launch, Missing, NotCollected
from profkit.reports.metrics import CATALOGUE

WORTH_NAMING = 1.1  # gain from which a special cause is named before the plain one
RECORD = "run record"  # the section of what profkit writes beside a report
ROOF = "at the hardware limit: cannot go faster without doing less work"
FAILED = "ncu gave up on this launch: the kernel or its replay died, and no counter is valid"

Asked = tuple[Rule, Finding]  # a rule and what it says of the launch


def judge_launch(
    values: Mapping[str, Any],
    status: str = "ok",
    more: Sequence[Rule] = (),
    also: Mapping[str, float] | None = None,
) -> Diagnosis:
    """Return the verdict on one launch with its findings, in the order of Diagnosis.findings.

    Args:
        values: Short metric name -> SI value, NaN or absent when not collected. Of the other keys
            (the identity columns of a frame's row) only ncu_version is looked at: what that ncu
            does not count is not asked for.
        status: The launch's status in the frame: ok or failed.
        more: Rules of somebody's own, asked like profkit's.
        also: What these may index besides the metrics: numbers by any name, NaN not collected.
    """
    if status != "ok":
        return Diagnosis("unknown", None, FAILED, missing=(Missing("", FAILED),))
    metrics = {k: float(v) for k, v in values.items() if k in CATALOGUE}
    launch = Launch(metrics)
    verdict = decide_bound(launch)
    ncu = str(values.get("ncu_version") or "")
    room = headroom(launch)
    counted = frozenset(CATALOGUE[name].section for name in metrics if name in launch)
    wider = Launch(ChainMap(metrics, also)) if also else launch  # type: ignore[arg-type]
    asked: list[Asked] = []
    for rule in (*ALL, *more):
        found = _ask(rule, launch if rule.id in BY_ID else wider, counted, ncu)
        if rule.otherwise and any(f.status == "fires" and not f.note for _, f in asked):
            found = found if found.status == "unknown" else _clear(rule.id, rule.note, rule.title)
        asked.append((rule, found))
    asked = _at_roof(asked, room)
    lead = _leads(verdict, asked)
    order = {"fires": 0, "unknown": 1, "clear": 2}

    def rank(found: Finding) -> tuple[int, bool, int, float]:
        place = lead.index(found.rule) if found.rule in lead else len(lead)
        return order[found.status], found.note, place, -found.worth

    findings = tuple(sorted((found for _, found in asked), key=rank))
    return replace(verdict, findings=findings, headroom=room)


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
    evidence = {name: launch.get(name) for name in hit.looked}
    advice = hit.advice or rule.advice
    return Finding(
        rule.id, "fires", hit.cause, worth.gain, evidence, (), advice, rule.note, worth.expect
    )


# One object for all launches: a report may have a hundred thousand, and most rules say the same of each.
@lru_cache(4096)
def _clear(rule: str, note: bool, title: str) -> Finding:
    return Finding(rule, "clear", title, note=note)


@lru_cache(4096)
def _unknown(rule: str, note: bool, name: str, ncu: str, among: bool) -> Finding:
    """Return a finding that lacks a metric; `among` others of its section, which were counted."""
    why, advice = _lack(name, ncu, among)
    return Finding(rule, "unknown", why, evidence={name: None}, advice=advice, note=note)


def _lack(name: str, ncu: str, among: bool) -> tuple[str, str]:
    """Return why a metric is not there, and what collects it; "" where nothing would."""
    metric = CATALOGUE.get(name)
    if metric is None:
        return f"needs {name}: neither a metric nor a column nor a raw counter of this launch", ""
    if metric.section == RECORD:
        return f"needs {name}: the run record has it", "profkit profile"
    wrote = re.match(r"\d+\.\d+", ncu)
    version = wrote[0] if wrote else ""
    since = metric.since
    if version and since and _number(version) < _number(since):
        why = f"needs {name}: this ncu ({version}) did not count it; from {since} on"
        return why, f"profile with ncu {since} or newer"
    if among:
        which = f"this ncu ({version})" if version else "ncu"
        return f"needs {name}: {which} did not count it on this GPU in this launch", ""
    return f"needs {name}: collect {metric.section}", f"--section {metric.section}"


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _at_roof(asked: list[Asked], room: float | None) -> list[Asked]:
    """Mark the findings whose unit does the problem's own work as fast as it can.

    Where some of that work is redundant by another finding, less of it helps and nothing is marked.
    """
    fires = [(rule, f) for rule, f in asked if f.status == "fires"]
    redundant = any(rule.less_work and f.worth >= WORTH_NAMING for rule, f in fires)
    if room is None or room > AT_ROOF or redundant:
        return asked

    def mark(found: Finding) -> Finding:
        return replace(found, cause=f"{found.cause}; {ROOF}", expect=None, at_roof=True)

    full = {rule.id for rule, _ in fires if rule.own_work}
    return [(rule, mark(f) if rule.id in full else f) for rule, f in asked]


def _leads(verdict: Diagnosis, asked: list[Asked]) -> list[str]:
    """Return the rules that name the verdict's cause, the first one first.

    A rule explains a limiter when it can be behind it. A special cause with something to gain
    (bank conflicts) is named before the plain one (shared-memory bandwidth).
    """
    limiters = set((verdict.limiter or "").split("+"))
    fires = [(rule, f) for rule, f in asked if f.status == "fires"]
    causes = [x for x in fires if not x[0].note and limiters & set(x[0].explains)]
    alone = [(limiter,) for limiter in limiters]
    plain = [f for rule, f in causes if rule.explains in alone]
    special = [f for rule, f in causes if rule.explains not in alone]
    special = [f for f in special if (f.gain or WORTH_NAMING) >= WORTH_NAMING]
    # One that no counter bounds (contended atomics) comes first: nothing says that it is small.
    special.sort(key=lambda f: (f.gain is not None, -f.worth))
    first = [f for rule, f in fires if rule.leads]
    return [f.rule for f in (*first, *special, *plain)]
