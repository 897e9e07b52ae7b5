"""How right are the answers, on code that they were not made from?

    python tools/score.py gains            # of one kernel: causes, bounds, expectations, intervals
    python tools/score.py gains FOLDER...  # first keeps the pairs of these folders

Everything is worked out of what is committed.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def main(words: list[str]) -> int:
    """Print one table of scores; the exit status."""
    if words[:1] == ["gains"]:
        import gains

        gains.main(words[1:])
        return 0
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
