"""A finished search, as JSON values  ->  blocks: for the terminal, and for profile_summary.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan, nan
from typing import TYPE_CHECKING, Any

from profkit.reports import figures
from profkit.show.text import blocks, words
from profkit.show.text.blocks import Block, Columns, TextSpan, grid
from profkit.show.text.markup import to_markdown

if TYPE_CHECKING:
    import pandas as pd

Search = Mapping[str, Any]  # the document
_ENDED = {
    "done": "all of them",
    "exhausted": "nothing was left to try",
    "time": "its time was up",
}


def ended(search: Search) -> Iterator[Block]:
    yield blocks.Heading(
        f"{search['variant']} {search['case']} on {search['gpu'].get('name', '?')}"
    )
    yield _decision(search)
    yield _times(search)
    yield blocks.TextLine(_counted(search))
    yield from (blocks.TextLine(text, "refused", indent=1) for text in _refusals(search))
    yield from (blocks.TextLine(text, "steering") for text in _steering(search))


def search_summary(search: Search, history: pd.DataFrame, pictures: Sequence[str]) -> str:
    return to_markdown(_summary(search, history, pictures))


def _summary(search: Search, history: pd.DataFrame, pictures: Sequence[str]) -> Iterator[Block]:
    yield blocks.Heading(f"Search of {search['variant']} at {search['case']}", 0)
    yield _decision(search)
    yield _times(search)
    gpu = search["gpu"].get("name", "?")
    yield blocks.Paragraph(f"{_counted(search)} GPU: {gpu}. Seed {search['seed']}.")
    yield blocks.Heading("The champion")
    yield from _champion(search)
    if refusals := list(_refusals(search)):
        yield blocks.Heading("Refused")
        yield from map(blocks.TextLine, refusals)
    yield blocks.Heading("How it got there")
    yield _path(history)
    if steering := list(_steering(search)):
        yield blocks.Heading("What steering was worth")
        yield from map(blocks.TextLine, steering)
    if search["importances"]:
        ranked = sorted(search["importances"].items(), key=lambda item: -item[1])
        yield blocks.Heading("What mattered")
        yield blocks.Paragraph("Importance for being among the fastest:")
        rows = tuple((TextSpan(macro, "code"), figures.share(part)) for macro, part in ranked)
        yield blocks.Grid(("tunable", ">importance"), rows)
    yield from map(blocks.Image, pictures)


def _decision(search: Search) -> blocks.TextLine:
    return blocks.TextLine(search["because"], "keep" if search["keep"] else "fall back")


def _counted(search: Search) -> str:
    outcomes = ", ".join(f"{n} {what}" for what, n in search["outcomes"].items())
    return (
        f"{search['distinct']} distinct trials ({outcomes}) in {figures.seconds(search['seconds'])}; "
        f"{_ENDED[search['ended']]}."
    )


def _refusals(search: Search) -> Iterator[str]:
    """Yield why configurations were refused, with counts."""
    keys = {
        "refused_by_arithmetic": "by arithmetic, before building",
        "refused": "after building",
    }
    for key, when in keys.items():
        ranked = sorted(search[key].items(), key=lambda item: -item[1])
        if ranked:
            reasons = "; ".join(f"{what}: {n}" for what, n in ranked)
            yield f"{when}: {sum(search[key].values())} ({reasons})"


def _times(search: Search) -> blocks.Grid:
    """Return time and flags of champion, defaults and the reference."""
    champion, default = search["champion"], search["default"]
    rows = [("defaults", default["name"], default["config"])]
    if champion["number"] != default["number"]:
        rows.insert(0, ("champion", champion["name"], champion["config"]))
    if search["anchor"]:
        rows.append((search["anchor"], search["anchor"], {}))
    columns: Columns[tuple[str, str, Mapping[str, str]]] = {
        "": lambda row: row[0],
        "warm L2, median (95 %)": lambda row: _time(search["times"].get(row[1], {}).get("warm")),
        "flags": lambda row: TextSpan(_flags(row[2]), "code") if row[2] else "",
    }
    return grid(rows, columns)


def _flags(config: Mapping[str, str]) -> str:
    return " ".join(f"-D{macro}={value}" for macro, value in config.items())


def _time(warm: Mapping[str, Any] | None) -> str:
    from profkit.evidence.samples import Interval  # with numpy

    if not warm:
        return "?"
    ends = (nan if warm[key] is None else warm[key] for key in ("low", "high"))
    return words.timed(Interval(warm["median"], *ends))


def _champion(search: Search) -> Iterator[Block]:
    comparison, champion = search["comparison"], search["champion"]
    if champion["number"] == search["default"]["number"]:
        yield blocks.Paragraph("The defaults: nothing was confirmed faster.")
        return
    effect = words.effect(comparison["hedges_g"], comparison["p_value"])
    yield blocks.Paragraph(
        f"Trial {champion['number']}, proposed by {champion['source']}. "
        f"{'; '.join((comparison['sentence'], *effect))}."
    )
    for role in ("default", "champion"):
        if verdict := search[role]["said"].get("verdict"):
            yield blocks.TextLine(f"{_label(verdict)}, {verdict['because']}", role)


def _label(verdict: Mapping[Any, Any]) -> str:
    both = (verdict[key] for key in ("bound", "limiter"))
    return ": ".join(word for word in both if isinstance(word, str) and word)


def _path(history: pd.DataFrame) -> Block:
    steps = history[history["became_incumbent"] | (history["source"] == "default")]
    if steps.empty:
        return blocks.Paragraph("No incumbent.")
    columns: Columns[Mapping[Any, Any]] = {
        ">trial": lambda row: str(row["number"]),
        "proposed by": lambda row: str(row["source"]),
        ">time": lambda row: figures.seconds(float(row["value"])),
        "against the incumbent before": _confirmed,
        "verdict": _label,
    }
    return grid(steps.to_dict("records"), columns)


def _confirmed(row: Mapping[Any, Any]) -> str:
    low, high = row["confirmed_low"], row["confirmed_high"]
    return "" if isnan(low) else f"{row['confirmed_speedup']:.3f}x ({low:.3f} to {high:.3f})"


def _steering(search: Search) -> Iterator[str]:
    """Yield what the proposals of diagnoses came to, also where that is nothing."""
    worth = search["steering"]
    if not worth:
        return
    rules = ", ".join(f"{n} by {rule}" for rule, n in worth["by_rule"].items())
    by_rule = f" ({rules})" if rules else ""
    yield (
        f"{worth['proposed']} proposals{by_rule}, {worth['measured']} measured, "
        f"{worth['incumbents']} became the incumbent"
    )
    if "ratio" not in worth:
        yield "against plain TPE: not known; run the same search with --no-steer"
        return
    yield (
        f"against plain TPE after {worth['trials']} trials each: "
        f"{figures.seconds(worth['best'])} and {figures.seconds(worth['plain_best'])} "
        f"({worth['ratio']:.3f}x); within 2 % of the better after "
        f"{worth['near_after'] or 'never'} and {worth['plain_near_after'] or 'never'} trials"
    )
