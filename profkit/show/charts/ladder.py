"""A ladder  ->  the references to draw beside it, those that are as good as one together."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.evidence.comparison.ladder import Rung

_ALIKE = 1.02  # references nearer than this share a line


def references_of(timed: Sequence[Rung]) -> dict[str, float]:
    """Names -> median; those that are as good as one stand together."""
    times = {n: c.before.median for s in timed for n, c in s.references.items()}
    references: dict[str, float] = {}
    for name, time in sorted(times.items(), key=lambda pair: pair[1]):
        last = next(reversed(references), None)
        if last and time < _ALIKE * references[last]:
            references[f"{last}, {name}"] = references.pop(last)
        else:
            references[name] = time
    return references
