"""One launch  ->  its verdict with the two numbers that decide, and its findings, the cause first.

The order is the machine's own. A launch that leaves SMs idle is limited by its shape, unless some
resource is near its peak all the same. Then a resource near its peak; two of different groups at
once are balanced. What is left waits: latency, by the leading warp state.

Every border is one figure against one number, so a verdict also says when that figure is within 3 %
of its border: two runs of one kernel may then get two bounds, and each names the other.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from math import inf, nan
from typing import TYPE_CHECKING

from profkit.diagnosis.rule import (
    Bound,
    CombinedGain,
    Diagnosis,
    LaunchFinding,
    LaunchRule,
    NearBorder,
)
from profkit.diagnosis.rules import ALL, BY_ID
from profkit.diagnosis.rules.waits import list_stall_shares, say_waiting
from profkit.judge import NOT_PRICED, Estimate
from profkit.model.launch import Missing, NotCollected, StrictLaunch, measure_idleness
from profkit.model.resources import (
    RESOURCES,
    ResourceUse,
    find_busiest_resource_but,
    list_resource_uses,
    measure_busiest_full_l2_slice,
)
from profkit.model.scenario import (
    AT_ROOF,
    Fix,
    compute_headroom,
    estimate_gain_of_fixes,
    get_expectation,
    reprice_unexplained_wait,
)
from profkit.reports.figures import format_share
from profkit.reports.metrics import CATALOGUE
from profkit.reports.metrics.warps import FEWEST

if TYPE_CHECKING:
    from profkit.units import (
        Clause,
        Factor,
        FactorOrOne,
        FloatOrNan,
        FrameCell,
        FrameRow,
        MetricName,
        MetricValues,
        RuleName,
        TextOrEmpty,
    )


MOSTLY = 0.8  # a pipe at this share of the issue slots' is what they are full of
AS_GOOD_AS = 0.9  # a second resource at this share of the first one binds together with it
WORTH = 1.25  # gain from which a launch's shape is what limits it
BUSY = 0.75  # share of peak of SM or memory as a whole, where no unit of it was collected
MARGIN = 0.03  # of a figure: two runs of one kernel differ by as much
HALVINGS = 6  # of that margin, until the border is known to a twentieth of a per cent


@dataclass(frozen=True)
class _Facts:
    """What decides: how full each resource is, and what the launch's shape costs."""

    usages: tuple[ResourceUse, ...]
    shape: Diagnosis | None
    worth: float
    waste: float  # the most that is to be expected of leaving out work that need not be done


def decide_bound(launch: StrictLaunch) -> Diagnosis:
    """Return the verdict on a launch that ncu could measure, without findings."""
    shape, worth = _judge_launch_shape(launch)
    waste = _estimate_largest_gain_of_less_work(launch) if shape else 1.0
    facts = _Facts(tuple(list_resource_uses(launch)), shape, worth, waste)
    verdict = _choose_bound(facts, launch)
    border = _find_bound_across_border(verdict, facts, launch)
    if border is None:
        return verdict
    because = f"{verdict.because} (close call: {border.why})"
    return replace(verdict, because=because, near_border=border)


def _choose_bound(facts: _Facts, launch: StrictLaunch) -> Diagnosis:
    near = []
    sure = False
    for use in facts.usages:
        if use.near:
            near.append(use)
            sure = sure or use.share >= use.resource.peak.sure
    if facts.shape and facts.worth >= max(WORTH, facts.waste) and not sure:
        return facts.shape
    if near:
        return _judge_units_near_peak(near, launch)
    with suppress(NotCollected):
        hot = BY_ID["atomics-contention"].check(launch)
        if hot and launch.get("l2_atomic_sectors", 0) > 0:
            # One hot slice: every average reads near zero while all warps are in its queue.
            return Diagnosis("memory", "atomics", hot.cause)
    # Without both halves of the machine a full unit may go unseen.
    units = launch.has_collected("dram_busy", "l2_cache_busy", "l1_busy", "issue_busy")
    if not (units or launch.has_collected("memory_busy")):
        return _judge_from_few_throughputs(launch, facts.usages)
    return _judge_latency(launch, facts.usages)


def _estimate_largest_gain_of_less_work(launch: StrictLaunch) -> FactorOrOne:
    """Return the most that is to be expected of work that need not be done, 1 where there is none.

    A wait of an empty machine is another name of its shape; wasted work is not: it takes its time on
    however many SMs it is spread.
    """
    worth = 1.0
    for rule in ALL:
        if rule.fix is None or rule.fix.kind != "waste":
            continue
        with suppress(NotCollected, ArithmeticError):
            asked = rule.evaluate_launch(launch)
            if asked and asked[1].is_known:
                worth = max(worth, asked[1].expected)
    return worth


def _judge_from_few_throughputs(launch: StrictLaunch, usages: Sequence[ResourceUse]) -> Diagnosis:
    """Return a bound from a few throughputs, or none; what else to collect for a sure one."""
    lack = (Missing("SpeedOfLight", "the throughputs of SM, L1, L2 and DRAM decide the bound"),)
    halves: tuple[tuple[Bound, str], ...] = (("memory", "memory_busy"), ("compute", "sm_busy"))
    for bound, whole in halves:
        if launch.get(whole, 0.0) >= BUSY:
            text = (
                f"{bound} throughput at {format_share(launch[whole])} of peak; its units were not "
                "collected"
            )
            return Diagnosis(bound, None, text, missing=lack)
    if not usages:
        text = "no throughput was collected, so nothing says how busy the machine was"
        return Diagnosis("unknown", None, text, missing=lack)
    latency = _judge_latency(launch, usages)
    return replace(
        latency,
        because=f"of what was collected {latency.because}; other units may be full",
        missing=(*lack, *latency.missing),
    )


def _judge_launch_shape(launch: StrictLaunch) -> tuple[Diagnosis | None, Factor]:
    """Return the verdict that the shape is the cause, and what a launch of ideal shape would gain."""
    gains = {}
    causes = {}
    for rule in ALL:
        with suppress(NotCollected):
            if rule.shape and (asked := rule.evaluate_launch(launch)):
                hit, worth = asked
                causes[rule.shape] = hit.cause
                cost = rule.costs(launch) if rule.costs else worth.bound
                gains[rule.shape] = cost or 1 / max(measure_idleness(launch).busiest, 0.001)
    if not gains:
        return None, 1.0
    after = find_busiest_resource_but(launch)
    full = 1 / after.room if after else 0.0
    whole = 1.0
    if "sm_active" in launch:
        whole = 1 / max(launch["sm_active"], full, 0.001)
    first = max(gains, key=lambda limiter: gains[limiter])  # of the causes, the one that costs most
    return Diagnosis("launch", first, causes[first]), max(whole, *gains.values())


def _judge_units_near_peak(near: list[ResourceUse], launch: StrictLaunch) -> Diagnosis:
    first = _choose_causing_unit(near)
    group = first.resource.group
    limiter = first.resource.limiter
    text = f"{limiter} at {format_share(first.elapsed)} of peak"
    is_full = first.elapsed >= first.resource.peak.sure
    for other in near:
        if other.resource.group != group and other.share >= AS_GOOD_AS * first.share:
            second = other.resource.limiter
            text += f" and {second} at {format_share(other.elapsed)}: both near what they reach"
            return Diagnosis("balanced", f"{limiter}+{second}", text, is_full=is_full)
    for other in near:
        if other is not first and other.resource.group == group:
            text += f"; {other.resource.limiter} at {format_share(other.elapsed)}"
            break
    else:
        if first.share < first.resource.peak.sure and "stall_selected" in launch:
            text += ", and warps queue for it"  # so far below its peak that alone says nothing
    return Diagnosis(group, limiter, text, is_full=is_full)


def _choose_causing_unit(near: list[ResourceUse]) -> ResourceUse:
    """Return the unit that is the cause: the first one, unless another only shows in it."""
    first = near[0]
    # Issue slots are full of the instructions that fill the pipe: the pipe is the cause.
    if first.resource.limiter == "issue":
        for use in near[1:]:
            if use.resource.group == "compute" and use.share >= MOSTLY * first.share:
                return use
    # A DRAM stream passes through L2: of the two, the busier one.
    if first.resource.limiter == "l2":
        for use in near:
            if use.resource.limiter == "dram" and use.elapsed >= first.elapsed:
                return use
    return first


def _judge_latency(launch: StrictLaunch, usages: Sequence[ResourceUse]) -> Diagnosis:
    busiest = sorted(usages, key=lambda u: -u.elapsed)[:2]
    full = " and ".join(f"{u.resource.limiter} {format_share(u.elapsed)}" for u in busiest)
    text = f"nothing is near its peak (busiest: {full})"
    hot = measure_busiest_full_l2_slice(launch)
    if hot > 0:
        text += f", but one slice of L2 is at {format_share(hot)}: all blocks access few addresses"
    try:
        state, part = next(iter(list_stall_shares(launch).items()))
    except NotCollected:
        few = launch.get("warp_samples", FEWEST)
        why = "warp states say what the warps wait for"
        if few < FEWEST:
            why += f"; {few:.0f} samples are too few to tell"
        return Diagnosis("latency", None, text, missing=(Missing("WarpStateStats", why),))
    text += (
        f", and the warps spend {format_share(part)} of their time waiting for "
        f"{say_waiting(state, launch)}"
    )
    return Diagnosis("latency", state, text)


def _find_bound_across_border(
    verdict: Diagnosis, facts: _Facts, launch: StrictLaunch
) -> NearBorder | None:
    """Return the bound on the other side of a border that one figure is within 3 % of."""
    if verdict.bound == "unknown":
        return None

    def bound_of(figure: int, factor: float) -> Bound:
        return _choose_bound(_scale_figure(facts, figure, factor, launch), launch).bound

    nearest = 0
    turned = inf
    for figure, end in product(range(-1, len(facts.usages)), (1 + MARGIN, 1 - MARGIN)):
        if bound_of(figure, end) == verdict.bound:
            continue
        factor = _find_factor_that_changes_bound(partial(bound_of, figure), verdict.bound, end)
        if abs(factor - 1) < abs(turned - 1):
            nearest = figure
            turned = factor
    if turned == inf:
        return None
    other = bound_of(nearest, turned)
    side = "below" if turned < 1 else "above"
    said = f"SMs that never idle would give {facts.worth:.3g}x; {side} {WORTH:.3g}x"
    if nearest >= 0:
        use = facts.usages[nearest]
        said = f"with {use.resource.limiter} {side} {format_share(use.elapsed * turned)}"
    return NearBorder(other, abs(turned - 1), f"{said} the verdict would be {other}")


def _find_factor_that_changes_bound(
    bound_at: Callable[[float], Bound], bound_now: Bound, farthest_factor: float
) -> float:
    """Return the factor nearest to 1 that turns the bound, between 1 and one that does."""
    same = 1.0
    turned = farthest_factor
    for _ in range(HALVINGS):
        middle = (same + turned) / 2
        if bound_at(middle) == bound_now:
            same = middle
        else:
            turned = middle
    return turned


def _scale_figure(facts: _Facts, figure_index: int, factor: float, launch: StrictLaunch) -> _Facts:
    """Return the facts with one figure that many times as large: a usage, or for -1 the shape's cost."""
    if figure_index < 0:
        return replace(facts, worth=facts.worth * factor)
    usages = list(facts.usages)
    usages[figure_index] = usages[figure_index].copy_with_scaled_share(factor, launch)
    return replace(facts, usages=tuple(usages))


MOST = 0.5  # of the logarithm of what the wait itself is worth: a cause of less does not explain it
# Kinds of fixes whose gains multiply: where work is done, and how much of it there is.
_GROUPS = {"shape": "shape", "places": "shape", "waste": "waste"}
NOTHING_TO_WIN = (
    1.05  # expected speed-up below which a finding is none: clocks and inputs do as much
)
LITTLE_TO_WIN = 1.1  # the same where the interval has 1 in it: it may as well be nothing
# The one wait of which enough changes are on record to say how often none of them helps.
_WAIT_FOR_LOADS = "long-scoreboard"
WORTH_NAMING = 1.1  # gain from which a special cause is named before the plain one
UNIT_RULES = frozenset(resource.rule for resource in RESOURCES)
RECORD = "run record"  # the section of what profkit writes beside a report
FAILED = (
    "ncu could not profile this launch, so no counter is valid; its own output says why (memory to "
    "save and restore, a time-out, a crash of the kernel)"
)

RuleAndFinding = tuple[LaunchRule, LaunchFinding]  # a rule and what it says of the launch


def judge_launch(
    values: FrameRow,
    extra_rules: Sequence[LaunchRule] = (),
    extra_metrics: Mapping[str, float] | None = None,
) -> Diagnosis:
    """Return the verdict on one launch with its findings, in the order of Diagnosis.findings.

    `values`: short metric name -> SI value, NaN or absent when not collected. Of the other keys (the
    identity columns of a frame's row) only status and ncu_version are looked at: what that ncu does not
    count is not asked for. `extra_rules`: rules of one's own, asked like profkit's; `extra_metrics`:
    what these may index besides the metrics: numbers by any name, NaN not collected.
    """
    if (values.get("status") or "ok") != "ok":
        return Diagnosis("unknown", None, FAILED, missing=(Missing("", FAILED),))
    metrics = {}
    for k, v in values.items():
        if k in CATALOGUE:
            metrics[k] = convert_to_number_or_nan(v)
    launch = StrictLaunch(metrics)
    try:
        return _judge_launch_with_metrics(launch, metrics, values, extra_rules, extra_metrics)
    except ArithmeticError as error:
        # Each value may be possible, and all of them together not.
        why = f"the counters of this launch contradict each other: {error}"
        return Diagnosis("unknown", None, why, missing=(Missing("", why),))


def convert_to_number_or_nan(value: FrameCell) -> FloatOrNan:
    """Return a cell of anybody's frame as a number; NaN for what is none."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return nan


def _judge_launch_with_metrics(
    launch: StrictLaunch,
    metrics: MetricValues,
    values: FrameRow,
    own_rules: Sequence[LaunchRule],
    extra: Mapping[str, float] | None,
) -> Diagnosis:
    verdict = _note_impossible_counters(decide_bound(launch), launch)
    room = compute_headroom(launch)
    wider = launch
    if extra:  # not copied: raw counters are read only when a rule asks for them
        wider = StrictLaunch(ChainMap(metrics, extra))  # type: ignore[arg-type]
    ncu = str(values.get("ncu_version") or "")
    asked = _mark_findings_at_roof(_evaluate_all_rules(launch, wider, own_rules, ncu), room)
    lead = _choose_leading_rules(verdict, asked)
    findings = [clear_negligible_finding(rule, found, lead) for rule, found in asked]
    ordered = _reprice_lead_unexplained_wait(_sort_findings(findings, lead))
    marked = _mark_symptoms_of_leading_cause(ordered, verdict)
    told = tuple(_say_what_ceiling_of_wait_is_of(finding, launch) for finding in marked)
    both = _estimate_combined_gain(launch, told)
    return replace(verdict, findings=told, headroom=room, together=both)


def _evaluate_all_rules(
    launch: StrictLaunch,
    launch_for_own_rules: StrictLaunch,
    own_rules: Sequence[LaunchRule],
    ncu_version: str,
) -> list[RuleAndFinding]:
    """Return what profkit's rules say, then rules of one's own, which see `launch_for_own_rules`."""
    sections = set()
    for name in launch:
        if name in launch:
            sections.add(CATALOGUE[name].section)
    counted = frozenset(sections)
    asked: list[RuleAndFinding] = []
    for rule in (*ALL, *own_rules):
        subject = launch_for_own_rules
        if rule.id in BY_ID:
            subject = launch
        found = _evaluate_rule(rule, subject, counted, ncu_version)
        asked.append(_clear_fallback_beside_another(rule, found, asked))
    return asked


def _clear_fallback_beside_another(
    rule: LaunchRule, finding: LaunchFinding, before: Sequence[RuleAndFinding]
) -> RuleAndFinding:
    """Return what a rule says after others: a fallback nothing where one of them fires."""
    if not rule.otherwise or finding.status == "unknown":
        return rule, finding
    for _, other in before:
        if other.is_cause:
            return rule, make_clear_finding(rule.id, rule.note, rule.title)
    return rule, finding


def _sort_findings(
    findings: Sequence[LaunchFinding], leading_rules: list[RuleName]
) -> list[LaunchFinding]:
    """Return the findings that fire first, notes behind causes, those that lead in their order."""
    order = {"fires": 0, "unknown": 1, "clear": 2}

    def rank_finding(found: LaunchFinding) -> tuple[int, bool, int, float]:
        place = len(leading_rules)
        if found.rule in leading_rules:
            place = leading_rules.index(found.rule)
        return order[found.status], found.note, place, -found.ranking_gain

    return sorted(findings, key=rank_finding)


def _reprice_lead_unexplained_wait(sorted_findings: list[LaunchFinding]) -> list[LaunchFinding]:
    """Return findings with a wait for loads that leads priced as one without a cause.

    No cause of it fires that is worth as much: what is left says what warps do, not why.
    """
    lead = sorted_findings[0]
    if not is_unexplained_wait(lead):
        return sorted_findings
    return [replace(lead, saving=reprice_unexplained_wait(lead.saving)), *sorted_findings[1:]]


def is_unexplained_wait(finding: LaunchFinding) -> bool:
    """Return whether a finding says that warps wait for loads, and nothing of why."""
    return finding.is_cause and finding.rule == _WAIT_FOR_LOADS and len(finding.explains) == 1


def _mark_symptoms_of_leading_cause(
    findings: Sequence[LaunchFinding], verdict: Diagnosis
) -> tuple[LaunchFinding, ...]:
    """Return the findings, those that only name what the leading cause makes warps wait for as such.

    They promise no more than it does; nothing where no counter prices it. A unit that is full of the
    leading cause's work comes after the other causes: it says the same again.
    """
    lead = findings[0]
    if not lead.is_cause or len(lead.explains) < 2:
        return tuple(findings)
    consequences = set(lead.explains)
    if lead.expect is not None:
        consequences &= set((verdict.limiter or "").split("+"))
    told = [lead]
    repeated = []
    for finding in findings[1:]:
        named = set(finding.explains)
        if finding.status != "fires" or len(named) != 1 or not named <= consequences:
            told.append(finding)
        elif finding.rule in UNIT_RULES:
            repeated.append(replace(_cap_saving_by_cause(finding, lead), repeats=lead.rule))
        else:
            told.append(_cap_saving_by_cause(finding, lead))
    causes = 0
    while causes < len(told) and told[causes].is_cause:
        causes += 1
    return (*told[:causes], *repeated, *told[causes:])


CAUSED = " is the cause of it"  # the end of the cause of a finding that another one explains


def _cap_saving_by_cause(finding: LaunchFinding, leading_finding: LaunchFinding) -> LaunchFinding:
    """Return a finding that promises no more than its cause does.

    Both have fixes of their own: at best the cause goes, and what else the symptom's fix takes.
    """
    saving = finding.saving
    own = finding.saving.bound
    if leading_finding.expect is None:
        saving = NOT_PRICED
    elif saving.is_known and saving.expected > leading_finding.saving.expected:
        saving = leading_finding.saving
    if saving.bound is not None and own is not None and leading_finding.gain is not None:
        saving = saving._replace(bound=max(own, leading_finding.gain))
    return replace(finding, cause=f"{finding.cause}; {leading_finding.rule}{CAUSED}", saving=saving)


# A ceiling of more of the time than a wait takes is one of other waits, too.
MORE_THAN_THE_WAIT = 1.1


def _say_what_ceiling_of_wait_is_of(finding: LaunchFinding, launch: StrictLaunch) -> LaunchFinding:
    """Return a finding about a wait that says so where its ceiling takes other waits with it.

    Who reads "35 % of their time" and "at most 4.5x" works out 1 / (1 - 0.35), which is less.
    """
    rule = BY_ID.get(finding.rule)
    if rule is None or rule.fix is None or rule.fix.kind != "wait" or not finding.is_cause:
        return finding
    if finding.gain is None or finding.cause.endswith(CAUSED):
        return finding
    goes = 1 - 1 / finding.gain
    for measure in rule.measures:
        if not measure.of_time:
            continue
        with suppress(NotCollected):
            if goes > MORE_THAN_THE_WAIT * measure.of(launch):
                more = (
                    f"; a fix can save up to {format_share(goes)} of the time, as other waits may end "
                    "too"
                )
                return replace(finding, cause=finding.cause + more)
    return finding


def _estimate_combined_gain(
    launch: StrictLaunch, findings: Sequence[LaunchFinding]
) -> CombinedGain | None:
    """Return what a launch's shape and wasted work are worth at once, the first finding of each kind.

    Each one's own price takes the other for given. A wait is priced with neither: more warps hide it,
    and less work ends it.
    """
    first: dict[str, tuple[LaunchFinding, Fix]] = {}  # in the order in which they are named
    for finding in findings:
        rule = BY_ID.get(finding.rule)
        if rule is None or rule.fix is None or rule.fix.kind is None or not finding.is_cause:
            continue
        group = _GROUPS.get(rule.fix.kind)
        if group and finding.expect and finding.expect.gain >= WORTH:
            first.setdefault(group, (finding, rule.fix))
    if len(first) < 2:
        return None
    (one, fix_of_one), (other, fix_of_other) = first.values()
    saving = estimate_gain_of_fixes(launch, fix_of_one, fix_of_other)
    expect = get_expectation(saving)
    if expect is None or expect.gain < WORTH_NAMING * max(one.ranking_gain, other.ranking_gain):
        return None
    more = expect.gain > WORTH_NAMING * one.ranking_gain * other.ranking_gain
    return CombinedGain((one.rule, other.rule), saving.bound, expect, more)


def _note_impossible_counters(verdict: Diagnosis, launch: StrictLaunch) -> Diagnosis:
    """Return the verdict with the counters that were left out of it, where there are any."""
    impossible = launch.find_impossible_metrics()
    if not impossible:
        return verdict
    several = []
    for name, value in impossible.items():
        several.append(f"{name} is {value:.4g}")
    more = ""
    if len(several) > 3:
        more = f" and {len(several) - 3} more"
    why = f"{', '.join(several[:3])}{more}, which no launch has: not used"
    missing = (*verdict.missing, Missing("", why))
    return replace(verdict, because=f"{verdict.because}; {why}", missing=missing)


def _evaluate_rule(
    rule: LaunchRule,
    launch: StrictLaunch,
    collected_sections: frozenset[str],
    ncu_version: str,
) -> LaunchFinding:
    try:
        asked = rule.evaluate_launch(launch)
    except NotCollected as absent:
        if absent.found is not None:
            why = f"needs {absent.metric}, which is {absent.found:.4g} here: no launch has that"
            return LaunchFinding(
                rule=rule.id,
                status="unknown",
                cause=why,
                evidence={absent.metric: None},
                note=rule.note,
            )
        metric = CATALOGUE.get(absent.metric)
        among = metric is not None and metric.section in collected_sections
        return _make_unknown_finding(rule.id, rule.note, absent.metric, ncu_version, among)
    except ArithmeticError as error:
        why = f"{rule.title}: its counters contradict each other ({error})"
        return LaunchFinding(rule=rule.id, status="unknown", cause=why, note=rule.note)
    if asked is None:
        return make_clear_finding(rule.id, rule.note, rule.title)
    hit, saving = asked
    evidence = {name: launch.get(name) for name in hit.looked}
    advice = hit.advice or rule.advice
    return LaunchFinding(
        rule=rule.id,
        status="fires",
        cause=hit.cause,
        advice=advice,
        evidence=evidence,
        saving=saving,
        note=rule.note,
        explains=hit.explains or rule.explains,
    )


# One object for all launches: a report may have a hundred thousand, and most rules say the same of each.
@lru_cache(4096)
def make_clear_finding(rule: RuleName, is_note: bool, title: str) -> LaunchFinding:
    """Return the finding of a rule that was asked and does not fire."""
    return LaunchFinding(rule=rule, status="clear", cause=title, note=is_note)


@lru_cache(4096)
def _make_unknown_finding(
    rule: RuleName,
    is_note: bool,
    metric_name: MetricName,
    ncu_version: str,
    is_section_collected: bool,
) -> LaunchFinding:
    """Return a finding that lacks a metric; others of its section may have been counted."""
    why, advice = _explain_missing_metric(metric_name, ncu_version, is_section_collected)
    return LaunchFinding(
        rule=rule,
        status="unknown",
        cause=why,
        advice=advice,
        evidence={metric_name: None},
        note=is_note,
    )


def _explain_missing_metric(
    metric_name: MetricName, ncu_version: str, is_section_collected: bool
) -> tuple[Clause, TextOrEmpty]:
    """Return why a metric is not there, and what collects it; "" where nothing would."""
    metric = CATALOGUE.get(metric_name)
    if metric is None:
        return (
            f"needs {metric_name}: neither a metric nor a column nor a raw counter of this launch",
            "",
        )
    if metric.section == RECORD:
        return f"needs {metric_name}: the run record has it", "profkit profile"
    wrote = re.match(r"\d+\.\d+", ncu_version)
    version = wrote[0] if wrote else ""
    since = metric.since
    if version and since and _parse_version(version) < _parse_version(since):
        why = f"needs {metric_name}: this ncu ({version}) did not count it; from {since} on"
        return why, f"profile with ncu {since} or newer"
    if is_section_collected:
        which = f"this ncu ({version})" if version else "ncu"
        return f"needs {metric_name}: {which} did not count it on this GPU in this launch", ""
    return f"needs {metric_name}: collect {metric.section}", f"--section {metric.section}"


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


NO_ROOM = 0.01  # of the time: two runs of one kernel differ by more


def say_distance_from_roof(headroom_factor: Factor) -> Clause:
    """Return how near to the hardware's limit a launch is, and what the rest of the way is worth."""
    left = 1 - 1 / headroom_factor
    if left < NO_ROOM:
        return "no kernel on record reaches a higher rate"
    return f"at the best rate on record the same work would take {format_share(left)} less time"


def _mark_findings_at_roof(
    answers_of_rules: list[RuleAndFinding], headroom_factor: Factor | None
) -> list[RuleAndFinding]:
    """Mark the findings whose unit does the problem's own work as fast as it can.

    Where some of that work is redundant by another finding, less of it helps and nothing is marked.
    """
    if headroom_factor is None or headroom_factor > AT_ROOF:
        return answers_of_rules
    for rule, found in answers_of_rules:
        if rule.less_work and found.status == "fires" and found.ranking_gain >= WORTH_NAMING:
            return answers_of_rules
    said = say_distance_from_roof(headroom_factor)
    marked = []
    for rule, found in answers_of_rules:
        judged = found
        if rule.own_work and found.status == "fires":
            cause = f"{found.cause}; {said}"
            bound = Estimate(bound=found.gain)
            judged = replace(found, cause=cause, saving=bound, at_roof=True)
        marked.append((rule, judged))
    return marked


def clear_negligible_finding(
    rule: LaunchRule, finding: LaunchFinding, leading_rules: list[RuleName]
) -> LaunchFinding:
    """Return the finding, or clear where nothing is to be expected of it that a clock would show.

    What leads stays: it says what the launch is bound by.
    """
    expected = finding.expect
    if expected is None or finding.rule in leading_rules[:1]:
        return finding
    if expected.gain >= LITTLE_TO_WIN or (expected.gain >= NOTHING_TO_WIN and expected.low >= 1):
        return finding
    return make_clear_finding(finding.rule, finding.note, rule.title)


def _choose_leading_rules(
    verdict: Diagnosis, answers_of_rules: list[RuleAndFinding]
) -> list[RuleName]:
    """Return the rules that name the verdict's cause, the first one first.

    A rule explains a limiter when it can be behind it. A special cause with something to gain
    (bank conflicts) is named before the plain one (shared-memory bandwidth).
    """
    limiters = set((verdict.limiter or "").split("+"))
    first = []
    plain = []
    special = []
    wait_worth = 1.0
    for rule, finding in answers_of_rules:
        if finding.status != "fires":
            continue
        if rule.leads:
            first.append(finding)
        if rule.note or limiters.isdisjoint(finding.explains):
            continue
        if len(finding.explains) == 1:
            plain.append(finding)
            if rule.fix and rule.fix.kind == "wait":
                wait_worth = max(wait_worth, finding.ranking_gain)
        elif finding.gain is None or finding.gain >= WORTH_NAMING:
            special.append(finding)
    special = _select_and_rank_special_causes(special, wait_worth**MOST)
    before = _select_findings_worth_more_than_limiter(verdict, answers_of_rules, [*special, *plain])
    return [finding.rule for finding in (*first, *before, *special, *plain)]


def _select_and_rank_special_causes(
    special: Sequence[LaunchFinding], least_gain: Factor
) -> list[LaunchFinding]:
    """Return the special causes that are worth the least, those that no counter bounds first.

    Of contended atomics, say, nothing says that it is small.
    """
    unbounded = []
    bounded = []
    for finding in special:
        if finding.gain is None:
            unbounded.append(finding)
        elif finding.gain and finding.ranking_gain >= least_gain:
            bounded.append(finding)
    unbounded.sort(key=lambda finding: -finding.ranking_gain)
    bounded.sort(key=lambda finding: -finding.ranking_gain)
    return [*unbounded, *bounded]


def _select_findings_worth_more_than_limiter(
    verdict: Diagnosis,
    answers_of_rules: list[RuleAndFinding],
    findings_of_limiter: list[LaunchFinding],
) -> list[LaunchFinding]:
    """Return what comes before the findings of the verdict's limiter, as it is worth more.

    Where warps wait, that is work that can be saved and of which more is to be expected: it need not
    be done, whatever they wait for.
    """
    if verdict.bound != "latency" or not findings_of_limiter or findings_of_limiter[0].gain is None:
        return []
    before = []
    for rule, finding in answers_of_rules:
        is_work = rule.fix is not None and rule.fix.kind in ("waste", "throughput")
        if (
            is_work
            and finding.is_cause
            and finding.ranking_gain > findings_of_limiter[0].ranking_gain
        ):
            before.append(finding)
    return before
