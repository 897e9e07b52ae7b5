"""The name of a rule, a metric or a word of the verdict  ->  its page, as blocks.

What can be worked out of the rule or metric itself is; what cannot stands in diagnosis/rules/pages.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from profkit.diagnosis.engine import judge_launch
from profkit.diagnosis.pages import (
    Decides,
    MeasuredPair,
    Snippet,
    WrittenPage,
    decides,
    family_page,
    measured_on,
    measured_pairs,
    near_its_peak,
    rule_page,
    seen,
    word_page,
)
from profkit.diagnosis.rule import Rule
from profkit.diagnosis.rules import ALL, BY_ID
from profkit.errors import ProfkitError
from profkit.model.estimate import COVERAGE, SPREAD, expectation
from profkit.model.resources import BY_LIMITER, RESOURCES
from profkit.records.paths import FULL
from profkit.reports import figures
from profkit.reports.metrics import CATALOGUE, FAMILIES, Metric
from profkit.show.text import words
from profkit.show.text.blocks import (
    Block,
    Code,
    Grid,
    Heading,
    ListItem,
    Paragraph,
    TextSpan,
    Words,
)
from profkit.show.text.markup import to_html, to_markdown
from profkit.show.text.terminal import console, to_text

WIDTH = 80
# Not ncu's: the frame takes it from the record that profkit writes beside a report.
RECORD = "run record"
SHOWN = 3  # measured pairs of a rule


@dataclass(frozen=True, repr=False)
class Explanation:
    """What there is to say about one thing; printed as text, shown formatted in a notebook."""

    name: str
    kind: str  # rule, metric, limiter, verdict or ncu metric
    title: str
    parts: Mapping[str, tuple[Words | Code, ...]]  # heading -> texts and code, in reading order

    def blocks(self) -> Iterator[Block]:
        """The page, under a heading of the second level."""
        yield Heading(self.name, 1)
        yield Paragraph(f"{self.title} ({self.kind})", 1)
        for heading, parts in self.parts.items():
            yield Heading(heading, 2)
            prose = [part for part in parts if not isinstance(part, Code)]
            for part in parts:
                if isinstance(part, Code):
                    yield part
                else:
                    yield ListItem(part) if len(prose) > 1 else Paragraph(part, 1)

    def __str__(self) -> str:
        return to_text(self.blocks(), console(width=WIDTH)).rstrip("\n")

    __repr__ = __str__

    @property
    def markdown(self) -> str:
        """The page as Markdown."""
        return to_markdown(self.blocks()).rstrip("\n")

    def _repr_markdown_(self) -> str:
        return self.markdown

    def _repr_html_(self) -> str:
        return to_html(self.blocks())


def explain(name: str) -> Explanation:
    """What a rule, a metric or a word of the verdict means, what it needs, and an example.

    Args:
        name: Id of a rule, short name of a metric, a bound, a limiter, or a raw ncu metric.

    Raises:
        ProfkitError: Nothing is called so; the hint has the nearest name.
    """
    word = name.strip()
    rule = BY_ID.get(word) or BY_ID.get(word.lower().replace("_", "-"))
    if rule:
        return _rule(rule)
    metric = CATALOGUE.get(word) or CATALOGUE.get(word.lower().replace("-", "_"))
    if metric:
        return _metric(metric)
    behind = [r for r in ALL if word in r.explains]
    if behind:
        return _of_limiter(word, behind)
    if word.lower() in words.BOUNDS:
        return _bound(word.lower())
    readers = [m for m in CATALOGUE.values() if word in _raw_names(m)]
    if readers:
        read_for = tuple(_with(m.name, m.meaning) for m in readers)
        return Explanation(word, "ncu metric", "read by the catalogue", {"Read for": read_for})
    raise ProfkitError(f"no rule and no metric is called {name}", _nearest(word))


def _nearest(name: str) -> str:
    lower = {n.lower(): n for n in (*BY_ID, *CATALOGUE, *words.BOUNDS, *words.WAITS)}
    near = difflib.get_close_matches(name.lower().replace(" ", "-"), lower, 3, 0.5)
    if not near:
        return "profkit explain lists them all"
    return f"did you mean {' or '.join(lower[n] for n in near)}?"


# A rule.


def _rule(rule: Rule) -> Explanation:
    page = rule_page(rule.id)
    shown = judge_launch(rule.fires[0])
    finding = next(f for f in shown.findings if f.rule == rule.id)
    looked = tuple(dict.fromkeys((*rule.fires[0], *finding.evidence)))
    parts: dict[str, tuple[Words | Code, ...]] = {
        "What happens in the hardware": (page.hardware,),
        "How it is seen": (rule.meaning,),
        "Before": _code(page.before),
        "After": _code(page.after),
        "What people do about it": (rule.advice,),
        **_measured(rule),
        **_worth(rule),
        "What decides": (*map(_threshold, decides(rule)), *page.thresholds),
        "False alarms": page.false_alarms,
        "An example that fires": (
            f"{finding.cause} ({words.worth(finding)})",
            words.metric_values(rule.fires[0]),
        ),
        "An example that does not": (words.metric_values(rule.clear[0]),),
        "Looks at": tuple(_about(CATALOGUE[name]) for name in looked if name in CATALOGUE),
        "To collect": (_command(CATALOGUE[n].section for n in looked if n in CATALOGUE),),
    }
    if rule.explains:
        parts["Can be the cause behind the limiter"] = (", ".join(rule.explains),)
    parts["Official page"] = _official(page)
    return Explanation(rule.id, "rule", rule.title, parts)


def _code(snippet: Snippet | None) -> tuple[Code, ...]:
    return (Code(snippet.text, snippet.language),) if snippet else ()


def _official(page: WrittenPage) -> tuple[Words, ...]:
    return ((TextSpan(page.official, "link"),),)


def _threshold(of: Decides) -> Words:
    text = f"{of.value}: {of.reason}" if of.reason else of.value
    return TextSpan(of.name, "code"), f" {text}"


def _measured(rule: Rule) -> dict[str, tuple[Words, ...]]:
    """What the probes with this cause gained without it."""
    pairs = measured_pairs(rule.id)
    if not pairs:
        return {}
    more = len(pairs) - SHOWN
    ending = (f"and {more} more probes of this cause",) if more > 0 else ()
    return {f"Measured on {measured_on()}": (*map(_pair, pairs[:SHOWN]), *ending)}


def _pair(pair: MeasuredPair) -> Words:
    return (
        TextSpan(f"{figures.speedup(pair.gain)} faster", "strong"),
        f", probe {pair.probe} ({pair.title}) against {pair.relieves}",
    )


def _worth(rule: Rule) -> dict[str, tuple[Words, ...]]:
    """How its gain is bounded and expected, and how far the fixes on record came from that."""
    fix = rule.fix
    if fix is None or fix.kind is None:
        return {}
    of, (held, fixes) = expectation(2.0, SPREAD[fix.kind], None), COVERAGE
    spread = (
        f"where 2x is expected the interval is {of.low:.2f}x to {of.high:.2f}x ({fix.kind}); such "
        f"intervals held {held} of {fixes} fixes that brought 5 % or more, of code that they were not "
        "made on"
    )
    return {"What mending it is worth": (fix.formula, spread)}


# A metric.


def _metric(metric: Metric) -> Explanation:
    page = family_page(FAMILIES[metric.name])
    users = [r.id for r in ALL if any(metric.name in values for values in (*r.fires, *r.clear))]
    ends = seen(metric.name)
    parts: dict[str, tuple[Words | Code, ...]] = {
        "What happens in the hardware": (page.hardware,),
        "Unit": (_UNITS.get(metric.unit, metric.unit),),
        "Read from, the first that a report has": tuple(s.text for s in metric.sources)
        or ("the record beside the report",),
        "To collect": (_command([metric.section]),),
    }
    if ends:
        text = " to ".join(f"{_value(metric, v)} ({probe})" for probe, v in (ends.low, ends.high))
        parts[f"On the probes ({measured_on()})"] = (text,)
    if users:
        parts["Rules that look at it"] = tuple(_with(n, BY_ID[n].title) for n in users)
    parts["False alarms"] = (_CAREFUL.get(metric.unit, _CAREFUL[""]),)
    parts["Official page"] = _official(page)
    return Explanation(metric.name, "metric", metric.meaning, parts)


def _value(metric: Metric, value: float) -> str:
    return words.metric(metric.name, value)


_UNITS = {"share": "share: 0 to 1, where 1 is 100 %", "s": "s: seconds",
          "op": "op: operations, a fused multiply-add is 2",
          "op/s": "op/s: operations per second, a fused multiply-add is 2"}  # fmt: skip
# What a value of a unit does not say.
_CAREFUL = {
    "share": (
        "A share is put together out of several runs of the launch: a few per cent above 1 are those "
        "runs' difference. What it is a share of (elapsed time, time at work, all accesses) is in its "
        "meaning, and two shares of different things do not compare."
    ),
    "s": "Under ncu, at ncu's clocks and with flushed caches: no time of the program.",
    "": (
        "A metric that was not collected is NaN and never zero. Of one launch under ncu: data that "
        "change, or caches that ncu flushed, make another."
    ),
}


def _raw_names(metric: Metric) -> set[str]:
    return {name for s in metric.sources for name in (*s.names, *s.optional)}


# A word of the verdict.


def _limiter(word: str) -> str:
    """What a limiter says of a launch, in plain words."""
    if word in words.WAITS:
        return f"the warps wait for {words.WAITS[word]}"
    if word in words.SHAPES:
        return f"what holds the launch back is {words.SHAPES[word]}"
    return f"what is full is {words.UNITS[word]}" if word in words.UNITS else "what limits a launch"


def _of_limiter(word: str, behind: list[Rule]) -> Explanation:
    """A limiter: what its plainest rule says of it, and all that can stand behind it."""
    named = BY_LIMITER[word].rule if word in BY_LIMITER else None
    plain = BY_ID[named] if named else min(behind, key=lambda rule: len(rule.explains))
    page = rule_page(plain.id)
    numbers = (near_its_peak(word),) if word in BY_LIMITER else decides(plain)
    parts = {
        "What happens in the hardware": (page.hardware,),
        "What decides": tuple(map(_threshold, numbers)) or page.thresholds,
        "Rules that can stand behind it": tuple(_with(r.id, r.title) for r in behind),
        **_measured(plain),
        "False alarms": page.false_alarms,
        "Official page": _official(page),
    }
    return Explanation(word, "limiter", _limiter(word), parts)


def _bound(word: str) -> Explanation:
    """A bound: what it says, how it is decided, and the limiters that it can stand with."""
    page = word_page(word)
    limiters = {
        "memory": [r.limiter for r in RESOURCES if r.group == "memory"],
        "compute": [r.limiter for r in RESOURCES if r.group == "compute"],
        "latency": list(words.WAITS),
        "launch": list(words.SHAPES),
    }
    parts: dict[str, tuple[Words | Code, ...]] = {
        "What it says": (f"{words.BOUNDS[word]}.",),
        "What happens in the hardware": (page.hardware,),
        "What decides": page.thresholds,
    }
    if word in limiters:
        parts["Limiters"] = tuple(_with(name, _limiter(name)) for name in limiters[word])
    if word == "unknown":
        parts["To collect everything"] = (TextSpan(FULL, "code"),)
    parts |= {"False alarms": page.false_alarms, "Official page": _official(page)}
    return Explanation(word, "verdict", words.BOUNDS[word], parts)


# All of them.


def _with(name: str, text: str) -> Words:
    return TextSpan(name, "code"), f": {text}"


def _about(metric: Metric) -> Words:
    return _with(metric.name, f"({metric.unit}) {metric.meaning}")


def _command(sections: Iterable[str]) -> str:
    """How to collect these sections with ncu."""
    needed = set(sections) - {""}
    ncu = [f"--section {section}" for section in sorted(needed - {RECORD})]
    ways = [f"ncu {' '.join(ncu)}"] if ncu else []
    ways += ["profkit profile (it writes the record)"] if RECORD in needed else []
    return ", and ".join(ways) or "every report has it"


def index() -> Iterator[Block]:
    """Every rule, every metric and every word of the verdict, one entry each."""
    yield Heading("Rules")
    yield from (ListItem(_with(rule.id, rule.title)) for rule in ALL)
    yield Heading("Words of the verdict")
    yield from (ListItem(_with(word, meaning)) for word, meaning in words.BOUNDS.items())
    limiters = (*words.UNITS, *words.WAITS, *words.SHAPES)
    yield from (ListItem(_with(word, _limiter(word))) for word in limiters)
    yield Heading("Metrics (columns of the frame)")
    yield from (ListItem(_about(metric)) for metric in CATALOGUE.values())


def reference_document() -> str:
    """Every rule's page and a table of every metric, as one Markdown document."""
    return to_markdown(_reference())


def _reference() -> Iterator[Block]:
    yield Heading("Rules and metrics", 0)
    yield Paragraph(_HEAD)
    yield Heading("Rules")
    yield Grid(("rule", "fires when"), tuple(((TextSpan(r.id, "link"),), r.title) for r in ALL))
    for rule in ALL:
        yield from _rule(rule).blocks()
    yield Heading("Metrics")
    yield Grid(
        ("metric", "unit", "meaning", "section", "sources"),
        tuple((TextSpan(m.name, "code"), m.unit, m.meaning, m.section, _sources(m))
              for m in CATALOGUE.values()),
    )  # fmt: skip


def _sources(metric: Metric) -> Words:
    broken: list[str | TextSpan] = []
    for source in metric.sources:
        broken += [TextSpan("\n")] * bool(broken) + [TextSpan(source.text, "code")]
    return tuple(broken)


_HEAD = (
    "Written by `profkit explain --markdown` from the rules in `profkit/diagnosis/rules/` and the "
    "metrics in `profkit/reports/metrics/`; `make readme` writes it anew. Values are SI, a share is "
    "0 to 1, and a metric that was not collected is never a zero."
)
