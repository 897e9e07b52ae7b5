"""Two triages of one program  ->  what became of each promise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypedDict, cast

SAME = 0.02  # of the step: a difference that two runs of one program show


@dataclass(frozen=True)
class Promise:
    """A finding of the first triage, and the second one.

    Attributes:
        category: Whose.
        said: Milliseconds that mending it was said to save: expect, low, high.
        state: gone, smaller, or there as before.
        left: Milliseconds that the second triage still says.
    """

    category: str
    say: str
    said: tuple[float, float, float]
    state: str
    left: float


@dataclass(frozen=True)
class ProgramChange:
    """Before and after.

    Attributes:
        before_ms: The step without a recorder.
        after_ms: The same.
        saved_ms: The difference; negative if it is slower.
        promises: Each finding of the first.
        kept: Whether what was saved is inside of the interval that the gone ones promised; None if
            none is gone.
        new: Categories that only the second has.
        notes: What makes the two hard to compare.
    """

    before_ms: float
    after_ms: float
    saved_ms: float
    promises: tuple[Promise, ...]
    kept: bool | None
    new: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def answer(self) -> str:
        """faster, slower or same."""
        if abs(self.saved_ms) <= SAME * self.before_ms:
            return "same"
        return "faster" if self.saved_ms > 0 else "slower"

    def to_json(self) -> TriagesDocument:
        """As plain dicts."""
        plain = {"schema": "profkit.triages/1", "answer": self.answer, **asdict(self)}
        return cast("TriagesDocument", plain)


class TriagesDocument(TypedDict):
    """What `profkit compare A.triage B.triage --json` prints: what became of each promise."""

    schema: Literal["profkit.triages/1"]
    answer: str
    before_ms: float
    after_ms: float
    saved_ms: float
    promises: list[Promise]
    kept: bool | None
    new: list[str]
    notes: list[str]


def change(before: Mapping[str, Any], after: Mapping[str, Any]) -> ProgramChange:
    """Compare two "profkit.triage/1" documents."""
    times = [_plain(of) for of in (before, after)]
    saved = times[0] - times[1]
    left = {row["category"]: row["saves_ms"]["expect"] for row in after["findings"]}
    promises = tuple(_promise(row, left.get(row["category"], 0.0)) for row in before["findings"])
    gone = [p for p in promises if p.state == "gone"]
    # Mends that share an obstacle do not add up: the largest alone up to all of them together.
    low, high = max((p.said[1] for p in gone), default=0.0), sum(p.said[2] for p in gone)
    slack = SAME * times[0]
    new = tuple(sorted(left.keys() - {row["category"] for row in before["findings"]}))
    return ProgramChange(
        times[0], times[1], saved, promises,
        low - slack <= saved <= high + slack if gone else None, new, _notes(before, after),
    )  # fmt: skip


def _plain(of: Mapping[str, Any]) -> float:
    plain = of["step"].get("plain_ms") or {}
    return float(plain.get("expect") or of["step"]["ms"])


def _promise(row: Mapping[str, Any], left: float) -> Promise:
    said = row["saves_ms"]
    expect = said["expect"]
    state = "gone" if left < 0.25 * expect else "smaller" if left < 0.75 * expect else "there"
    return Promise(row["category"], row["say"], (expect, said["low"], said["high"]), state, left)


def _notes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    out = []
    for key in ("device", "how", "ranks"):
        first, second = before["program"].get(key), after["program"].get(key)
        if first != second:
            out.append(f"{key}: {first} before, {second} after")
    return tuple(out)
