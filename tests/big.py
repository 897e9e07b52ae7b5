"""Committed reports, their launches again and again  ->  big ones in build/big, for `make speed`.

python tests/big.py    # 0.9 GB, some seconds
"""

from __future__ import annotations

import sys
from pathlib import Path

import zstandard

ROOT = Path(__file__).resolve().parents[1]
BIG = ROOT / "build" / "big"
# Of the kind that users have: a full set with source. -> what it repeats, and at least how many bytes.
FULL = {
    "full-50.ncu-rep": ("attention/C/unfused.ncu-repz", 52 << 20),
    "full-870.ncu-rep": ("attention/B/sdpa-flash.ncu-repz", 870_000_000),
}
TINY, LAUNCHES = "tiny-10000.ncu-rep", 10_000


def main() -> None:
    """Write them all."""
    from tests.reports import made

    BIG.mkdir(parents=True, exist_ok=True)
    for name, (source, least) in FULL.items():
        packed = (ROOT / "artifacts" / source).read_bytes()
        with zstandard.ZstdDecompressor().stream_reader(packed) as plain:
            (BIG / name).write_bytes(made.repeated(plain.read(), least))
    (BIG / TINY).write_bytes(made.numbered(LAUNCHES))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
