"""How right are the answers, on code that they were not made from? Five tables.

    python tools/score.py verdicts            # probes: bound, limiter, cause and gain, beside ncu's own
    python tools/score.py verdicts REPORT...  # only where the diagnosis and ncu's rule disagree on these
    python tools/score.py lines [--verbose]   # probes: do a finding's lines lead to what was built in
    python tools/score.py gains [--misses]    # fixes: causes, bounds, expectations, intervals
    python tools/score.py gains --beside   # NVIDIA's ranking beside ours, by repository
    python tools/score.py gains --left-out # causes first, numbers chosen without their repository
    python tools/score.py gains --unseen   # findings for changes that nobody had seen
    python tools/score.py gains FOLDER...     # first keeps the pairs of these folders
    python tools/score.py estimates [--verbose]  # probes: what is expected, and what ablation measured
    python tools/score.py programs            # recorded programs; writes docs/howto/triage.md
    python tools/score.py programs --left-out # findings and regions; writes docs/why/regions.md

Everything is worked out of what is committed.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def main(words: list[str]) -> int:
    """Print one table of scores; the exit status."""
    table, rest = words[:1], words[1:]
    if table == ["verdicts"]:
        import verdicts

        return verdicts.main(rest)
    if table == ["lines"]:
        import where

        return where.main(rest)
    if table == ["gains"] and rest == ["--unseen"]:
        import unseen

        return unseen.main()
    if table == ["gains"]:
        import gains

        return gains.main(rest)
    if table == ["estimates"]:
        import estimates

        return estimates.main(rest)
    if table == ["programs"] and rest == ["--left-out"]:
        import left_out

        return left_out.main()
    if table == ["programs"]:
        import programs

        return programs.main()
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
