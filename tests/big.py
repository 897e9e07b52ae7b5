"""Committed reports and a trace, again and again  ->  big ones in build/big, for `make speed`.

python tests/big.py    # 1.1 GB, half a minute
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard

ROOT = Path(__file__).resolve().parents[1]
BIG = ROOT / "build" / "big"
# Of the kind that users have: a full set with source. -> what it repeats, and at least how many bytes.
FULL = {
    "full-50.ncu-rep": ("attention/C/unfused.ncu-repz", 52 << 20),
    "full-870.ncu-rep": ("attention/B/sdpa-flash.ncu-repz", 870_000_000),
}
TINY, LAUNCHES = "tiny-10000.ncu-rep", 10_000
# Of torch.profiler, 14 MB unpacked: its steps, so many times one after another.
TRACE, RECORDED, TIMES = "trace-200.json", "optimizer_for_loop.planted.json.gz", 14


def main() -> None:
    """Write them all."""
    from tests.reports import made

    BIG.mkdir(parents=True, exist_ok=True)
    for name, (source, least) in FULL.items():
        packed = (ROOT / "artifacts" / source).read_bytes()
        with zstandard.ZstdDecompressor().stream_reader(packed) as plain:
            (BIG / name).write_bytes(made.repeated(plain.read(), least))
    (BIG / TINY).write_bytes(made.numbered(LAUNCHES))
    packed = (ROOT / "tests" / "program" / "data" / RECORDED).read_bytes()
    trace = json.loads(gzip.decompress(packed))
    trace["traceEvents"] = list(again(trace["traceEvents"]))
    (BIG / TRACE).write_text(json.dumps(trace))


def again(events: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Every event TIMES times, later each time, with ids of its own."""
    times = [event["ts"] for event in events if "ts" in event]
    period = 1.01 * (max(times) - min(times))
    for i in range(TIMES):
        for event in events:
            if event["ph"] == "M":
                if i == 0:
                    yield event
                continue
            args = dict(event.get("args", {}))
            for key in {"External id", "correlation"} & args.keys():
                args[key] += 10**7 * i
            name = event["name"]
            if name.startswith("ProfilerStep#"):
                name = f"ProfilerStep#{int(name.rpartition('#')[2]) + 100 * i}"
            ids = {"id": event["id"] + 10**7 * i} if "id" in event else {}
            yield {**event, "ts": event["ts"] + period * i, "name": name, "args": args, **ids}


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
