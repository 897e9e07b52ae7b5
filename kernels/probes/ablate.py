"""Probes  ->  what ablation says of each, its twin timed beside it: ablations.json.

    python kernels/probes/ablate.py --out DIR [ID ...]            on the machine with the GPU
    python kernels/probes/ablate.py --out DIR --sanitize [ID ...]  every rewritten kernel under memcheck
    python kernels/probes/ablate.py --keep DIR                    anywhere: DIR into artifacts/probes

A child holds the GPU and the buffers and goes through the probes; after one that is lost, another goes
on without what it was lost to. Nothing here knows a probe's answer: only its twin is timed with it.
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
from profkit.lab.ablation import assemble
from profkit.lab.ablation.classes import list_ablations
from profkit.lab.ablation.lab import Conditions
from profkit.lab.ablation.launches import Hung
from profkit.lab.ablation.measurement import measure_call
from profkit.lab.measure.cuda import device, library
from profkit.lab.measure.variants import build, variants
from profkit.lab.measure.variants.build import SUPPORT

ROUNDS = 16, 16
KEPT = Path(__file__).resolve().parents[2] / "artifacts" / "probes" / "ablations.json.xz"
SANITIZED = KEPT.with_name("memcheck.json")
LOST = 3
_START, _EACH = 150.0, 30.0  # seconds that a child may take to start, and for each probe


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
    support, *made = build.compile_variants(wanted, [arch], folder)
    for built in made:
        if built.failure:
            raise built.failure
    twins = {b.variant.id: str(b.library) for b in made if b.variant.defines}
    items = []
    for built in made:
        if built.variant.defines or built.library is None:
            continue
        assemble.write_ptx(built, folder)
        items.append(
            Item(
                probe=built.variant.id,
                library=str(built.library),
                twin=twins.get(built.variant.id, ""),
                ptx=str(assemble.find_ptx_file(built, folder)),
                arch=built.arch,
                flags=tuple(assemble.read_ptxas_flags(built.flags)),
            )
        )
    return Task(str(build.require_library(support)), str(folder), tuple(items))


def ablate_all(task: Task, out: Path, prefix: Sequence[str | Path] = ()) -> dict[str, Any]:
    """Probe -> its record as JSON, or why there is none; children as many as it takes."""
    known = {ablation.id for ablation in list_ablations()}
    records: dict[str, Any] = {}
    refused = {name: dict(rows) for name, rows in task.refused.items()}
    left, number = list(task.items), 0
    while left:
        file = out / f"ablate-{number}.json"
        now = replace(task, items=tuple(left), refused=refused)
        file.write_text(json.dumps(asdict(now)))
        here = Path(__file__).resolve()
        command = [*prefix, sys.executable, here, "--child", file]
        done = process.run_command(command, _START + _EACH * len(left))
        number += 1
        begun, ablation, run = "", "", []
        for line in _read_log(file):
            if "probe" in line:
                begun, ablation, run = line["probe"], "", []
            elif "begin" in line and line["begin"] in known:
                ablation = line["begin"]
                run.append(ablation)
            elif "done" in line:
                records[line["done"]] = line["record"]
                if prefix:
                    records[line["done"]] = {"ablations": run, "status": done.status}
                begun = ""
        print(
            f"{time.strftime('%X')} child {number}: {len(records)} done, {done.status}", flush=True
        )
        if begun:
            print(f"  lost at {begun} {ablation}: {done.output[-600:].strip()}", flush=True)
            if not ablation or ablation in refused.get(begun, {}):
                records[begun] = {"error": f"lost at {ablation or 'the start'}"}
            else:
                refused.setdefault(begun, {})[ablation] = f"the process ended with {done.status}"
        elif done.status:
            print(done.output[-800:], flush=True)
            if not records:
                break
        before = len(left)
        left = [item for item in left if item.probe not in records]
        if not begun and len(left) == before:
            break
    return records


def sanitize_all(task: Task, out: Path, jobs: int) -> dict[str, Any]:
    """Probe -> the ablations that ran under memcheck, and its exit status: 0 where it found nothing.

    Each probe has a process of its own, so that an error has a name.
    """
    # A module is asked for a symbol that it need not have: that answer of the driver is no error.
    prefix = [tools.need_tool("compute-sanitizer"), "--error-exitcode", "9"]
    prefix += ["--report-api-errors", "no"]
    records: dict[str, Any] = {}

    def sanitize(item: Item) -> None:
        folder = out / f"memcheck-{item.probe}"
        folder.mkdir(exist_ok=True)
        alone = replace(task, items=(item,), rounds=(1, 1))
        records.update(ablate_all(alone, folder, prefix))

    with ThreadPoolExecutor(jobs) as pool:
        for _ in pool.map(sanitize, task.items):
            write_bytes(out / "sanitized.json", json.dumps(records, indent=0).encode())
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

        gpu = device.identify_gpu(device.open_gpu())
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
                refused=given["refused"].get(item.probe, {}),
            )
            try:
                record = _ablate_probe(item, buffers, conditions, tell)
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


def _ablate_probe(
    item: Item, buffers: Buffers, conditions: Conditions, tell: Callable[..., None]
) -> Any:
    main = _make_call(item.library, buffers)
    beside = {"twin": _make_call(item.twin, buffers)} if item.twin else {}
    for call in beside.values():
        call(device.create_stream())
        device.synchronize()
    text = Path(item.ptx).read_text()
    record, _ = measure_call(
        main, buffers.reset, text, conditions, lambda what: tell(begin=what), beside
    )
    return msgspec.to_builtins(record)


def _make_call(path: str, buffers: Buffers) -> Callable[[int], None]:
    loaded = library.load_library(Path(path))
    return lambda stream: library.start_launcher(loaded, buffers.arguments(stream))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*")
    parser.add_argument("--out", type=Path, default=Path("ablations"))
    parser.add_argument("--arch", default="90")
    parser.add_argument("--sanitize", action="store_true", help="run each once under memcheck")
    parser.add_argument("--jobs", type=int, default=6, help="processes under memcheck")
    parser.add_argument("--build", action="store_true", help="compile, and no more")
    parser.add_argument("--keep", type=Path, help="a recording to put into artifacts/probes")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return _work_child(given.child)
    if given.keep:
        packed = lzma.compress((given.keep / "ablations.json").read_bytes())
        write_bytes(KEPT, packed)
        write_bytes(SANITIZED, (given.keep / "sanitized.json").read_bytes())
        return 0
    out = given.out.resolve()
    folder = out / "build"
    folder.mkdir(parents=True, exist_ok=True)
    task = build_items(folder, given.arch, given.only)
    print(f"{time.strftime('%X')} built {len(task.items)}", flush=True)
    if given.build:
        return 0
    if given.sanitize:
        records = sanitize_all(task, out, given.jobs)
        for probe, record in records.items():
            if record.get("status") != 0:
                print(probe, record, flush=True)
        return 0
    records = ablate_all(task, out)
    write_bytes(out / "ablations.json", json.dumps(records, indent=0).encode())
    for probe, record in records.items():
        verdict = record.get("verdict", {})
        print(probe, record.get("error", ""), verdict.get("cause"), f"{record.get('base', 0):.4g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
