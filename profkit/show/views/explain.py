"""The name of a rule, a metric or a limiter  ->  its page, made from the rule or metric itself."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from profkit.diagnosis.estimate.causes import CAUSES
from profkit.diagnosis.estimate.spread import SPREAD
from profkit.diagnosis.machine.resources import RESOURCES
from profkit.diagnosis.rule import Launch, Rule
from profkit.diagnosis.rules import ALL, BY_ID
from profkit.errors import ProfkitError
from profkit.records.paths import FULL
from profkit.reports.metrics import CATALOGUE, Metric
from profkit.show.text import figures, words
from profkit.show.text.escape import code, markdown

WIDTH = 80
# Not ncu's: the frame takes it from the record that profkit writes beside a report.
RECORD = "run record"


@dataclass(frozen=True, repr=False)
class Explanation:
    """What there is to say about one thing; printed as text, shown as Markdown in a notebook.

    Attributes:
        name: What it is called.
        kind: rule, metric, limiter or ncu metric.
        title: One line.
        parts: Heading -> paragraphs, in reading order.
    """

    name: str
    kind: str
    title: str
    parts: Mapping[str, tuple[str, ...]]

    def __str__(self) -> str:
        out = [f"{self.name} ({self.kind}): {self.title}"]
        for heading, paragraphs in self.parts.items():
            out += ["", heading]
            out += [_wrapped(text, "  ") for text in paragraphs]
        return "\n".join(out)

    __repr__ = __str__

    @property
    def markdown(self) -> str:
        """The page as Markdown, under a heading of the third level."""
        out = [f"### {self.name}", "", markdown(f"{self.title} ({self.kind})")]
        for heading, paragraphs in self.parts.items():
            bullet = "- " if len(paragraphs) > 1 else ""
            out += ["", f"**{heading}**", "", *(f"{bullet}{markdown(p)}" for p in paragraphs)]
        return "\n".join(out)

    def _repr_markdown_(self) -> str:
        return self.markdown


def explain(name: str) -> Explanation:
    """What a rule or a metric means, what it needs, and an example.

    Args:
        name: Id of a rule, short name of a metric, a limiter, or a raw ncu metric.

    Raises:
        ProfkitError: Nothing is called so; the hint has the nearest name.
    """
    wanted = name.strip()
    rule = BY_ID.get(wanted) or BY_ID.get(wanted.lower().replace("_", "-"))
    if rule:
        return _rule(rule)
    metric = CATALOGUE.get(wanted) or CATALOGUE.get(wanted.lower().replace("-", "_"))
    if metric:
        return _metric(metric)
    behind = [r for r in ALL if wanted in r.explains]
    if behind:
        parts = {"Rules that can stand behind it": tuple(f"{r.id}: {r.title}" for r in behind)}
        return Explanation(wanted, "limiter", _limiter(wanted), parts)
    if wanted.lower() in words.BOUNDS:
        return _bound(wanted.lower())
    readers = [m for m in CATALOGUE.values() if wanted in _raw_names(m)]
    if readers:
        parts = {"Read for": tuple(f"{m.name}: {m.meaning}" for m in readers)}
        return Explanation(wanted, "ncu metric", "read by the catalogue", parts)
    raise ProfkitError(f"no rule and no metric is called {name}", _nearest(wanted))


def _limiter(word: str) -> str:
    """What a limiter says of a launch, in plain words."""
    if word in words.WAITS:
        return f"the warps wait for {words.WAITS[word]}"
    if word in words.SHAPES:
        return f"what holds the launch back is {words.SHAPES[word]}"
    return f"what is full is {words.UNITS[word]}" if word in words.UNITS else "what limits a launch"


def _bound(word: str) -> Explanation:
    """A word of the verdict: what it says, and the limiters that it can stand with."""
    limiters = {
        "memory": [r.limiter for r in RESOURCES if r.group == "memory"],
        "compute": [r.limiter for r in RESOURCES if r.group == "compute"],
        "latency": list(words.WAITS),
        "launch": list(words.SHAPES),
    }
    parts: dict[str, tuple[str, ...]] = {"What it says": (f"{words.BOUNDS[word]}.",)}
    if word in limiters:
        parts["Limiters"] = tuple(f"{name}: {_limiter(name)}" for name in limiters[word])
    if word == "unknown":
        parts["To collect everything"] = (FULL,)
    return Explanation(word, "verdict", words.BOUNDS[word], parts)


def _nearest(name: str) -> str:
    lower = {n.lower(): n for n in (*BY_ID, *CATALOGUE, *words.BOUNDS, *words.WAITS)}
    near = difflib.get_close_matches(name.lower().replace(" ", "-"), lower, 3, 0.5)
    if not near:
        return "profkit explain lists them all"
    return f"did you mean {' or '.join(lower[n] for n in near)}?"


def _rule(rule: Rule) -> Explanation:
    hit = rule.check(Launch(rule.fires[0]))
    looked = tuple(dict.fromkeys((*rule.fires[0], *(hit.looked if hit else ()))))
    parts = {
        "What happens": (rule.meaning,),
        "What people do about it": (rule.advice,),
        **_worth(rule),
        "An example that fires": (
            *((f"{hit.cause} ({figures.gain(hit.gain)})",) if hit else ()),
            _example(rule.fires[0]),
        ),
        "An example that does not": (_example(rule.clear[0]),),
        "Looks at": tuple(_about(CATALOGUE[name]) for name in looked if name in CATALOGUE),
        "To collect": (_command(CATALOGUE[n].section for n in looked if n in CATALOGUE),),
    }
    if rule.explains:
        parts["Can be the cause behind the limiter"] = (", ".join(rule.explains),)
    return Explanation(rule.id, "rule", rule.title, parts)


def _worth(rule: Rule) -> dict[str, tuple[str, ...]]:
    """How its gain is bounded and expected, and how far the mends on record came from that."""
    cause = CAUSES.get(rule.id)
    if cause is None:
        return {}
    low, high = (100 * end for end in SPREAD[cause.kind])
    spread = (
        f"four mends of five ({cause.kind}) came {low:+.0f} % to {high:+.0f} % of the expected gain "
        "from it, on a log scale"
    )
    return {"What mending it is worth": (cause.formula, spread)}


def _metric(metric: Metric) -> Explanation:
    users = [r.id for r in ALL if any(metric.name in values for values in (*r.fires, *r.clear))]
    parts = {
        "Unit": (_UNITS.get(metric.unit, metric.unit),),
        "Read from, the first that a report has": tuple(s.text for s in metric.sources)
        or ("the record beside the report",),
        "To collect": (_command([metric.section]),),
    }
    if users:
        parts["Rules that look at it"] = (", ".join(users),)
    return Explanation(metric.name, "metric", metric.meaning, parts)


_UNITS = {"share": "share: 0 to 1, where 1 is 100 %", "s": "s: seconds",
          "op": "op: operations, a fused multiply-add is 2",
          "op/s": "op/s: operations per second, a fused multiply-add is 2"}  # fmt: skip


def _raw_names(metric: Metric) -> set[str]:
    return {name for s in metric.sources for name in (*s.names, *s.optional)}


def _example(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {text}" for name, text in figures.evidence_texts(values))


def _about(metric: Metric) -> str:
    return f"{metric.name} ({metric.unit}): {metric.meaning}"


def _command(sections: Iterable[str]) -> str:
    """How to collect these sections with ncu."""
    wanted = set(sections) - {""}
    ncu = [f"--section {section}" for section in sorted(wanted - {RECORD})]
    ways = [f"ncu {' '.join(ncu)}"] if ncu else []
    ways += ["profkit profile (it writes the record)"] if RECORD in wanted else []
    return ", and ".join(ways) or "every report has it"


def index() -> str:
    """Every rule and every metric, one entry each."""
    out = ["RULES"]
    out += [_wrapped(f"{r.id}: {r.title}", "  ") for r in ALL]
    out += ["", "METRICS (columns of the frame)"]
    out += [_wrapped(_about(m), "  ") for m in CATALOGUE.values()]
    return "\n".join(out)


def reference_document() -> str:
    """Every rule's page and a table of every metric, as one Markdown document."""
    head = [_HEAD, *(f"| [{r.id}](#{r.id}) | {markdown(r.title)} |" for r in ALL)]
    rules = [f"\n{_rule(rule).markdown}" for rule in ALL]
    table = ["\n## Metrics", "", "| metric | unit | meaning | section | sources |",
             "|---|---|---|---|---|"]  # fmt: skip
    for m in CATALOGUE.values():
        sources = "<br>".join(code(s.text, in_table=True) for s in m.sources)
        cells = (f"`{m.name}`", m.unit, markdown(m.meaning), m.section, sources)
        table.append(f"| {' | '.join(cells)} |")
    return "\n".join([*head, *rules, *table])


_HEAD = """# Rules and metrics

Written by `profkit explain --markdown` from the rules in `profkit/diagnosis/rules/` and the metrics in
`profkit/reports/metrics/`; `make readme` writes it anew. Values are SI, a share is 0 to 1, and a metric
that was not collected is never a zero.

## Rules

| rule | fires when |
|---|---|"""


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ",
                         break_long_words=False, break_on_hyphens=False)  # fmt: skip
