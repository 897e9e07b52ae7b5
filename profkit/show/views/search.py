"""A finished search, as JSON values  ->  lines for the terminal and profile_summary.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

from profkit.show.text import figures
from profkit.show.text.escape import code, markdown, visible

if TYPE_CHECKING:
    import pandas as pd

_ENDED = {
    "done": "all of them",
    "exhausted": "nothing was left to try",
    "time": "its time was up",
}


def lines(said: Mapping[str, Any]) -> list[str]:
    """What a user wants to know first."""
    times, champion, default = said["times"], said["champion"], said["default"]
    found = [
        f"{said['variant']} {said['case']} on {said['gpu'].get('name', '?')}: {_counted(said)}",
        *_refusals(said),
        f"{'keep' if said['keep'] else 'fall back'}: {said['because']}",
        f"  defaults  {_time(times, default['name'])}  {_flags(default['config'])}",
    ]
    if champion["number"] != default["number"]:
        found.append(f"  champion  {_time(times, champion['name'])}  {_flags(champion['config'])}")
    if said["anchor"]:
        found.append(f"  {said['anchor']:<8}  {_time(times, said['anchor'])}")
    return [visible(line) for line in (*found, *_worth(said))]


def summary(said: Mapping[str, Any], history: pd.DataFrame, pictures: Sequence[str]) -> str:
    """profile_summary.md."""
    name = f"{said['variant']} at {said['case']}"
    out = [f"# Search of {markdown(name)}", ""]
    out += [f"**{'Keep' if said['keep'] else 'Fall back'}**: {markdown(said['because'])}.", ""]
    out += [*_times_table(said), ""]
    out += [f"{markdown(_counted(said))} GPU: {markdown(str(said['gpu'].get('name', '?')))}. "
            f"Seed {said['seed']}.", ""]  # fmt: skip
    out += ["## The champion", "", *_champion(said), ""]
    out += ["## Refused", "", *(f"- {markdown(line.strip())}" for line in _refusals(said)), ""]
    out += ["## How it got there", "", *_path(history), ""]
    worth = list(_worth(said))
    if worth:
        out += ["## What steering was worth", "", *(f"- {markdown(w.strip())}" for w in worth), ""]
    if said["importances"]:
        ranked = sorted(said["importances"].items(), key=lambda item: -item[1])
        shares = ", ".join(f"{code(m)} {v:.0%}" for m, v in ranked)
        out += ["## What mattered", "", f"Importance for being among the fastest: {shares}.", ""]
    out += [f"![{p.removesuffix('.png')}]({p})" for p in pictures]
    return "\n".join(out).rstrip() + "\n"


def _counted(said: Mapping[str, Any]) -> str:
    outcomes = ", ".join(f"{n} {what}" for what, n in said["outcomes"].items())
    return (
        f"{said['distinct']} distinct trials ({outcomes}) in {said['seconds']:.0f} s; "
        f"{_ENDED[said['ended']]}."
    )


def _refusals(said: Mapping[str, Any]) -> Iterator[str]:
    """Why configurations were refused, with counts."""
    before = said["refused_by_arithmetic"]
    if before:
        yield f"  by arithmetic, before building: {sum(before.values())} ({_reasons(before)})"
    if said["refused"]:
        after = said["refused"]
        yield f"  after building: {sum(after.values())} ({_reasons(after)})"


def _reasons(counts: Mapping[str, int]) -> str:
    ranked = sorted(counts.items(), key=lambda item: -item[1])
    return "; ".join(f"{what}: {n}" for what, n in ranked)


def _flags(config: Mapping[str, str]) -> str:
    return " ".join(f"-D{m}={v}" for m, v in config.items())


def _time(times: Mapping[str, Any], name: str) -> str:
    warm = times.get(name, {}).get("warm")
    if not warm:
        return "?"
    text = figures.seconds(warm["median"])
    if warm["low"] is None or warm["high"] is None:
        return text
    return f"{text} ({figures.seconds(warm['low'])} to {figures.seconds(warm['high'])})"


def _times_table(said: Mapping[str, Any]) -> Iterator[str]:
    names = {"champion": said["champion"]["name"], "defaults": said["default"]["name"]}
    if said["anchor"]:
        names[said["anchor"]] = said["anchor"]
    yield "| | warm L2, median (95 %) | flags |"
    yield "|---|---|---|"
    configs = {"champion": said["champion"]["config"], "defaults": said["default"]["config"]}
    for what, name in names.items():
        flags = code(_flags(configs[what]), in_table=True) if what in configs else ""
        yield f"| {markdown(what)} | {_time(said['times'], name)} | {flags} |"


def _champion(said: Mapping[str, Any]) -> Iterator[str]:
    found, champion = said["comparison"], said["champion"]
    if champion["number"] == said["default"]["number"]:
        yield "The defaults: nothing was confirmed faster."
        return
    g, p = found["hedges_g"], found["p_value"]
    yield (
        f"Trial {champion['number']}, proposed by {markdown(champion['source'])}. "
        f"{markdown(found['sentence'])}; Hedges' g {_number(g)}, p {_number(p)}."
    )
    for what in ("default", "champion"):
        verdict = said[what]["said"].get("verdict")
        if verdict:
            limiter = verdict["limiter"] or ""
            yield ""
            yield (
                f"- {what}: **{verdict['bound']}** {markdown(limiter)}: "
                f"{markdown(verdict['because'])}"
            )


def _number(value: float | None) -> str:
    return "not known" if value is None else f"{value:.2g}"


def _path(history: pd.DataFrame) -> Iterator[str]:
    """The incumbents, one after the other."""
    steps = history[history["became_incumbent"] | (history["source"] == "default")]
    if steps.empty:
        yield "No incumbent."
        return
    yield "| trial | proposed by | time | against the incumbent before | verdict |"
    yield "|--:|---|--:|---|---|"
    for row in steps.to_dict("records"):
        low, high = row["confirmed_low"], row["confirmed_high"]
        gain = "" if isnan(low) else f"{row['confirmed_speedup']:.3f}x ({low:.3f} to {high:.3f})"
        verdict = " ".join(str(row[k]) for k in ("bound", "limiter") if isinstance(row[k], str))
        yield (
            f"| {row['number']} | {markdown(str(row['source']))} | "
            f"{figures.seconds(float(row['value']))} | {gain} | {markdown(verdict)} |"
        )


def _worth(said: Mapping[str, Any]) -> Iterator[str]:
    """What the proposals of diagnoses came to, also where that is nothing."""
    worth = said["steering"]
    if not worth:
        return
    rules = ", ".join(f"{n} by {rule}" for rule, n in worth["by_rule"].items())
    yield (
        f"steering: {worth['proposed']} proposals"
        + (f" ({rules})" if rules else "")
        + f", {worth['measured']} measured, {worth['incumbents']} became the incumbent"
    )
    if "ratio" not in worth:
        yield "  against plain TPE: not known; run the same search with --no-steer"
        return
    yield (
        f"  against plain TPE after {worth['trials']} trials each: "
        f"{figures.seconds(worth['best'])} and {figures.seconds(worth['plain_best'])} "
        f"({worth['ratio']:.3f}x); within 2 % of the better after "
        f"{worth['near_after'] or 'never'} and {worth['plain_near_after'] or 'never'} trials"
    )
