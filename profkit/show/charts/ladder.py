"""A ladder  ->  the references to draw beside it, those that are as good as one together."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.evidence.comparison.ladder import Rung

_ALIKE = 1.02  # references nearer than this share a line


def references_of(timed: Sequence[Rung]) -> dict[str, float]:
    """Names -> median; those that are as good as one stand together."""
    times = {n: c.before.median for s in timed for n, c in s.references.items()}
    found: dict[str, float] = {}
    for name, time in sorted(times.items(), key=lambda pair: pair[1]):
        last = next(reversed(found), None)
        if last and time < _ALIKE * found[last]:
            found[f"{last}, {name}"] = found.pop(last)
        else:
            found[name] = time
    return found
