"""Probes  ->  built, checked, timed (times.json) and profiled (probes-N.ncu-rep) on this GPU.

    python kernels/probes/record.py --out DIR [ID ...]       on the machine with the GPU
    python kernels/probes/record.py --out DIR --mains [ID ...]   the same without twins and times
    python kernels/probes/record.py --keep DIR               anywhere: DIR into artifacts/probes

Reports keep the paths they saw: run it from a neutral folder. profkit.lab.measure builds, times and
profiles; each step is a process of its own, and the next goes on behind a probe that fails. What is
kept is packed, under the next free numbers; of a probe recorded twice the later report counts.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import problem
from driver import Item, Task

from profkit.collect import process, profiler, tools
from profkit.collect.profiler import CollectOptions
from profkit.errors import ProfkitError
from profkit.files import read_json, write_bytes, write_text
from profkit.lab.measure.cuda import device
from profkit.lab.measure.variants import build, variants
from profkit.lab.measure.variants.build import SUPPORT

SECTIONS = (
    "SpeedOfLight",
    "SpeedOfLight_RooflineChart",
    "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Chart",
    "MemoryWorkloadAnalysis_Tables",
    "LaunchStats",
    "Occupancy",
    "SchedulerStats",
    "WarpStateStats",
    "InstructionStats",
    "SourceCounters",
    "WorkloadDistribution",
)
START, EACH = 60.0, 20.0  # seconds that a process may take to start, and for each of its items
PER_REPORT = 40  # launches
KEPT = Path(__file__).resolve().parents[2] / "artifacts" / "probes"

Child = Callable[[list[str], int, float], None]  # program, number and timeout: run it


def build_all(folder: Path, arch: str, only: Sequence[str], twins: bool) -> tuple[Task, list[str]]:
    """Compile every main and twin side by side.

    Args:
        folder: The build folder.
        arch: `90`.
        only: Ids; empty takes all.
        twins: Whether to build the twins too.

    Returns:
        A task with everything that compiled, and what did not: one line each.
    """
    wanted = [variants.read_variant(SUPPORT)]
    for name, path in problem.probes().items():
        if only and name not in only:
            continue
        probe = variants.read_variant(path)
        wanted.append(probe)
        if twins and probe.header.keys["twin"] == "yes":
            wanted.append(replace(probe, defines={"PROFKIT_TWIN": "1"}))
    support, *made = build.compile_variants_not_built_yet(wanted, [arch], folder)
    items = [_item(b) for b in made if b.library is not None]
    failed = [f"{b.variant.id}: {b.error.splitlines()[0]}" for b in made if b.error]
    return Task("time", str(build.require_library(support)), tuple(items)), failed


def _item(built: build.Build) -> Item:
    which = "twin" if built.variant.defines else "main"
    return Item(built.variant.id, which, str(built.library))


def run_all(task: Task, folder: Path, child: Child, most: int) -> tuple[dict[str, Any], list[str]]:
    """Run children over all items; after one that dies, the next goes on behind what killed it.

    Args:
        task: What to do with which items.
        folder: For task files and logs.
        child: Runs a program under whatever watches it.
        most: Items of one child.

    Returns:
        What was done -> its record, and the names of what failed.
    """
    records: dict[str, Any] = {}
    failed: list[str] = []
    left, number = list(task.items), 0
    while left:
        now = left[:most]
        file = folder / f"{task.do}-{number}.json"
        file.write_text(json.dumps(asdict(replace(task, items=tuple(now)))))
        lines = _run_child(file, child, number, START + EACH * len(now))
        records |= {line["done"]: line["record"] for line in lines if "done" in line}
        ended = {line.get("done") for line in lines}
        begun = [line["start"] for line in lines if "start" in line]
        lost = [name for name in begun if name not in ended]
        if not begun:  # it died before the first: that one is given up, or this never ends
            lost = [_name(task, now[0])]
        failed += lost
        tried = {*ended, *lost}
        left = [item for item in now if _name(task, item) not in tried] + left[most:]
        number += 1
    return records, failed


def _name(task: Task, item: Item) -> str:
    """What the child calls an item: a build when profiling, a probe when timing."""
    return str(item) if task.do == "profile" else item.probe


def _run_child(file: Path, child: Child, number: int, timeout: float) -> list[dict[str, Any]]:
    log = file.with_suffix(".log")
    log.unlink(missing_ok=True)
    driver = Path(__file__).with_name("driver.py").resolve()
    try:
        child([sys.executable, str(driver), str(file)], number, timeout)
    except ProfkitError as error:
        print(f"  {error.message}", flush=True)
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def alone(program: list[str], _number: int, timeout: float) -> None:
    """Run a child by itself."""
    done = process.run_command(program, timeout)
    if done.status:
        raise ProfkitError(f"a child ended with {done.status}: {done.output[-500:].strip()}")


def under_ncu(out: Path, first: int) -> Child:
    """Run a child under ncu; its report is the first free probes-N.ncu-rep."""
    ncu = tools.require_tool("ncu")

    def run(program: list[str], number: int, timeout: float) -> None:
        marked = ("--profile-from-start", "off")
        options = CollectOptions(timeout=timeout, filters=marked, sections=SECTIONS)
        profiler.profile_program(program, out / f"probes-{first + number}.ncu-rep", ncu, options)

    return run


def this_gpu() -> str:
    """This machine's GPU, driver and clocks in one line."""
    gpu = device.add_gpu_uuid_and_driver(device.query_first_gpu())
    now, driver = device.read_gpu_state(gpu.pci).sm_clock, gpu.driver
    clock = "unknown" if now is None else f"{now * 1e-6:.0f} MHz"
    return f"{gpu.name}, {driver or 'unknown'}, {clock}, {gpu.sm_clock * 1e-6:.0f} MHz"


@contextlib.contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Let others that change files of the same folder wait. The lock ends with the process."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def keep_times(file: Path, records: dict[str, Any], gpu: str) -> None:
    """Put times into times.json, one line per probe; those of other probes stay."""
    with hold_folder(
        file.parent
    ):  # two recordings at once: the second sees what the first has written
        old = read_json(file)["times"] if file.exists() else {}
        lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted({**old, **records}.items()))
        body = ",\n".join(lines)
        write_text(file, f'{{"gpu": {json.dumps(gpu)}, "unit": "s", "times": {{\n{body}\n}}}}\n')


def keep(new: Path, kept: Path = KEPT) -> list[Path]:
    """Add a recording to the committed ones: times merged, reports packed.

    Args:
        new: The --out folder of a recording.
        kept: Where times.json and probes-N.ncu-repz are.

    Returns:
        The reports written.

    Raises:
        SystemExit: the recording is of another GPU: its times do not compare.
    """
    from zstandard import ZstdCompressor

    times = json.loads((new / "times.json").read_text())
    if (kept / "times.json").exists():
        before = json.loads((kept / "times.json").read_text())["gpu"]
        if before.split(",")[0] != times["gpu"].split(",")[0]:
            raise SystemExit(f"{new} is of another GPU: {times['gpu']}; kept: {before}")
    kept.mkdir(parents=True, exist_ok=True)
    written = []
    with hold_folder(kept):
        first = len([*kept.glob("probes-*.ncu-repz")])
        for number, report in enumerate(sorted(new.glob("probes-*.ncu-rep")), first):
            written.append(kept / f"probes-{number}.ncu-repz")
            packed = ZstdCompressor(19, write_checksum=True).compress(report.read_bytes())
            write_bytes(written[-1], packed)
    keep_times(kept / "times.json", times["times"], times["gpu"])
    return written


def record_times(out: Path, folder: Path, task: Task) -> Task:
    """Check and time probes with their twins into times.json; a task of those that ran."""
    times, failed = run_all(task, folder, alone, len(task.items))
    keep_times(out / "times.json", times, this_gpu())
    print(f"{time.strftime('%X')} timed {len(times)}, failed: {failed or 'none'}", flush=True)
    print(*(f"  {n}: {t['fault']}" for n, t in times.items() if t["fault"]), sep="\n", flush=True)
    return replace(task, items=tuple(item for item in task.items if item.probe in times))


def main() -> None:
    """Build, time, profile; or keep what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("probes"))
    parser.add_argument("--arch", default="90")
    parser.add_argument("--mains", action="store_true", help="no twins, no times")
    parser.add_argument("--keep", type=Path, help="a recording to add to artifacts/probes")
    given = parser.parse_args()
    if given.keep:
        print(*keep(given.keep), sep="\n")
        return
    unknown = set(given.only) - set(problem.probes())
    if unknown:
        parser.error(f"no such probe: {', '.join(sorted(unknown))}")
    out = given.out.resolve()
    folder = out / "build"
    folder.mkdir(parents=True, exist_ok=True)
    task, errors = build_all(folder, given.arch, given.only, twins=not given.mains)
    print(f"{time.strftime('%X')} built, failed: {errors or 'none'}", flush=True)
    if not given.mains:
        task = record_times(out, folder, task)
    first = len([*out.glob("probes-*.ncu-rep*")])
    profiled, failed = run_all(
        replace(task, do="profile"), folder, under_ncu(out, first), PER_REPORT
    )
    print(f"{time.strftime('%X')} profiled {len(profiled)}, failed: {failed or 'none'}", flush=True)


if __name__ == "__main__":
    main()
