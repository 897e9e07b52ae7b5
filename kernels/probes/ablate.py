"""Probes  ->  what ablation says of each, its twin timed beside it: ablations.json.

    python kernels/probes/ablate.py --out DIR [ID ...]            on the machine with the GPU
    python kernels/probes/ablate.py --out DIR --sanitize [ID ...]  every rewritten kernel under memcheck
    python kernels/probes/ablate.py --out DIR --dry [ID ...]      either, with nothing measured
    python kernels/probes/ablate.py --keep DIR ...                anywhere: into artifacts/probes

With --until SECONDS it stops then, and has written what it has; --but DIR leaves out what is recorded
there. A child holds the GPU and the buffers and goes through the probes; after one that is lost,
another goes on without what it was lost to. Nothing here knows a probe's answer: only its twin is
timed with it.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import problem
from driver import Buffers

from profkit.collect import process, tools
from profkit.errors import ProfkitError
from profkit.files import write_bytes
from profkit.lab.ablation import assemble, measurement
from profkit.lab.ablation.classes import list_ablations
from profkit.lab.ablation.judge import add_ablation_verdict
from profkit.lab.ablation.lab import WATCH, Conditions
from profkit.lab.ablation.launches import Hung
from profkit.lab.measure.cuda import device, library
from profkit.lab.measure.variants import build, variants
from profkit.lab.measure.variants.build import SUPPORT
from profkit.records.ablation import AblationRecord

ROUNDS = 16, 16
KEPT = Path(__file__).resolve().parents[2] / "artifacts" / "probes" / "ablations.json.xz"
SANITIZED = KEPT.with_name("memcheck.json")
LOST = 3
_START, _EACH = 150.0, 30.0  # seconds that a child may take to start, and for each probe
_TOGETHER = 4  # probes that one process runs under memcheck
_PATIENCE = 2000.0  # times the original's time that counting may take there
_SMS, _DRAM = 132, 3.352e12  # of an H100, bytes per second
_MEMORY_ERROR = 9  # exit status of memcheck that found something


@dataclass(frozen=True)
class Item:
    """One probe, built."""

    probe: str
    library: str
    twin: str  # empty without one
    ptx: str
    arch: str
    flags: tuple[str, ...]  # of ptxas


@dataclass(frozen=True)
class Task:
    support: str
    folder: str  # where machine code is kept
    items: tuple[Item, ...]
    rounds: tuple[int, int] = ROUNDS
    # probe -> ablation -> how it lost an earlier child
    refused: dict[str, dict[str, str]] = field(default_factory=dict)
    once: bool = False  # run everything once, and time nothing
    dry: bool = False  # without a GPU: nothing is run


def build_items(folder: Path, arch: str, only: Sequence[str]) -> Task:
    """Compile every probe with its twin, and write its PTX."""
    wanted = [variants.read_variant(SUPPORT)]
    for name, path in problem.probes().items():
        if only and name not in only:
            continue
        probe = variants.read_variant(path)
        wanted.append(probe)
        if probe.header.keys["twin"] == "yes":
            wanted.append(replace(probe, defines={"PROFKIT_TWIN": "1"}))
    support, *made = build.compile_variants_not_built_yet(wanted, [arch], folder)
    for built in made:
        if built.failure:
            raise built.failure
    twins = {b.variant.id: str(b.library) for b in made if b.variant.defines}
    probes = [b for b in made if not b.variant.defines and b.library]
    with ThreadPoolExecutor(process.count_usable_cores()) as pool:
        list(pool.map(lambda built: assemble.get_or_write_ptx(built, folder), probes))
    items = []
    for built in probes:
        items.append(
            Item(
                probe=built.variant.id,
                library=str(built.library),
                twin=twins.get(built.variant.id, ""),
                ptx=str(assemble.find_ptx_file(built, folder)),
                arch=built.arch,
                flags=tuple(assemble.select_ptxas_flags(built.flags)),
            )
        )
    return Task(str(build.require_library(support)), str(folder), tuple(items))


@dataclass(frozen=True)
class Clock:
    """When to stop."""

    end: float  # of time.monotonic()

    def limit_seconds(self, wanted: float) -> float:
        return max(1.0, min(wanted, self.end - time.monotonic()))

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.end


@dataclass
class Progress:
    """What a child's log says."""

    records: dict[str, Any] = field(default_factory=dict)
    runs: dict[str, list[str]] = field(default_factory=dict)  # probe -> the ablations it began
    begun: str = ""  # the probe that it did not end with


def read_progress(file: Path) -> Progress:
    known = {ablation.id for ablation in list_ablations()}
    found = Progress()
    for line in _read_log(file):
        if "probe" in line:
            found.begun = line["probe"]
            found.runs[found.begun] = []
        elif line.get("begin") in known:
            found.runs[found.begun].append(line["begin"])
        elif "done" in line:
            found.records[line["done"]] = line["record"]
            found.begun = ""
    return found


def run_child(
    task: Task, file: Path, prefix: Sequence[str | Path], clock: Clock
) -> process.FinishedCommand:
    file.write_text(json.dumps(asdict(task)))
    command = [*prefix, sys.executable, Path(__file__).resolve(), "--child", file]
    seconds = clock.limit_seconds(_START + _EACH * len(task.items))
    return process.run_command(command, seconds)


def ablate_all(task: Task, out: Path, clock: Clock) -> dict[str, Any]:
    """Probe -> its record as JSON, or why there is none; children as many as it takes."""
    records: dict[str, Any] = {}
    refused: dict[str, dict[str, str]] = {}
    left, number = list(task.items), 0
    while left and not clock.is_over:
        file = out / f"ablate-{number}.json"
        done = run_child(replace(task, items=tuple(left), refused=refused), file, (), clock)
        number += 1
        found = read_progress(file)
        records.update(found.records)
        write_bytes(out / "ablations.json", json.dumps(records, indent=0).encode())
        print(
            f"{time.strftime('%X')} child {number}: {len(records)} done, {done.status}", flush=True
        )
        if done.status:
            print(done.output[-800:], flush=True)
        if done.status and clock.is_over:
            break
        probe = found.begun
        if probe:
            ablation = (found.runs[probe] or ["the start"])[-1]
            print(f"  lost at {probe} {ablation}", flush=True)
            if ablation == "the start" or ablation in refused.get(probe, {}):
                records[probe] = {"error": f"lost at {ablation}"}
            else:
                why = f"the process ended with {done.status}"
                refused.setdefault(probe, {})[ablation] = why
        before = len(left)
        left = [item for item in left if item.probe not in records]
        if not probe and len(left) == before:
            break
    return records


def sanitize_all(task: Task, out: Path, jobs: int, clock: Clock) -> dict[str, Any]:
    """Probe -> the ablations that ran under memcheck, and its exit status: 0 where it found nothing.

    A few probes share a process. If memcheck finds something there, each gets one of its own.
    """
    # A module is asked for a symbol that it need not have: that answer of the driver is no error.
    prefix: list[str | Path] = ["env"]
    if not task.dry:
        prefix = [tools.require_tool("compute-sanitizer"), "--error-exitcode", str(_MEMORY_ERROR)]
        prefix += ["--report-api-errors", "no"]
    records: dict[str, Any] = {}
    once = replace(task, rounds=(1, 1), once=True)

    def sanitize(items: Sequence[Item], tries: int = 2) -> None:
        if clock.is_over:
            return
        file = out / f"memcheck-{items[0].probe}-{len(items)}.json"
        done = run_child(replace(once, items=tuple(items)), file, prefix, clock)
        if done.status and clock.is_over:
            return
        found = read_progress(file)
        was_lost = done.status not in (0, _MEMORY_ERROR)  # memcheck itself may crash beside others
        if len(items) == 1 and was_lost and tries > 1:
            sanitize(items, tries - 1)
            return
        if done.status == 0 or len(items) == 1:
            for probe in found.runs:
                records[probe] = {"ablations": found.runs[probe], "status": done.status}
                if "error" in (found.records.get(probe) or {}):
                    records[probe]["error"] = found.records[probe]["error"]
                if done.status:
                    records[probe]["said"] = done.output[-3000:]
            write_bytes(out / "sanitized.json", json.dumps(records, indent=0).encode())
            print(f"{time.strftime('%X')} {', '.join(found.runs)}: {done.status}", flush=True)
            return
        print(f"{time.strftime('%X')} apart: {done.status} {done.output[-300:]}", flush=True)
        for item in items:
            sanitize([item])

    groups = [task.items[at : at + _TOGETHER] for at in range(0, len(task.items), _TOGETHER)]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(sanitize, groups))
    return records


def _read_log(file: Path) -> list[dict[str, Any]]:
    log = file.with_suffix(".log")
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def _work_child(task_file: Path) -> int:
    given = json.loads(task_file.read_text())
    items = [Item(**{**item, "flags": tuple(item["flags"])}) for item in given["items"]]
    with task_file.with_suffix(".log").open("w") as log:

        def tell(**line: Any) -> None:
            log.write(json.dumps(line) + "\n")
            log.flush()

        if given["dry"]:
            return _work_dry(items, tell)
        gpu = device.add_gpu_uuid_and_driver(device.make_first_gpu_current())
        tools, buffers = library.Support(Path(given["support"]), gpu), Buffers()
        for item in items:
            tell(probe=item.probe)
            conditions = Conditions(
                gpu=gpu,
                tools=tools,
                folder=Path(given["folder"]),
                arch=item.arch,
                flags=item.flags,
                rounds=tuple(given["rounds"]),
                watch=_PATIENCE if given["once"] else WATCH,
                refused=given["refused"].get(item.probe, {}),
            )
            try:
                record = _ablate_probe(item, buffers, conditions, tell, once=given["once"])
            except Hung as error:
                tell(begin=f"hung: {error.message}")
                return LOST
            except device.CudaError as error:
                if error.code in device.STICKY:
                    print(error.message)
                    return LOST
                record = {"error": error.message}
            except ProfkitError as error:
                record = {"error": f"{error.message}; {error.hint}"}
            tell(done=item.probe, record=record)
    return 0


def _work_dry(items: Sequence[Item], tell: Callable[..., None]) -> int:
    """Say what would be begun, and record the PTX's size."""
    for item in items:
        tell(probe=item.probe)
        for ablation in list_ablations():
            tell(begin=ablation.id)
        tell(done=item.probe, record={"dry": len(Path(item.ptx).read_text())})
    return 0


def _ablate_probe(
    item: Item,
    buffers: Buffers,
    conditions: Conditions,
    tell: Callable[..., None],
    once: bool = False,
) -> Any:
    main = _make_call(item.library, buffers)
    if once:
        text = Path(item.ptx).read_text()
        refused = measurement.run_each_change_once(
            main, buffers.reset, text, conditions, lambda what: tell(begin=what)
        )
        return {"refused": msgspec.to_builtins(refused)}
    beside = {"twin": _make_call(item.twin, buffers)} if item.twin else {}
    for call in beside.values():
        call(device.create_non_blocking_stream())
        device.wait_for_gpu_or_stream()
    text = Path(item.ptx).read_text()
    record, _ = measurement.ablate_call(
        main, buffers.reset, text, conditions, lambda what: tell(begin=what), beside
    )
    return msgspec.to_builtins(record)


def _make_call(path: str, buffers: Buffers) -> Callable[[int], None]:
    loaded = library.load_launcher_library(Path(path))
    return lambda stream: library.call_launcher(loaded, buffers.arguments(stream))


def read_recording(folder: Path, name: str) -> dict[str, Any]:
    file = folder / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else {}


def judge_again(record: Any) -> Any:
    """A record with the verdict of today's rules, of the H100 that all of them are of."""
    found = AblationRecord.from_record(record)
    if found is None:
        return record
    return add_ablation_verdict(found, _SMS, _DRAM).to_json()


def keep_recordings(folders: Sequence[Path]) -> None:
    """Put recordings together with those that are kept, the later ones before the earlier."""
    records: dict[str, Any] = json.loads(lzma.decompress(KEPT.read_bytes()))
    checked: dict[str, Any] = json.loads(SANITIZED.read_text())
    for folder in folders:
        records.update(read_recording(folder, "ablations"))
        checked.update(read_recording(folder, "sanitized"))
    if any(read_recording(folder, "ablations") for folder in folders):
        judged = {probe: judge_again(record) for probe, record in records.items()}
        write_bytes(KEPT, lzma.compress(json.dumps(judged, indent=0).encode()))
    if any(read_recording(folder, "sanitized") for folder in folders):
        write_bytes(SANITIZED, json.dumps(checked, indent=0).encode())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("ablations"))
    parser.add_argument("--arch", default="90")
    parser.add_argument("--sanitize", action="store_true", help="run each once under memcheck")
    parser.add_argument("--jobs", type=int, default=6, help="processes under memcheck")
    parser.add_argument("--build", action="store_true", help="compile, and no more")
    parser.add_argument("--dry", action="store_true", help="go through it without a GPU")
    parser.add_argument("--until", type=float, default=3600.0, help="seconds, after which to stop")
    parser.add_argument("--but", type=Path, help="a recording: what it has is left out")
    parser.add_argument("--keep", type=Path, nargs="+", help="recordings for artifacts/probes")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return _work_child(given.child)
    if given.keep:
        keep_recordings(given.keep)
        return 0
    clock = Clock(time.monotonic() + given.until)
    out = given.out.resolve()
    folder = out / "build"
    folder.mkdir(parents=True, exist_ok=True)
    task = build_items(folder, given.arch, given.only)
    task = replace(task, dry=given.dry)
    if given.but:
        recorded = read_recording(given.but, "sanitized" if given.sanitize else "ablations")
        task = replace(task, items=tuple(i for i in task.items if i.probe not in recorded))
    print(f"{time.strftime('%X')} built {len(task.items)}", flush=True)
    if given.build:
        return 0
    if given.sanitize:
        records = sanitize_all(task, out, given.jobs, clock)
        for probe, record in records.items():
            if record.get("status") != 0:
                print(probe, record, flush=True)
        return 0
    records = ablate_all(task, out, clock)
    for probe, record in records.items():
        verdict = record.get("verdict", {})
        print(probe, record.get("error", ""), verdict.get("cause"), f"{record.get('base', 0):.4g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
