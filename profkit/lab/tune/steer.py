"""What a diagnosis found of a configuration  ->  what to try next.

A rule names a tunable where the header's `steer:` says so; rules about what limits occupancy name
the quantities of `takes:` by themselves. A proposal is one step that way: the untried configuration
that differs from the incumbent in the fewest tunables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError, suggest_nearest_names
from profkit.lab.measure.variants.tunables import Config, Direction, Space
from profkit.lab.tune.result import FiringRule

if TYPE_CHECKING:
    from profkit.units import ChangedMacroCount, MovedRanksInAll, RuleName


# What a rule asks of any kernel, where `takes:` has the quantity and `steer:` says nothing else.
ALWAYS = (
    Direction("occupancy-shared", "smem", -1),
    Direction("occupancy-registers", "regs", -1),
    Direction("occupancy-blocks", "threads", +1),
)
MOST = 4  # proposals from one diagnosis: the next ones come from the next incumbent's
_EACH = 2  # of one rule: one step, and one further
# A finding's evidence that says how much less of a quantity admits one more block per SM.
_STEPS = {"occupancy-shared": "shared_step"}


@dataclass(frozen=True)
class Proposal:
    """A configuration that a rule asks for."""

    config: Config
    rule: str


def map_rules_to_directions(space: Space) -> dict[RuleName, list[Direction]]:
    """Return rule -> which way it asks to go; ProfkitError if `steer:` names no rule."""
    from profkit.diagnosis.rules import ALL

    known = {rule.id for rule in ALL}
    by_rule: dict[str, list[Direction]] = {}
    for direction in space.steer:
        if direction.rule not in known:
            raise ProfkitError(
                f"{space.file}: 'steer:' names no rule: {direction.rule}",
                suggest_nearest_names(direction.rule, known, "profkit explain lists the rules"),
            )
        by_rule.setdefault(direction.rule, []).append(direction)
    for direction in ALWAYS:
        if direction.rule not in by_rule and direction.name in space.quantities:
            by_rule[direction.rule] = [direction]
    return by_rule


def list_proposals_of_findings(
    space: Space, incumbent: Config, findings: Sequence[FiringRule], untried: Iterable[Config]
) -> list[Proposal]:
    """Return what to try next; `findings` fire for the incumbent, its verdict's cause first."""
    by_rule = map_rules_to_directions(space)
    left = set(untried)
    proposed: list[Proposal] = []
    for finding in findings:
        for direction in by_rule.get(finding.rule, ()):
            least = finding.evidence.get(_STEPS.get(direction.rule, "")) or 0
            for config in _choose_nearest_steps_in_direction(
                space, incumbent, direction, sorted(left), least
            ):
                proposed.append(Proposal(config, direction.rule))
                left.discard(config)
    return proposed[:MOST]


def _choose_nearest_steps_in_direction(
    space: Space,
    incumbent: Config,
    direction: Direction,
    untried: Sequence[Config],
    least_step: float,
) -> list[Config]:
    """Choose one step and one further: the nearest configurations with the quantity moved that way."""
    here = space.evaluate_quantities(incumbent)[direction.name]

    def measure_quantity_moved_that_way(config: Config) -> int:
        return direction.way * (space.evaluate_quantities(config)[direction.name] - here)

    def rank_by_distance_and_move(
        config: Config,
    ) -> tuple[ChangedMacroCount, int, MovedRanksInAll]:
        """Return how many macros differ, how far the quantity moves, and over how many values in all."""
        steps = []
        for a, b in zip(config.ranks, incumbent.ranks, strict=True):
            steps.append(abs(a - b))
        return sum(map(bool, steps)), measure_quantity_moved_that_way(config), sum(steps)

    nearest: dict[int, Config] = {}  # by how far the quantity moves
    for config in sorted(untried, key=rank_by_distance_and_move):
        moved = measure_quantity_moved_that_way(config)
        if moved >= max(least_step, 1):
            nearest.setdefault(moved, config)
    return list(nearest.values())[:_EACH]


def require_watched_metrics(space: Space) -> None:
    """Fail if `watch:` names a metric that the catalogue does not have."""
    from profkit.reports.metrics import CATALOGUE

    for direction in space.watch:
        if direction.name not in CATALOGUE:
            raise ProfkitError(
                f"{space.file}: 'watch:' names no metric: {direction.name}",
                suggest_nearest_names(
                    direction.name, CATALOGUE, "profkit explain lists the metrics"
                ),
            )
