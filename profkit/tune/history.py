"""A study  ->  its history as rows and a frame, counts of what was refused, and what steering gave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from profkit.measure.variants.tunables import Space
from profkit.tune.study.study import Study, Trial

if TYPE_CHECKING:
    from pandas import DataFrame

# Column -> its path in what a trial says. Times in seconds, memory in bytes, shares of 1.
_SAID: dict[str, tuple[str, ...]] = {
    "reason": ("reason",),
    "kind": ("kind",),
    "time": ("time",),
    "anchor_time": ("anchor_time",),
    "against": ("against",),
    "speedup": ("speedup", "median"),
    "speedup_low": ("speedup", "low"),
    "speedup_high": ("speedup", "high"),
    "hedges_g": ("hedges_g",),
    "p_value": ("p_value",),
    "promoted": ("promoted",),
    "confirmed": ("confirmed", "answer"),
    "confirmed_speedup": ("confirmed", "speedup", "median"),
    "confirmed_low": ("confirmed", "speedup", "low"),
    "confirmed_high": ("confirmed", "speedup", "high"),
    "confirmed_g": ("confirmed", "hedges_g"),
    "confirmed_p": ("confirmed", "p_value"),
    "became_incumbent": ("became_incumbent",),
    "blocks": ("blocks",),
    "threads": ("threads",),
    "regs": ("regs",),
    "smem": ("smem",),
    "blocks_per_sm": ("blocks_per_sm",),
    "occupancy": ("occupancy",),
    "spills": ("spills",),
    "max_abs": ("max_abs",),
    "build_seconds": ("build_seconds",),
    "gpu_seconds": ("gpu_seconds",),
    "gpu": ("gpu",),
    "bound": ("verdict", "bound"),
    "limiter": ("verdict", "limiter"),
    "code": ("code",),
}
_NEAR = 1.02  # a search has found its best when it is this near


def rows(study: Study) -> list[dict[str, Any]]:
    """One row per trial, in order: number, source, outcome, value, the macros, then _SAID."""
    return [_row(study.space, t) for t in study.trials() if t.outcome != "repeated"]


def _row(space: Space, trial: Trial) -> dict[str, Any]:
    return {
        "number": trial.number,
        "source": trial.source,
        "outcome": trial.outcome,
        "value": trial.value,
        **space.named(trial.config),
        **{name: _at(trial.said, path) for name, path in _SAID.items()},
        "seconds": trial.seconds,
        "ended": trial.ended,
    }


def _at(said: Any, path: Sequence[str]) -> Any:
    for key in path:
        said = said.get(key) if isinstance(said, Mapping) else None
    return said


def frame(study: Study) -> DataFrame:
    """The history: one row per trial; SI units, NaN where not known; macros as whole numbers."""
    import pandas as pd

    found = pd.DataFrame(rows(study), columns=columns(study.space))
    texts = {"source", "outcome", "reason", "kind", "promoted", "confirmed", "gpu", "bound",
             "limiter", "code", "ended"}  # fmt: skip
    for name in found.columns:
        if name in texts:
            found[name] = found[name].astype("string")
        elif name == "became_incumbent":
            found[name] = found[name].fillna(False).astype(bool)
        elif name not in study.space.values or study.space.is_number(name):
            found[name] = pd.to_numeric(found[name], errors="coerce")
    return found


def columns(space: Space) -> list[str]:
    """The frame's columns."""
    return ["number", "source", "outcome", "value", *space.macros, *_SAID, "seconds", "ended"]


def counts(study: Study) -> dict[str, Any]:
    """How many trials came to what, and why those that were refused were."""
    trials = study.trials()
    return {
        "distinct": sum(t.counts for t in trials),
        "outcomes": dict(Counter(t.outcome for t in trials if t.outcome != "repeated")),
        "refused": dict(Counter(str(t.said.get("kind")) for t in trials if t.outcome == "refused")),
    }


def best_so_far(trials: Sequence[Trial]) -> list[float]:
    """After each distinct trial, the best value yet, in seconds; infinite before the first."""
    best, found = float("inf"), []
    for t in trials:
        if t.counts:
            best = min(best, t.value if t.outcome == "measured" and t.value else best)
            found.append(best)
    return found


def steering(mine: Sequence[Trial], plain: Sequence[Trial] | None) -> dict[str, Any]:
    """What steering was worth.

    Args:
        mine: The trials of a steered search.
        plain: Those of a search of the same space without; None if there is none.

    Returns:
        proposed, measured, incumbents (how many of them became the incumbent), by_rule, and with a
        plain search: trials (compared at), best and plain_best after so many, ratio (above 1: the
        steered one is faster), and after how many trials each was within 2 % of the better best.
    """
    steered = [t for t in mine if t.source.startswith("steer:")]
    said: dict[str, Any] = {
        "proposed": len(steered),
        "measured": sum(t.outcome == "measured" for t in steered),
        "incumbents": sum(bool(t.said.get("became_incumbent")) for t in steered),
        "by_rule": dict(Counter(t.source.removeprefix("steer:") for t in steered)),
    }
    if not plain:
        return said
    one, other = best_so_far(mine), best_so_far(plain)
    n = min(len(one), len(other))
    if not n:
        return said
    goal = _NEAR * min(one[n - 1], other[n - 1])
    return said | {
        "trials": n,
        "best": one[n - 1],
        "plain_best": other[n - 1],
        "ratio": other[n - 1] / one[n - 1],
        "near_after": _first(one[:n], goal),
        "plain_near_after": _first(other[:n], goal),
    }


def _first(best: Sequence[float], goal: float) -> int | None:
    return next((i for i, b in enumerate(best, 1) if b <= goal), None)
