"""What was measured of single causes  ->  the two largest together, where they do not add up.

Loads may be hidden behind arithmetic, and arithmetic behind loads: without either, nothing is gained.
The second change is made to the text that the first one has written, so one machine code serves both,
and two tables say what is gone of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from profkit.evidence.stats import compare_samples
from profkit.lab.ablation import launches
from profkit.lab.ablation.accesses import Access, find_accesses
from profkit.lab.ablation.change import Ablation, Change, Code, Refused, refuse_by_name
from profkit.lab.ablation.lab import Lab
from profkit.lab.ablation.launches import Play
from profkit.lab.ablation.preparation import Prepared, Say, load_with_same_occupancy
from profkit.lab.ablation.readdress import TABLE
from profkit.records.ablation import WORTH, MeasuredAblation, MeasuredPair, Refusal

_OURS = re.compile(r"(?<![\w$])(%?)profkit_")
_FIRST = "profkit1_"
# What a change works on; two that share any of it are no pair.
_WORKS_ON = {
    "coalesced": "loads stores",
    "hits-l1": "loads",
    "hits-l2": "loads",
    "no-stores": "stores",
    "conflict-free": "shared",
    "no-atomics": "atomics",
    "atomics-spread": "atomics",
    "atomics-in-rows": "atomics",
    "no-memory": "loads stores shared atomics",
    "no-barriers": "barriers",
    "no-fences": "fences",
}


def choose_pair(
    rows: Sequence[MeasuredAblation],
) -> tuple[MeasuredAblation, MeasuredAblation] | None:
    """The two largest that work on different things, if their gains do not add up."""
    known = [row for row in rows if row.ablation in _WORKS_ON]
    best = None
    for one, other in combinations(sorted(known, key=lambda row: -row.gain), 2):
        works = [set(_WORKS_ON[row.ablation].split()) for row in (one, other)]
        if works[0].isdisjoint(works[1]):
            best = best or (one, other)
    if best is None:
        return None
    saved = sum(1 - 1 / max(1.0, row.gain) for row in best)
    brings_nothing = all(row.gain < WORTH for row in rows)
    if brings_nothing or saved > 1:
        return best
    return None


def time_pair(
    lab: Lab, code: Code, prepared: Prepared, rows: Sequence[MeasuredAblation], say: Say
) -> MeasuredPair | Refusal | None:
    """What both of the two largest bring together, or why that cannot be had.

    None where their gains add up, or where both together bring nothing either.
    """
    chosen = choose_pair(rows)
    if chosen is None:
        return None
    changes = {ablation.id: (ablation, change) for ablation, change in prepared.changes.items()}
    (_, first), (second, _) = (changes[row.ablation] for row in chosen)
    one, other = chosen
    say("pair")
    try:
        gain = _time_both(lab, code, first, second)
    except Refused as why:
        return refuse_by_name(f"{one.ablation} and {other.ablation}", why)
    hidden = all(row.gain < WORTH for row in chosen)
    if hidden and gain < WORTH:
        return None
    return MeasuredPair(
        ablations=(one.ablation, other.ablation),
        titles=(one.title, other.title),
        alone=(one.gain, other.gain),
        gain=gain,
        hidden=hidden,
    )


def _time_both(lab: Lab, code: Code, first: Change, second: Ablation) -> float:
    both = combine_changes(lab, code, first, second)
    module = lab.limit_registers(both.text)
    plays: dict[str, Play] = {}
    tables = {"control": (first.control, both.control), "gone": (first.table, both.table)}
    base = lab.load_module(code.module, lab.assemble_text(code.module.text))
    for name, (of_first, of_second) in tables.items():
        play, loaded = load_with_same_occupancy(lab, module, of_second, base)
        launches.write_global(loaded.module, _rename_own_names(TABLE), of_first)
        lab.run_call(play)
        plays[name] = play
    times = lab.time_calls({name: play.enqueue_call for name, play in plays.items()})
    return compare_samples(
        times["control"].warm, times["gone"].warm, taken="interleaved"
    ).speedup.median


def combine_changes(lab: Lab, code: Code, first: Change, second: Ablation) -> Change:
    """The second change of the text of the first; Refused where that cannot be told apart."""
    if _OURS.search(code.module.text):
        raise _refuse_mixed("the kernel uses names that profkit adds")
    module = lab.read_launched(_rename_own_names(first.text))
    accesses: list[Access] = []
    for access in find_accesses(module):
        if not access.address.base.startswith(_FIRST):
            accesses.append(replace(access, number=len(accesses)))
    if len(accesses) != len(code.accesses) or module.blocks != code.module.blocks:
        seen = f"of {len(code.accesses)} accesses {len(accesses)} are found after the first change"
        raise _refuse_mixed(seen)
    return second.make(replace(code, module=module, accesses=accesses))


def _refuse_mixed(seen: str) -> Refused:
    return Refused("mixed", seen, "the same accesses and blocks", "look at each of them alone")


def _rename_own_names(text: str) -> str:
    return _OURS.sub(rf"\1{_FIRST}", text)
