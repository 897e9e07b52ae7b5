"""The name of a rule, a metric or a word of a screen  ->  its page, as blocks.

What can be worked out of the rule or metric itself is; the rest is in diagnosis/rules/pages.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from profkit.diagnosis import pages
from profkit.diagnosis.rule import LaunchRule
from profkit.diagnosis.rules import ALL, BY_ID
from profkit.diagnosis.verdict import LITTLE_TO_WIN, NOTHING_TO_WIN, judge_launch
from profkit.errors import ProfkitError
from profkit.model.resources import BY_LIMITER, RESOURCES
from profkit.model.scenario import COVERAGE, SPREAD, make_bounded_expectation
from profkit.program.example import run_example
from profkit.program.findings import Example, StepRule
from profkit.program.rules import BY_ID as STEP_RULES
from profkit.program.rules import RULES as OF_STEPS
from profkit.program.rules import list_rule_texts
from profkit.program.triage import triage_timeline
from profkit.records.ablation import read_ablations_by_rule
from profkit.records.paths import FULL
from profkit.reports.figures import format_count_with_noun, format_speedup, format_three_figures
from profkit.reports.figures import format_value_with_unit as format_quantity
from profkit.reports.metrics import CATALOGUE, FAMILIES, Metric
from profkit.show.text import blocks, words
from profkit.show.text.blocks import Block, Columns, TextSpan, Words, make_grid
from profkit.show.text.glossary import SCREEN_WORDS, normalize_screen_word
from profkit.show.text.labels import NCU_LABELS, find_catalogue_name, find_rules_for_ncu_rule
from profkit.show.text.terminal import ShowsItself
from profkit.show.text.thresholds import get_compared_quantity

if TYPE_CHECKING:
    from profkit.units import NcuMetricName, RuleName, Sentence


# Not ncu's: the frame takes it from the record that profkit writes beside a report.
RECORD = "run record"
OF_A_STEP = "rule of a step"  # kind of a page
READ_MOST = 3  # metrics that are listed where a counter is only part of their whole
SHOWN = 3  # measured pairs of a rule
# What a sentence of triage is filled with: a name, and how it is written.
_FILLED = re.compile(r"\{([\w.\[\]]+)(?::([^{}]*))?\}")
# What is written without a form, and is a number all the same.
_NUMBERS = frozenset(
    "alike back blocks columns fits longest new passes repeated rounds rows runs size sms stops sums "
    "times total uses whole".split()
)
# A clause that may be left out has no blank before it, or is a word before another one.
_LEFT_OUT = re.compile(r"(?<=[\w}\])])\{\w+\}|\{\w+\}(?=[a-z]{2})")
EXAMPLES = ("An example that fires", "An example that does not fire", "An example")
Parts = Mapping[str, tuple[Words | blocks.Code, ...]]  # heading -> texts and code, in reading order


@dataclass(frozen=True, repr=False)
class Explanation(ShowsItself):
    """What there is to say about one thing; printed as text, shown formatted in a notebook."""

    name: str
    kind: str  # rule, metric, limiter, verdict or ncu metric
    title: str
    parts: Parts
    asked: str = ""  # the name that was asked for, where it is another one

    WIDTH = 80

    @property
    def short(self) -> Explanation:
        """Return a page up to its examples; one without examples is whole."""
        headings = list(self.parts)
        ends = [place for place, name in enumerate(headings) if name in EXAMPLES]
        if not ends:
            return self
        return replace(self, parts={name: self.parts[name] for name in headings[: ends[-1] + 1]})

    def blocks(self) -> Iterator[Block]:
        yield blocks.Heading(self.name, 1)
        if self.asked:
            yield blocks.TextLine(self.asked, "asked for")
        yield blocks.Paragraph(f"{self.title} ({self.kind})", 1)
        for heading, parts in self.parts.items():
            yield blocks.Heading(heading, 2)
            alone = sum(not isinstance(part, blocks.Code) for part in parts) == 1
            for part in parts:
                if isinstance(part, blocks.Code):
                    yield part
                elif alone:
                    yield blocks.Paragraph(part, 1)
                else:
                    yield blocks.ListItem(part)

    @property
    def markdown(self) -> str:
        return blocks.render_markdown(self.blocks()).rstrip("\n")

    def _repr_markdown_(self) -> str:
        return self.markdown


def show_short_page(name: str) -> Iterator[Block]:
    """Yield the page of a name up to its examples, and the command that prints the rest."""
    page = explain(name)
    yield from page.short.blocks()
    if len(page.short.parts) < len(page.parts):
        yield blocks.Heading("More", 2)
        about = "metrics, where to get them, NVIDIA's page"
        yield blocks.Command(f"profkit explain {shlex.quote(page.name)} --all", about)


def explain(name: str | None = None) -> Explanation:
    """Return what a rule, a metric or a word of the verdict means, what it needs, and an example.

    Without a name: every rule and every metric in a line each.

    Args:
        name: Id of a rule, short name of a metric, a bound, a limiter, a finding of triage, a raw ncu
            metric or what ncu's pages call one.

    Raises:
        ProfkitError: There is no such name; the hint suggests the closest one.
    """
    if name is None:
        return _list_everything()
    if screen_word := normalize_screen_word(name):
        return _explain_screen_word(screen_word)
    page = _make_page_of_name(name)
    told = _drop_empty_parts(page.parts)
    if page.kind != OF_A_STEP and page.name in STEP_RULES:  # the same word of a launch's verdict
        for heading, texts in _drop_empty_parts(_explain_step_rule(STEP_RULES[page.name])).items():
            told[f"For a step: {heading}"] = texts
    asked = ""
    if not _is_same_name(name, page.name):
        asked = name.strip()
    return replace(page, parts=told, asked=asked)


def _make_page_of_name(name: str) -> Explanation:
    """Return the page of a name, of the rule that it is a part of, or of what ncu calls so."""
    word = _find_rule_containing_word(_extract_bound_name(name.strip()))
    answered = find_rules_for_ncu_rule(name)
    if len(answered) == 1:
        word = answered[0]
    if " " in word or word.lower() in NCU_LABELS:
        word = find_catalogue_name(word)
    page = _explain_profkits_name(word)
    if page is None and answered:
        title = "what Nsight Compute's own rules report"
        rules = tuple(write_name_and_text(rule, BY_ID[rule].title) for rule in answered)
        page = Explanation(name.strip(), "ncu rule", title, {"profkit's rules for it": rules})
    readers = _find_metrics_reading_counter(word)
    if page is None and readers:
        title = "a counter of Nsight Compute"
        page = Explanation(word, "ncu metric", title, _explain_counter(word, readers))
    if page is None:
        raise ProfkitError(f"unknown rule or metric: {name}", find_nearest_names(word))
    return page


def _is_same_name(asked: str, name: str) -> bool:
    """Return whether a name was asked for as it is, but for case, blanks and hyphens."""
    plain = asked.strip().lower().replace("_", "-").replace(" ", "-")
    return plain.removesuffix("-bound") == name.lower().replace("_", "-").replace(" ", "-")


def _explain_profkits_name(word: str) -> Explanation | None:
    """Return the page of a rule, a metric, a limiter or a bound; None where it is none of them."""
    as_rule = word.lower().replace("_", "-")
    as_metric = word.lower().replace("-", "_")
    if rule := BY_ID.get(word) or BY_ID.get(as_rule):
        return Explanation(rule.id, "rule", rule.title, explain_rule(rule))
    if metric := CATALOGUE.get(word) or CATALOGUE.get(as_metric):
        return Explanation(metric.name, "metric", metric.meaning, explain_metric(metric))
    limiter = word.replace("-", "_")
    behind = [rule for rule in ALL if limiter in rule.explains]
    if behind:
        title = words.LIMITERS.get(limiter, "what limits a launch")
        return Explanation(limiter, "limiter", title, explain_limiter(limiter, behind))
    bound = word.lower()
    if bound in words.BOUNDS:
        return Explanation(bound, "verdict", words.BOUNDS[bound], explain_bound(bound))
    if step_rule := STEP_RULES.get(as_rule):
        return explain_step_rule(step_rule)
    return None


def _find_metrics_reading_counter(counter: NcuMetricName) -> list[Metric]:
    """Return the metrics that one of ncu's own counters is read for."""
    readers = []
    for metric in CATALOGUE.values():
        for source in metric.sources:
            if counter in source.names or counter in source.optional:
                readers.append(metric)
                break
    return readers


def _drop_empty_parts(parts: Parts) -> dict[str, tuple[Words | blocks.Code, ...]]:
    """Return the parts of a page that say something."""
    return {heading: texts for heading, texts in parts.items() if texts}


def _list_everything() -> Explanation:
    """Return every rule and every metric with what it is."""
    lists: dict[str, tuple[Words | blocks.Code, ...]] = {
        "Rules": tuple(write_name_and_text(rule.id, rule.title) for rule in ALL),
        "Rules of a program's step": tuple(
            write_name_and_text(rule.id, rule.title) for rule in OF_STEPS
        ),
        "Metrics": tuple(map(describe_metric, CATALOGUE.values())),
    }
    title = "every rule, and every metric that pk.load has a column of"
    return Explanation("profkit", "list", title, lists)


def _explain_screen_word(name: str) -> Explanation:
    """Return what a word of a screen means that is no name of a rule, a metric or a verdict."""
    word = SCREEN_WORDS[name]
    see = tuple(write_name_and_text(other, _find_title(other)) for other in word.see)
    told: dict[str, tuple[Words | blocks.Code, ...]] = {"Where it is shown": (word.where,)}
    if name == "expected":
        told["How wide the interval is"] = (explain_interval(),)
    if see:
        told["See also"] = see
    return Explanation(name, "term", word.meaning, told)


def _find_title(name: str) -> str:
    """Return in a few words what a rule or a metric is."""
    if name in BY_ID:
        return BY_ID[name].title
    if name in STEP_RULES:
        return STEP_RULES[name].title
    return CATALOGUE[name].meaning


def _explain_counter(name: NcuMetricName, readers: list[Metric]) -> Parts:
    """Return what one of ncu's own counters is read for: first where it is what is measured.

    In a share of all warp states each of them is part of the whole: that is said in one line.
    """
    main = []
    others = []
    for metric in readers:
        firsts = [source.names[0] for source in metric.sources if source.names]
        if name in firsts:
            main.append(metric)
        else:
            others.append(metric.name)
    listed = [write_name_and_text(metric.name, metric.meaning) for metric in main]
    if others and len(others) > READ_MOST:
        listed.append(f"and as part of the whole of {len(others)} others, {others[0]} for one")
    elif others:
        listed += [write_name_and_text(m.name, m.meaning) for m in readers if m.name in others]
    return {"Read for": tuple(listed)}


SAME_ADVICE = 0.6  # of two texts' letters, from which on they are one text for two languages


def _list_unlike_texts(texts: Iterable[str]) -> list[str]:
    """Return texts without those that say nearly the same as one before them."""
    kept: list[str] = []
    for text in texts:
        ratios = [difflib.SequenceMatcher(None, text, other).ratio() for other in kept]
        if max(ratios, default=0.0) < SAME_ADVICE:
            kept.append(text)
    return kept


def explain_step_rule(rule: StepRule) -> Explanation:
    """Return the page of a rule of triage."""
    parts = _drop_empty_parts(_explain_step_rule(rule))
    return Explanation(rule.id, OF_A_STEP, rule.title, parts)


def _explain_step_rule(rule: StepRule) -> Parts:
    page = pages.read_page(rule.page)
    said = []
    tried = []
    for words_of_form in list_rule_texts(rule.id):
        said.append(_replace_template_fields(words_of_form.says))
        for advice in (words_of_form.advice, *words_of_form.instead.values()):
            texts = [_replace_template_fields(text) for text in advice.list_texts()]
            tried += _list_unlike_texts(texts)
    return {
        "What happens": (page.hardware,),
        "How to fix it": (rule.advice,),
        "Before": make_code_blocks(page.before),
        "After": make_code_blocks(page.after),
        "How it is detected": (rule.meaning,),
        "What it says": tuple(said),
        "What it advises": tuple(dict.fromkeys(tried)),
        "How its saving is estimated": (rule.fix,),
        "Thresholds": page.thresholds,
        "False alarms": page.false_alarms,
        "An example": (_judge_and_describe_example(rule.fires[0]),),
        "An example that does not fire": (_judge_and_describe_example(rule.clear[0]),),
        "To see it": (TextSpan("profkit triage -- COMMAND", "code"),),
        "Official page": (TextSpan(page.official, "link"),),
    }


def _judge_and_describe_example(example: Example) -> str:
    """Return what triage says first of an example, and of what."""
    of = triage_timeline(run_example(example))
    step = (
        f"a step of {format_three_figures(of.split.period / 1e6)} ms, {len(of.steps.typical.works)} "
        "launches"
    )
    if of.verdict.category:
        return f"{step}: {of.verdict.category}: {of.verdict.say}"
    first = of.findings[0]
    return f"{step}: {first.cause} (saves about {format_three_figures(first.saving.expected)} ms)"


def _replace_template_fields(text: str) -> str:
    """Return a sentence of triage before it is filled: N for each figure, <names> for what is named."""
    return _FILLED.sub(_name_placeholder, _LEFT_OUT.sub("", text))


def _name_placeholder(found: re.Match[str]) -> str:
    name = found[1]
    form = found[2]
    if form == "time":
        return "N ms"
    if form == ".0%":
        return "N %"
    if name == "stops":  # filled with "once" or "3 times"
        return "N times"
    if form or name in _NUMBERS or "." in name:
        return "N"
    return f"<{name}>"


def _extract_bound_name(word: str) -> str:
    """Return the bound that "memory bound" or "latency-bound" names; other words as they are."""
    first = re.fullmatch(r"(\w+)[ -]bound", word.lower())
    if first and first[1] in words.BOUNDS:
        return first[1]
    return word


def _find_rule_containing_word(word: str) -> str:
    """Return the rule that a word is a part of, where it is of one only and no name itself: bank."""
    asked = word.lower().replace("_", "-").replace(" ", "-")
    known = {*BY_ID, *STEP_RULES, *CATALOGUE, *words.BOUNDS, *words.LIMITERS}
    if asked in known or asked.replace("-", "_") in known or "." in word:
        return word
    holding = [rule for rule in (*BY_ID, *STEP_RULES) if _has_words_in_name(rule, asked)]
    if len(holding) == 1:
        return holding[0]
    return word


def _has_words_in_name(rule: RuleName, asked: str) -> bool:
    """Return whether the words asked for follow each other in a rule's name, in the singular too."""
    name = f"-{rule}-"
    return f"-{asked}-" in name or f"-{asked}s-" in name


def find_nearest_names(name: str) -> Sentence:
    """Return which known names are nearest to an unknown one, as a hint."""
    holding = []
    for rule in (*BY_ID, *STEP_RULES):
        if _has_words_in_name(rule, name.lower()):
            holding.append(rule)
    if holding:
        return f"did you mean {' or '.join(holding[:3])}?"
    known = (*BY_ID, *STEP_RULES, *CATALOGUE, *words.BOUNDS, *words.WAITS, *SCREEN_WORDS)
    lower = {n.lower(): n for n in known}
    near = difflib.get_close_matches(name.lower().replace(" ", "-"), lower, 3, 0.7)
    if not near and "__" in name:
        return "profkit does not read this counter; profkit explain lists those that it reads"
    found = [lower[n] for n in near] or _find_rules_with_near_words(name)[:3]
    if not found:
        return "profkit explain lists all of them"
    return f"did you mean {' or '.join(found)}?"


_WORD = re.compile(r"[a-z0-9]{4,}")  # shorter ones are like too many others
_NEAR_WORD = 0.85


def _find_rules_with_near_words(name: str) -> list[RuleName]:
    """Return the rules whose name or title has words like those asked for, most of them first."""
    asked = _WORD.findall(name.lower())
    titles = {rule.id: rule.title for rule in BY_ID.values()}
    titles |= {rule.id: rule.title for rule in STEP_RULES.values()}
    counts: dict[str, int] = {}
    for rule, title in titles.items():
        own = _WORD.findall(f"{rule} {title}".lower())
        for word in asked:
            if difflib.get_close_matches(word, own, 1, _NEAR_WORD):
                counts[rule] = counts.get(rule, 0) + 1
    return sorted(counts, key=lambda rule: -counts[rule])


# A rule.


def explain_rule(rule: LaunchRule) -> Parts:
    """Return the page of a rule of diagnose."""
    page = pages.read_rule_page(rule.id)
    limiters: tuple[str, ...] = ()
    if rule.explains:
        limiters = (", ".join(rule.explains),)
    return {
        "What happens in the hardware": (page.hardware,),
        "How to fix it": (rule.advice,),
        "Before": make_code_blocks(page.before),
        "After": make_code_blocks(page.after),
        "How it is detected": _explain_detection(rule, page),
        f"Measured on {pages.read_probe_gpu()}": explain_gain_on_probes(rule),
        "Expected gain": explain_gain_model(rule),
        "How to measure it": explain_ablations(rule),
        "False alarms": page.false_alarms,
        **_explain_example(rule),
        "Limiters it can explain": limiters,
        "Official page": (TextSpan(page.official, "link"),),
    }


def _explain_example(rule: LaunchRule) -> Parts:
    """Return what is said of the rule's first example, and the metrics that were looked at for it."""
    example = rule.fires[0]
    judged = judge_launch(example)
    finding = next(f for f in judged.findings if f.rule == rule.id)
    metrics = _list_metrics_looked_at(rule)
    return {
        "An example that fires": (
            f"{finding.cause}: {words.describe_finding_gain(finding)}",
            words.format_metric_values(example),
        ),
        "An example that does not fire": (words.format_metric_values(rule.clear[0]),),
        "Metrics it uses": tuple(map(describe_metric, metrics)),
        "To collect": (suggest_ncu_sections(metric.section for metric in metrics),),
    }


def _list_metrics_looked_at(rule: LaunchRule) -> list[Metric]:
    """Return the metrics that are looked at for the rule's first example."""
    example = rule.fires[0]
    judged = judge_launch(example)
    finding = next(f for f in judged.findings if f.rule == rule.id)
    metrics = []
    for name in dict.fromkeys((*example, *finding.evidence)):
        if name in CATALOGUE:
            metrics.append(CATALOGUE[name])
    return metrics


def _explain_detection(rule: LaunchRule, page: pages.WrittenPage) -> tuple[Words, ...]:
    """Return which metrics decide, and from which values on."""
    named: list[TextSpan | str] = []
    for metric in _list_metrics_looked_at(rule):
        named += [TextSpan(metric.name, "code"), ", "]
    reads = ("Reads ", *named[:-1])
    thresholds = tuple(map(explain_threshold, pages.list_thresholds_in_check(rule)))
    worth: tuple[Words, ...] = ()
    if rule.fix is not None and rule.fix.kind is not None:
        worth = (WORTH_REPORTING,)
    return (reads, *thresholds, *page.thresholds, *worth)


WORTH_REPORTING = (
    f"a fix is expected to gain {LITTLE_TO_WIN}x or more ({NOTHING_TO_WIN}x where the whole interval is "
    "a gain), or it explains what limits the launch; otherwise it is not reported"
)


# How each group of causes.toml is told of.
_MEASURES = {
    "measured": "`profkit ablate` times the kernel without it ({}): a target that a fix could reach",
    "bound": "`profkit ablate` ({}) gives an upper bound: it removes more than any fix could",
    "launch": "`profkit ablate` detects it from how the launch runs: {}",
    "counted": "`profkit ablate` detects it by counting instructions: {}",
    "why": "`profkit ablate` does not measure it: {}",
}


def explain_ablations(rule: LaunchRule) -> tuple[Words, ...]:
    """Return which ablation measures a rule's cause, or why none does; nothing for a note."""
    said = []
    for group, causes in read_ablations_by_rule().items():
        by = causes.get(rule.id)
        if by is not None:
            if isinstance(by, str):
                words = by
            else:
                words = " and ".join(by)
            said.append(_MEASURES[group].format(words))
    return tuple(said)


def make_code_blocks(snippet: pages.Snippet | None) -> tuple[blocks.Code, ...]:
    if snippet:
        return (blocks.Code(snippet.text, snippet.language),)
    return ()


def explain_threshold(threshold: pages.PageThreshold) -> Words:
    """Return what is compared with a threshold, as a quantity; a limiter with its shares of peak."""
    quantity = get_compared_quantity(threshold.name, threshold.family)
    if quantity is not None and threshold.number is not None:
        if quantity.unit == "ratio":
            return quantity.text.format(format_speedup(threshold.number))
        return quantity.text.format(format_quantity(threshold.number, quantity.unit))
    if threshold.reason:
        text = f"{threshold.value}: {threshold.reason}"
    else:
        text = threshold.value
    return TextSpan(threshold.name, "code"), f" {text}"


def explain_gain_on_probes(rule: LaunchRule) -> tuple[Words, ...]:
    """Return what fixing a rule's cause brought on probes: the first pairs, and how many more."""
    pairs = list(pages.read_probe_pairs(rule.id))
    said: list[Words] = []
    for pair in pairs[:SHOWN]:
        gain = TextSpan(f"{format_speedup(pair.gain)} faster", "strong")
        said.append((gain, f", probe {pair.probe} ({pair.title}); fixed: {pair.relieves}"))
    more = len(pairs) - SHOWN
    if more > 0:
        said.append(
            f"and {format_count_with_noun(more, 'more probe', 'more probes')} of this cause"
        )
    return tuple(said)


def explain_gain_model(rule: LaunchRule) -> tuple[Words, ...]:
    """Return how a rule's gain is bounded, and which one is expected."""
    fix = rule.fix
    if fix is None or fix.kind is None:
        return ()
    ceiling, mark, expected = fix.formula.partition(" Expected: ")
    return tuple(filter(None, (ceiling.removesuffix("."), f"{mark.strip()} {expected}".strip())))


def explain_interval() -> str:
    """Return how wide the intervals of all rules are, and how many fixes on record were inside."""
    of, (held, fixes) = make_bounded_expectation(2.0, SPREAD), COVERAGE
    return (
        f"if 2x is expected, the interval is {of.low:.2f}x to {of.high:.2f}x; on code that nobody had "
        f"looked at, {held} of {fixes} measured speed-ups of 5 % or more were inside such intervals"
    )


# A metric.


def explain_metric(metric: Metric) -> Parts:
    """Return the page of a metric of the catalogue."""
    family = _HARDWARE.get(metric.name, FAMILIES[metric.name])
    page = pages.read_named_page(f"metrics/{family}.md")
    sources = tuple(source.text for source in metric.sources)
    return {
        "What happens in the hardware": (page.hardware,),
        "Unit": (_UNITS.get(metric.unit, metric.unit),),
        "Sources, in order of preference": sources or ("the run record next to the report",),
        "To collect": (suggest_ncu_sections([metric.section]),),
        f"On the probes ({pages.read_probe_gpu()})": _describe_probe_range(metric),
        "Rules that use it": _list_rules_that_use(metric),
        "Read it with care": (_CAREFUL.get(metric.unit, _CAREFUL[""]),),
        "Official page": (TextSpan(page.official, "link"),),
    }


def _describe_probe_range(metric: Metric) -> tuple[str, ...]:
    """Return the smallest and largest value on the probes; nothing where it was not collected."""
    seen = pages.find_metric_range_over_probes(metric.name)
    if not seen:
        return ()
    texts = []
    for probe, value in (seen.low, seen.high):
        texts.append(f"{words.format_metric(metric.name, value)} ({probe})")
    return (" to ".join(texts),)


def _list_rules_that_use(metric: Metric) -> tuple[Words, ...]:
    """Return the rules whose examples have a metric, each with its title."""
    users = []
    for rule in ALL:
        if any(metric.name in values for values in (*rule.fires, *rule.clear)):
            users.append(write_name_and_text(rule.id, rule.title))
    return tuple(users)


# ncu's first section has these beside clocks and sizes; the hardware that they are of is another.
_HARDWARE = {"memory_busy": "memory", "sm_busy": "pipes"}
_UNITS = {
    "share": "share: 0 to 1, where 1 is 100 %",
    "s": "s: seconds",
    "op": "op: operations; a fused multiply-add counts as 2",
    "op/s": "op/s: operations per second; a fused multiply-add counts as 2",
}
# What a value of a unit does not say.
_CAREFUL = {
    "share": (
        "A share combines several runs of the launch, so differences between those runs can lift "
        "it a few percent above 1. Check what it is a share of (elapsed time, active time, all "
        "accesses): shares of different totals cannot be compared."
    ),
    "s": "Taken under ncu, at ncu's clocks and with flushed caches: not the program's own time.",
    "": (
        "A metric that was not collected is NaN, never zero. Values are of one launch under ncu: "
        "other data or caches that ncu did not flush give other values."
    ),
}


# A word of the verdict.


def explain_limiter(word: str, rules_that_explain_it: list[LaunchRule]) -> Parts:
    """Return the page of what limits a launch, by the rules that can explain it."""
    limiter = BY_LIMITER.get(word)
    plain = BY_ID.get(limiter.rule or "" if limiter else "") or min(
        rules_that_explain_it, key=lambda rule: len(rule.explains)
    )
    page = pages.read_rule_page(plain.id)
    if not limiter:
        numbers = pages.list_thresholds_in_check(plain)
    else:
        numbers = (pages.describe_peak_threshold(word),)
    return {
        "What happens in the hardware": (page.hardware,),
        "Thresholds": tuple(map(explain_threshold, numbers)) or page.thresholds,
        "Rules that can explain it": tuple(
            write_name_and_text(r.id, r.title) for r in rules_that_explain_it
        ),
        f"Measured on {pages.read_probe_gpu()}": explain_gain_on_probes(plain),
        "False alarms": page.false_alarms,
        "Official page": (TextSpan(page.official, "link"),),
    }


def explain_bound(word: str) -> Parts:
    """Return the page of a bound of the verdict: memory, compute, latency, launch ..."""
    page = pages.read_named_page(f"words/{word}.md")
    named = {"latency": list(words.WAITS), "launch": list(words.SHAPES)}
    limiters = named.get(word, [r.limiter for r in RESOURCES if r.group == word])
    return {
        "What it says": (f"{words.BOUNDS[word]}.",),
        "What happens in the hardware": (page.hardware,),
        "Thresholds": page.thresholds,
        "Limiters": tuple(write_name_and_text(name, words.LIMITERS[name]) for name in limiters),
        "To collect everything": (TextSpan(FULL, "code"),) * (word == "unknown"),
        "False alarms": page.false_alarms,
        "Official page": (TextSpan(page.official, "link"),),
    }


# All of them.


def write_name_and_text(name: str, text: str) -> Words:
    return TextSpan(name, "code"), f": {text}"


def describe_metric(metric: Metric) -> Words:
    if metric.unit in ("share", "count"):
        return write_name_and_text(metric.name, metric.meaning)
    return write_name_and_text(metric.name, f"({metric.unit}) {metric.meaning}")


def suggest_ncu_sections(sections: Iterable[str]) -> str:
    """Return the ncu sections, or the run record, that hold what is needed."""
    needed = set(sections) - {""}
    ncu = [f"--section {section}" for section in sorted(needed - {RECORD})]
    ways = []
    if ncu:
        ways = [f"ncu {' '.join(ncu)}"]
    if RECORD in needed:
        ways += ["profkit profile (which writes the run record)"]
    return ", and ".join(ways) or "every report contains it"


def show_index() -> Iterator[Block]:
    """Yield every rule, every metric and every word of the verdict, one entry each."""
    yield blocks.Heading("Rules")
    yield from (blocks.ListItem(write_name_and_text(rule.id, rule.title)) for rule in ALL)
    yield blocks.Heading("Rules of a program's step (profkit triage)")
    yield from (blocks.ListItem(write_name_and_text(rule.id, rule.title)) for rule in OF_STEPS)
    yield blocks.Heading("Words of the verdict")
    for word, meaning in (words.BOUNDS | words.LIMITERS).items():
        yield blocks.ListItem(write_name_and_text(word, meaning))
    yield blocks.Heading("Other words of the screens")
    for word, entry in SCREEN_WORDS.items():
        yield blocks.ListItem(write_name_and_text(word, entry.meaning))
    yield blocks.Heading("Metrics (columns of the frame)")
    for metric in CATALOGUE.values():
        yield blocks.ListItem(describe_metric(metric))


def _write_rule_link(rule: StepRule) -> Words:
    return (TextSpan(rule.id, "link"),)


def _get_rule_title(rule: StepRule) -> Words:
    return rule.title


def show_reference() -> Iterator[Block]:
    """Yield every rule's page and a table of every metric: one Markdown document."""
    yield blocks.Heading("Rules and metrics", 0)
    yield blocks.Paragraph(_HEAD)
    yield blocks.Heading("Rules")
    columns: Columns[LaunchRule] = {
        "rule": lambda rule: (TextSpan(rule.id, "link"),),
        "fires when": lambda rule: rule.title,
    }
    yield make_grid(ALL, columns)
    for rule in ALL:
        yield from explain(rule.id).blocks()
    yield blocks.Heading("Rules of a program's step")
    yield make_grid(OF_STEPS, {"rule": _write_rule_link, "said when": _get_rule_title})
    for of_step in OF_STEPS:
        yield from explain_step_rule(of_step).blocks()
    yield blocks.Heading("Metrics")
    of_metrics: Columns[Metric] = {
        "metric": lambda metric: TextSpan(metric.name, "code"),
        "unit": lambda metric: metric.unit,
        "meaning": lambda metric: metric.meaning,
        "section": lambda metric: metric.section,
        "sources": lambda metric: blocks.join_with_breaks(
            TextSpan(x.text, "code") for x in metric.sources
        ),
    }
    yield make_grid(CATALOGUE.values(), of_metrics)


_HEAD = (
    "Written by `profkit explain --markdown` from the rules in `profkit/diagnosis/rules/` and the "
    "metrics in `profkit/reports/metrics/`; `make readme` regenerates it. Values are SI, a share "
    "is 0 to 1, and a metric that was not collected is never a zero."
)
