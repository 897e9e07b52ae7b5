"""Made-up launches in a history  ->  how large it is, and how long questions take.

python tools/history_size.py --launches 100000 --files 200
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from profkit.evidence.history.dataset import History, query
from profkit.evidence.history.place import HistoryPlace
from profkit.evidence.history.tables import table_columns

QUESTIONS = {
    "launches a bound": "SELECT bound, count(*), median(time) FROM launches GROUP BY bound",
    "slowest kernels": "SELECT kernel, sum(time) AS s FROM launches GROUP BY kernel "
    "ORDER BY s DESC LIMIT 10",
    "one report": "SELECT * FROM launches WHERE report = 'r000007'",
    "a finding": "SELECT count(*) FROM launches WHERE list_contains(findings, 'dram-bandwidth')",
}
BOUNDS = np.array(["memory", "compute", "latency", "launch", "balanced"])
RULES = np.array(["dram-bandwidth", "long-scoreboard", "occupancy-registers", "tail-effect"])


def write(place: HistoryPlace, first: int, count: int, rng: np.random.Generator) -> None:
    """One file of launches, 20 a report."""
    times = rng.lognormal(-11, 1.5, count)
    picked = rng.integers(0, len(RULES), (count, 2))
    columns = {
        "report": [f"r{(first + i) // 20:06}" for i in range(count)],
        "launch": np.arange(count) % 20,
        "kernel": [f"void kernel_{k}<float, 128>(args)" for k in rng.integers(0, 300, count)],
        "variant": [None] * count,
        "case": [None] * count,
        "gpu": ["NVIDIA H200"] * count,
        "time": times,
        "bound": BOUNDS[rng.integers(0, len(BOUNDS), count)],
        "limiter": BOUNDS[rng.integers(0, len(BOUNDS), count)],
        "cause": [f"DRAM at {p} % of its peak" for p in rng.integers(1, 100, count)],
        "gain": 1 + rng.exponential(0.3, count),
        "findings": RULES[picked].tolist(),
    }
    into = BytesIO()
    schema = table_columns("launches")
    pq.write_table(pa.table(columns, schema=schema), into, compression="zstd")
    place.write("launches", hashlib.sha256(into.getvalue()).hexdigest(), into.getvalue())


def main() -> None:
    """Print one line of size, and one a question."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--launches", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=200)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        kept = History(folder)
        each = given.launches // given.files
        for number in range(given.files):
            write(kept.place, number * each, each, rng)
        size = sum(f.stat().st_size for f in Path(folder).rglob("*.parquet"))
        print(f"{each * given.files} launches in {given.files} files: {size / 1e6:.1f} MB, "
              f"{size / each / given.files:.0f} bytes a launch")  # fmt: skip
        for name, sql in QUESTIONS.items():
            began = time.perf_counter()
            answer, problems = query(kept, sql)
            took = time.perf_counter() - began
            print(f"{name:20} {took:6.2f} s, {len(answer)} rows, {len(problems)} bad files")


if __name__ == "__main__":
    main()
