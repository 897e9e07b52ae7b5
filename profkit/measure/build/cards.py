"""An architecture  ->  the card that is meant where none is there; only its shape is used."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Card:
    """A GPU as far as a launcher can ask for it."""

    name: str
    arch: str
    sms: int
    l2: int


CARDS = {
    "80": Card("A100", "80", 108, 40 << 20),
    "89": Card("L4", "89", 58, 48 << 20),
    "90": Card("H200", "90", 132, 60 << 20),
}
