"""Sentences that somebody said  ->  holds, fails or undecided on what was recorded.

A file of claims is written with these names:

    from profkit.evidence.claims import Answer, at_least, claim, decide, gate, timed, undecided
"""

from __future__ import annotations

from profkit.evidence.claims.claims import (
    Answer,
    at_least,
    claim,
    decide,
    gate,
    timed,
    undecided,
)

__all__ = ["Answer", "at_least", "claim", "decide", "gate", "timed", "undecided"]
