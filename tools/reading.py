"""Copies of the committed reports  ->  what more processes gain in reading them, and in what memory.

    python tools/reading.py scale --jobs 16          # today's pool, --history, and an executor
    python tools/reading.py stream --reports 10000   # RSS over time; one reader is killed on the way

`scale` reads with one process and with many in turns, each reader so many reports that every process
has its share, and prints reports a second; first comes arithmetic in place of reading: what the
machine itself gives sixteen processes (its clock falls, two of its processors share a core). `stream`
is the verb itself, `diagnose --history`.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path

from profkit.evidence.history.dataset import History
from profkit.reports.cluster import each_report
from profkit.reports.container.container import check
from profkit.reports.isolated import each_isolated
from profkit.reports.library import LARGE
from profkit.reports.reader import read_report

ROOT = Path(__file__).resolve().parents[1]
STREAM = "profkit.evidence.history.stream"
NAMES = f"{STREAM}:diagnose_file", f"{STREAM}:died_file"


def made(folder: Path, count: int, most: int) -> list[str]:
    """Hard links to the committed reports of at most so many bytes, by turns; else copies."""
    found = sorted(p for p in (ROOT / "artifacts").rglob("*.ncu-rep*") if check(p).size <= most)
    if not found:
        raise SystemExit("artifacts/ holds no report")
    names = []
    folder.mkdir()
    for number in range(count):
        source = found[number % len(found)]
        name = folder / f"{number:05}{source.suffix}"
        try:
            os.link(source, name)
        except OSError:
            name.write_bytes(source.read_bytes())
        names.append(str(name))
    random.Random(0).shuffle(names)  # noqa: S311 - so that a share of them is like the whole
    return names


def by_arithmetic(paths: list[str], jobs: int) -> int:
    """Nothing is read: as many sums as there are reports."""
    with ProcessPoolExecutor(jobs) as pool:
        return sum(1 for _ in pool.map(_sum, paths))


def _sum(_: str) -> int:
    return sum(i * i for i in range(1_000_000))


def by_pool(paths: list[str], jobs: int) -> int:
    """What `profkit diagnose runs/` reads with: every launch is kept."""
    return len(read_report(paths, jobs).files)


def by_stream(paths: list[str], jobs: int) -> int:
    """What `--history` reads and diagnoses with, without a cluster."""
    with closing(each_isolated(NAMES[0], paths, jobs, lambda *_: None)) as done:
        return sum(1 for _ in done)


def by_executor(paths: list[str], jobs: int) -> int:
    """What a cluster is given, on local processes."""
    with ProcessPoolExecutor(jobs) as client:
        return sum(1 for _ in each_report(NAMES[0], paths, NAMES[1], client))


READERS: dict[str, Callable[[list[str], int], int]] = {
    "sums": by_arithmetic, "pool": by_pool, "stream": by_stream, "executor": by_executor,
}  # fmt: skip


def scale(paths: list[str], jobs: int, each: int, turns: int) -> None:
    """Print the rate of one process and of many, and their ratio over the number of processes."""
    for name, read in READERS.items():
        for _ in range(turns):
            rates = []
            for count in (1, jobs):
                began = time.perf_counter()
                done = read(paths[: each * count], count)
                rates.append(done / (time.perf_counter() - began))
            print(f"{name:9} {rates[0]:7.2f} reports/s with 1, {rates[1]:8.2f} with {jobs}: "
                  f"{rates[1] / rates[0]:.2f}x, {rates[1] / rates[0] / jobs:.2f} of linear",
                  flush=True)  # fmt: skip


def processes_under(pid: int) -> Iterator[int]:
    """A process and those that it started, as /proc knows them."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            below = task.read_text().split()
        except OSError:  # it has ended
            continue
        for child in below:
            yield from processes_under(int(child))


def rss(pid: int) -> float:
    """Resident megabytes of a process; 0 of one that has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def stream(folder: Path, paths: list[str], every: float, kill_after: float) -> None:
    """Run the verb; print its memory and that of its readers over time, and what the history holds."""
    kept = folder / "history"
    words = ("diagnose", str(Path(paths[0]).parent), "--history", str(kept), "--quiet", "--json")
    began = time.perf_counter()
    verb = subprocess.Popen([sys.executable, "-m", "profkit", *words])
    parents, readers, alls, killed = [], [], [], 0
    while verb.poll() is None:
        time.sleep(every)
        now = time.perf_counter() - began
        pids = list(processes_under(verb.pid))
        sizes = [rss(pid) for pid in pids]
        parents, readers = [*parents, sizes[0]], [*readers, max(sizes[1:], default=0.0)]
        alls.append(sum(sizes))
        if now > kill_after and not killed and len(pids) > 2:
            killed = pids[-1]  # a fork that holds a report
            os.kill(killed, signal.SIGKILL)
        print(f"{now:6.1f} s: {len(pids):3} processes, verb {sizes[0]:5.0f} MB, "
              f"largest reader {readers[-1]:5.0f} MB, all {alls[-1]:6.0f} MB", flush=True)  # fmt: skip
    took = time.perf_counter() - began
    rows = History(kept).table("reports")[0].to_pylist()
    bad = [row for row in rows if row["status"] != "ok"]
    third = max(1, len(parents) // 3)
    print(f"{len(paths)} reports in {took:.1f} s ({len(paths) / took:.1f} a second), "
          f"exit {verb.returncode}")  # fmt: skip
    for name, seen in (("verb", parents), ("largest reader", readers), ("all", alls)):
        print(f"{name}: at most {max(seen[:third]):.0f} MB in the first third, "
              f"{max(seen[-third:]):.0f} MB in the last")  # fmt: skip
    print(f"rows: {len(rows)} of {len(paths)}, {len({r['path'] for r in rows})} paths, "
          f"{len(bad)} not ok; process {killed or 'none'} was killed")  # fmt: skip
    for row in bad[:5]:
        print(f"  {row['path']}: {row['status']}: {row['message']}")


def main() -> None:
    """Make the copies, and do what was asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["scale", "stream"])
    parser.add_argument("--reports", type=int, default=1000, help="of stream")
    parser.add_argument("--each", type=int, default=60, help="of scale: reports for each process")
    parser.add_argument("--turns", type=int, default=1, help="of scale")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--most", type=int, default=LARGE, help="bytes of a report, unpacked")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two looks")
    parser.add_argument("--kill-after", type=float, default=10.0, help="seconds")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=ROOT) as name:
        folder = Path(name)
        count = given.each * given.jobs if given.what == "scale" else given.reports
        paths = made(folder / "reports", count, given.most)
        if given.what == "scale":
            scale(paths, given.jobs, given.each, given.turns)
        else:
            stream(folder, paths, given.every, given.kill_after)


if __name__ == "__main__":
    main()
