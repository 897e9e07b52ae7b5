"""A finished search, as JSON values  ->  blocks: for the terminal, and for profile_summary.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

from profkit.reports import figures
from profkit.show.text.blocks import (
    Block,
    Grid,
    Heading,
    Image,
    Paragraph,
    TextLine,
    TextSpan,
    Words,
)
from profkit.show.text.markup import to_markdown

if TYPE_CHECKING:
    import pandas as pd

_ENDED = {
    "done": "all of them",
    "exhausted": "nothing was left to try",
    "time": "its time was up",
}


def ended(search: Mapping[str, Any]) -> Iterator[Block]:
    """What a user wants to know first."""
    name = f"{search['variant']} {search['case']} on {search['gpu'].get('name', '?')}"
    yield Heading(name)
    yield _decision(search)
    yield _times(search)
    yield TextLine(_counted(search))
    yield from (TextLine(text, "refused", indent=1) for text in _refusals(search))
    yield from (TextLine(text, "steering") for text in _worth(search))


def search_summary(
    search: Mapping[str, Any], history: pd.DataFrame, pictures: Sequence[str]
) -> str:
    """profile_summary.md."""
    return to_markdown(_summary(search, history, pictures))


def _summary(
    search: Mapping[str, Any], history: pd.DataFrame, pictures: Sequence[str]
) -> Iterator[Block]:
    yield Heading(f"Search of {search['variant']} at {search['case']}", 0)
    yield _decision(search)
    yield _times(search)
    gpu = search["gpu"].get("name", "?")
    yield Paragraph(f"{_counted(search)} GPU: {gpu}. Seed {search['seed']}.")
    yield Heading("The champion")
    yield from _champion(search)
    refusals = list(_refusals(search))
    if refusals:
        yield Heading("Refused")
        yield from map(TextLine, refusals)
    yield Heading("How it got there")
    yield _path(history)
    worth = list(_worth(search))
    if worth:
        yield Heading("What steering was worth")
        yield from map(TextLine, worth)
    if search["importances"]:
        ranked = sorted(search["importances"].items(), key=lambda item: -item[1])
        yield Heading("What mattered")
        yield Paragraph("Importance for being among the fastest:")
        yield Grid(
            ("tunable", ">importance"),
            tuple((TextSpan(macro, "code"), figures.share(part)) for macro, part in ranked),
        )
    yield from map(Image, pictures)


def _decision(search: Mapping[str, Any]) -> TextLine:
    return TextLine(search["because"], "keep" if search["keep"] else "fall back")


def _counted(search: Mapping[str, Any]) -> str:
    outcomes = ", ".join(f"{n} {what}" for what, n in search["outcomes"].items())
    return (
        f"{search['distinct']} distinct trials ({outcomes}) in {figures.seconds(search['seconds'])}; "
        f"{_ENDED[search['ended']]}."
    )


def _refusals(search: Mapping[str, Any]) -> Iterator[str]:
    """Why configurations were refused, with counts."""
    before = search["refused_by_arithmetic"]
    if before:
        yield f"by arithmetic, before building: {sum(before.values())} ({_reasons(before)})"
    if search["refused"]:
        after = search["refused"]
        yield f"after building: {sum(after.values())} ({_reasons(after)})"


def _reasons(counts: Mapping[str, int]) -> str:
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    return "; ".join(f"{what}: {n}" for what, n in ranked)


def _flags(config: Mapping[str, str]) -> str:
    return " ".join(f"-D{macro}={value}" for macro, value in config.items())


def _time(times: Mapping[str, Any], name: str) -> str:
    warm = times.get(name, {}).get("warm")
    if not warm:
        return "?"
    text = figures.seconds(warm["median"])
    if warm["low"] is None or warm["high"] is None:
        return text
    return f"{text} ({figures.seconds(warm['low'])} to {figures.seconds(warm['high'])})"


def _times(search: Mapping[str, Any]) -> Grid:
    """Champion, defaults and the reference: time and flags."""
    champion, default = search["champion"], search["default"]
    names = {"champion": champion["name"], "defaults": default["name"]}
    if champion["number"] == default["number"]:
        del names["champion"]
    if search["anchor"]:
        names[search["anchor"]] = search["anchor"]
    configs = {"champion": champion["config"], "defaults": default["config"]}
    return Grid(
        ("", "warm L2, median (95 %)", "flags"),
        tuple(
            (role, _time(search["times"], name), _flagged(configs.get(role)))
            for role, name in names.items()
        ),
    )


def _flagged(config: Mapping[str, str] | None) -> Words:
    return TextSpan(_flags(config), "code") if config else ""


def _champion(search: Mapping[str, Any]) -> Iterator[Block]:
    comparison, champion = search["comparison"], search["champion"]
    if champion["number"] == search["default"]["number"]:
        yield Paragraph("The defaults: nothing was confirmed faster.")
        return
    g, p = comparison["hedges_g"], comparison["p_value"]
    yield Paragraph(
        f"Trial {champion['number']}, proposed by {champion['source']}. "
        f"{comparison['sentence']}; Hedges' g {_number(g)}, p {_number(p)}."
    )
    for role in ("default", "champion"):
        verdict = search[role]["said"].get("verdict")
        if verdict:
            yield TextLine(f"{_label(verdict)}, {verdict['because']}", role)


def _label(verdict: Mapping[str, Any]) -> str:
    words = (verdict[key] for key in ("bound", "limiter"))
    return ": ".join(word for word in words if isinstance(word, str) and word)


def _number(value: float | None) -> str:
    return "not known" if value is None else f"{value:.2g}"


def _path(history: pd.DataFrame) -> Block:
    """The incumbents, one after the other."""
    steps = history[history["became_incumbent"] | (history["source"] == "default")]
    if steps.empty:
        return Paragraph("No incumbent.")
    return Grid(
        (">trial", "proposed by", ">time", "against the incumbent before", "verdict"),
        tuple(_step(row) for row in steps.to_dict("records")),
    )


def _step(row: Mapping[Any, Any]) -> tuple[str, ...]:
    low, high = row["confirmed_low"], row["confirmed_high"]
    gain = "" if isnan(low) else f"{row['confirmed_speedup']:.3f}x ({low:.3f} to {high:.3f})"
    time = figures.seconds(float(row["value"]))
    return str(row["number"]), str(row["source"]), time, gain, _label(row)


def _worth(search: Mapping[str, Any]) -> Iterator[str]:
    """What the proposals of diagnoses came to, also where that is nothing."""
    worth = search["steering"]
    if not worth:
        return
    rules = ", ".join(f"{n} by {rule}" for rule, n in worth["by_rule"].items())
    yield (
        f"{worth['proposed']} proposals"
        + (f" ({rules})" if rules else "")
        + f", {worth['measured']} measured, {worth['incumbents']} became the incumbent"
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
