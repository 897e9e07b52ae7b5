"""Two triages of one program  ->  entries of the ledger: what was promised, and what came of it."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profkit.evidence.ledger import Ledger, Outcome, Prediction
    from profkit.program.change import Promise, TriagesDocument

CASE = "program"
_STATES = {"gone": "gone", "smaller": "changed", "there": "stays"}


def entries(before: Path, after: Path, change: TriagesDocument) -> Ledger:
    """Each finding of BEFORE as a prediction, and what came of it as its outcome."""
    from profkit.evidence.ledger import Ledger

    sides = [_sha256(before), _sha256(after)]
    rows = [_entry(p, sides, before, after, change) for p in change["promises"]]
    return Ledger(tuple(p for p, _ in rows), tuple(o for _, o in rows))


def _entry(
    promise: Promise, sides: list[str], before: Path, after: Path, change: TriagesDocument
) -> tuple[Prediction, Outcome]:
    from profkit.evidence.ledger import PROGRAM, Outcome, Prediction

    gone = [p for p in change["promises"] if p["state"] == "gone"]
    rule = f"{PROGRAM}{promise['category']}"
    expect, low, high = (_factor(change["before_ms"], ms) for ms in promise["said"])
    prediction = Prediction(
        sides[0], before.name, CASE, rule, _version(), None, promise["say"], expect, low, high
    )
    outcome = Outcome(
        sides[0], rule, _version(), after.name, sides[1], _STATES[promise["state"]],
        gone == [promise],  # what several mends saved together is no one's
        change["answer"], change["before_ms"] / change["after_ms"], None, None,
    )  # fmt: skip
    return prediction, outcome


def _factor(step: float, saved: float) -> float:
    """A saving of a step as a speed-up."""
    return step / max(step - saved, 1e-3 * step)


def _sha256(folder: Path) -> str:
    from profkit.program.document import NAME

    return hashlib.sha256((folder / NAME).read_bytes()).hexdigest()


@cache
def _version() -> str:
    """Of what promises: the findings' rules and the replay that their savings come from."""
    import profkit.program as room

    digest = hashlib.sha256()
    for part in ("findings", "replay"):
        for file in sorted((Path(room.__path__[0]) / part).glob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
