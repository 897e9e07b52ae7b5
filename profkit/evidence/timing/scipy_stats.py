"""scipy.stats, for whoever needs an interval of times: it comes with the extra `evidence`."""

from __future__ import annotations

from profkit.errors import needing

with needing("scipy", "an interval of measured times"):
    from scipy import stats

__all__ = ["stats"]
