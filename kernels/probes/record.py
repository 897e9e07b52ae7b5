"""Probes  ->  built, checked, timed (times.json) and profiled (probes-N.ncu-rep) on this GPU.

    python kernels/probes/record.py --out DIR [ID ...]       on the machine with the GPU
    python kernels/probes/record.py --out DIR --mains [ID ...]   the same without twins and times
    python kernels/probes/record.py --keep DIR               anywhere: DIR into artifacts/probes

Reports keep the paths they saw: run it from a neutral folder. Each step runs in a process of its
own that goes on after a probe that fails; nothing but CUDA, ncu and numpy is needed. What is kept
is packed, under the next free numbers; of a probe recorded twice the later report counts.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import problem

from profkit.records.header import target

SECTIONS = (
    "SpeedOfLight", "SpeedOfLight_RooflineChart", "ComputeWorkloadAnalysis",
    "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Chart", "MemoryWorkloadAnalysis_Tables",
    "LaunchStats", "Occupancy", "SchedulerStats", "WarpStateStats", "InstructionStats",
    "SourceCounters", "WorkloadDistribution",
)  # fmt: skip
STALLED = 60  # seconds without progress after which a process is given up
PER_REPORT = 40  # launches
KEPT = Path(__file__).resolve().parents[2] / "artifacts" / "probes"
NVTX = """#include <nvtx3/nvToolsExt.h>
extern "C" void range_push(const char* name) { nvtxRangePushA(name); }
extern "C" void range_pop() { nvtxRangePop(); }
"""


def build(folder: Path, arch: str, only: list[str], twins: bool = True) -> dict[str, str]:
    """Compile every main and twin side by side; id.which -> error for those that failed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nvtx.cu").write_text(NVTX)
    jobs = [("nvtx", folder / "nvtx.cu", arch, False)]
    for name, path in problem.probes().items():
        keys = problem.header(path)
        code = target(keys.get("arch"), arch, path.name)
        if (only and name not in only) or code is None:
            continue
        jobs.append((f"{name}.main", path, code, False))
        if twins and keys["twin"] == "yes":
            jobs.append((f"{name}.twin", path, code, True))

    def compile_one(job: tuple[str, Path, str, bool]) -> tuple[str, str]:
        name, path, code, twin = job
        done = subprocess.run(
            ["nvcc", "-std=c++17", "-O3", "-lineinfo", "-cudart", "shared", "-shared",
             f"-gencode=arch=compute_{code},code=sm_{code}", "-Xcompiler", "-fPIC",
             *(["-DPROFKIT_TWIN"] if twin else []), "-o", str(folder / f"{name}.so"), str(path)],
            capture_output=True, text=True, check=False)  # fmt: skip
        return name, "" if done.returncode == 0 else done.stderr[-2000:]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return {name: error for name, error in pool.map(compile_one, jobs) if error}


def run(task: dict[str, Any], task_file: Path, prefix: list[str]) -> list[dict[str, Any]]:
    """A parent's side: run a child until it ends or stands still; its lines."""
    task_file.write_text(json.dumps(task))
    log, seen, since = task_file.with_suffix(".log"), -1, time.monotonic()
    log.unlink(missing_ok=True)
    command = [
        *prefix,
        sys.executable,
        str(Path(__file__).with_name("driver.py").resolve()),
        str(task_file),
    ]
    with task_file.with_suffix(".out").open("w") as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, process_group=0)
        while child.poll() is None:
            time.sleep(0.2)
            size = log.stat().st_size if log.exists() else 0
            if size != seen:
                seen, since = size, time.monotonic()
            if time.monotonic() - since > STALLED:
                os.killpg(child.pid, signal.SIGKILL)
                break
        child.wait()
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def run_all(task: dict[str, Any], stem: str, prefixes: Any, limit: int) -> tuple[dict, list[str]]:
    """Run children over all items; after one that dies, the next goes on behind what killed it."""
    found: dict[str, Any] = {}
    failed: list[str] = []
    items, number = list(task["items"]), 0
    while items:
        now = items[:limit]
        file = Path(task["folder"]) / f"{stem}-{number}.json"
        lines = run({**task, "items": now}, file, prefixes(number))
        found |= {line["done"]: line.get("found") for line in lines if "done" in line}
        started = sum("start" in line for line in lines)
        if started and "done" in lines[-1] and started == len(now):
            items = items[limit:]
        else:
            failed.append(".".join(now[max(started - 1, 0)]))
            items = items[max(started, 1) :]
        number += 1
    return found, failed


def ncu(out: Path, number: int) -> list[str]:
    """The ncu command in front of a child."""
    sections = [word for name in SECTIONS for word in ("--section", name)]
    return ["ncu", "--clock-control", "none", "--profile-from-start", "off", "--nvtx", "-f",
            *sections, "-o", str(out / f"probes-{number}")]  # fmt: skip


def this_gpu() -> str:
    """This machine's GPU, driver and clocks in one line."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.max.sm",
             "--format=csv,noheader"]  # fmt: skip
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()


def keep_times(file: Path, found: dict[str, Any], gpu: str) -> None:
    """Put times into times.json, one line per probe; those of other probes stay."""
    old = json.loads(file.read_text())["times"] if file.exists() else {}
    lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted({**old, **found}.items()))
    body = ",\n".join(lines)
    file.write_text(f'{{"gpu": {json.dumps(gpu)}, "unit": "s", "times": {{\n{body}\n}}}}\n')


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
    first = len([*kept.glob("probes-*.ncu-repz")])
    written = []
    for number, report in enumerate(sorted(new.glob("probes-*.ncu-rep")), first):
        written.append(kept / f"probes-{number}.ncu-repz")
        packed = ZstdCompressor(19, write_checksum=True).compress(report.read_bytes())
        written[-1].write_bytes(packed)
    keep_times(kept / "times.json", times["times"], times["gpu"])
    return written


def measure(out: Path, folder: Path, names: list[str]) -> list[list[str]]:
    """Check and time probes with their twins into times.json; [id, which] of those that ran."""
    task = {"do": "time", "folder": str(folder), "items": [[n] for n in names]}
    times, failed = run_all(task, "time", lambda _: [], len(names))
    keep_times(out / "times.json", times, this_gpu())
    print(f"{time.strftime('%X')} timed {len(times)}, failed: {failed or 'none'}", flush=True)
    print(*(f"  {n}: {t['fault']}" for n, t in times.items() if t["fault"]), sep="\n", flush=True)
    return [[n, w] for n in times for w in ("main", "twin") if w in times[n]]


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
    errors = build(folder, given.arch, given.only, twins=not given.mains)
    print(f"{time.strftime('%X')} built, failed: {errors or 'none'}", flush=True)
    names = sorted(p.name.removesuffix(".main.so") for p in folder.glob("*.main.so"))
    names = [n for n in names if not given.only or n in given.only]
    pairs = [[n, "main"] for n in names] if given.mains else measure(out, folder, names)
    task = {"do": "profile", "folder": str(folder), "items": pairs}
    first = len([*out.glob("probes-*.ncu-rep*")])
    profiled, failed = run_all(task, "profile", lambda i: ncu(out, first + i), PER_REPORT)
    print(f"{time.strftime('%X')} profiled {len(profiled)}, failed: {failed or 'none'}", flush=True)


if __name__ == "__main__":
    main()
