"""A study  ->  its history as rows and a frame, counts of what was refused, and what steering gave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from profkit.records.store import JsonObject
from profkit.tune.study import Study, Trial

if TYPE_CHECKING:
    from pandas import DataFrame

# Columns out of a trial's result as JSON, and where they lie in it if not under that name. Times in
# seconds, memory in bytes, shares of 1.
_TABLE = """
reason kind time anchor_time against
speedup=speedup.median speedup_low=speedup.low speedup_high=speedup.high
hedges_g p_value promoted confirmed=confirmed.answer confirmed_speedup=confirmed.speedup.median
confirmed_low=confirmed.speedup.low confirmed_high=confirmed.speedup.high
confirmed_g=confirmed.hedges_g confirmed_p=confirmed.p_value became_incumbent
blocks threads regs smem blocks_per_sm occupancy spills max_abs build_seconds
gpu_seconds gpu bound=verdict.bound limiter=verdict.limiter code
"""
_COLUMNS = {
    name: (path or name).split(".")
    for name, _, path in map(methodcaller("partition", "="), _TABLE.split())
}
_NEAR = 1.02  # a search has found its best when it is this near


def _row(trial: Trial) -> JsonObject:
    plain = trial.result.to_json()
    row = {name: getattr(trial, name) for name in ("number", "source", "outcome", "value")}
    row |= trial.config.named
    row |= {name: _at(plain, path) for name, path in _COLUMNS.items()}
    return {**row, "seconds": trial.seconds, "ended": trial.ended}


def _at(value: Any, path: Sequence[str]) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def trials_frame(study: Study) -> DataFrame:
    """The history: one row per trial; SI units, NaN where not known; macros as whole numbers."""
    import pandas as pd

    space = study.space
    names = ["number", "source", "outcome", "value", *space.values, *_COLUMNS, "seconds", "ended"]
    rows = [_row(t) for t in study.trials() if t.outcome != "repeated"]
    table = pd.DataFrame(rows, columns=names)
    texts = {"source", "outcome", "reason", "kind", "promoted", "confirmed"}
    texts |= {"gpu", "bound", "limiter", "code", "ended"}
    for name in table.columns:
        if name in texts:
            table[name] = table[name].astype("string")
        elif name == "became_incumbent":
            table[name] = table[name].fillna(False).astype(bool)
        elif name not in space.values or name in space.numeric:
            table[name] = pd.to_numeric(table[name], errors="coerce")
    return table


def counts(study: Study) -> JsonObject:
    """How many trials came to what, and why those that were refused were."""
    trials = study.trials()
    return {
        "distinct": sum(t.counts for t in trials),
        "outcomes": dict(Counter(t.outcome for t in trials if t.outcome != "repeated")),
        "refused": dict(Counter(str(t.result.kind) for t in trials if t.outcome == "refused")),
    }


def best_so_far(trials: Sequence[Trial]) -> list[float]:
    """After each distinct trial, the best value yet, in seconds; infinite before the first."""
    best, after = float("inf"), []
    for t in trials:
        if t.counts:
            best = min(best, t.value if t.outcome == "measured" and t.value else best)
            after.append(best)
    return after


def steering(trials: Sequence[Trial], plain: Sequence[Trial] | None) -> JsonObject:
    """What steering was worth: proposed, measured, incumbents (how many became one), by_rule.

    With `plain`, the trials of a search of the same space without steering, also: trials (compared
    at), best and plain_best after so many, ratio (above 1: the steered one is faster), and after how
    many trials each was within 2 % of the better best.
    """
    steered = [t for t in trials if t.source.startswith("steer:")]
    worth: JsonObject = {
        "proposed": len(steered),
        "measured": sum(t.outcome == "measured" for t in steered),
        "incumbents": sum(t.result.became_incumbent for t in steered),
        "by_rule": dict(Counter(t.source.removeprefix("steer:") for t in steered)),
    }
    if not plain:
        return worth
    with_rules, without = best_so_far(trials), best_so_far(plain)
    n = min(len(with_rules), len(without))
    if not n:
        return worth
    best, plain_best = with_rules[n - 1], without[n - 1]
    goal = _NEAR * min(best, plain_best)
    return worth | {
        "trials": n,
        "best": best,
        "plain_best": plain_best,
        "ratio": plain_best / best,
        "near_after": next((i for i, b in enumerate(with_rules[:n], 1) if b <= goal), None),
        "plain_near_after": next((i for i, b in enumerate(without[:n], 1) if b <= goal), None),
    }
