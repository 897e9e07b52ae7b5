"""What profkit costs, as ratios measured within one run on this machine: `make speed`.

Each figure is the best of several interleaved rounds, so that a busy machine slows both sides. The
exit status is 1 when a bar is missed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.big import BIG, FULL, TINY, TRACE  # noqa: E402 - run as a script, its folder comes first

ARTIFACTS = ROOT / "artifacts"
MANY = 300
BASELINE = "import ncu_report, pandas, typer, rich"


@dataclass(frozen=True)
class Figure:
    """A measured figure and its bar; `at_least` says on which side of the bar is good."""

    what: str
    value: float
    bar: float
    unit: str = "x"
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    def __str__(self) -> str:
        side = ">=" if self.at_least else "<="
        return (
            f"{'ok    ' if self.met else 'MISSED'} {self.what:<60} "
            f"{self.value:7.3g} {self.unit} ({side} {self.bar:g})"
        )


def best(rounds: int, *sides: Callable[[], object]) -> list[float]:
    """Shortest wall time in s of each side; the sides take turns."""
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(rounds):
        for side, taken in zip(sides, times, strict=True):
            before = time.perf_counter()
            side()
            taken.append(time.perf_counter() - before)
    return [min(taken) for taken in times]


def python(*args: str) -> Callable[[], object]:
    """A Python process, run to its end."""
    command = [sys.executable, *args]
    return lambda: subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)


def bare(paths: list[Path]) -> None:
    """The loop that anybody would write: every raw value that the catalogue reads."""
    import ncu_report

    from profkit.reports.metrics import INSTANCED, RAW_NAMES

    for path in paths:
        for launches in ncu_report.load_report(str(path)):
            for action in launches:
                for name in RAW_NAMES:
                    metric = action.metric_by_name(name)
                    if metric is not None and metric.has_value():
                        metric.as_double()
                for name in INSTANCED:
                    metric = action.metric_by_name(name)
                    if metric is not None and metric.has_correlation_ids():
                        keys = metric.correlation_ids()
                        for i in range(metric.num_instances()):
                            keys.as_string(i)
                            metric.as_double(i)


def reading() -> Iterator[Figure]:
    from profkit.reports.isolated import HERE_BYTES, HERE_FILES, ROOM
    from profkit.reports.reader import read_report_files

    paths = sorted(ARTIFACTS.glob("*.ncu-rep"))
    # Each is the one report of a process: only so it is read there.
    ROOM.files_left = ROOM.bytes_left = sys.maxsize
    read_report_files(paths[:1])
    ours, theirs = best(7, lambda: [read_report_files([p]) for p in paths], lambda: bare(paths))
    launches = sum(f.launches for p in paths for f in read_report_files([p]).files)
    what = f"read {len(paths)} reports ({launches} launches) / a bare ncu_report loop"
    yield Figure(what, ours / theirs, 1.5)
    ROOM.forbid_reading_here()
    read_report_files(paths[:1])
    (forks,) = best(3, lambda: [read_report_files([p]) for p in paths])
    ROOM.files_left, ROOM.bytes_left = HERE_FILES, HERE_BYTES
    yield Figure(
        f"read {len(paths)} reports, each asked for alone, in forks / here", forks / ours, 4
    )


READ_ONE = """
import os, resource, sys, time
from pathlib import Path
from tests.speed import bare
import ncu_report
from profkit.reports.isolated import end_servers
from profkit.reports.reader import read_report_files
who, path = sys.argv[1:]
began = time.perf_counter()
if who == "bare":
    bare([Path(path)])
else:
    assert read_report_files([path], jobs=int(who) or None).files[0].status == "ok"
took = time.perf_counter() - began
end_servers()  # then their time is counted
own, children = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(took, own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime)
"""


def big() -> Iterator[Figure]:
    """Reports of the kind that users have, each side in a process of its own: a bare loop takes 4 GB."""

    def read(who: str, path: Path) -> tuple[float, ...]:
        command = [sys.executable, "-c", READ_ONE, who, str(path)]
        done = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
        return tuple(map(float, done.stdout.split()))

    for name in FULL:
        path = BIG / name
        if not path.exists():
            print(f"       {name}: not measured; built by: python tests/big.py")
            continue
        turns = [[read(who, path) for who in ("bare", "1", "0")] for _ in range(3)]
        one = median(one[0] / loop[0] for loop, one, _ in turns)
        every = median(every[0] / loop[0] for loop, _, every in turns)
        children = median(every[2] / loop[1] for loop, _, every in turns)
        yield Figure(f"read {name} with one worker / a bare loop", one, 1.2)
        yield Figure(f"read {name} with all / a bare loop", every, 1.0)
        yield Figure(f"read {name}: processor time of all children / of a bare loop", children, 1.5)


def tiny() -> Iterator[Figure]:
    """Ten thousand launches of 274 bytes as JSON, and two hundred reports of a folder as text."""
    with tempfile.TemporaryDirectory() as folder:
        asked = {f"{len(paths)} reports": paths for paths in [copies(Path(folder))[:200]]}
        if (BIG / TINY).exists():
            asked[TINY] = [BIG / TINY, Path("--json")]
        else:
            print(f"       {TINY}: not measured; built by: python tests/big.py")
        for what, words in asked.items():
            command = [sys.executable, "-m", "profkit", "diagnose", *map(str, words)]
            began = time.perf_counter()
            with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
                most = peak(process)
            yield Figure(f"diagnose {what}", time.perf_counter() - began, 20, "s")
            if what == TINY:
                yield Figure(f"diagnose {what}: peak memory", most / 1e6, 400, "MB")


def traces() -> Iterator[Figure]:
    """A trace of 200 MB, as torch.profiler writes it of a step with many small launches."""
    if not (BIG / TRACE).exists():
        print(f"       {TRACE}: not measured; built by: python tests/big.py")
        return
    command = [sys.executable, "-m", "profkit", "triage", str(BIG / TRACE)]
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        most = peak(process)
    assert process.returncode == 0
    yield Figure(f"triage {TRACE}", time.perf_counter() - began, 10, "s")
    yield Figure(f"triage {TRACE}: peak memory", most / 1e6, 500, "MB")


def starting() -> Iterator[Figure]:
    from tests.conftest import committed

    small = min(committed(), key=lambda p: p.stat().st_size)
    help_, typer = best(20, python("-m", "profkit", "--help"), python("-c", "import typer"))
    yield Figure("profkit --help / import typer", help_ / typer, 1.6)
    one, imports = best(10, python("-m", "profkit", "diagnose", str(small)), python("-c", BASELINE))
    yield Figure(f"profkit diagnose {small.name} / its imports", one / imports, 1.2)


def naming_lines() -> Iterator[Figure]:
    for name in ("stage2.B.ncu-rep", "probes/probes-0.ncu-repz"):
        diagnose = ("-m", "profkit", "diagnose", str(ARTIFACTS / name))
        lines, without = best(5, python(*diagnose), python(*diagnose, "--lines", "0"))
        yield Figure(f"profkit diagnose {name} / without lines", lines / without, 2)


def copies(folder: Path) -> list[Path]:
    """MANY reports of a full set: links to the committed ones, each under a name of its own.

    Without those of 14 launches and 64 MB unpacked: one of them alone takes 360 MB of the native
    library.
    """
    from tests.conftest import committed

    own = [p for p in committed() if "math" not in p.name]
    links = [folder / f"{i:03}-{p.name}" for i, p in enumerate(islice(cycle(own), MANY))]
    for link, report in zip(links, cycle(own), strict=False):
        link.symlink_to(report)
    return links


READ = """
import sys
from profkit.reports.reader import read_report_files
found = read_report_files(sys.argv[2:], jobs=int(sys.argv[1]))
assert all(file.status == "ok" for file in found.files), found.files
print(len(found.launches))
"""


def many() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(path) for path in copies(Path(folder))]

        def process(jobs: int) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", READ, str(jobs), *paths]
            return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

        def run(jobs: int) -> None:
            assert process(jobs).wait() == 0

        before = time.perf_counter()
        run(2)
        first = time.perf_counter() - before
        one, two = best(3, lambda: run(1), lambda: run(2))
        what = f"{MANY} reports: one process / two"
        yield Figure(what, one / two, 1.6, at_least=True)
        yield Figure(f"{MANY} reports: a later look / the first", two / first, 1.1)
        megabytes = peak(process(2)) / 1e6
        yield Figure(f"{MANY} reports, two processes: peak memory", megabytes, 500, "MB")


def peak(process: subprocess.Popen[str]) -> float:
    """The most memory in bytes that a process and its children had together until it ended.

    Looked at every 10 ms; a page that several share counts once (PSS). A look during which a process
    began or ended does not count: what it shares would be counted with two different parts.
    """
    most = 0.0
    while process.poll() is None:
        before = family(process.pid)
        together = sum(map(proportional, before))
        if family(process.pid) == before:
            most = max(most, together)
        time.sleep(0.01)
    return most


def family(pid: int) -> list[int]:
    """A process and all that descend from it; those that end meanwhile are left out."""
    with contextlib.suppress(OSError):
        tasks = Path(f"/proc/{pid}/task").iterdir()
        children = [int(c) for task in tasks for c in (task / "children").read_text().split()]
        return [pid, *(one for child in children for one in family(child))]
    return []


def proportional(pid: int) -> float:
    """A process's memory in bytes, of shared pages its part."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return float(line.split()[1]) * 1024
    return 0.0


def main() -> int:
    processors = len(os.sched_getaffinity(0))
    print(
        f"{processors} processors, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}"
    )
    missed = 0
    for part in (starting, reading, big, tiny, traces, naming_lines, many):
        for figure in part():
            print(figure, flush=True)
            missed += not figure.met
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
