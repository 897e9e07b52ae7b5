"""The incumbent's diagnosis  ->  configurations to try next, each with the rule that asked for it.

A rule names a tunable where the header's `steer:` says so; rules about what limits occupancy name
the quantities of `takes:` by themselves. A proposal is one step that way: the untried configuration
that differs from the incumbent in the fewest tunables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profkit.errors import ProfkitError
from profkit.measure.variants.tunables import Config, Space, Wish

# What a rule asks of any kernel, where `takes:` has the quantity and `steer:` says nothing else.
ALWAYS = (
    Wish("occupancy-shared", "smem", -1),
    Wish("occupancy-registers", "regs", -1),
    Wish("occupancy-blocks", "threads", +1),
)
MOST = 4  # proposals from one diagnosis: the next ones come from the next incumbent's
_EACH = 2  # of one rule: one step, and one further
# A finding's evidence that says how much less of a quantity admits one more block per SM.
_STEPS = {"occupancy-shared": "shared_step"}


@dataclass(frozen=True)
class Proposal:
    """A configuration to try, and why."""

    config: Config
    rule: str


def wishes(space: Space) -> dict[str, list[Wish]]:
    """Rule -> which way it asks to go.

    Raises:
        ProfkitError: `steer:` names a rule that does not exist.
    """
    from difflib import get_close_matches

    from profkit.diagnosis.rules import ALL

    known = {rule.id for rule in ALL}
    found: dict[str, list[Wish]] = {}
    for wish in space.steer:
        if wish.rule not in known:
            near = get_close_matches(wish.rule, known, n=1)
            raise ProfkitError(
                f"{space.file}: 'steer:' names no rule: {wish.rule}",
                f"did you mean {near[0]}?" if near else "profkit explain lists the rules",
            )
        found.setdefault(wish.rule, []).append(wish)
    for wish in ALWAYS:
        if wish.rule not in found and wish.name in (space.quantities or {}):
            found[wish.rule] = [wish]
    return found


def proposals(
    space: Space, incumbent: Config, findings: Sequence[Mapping[str, Any]], free: Iterable[Config]
) -> list[Proposal]:
    """What to try next.

    Args:
        space: What the header declares.
        incumbent: The configuration that was diagnosed.
        findings: Its firing findings, the verdict's cause first: rule and evidence.
        free: What can be and was not tried.
    """
    asked, left = wishes(space), set(free)
    found: list[Proposal] = []
    for finding in findings:
        for wish in asked.get(finding["rule"], ()):
            least = finding.get("evidence", {}).get(_STEPS.get(wish.rule, "")) or 0
            for config in _steps(space, incumbent, wish, sorted(left), least):
                found.append(Proposal(config, wish.rule))
                left.discard(config)
    return found[:MOST]


def _steps(
    space: Space, incumbent: Config, wish: Wish, free: Sequence[Config], least: float
) -> list[Config]:
    """One step and one further: the nearest configurations with the quantity moved as wished."""
    here, ranks = space.numbers(incumbent)[wish.name], space.ranks(incumbent)

    def moved(config: Config) -> int:
        return wish.way * (space.numbers(config)[wish.name] - here)

    def changes(config: Config) -> tuple[int, int, int]:
        steps = [abs(a - b) for a, b in zip(space.ranks(config), ranks, strict=True)]
        return sum(map(bool, steps)), moved(config), sum(steps)

    candidates = sorted((c for c in free if moved(c) >= max(least, 1)), key=changes)
    picked: list[Config] = []
    for config in candidates:
        if len(picked) < _EACH and moved(config) not in [moved(p) for p in picked]:
            picked.append(config)
    return picked
