"""Public kernels with a published fix  ->  what ablation says of each, the fixed one timed beside it.

    python tools/published.py --from CHECKOUTS --sources DIR    anywhere: sources and launches
    python tools/published.py --sources DIR --build             with the GPU: compile all
    python tools/published.py --sources DIR --out FILE [NAME ...]
    python tools/published.py --keep FILE ...                   anywhere: into artifacts/probes

The list (tests/ablation/public.toml) names repositories, commits and lines; their code is not kept here.
CHECKOUTS has a clone of each, in a folder of the name that the list gives it.
"""

from __future__ import annotations

import argparse
import json
import lzma
import subprocess
import time
import tomllib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from profkit.errors import ProfkitError
from profkit.files import read_text, write_bytes, write_text
from profkit.lab.ablation import assemble, run
from profkit.lab.ablation.foreign import (
    CASE,
    Argument,
    LaunchFile,
    check_and_complete_launch,
    write_problem_of_source_file,
)
from profkit.lab.measure.targets import LabFolders, Target, build_target, find_target_by_options

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "ablation" / "public.toml"
KEPT = ROOT / "artifacts" / "probes"  # a list is kept under its own name
SIDES = ("before", "after")
FIXED = " fixed"  # behind the name of a kernel, in the records


def read_list(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text("utf-8"))


def write_sources(listed: Mapping[str, Any], checkouts: Path, folder: Path) -> None:
    """Write the source of each kernel, once as it was and once as it was fixed."""
    for kernel in listed["kernel"]:
        commit = listed["repositories"][kernel["repo"]].rpartition("/")[2]
        parts = []
        for file, first, last in kernel["parts"]:
            lines = read_lines(checkouts / kernel["repo"], commit, file)
            parts.append("\n".join(lines[first - 1 : last]))
        body = "\n\n".join(parts)
        for side in SIDES:
            prelude = kernel.get("prelude", "") + kernel[side].get("prelude", "")
            write_text(folder / f"{kernel['name']}-{side}.cu", f"{prelude}{body}\n")


def read_lines(clone: Path, commit: str, file: str) -> list[str]:
    command = ["git", f"--git-dir={clone}", "show", f"{commit}:{file}"]
    done = subprocess.run(command, capture_output=True, check=True)
    return done.stdout.decode("utf-8").splitlines()


def make_launch(kernel: Mapping[str, Any], side: str, sources: Path) -> LaunchFile:
    shape, arguments = kernel[side], []
    for number, argument in enumerate(kernel["argument"]):
        value = shape.get("values", {}).get(str(number), argument.get("value"))
        arguments.append(Argument(**{**argument, "value": value}))
    launch = LaunchFile(
        grid=tuple(shape["grid"]),
        block=tuple(shape["block"]),
        argument=tuple(arguments),
        shared=shape.get("shared", 0),
    )
    return check_and_complete_launch(launch, sources / kernel["name"])


def make_target(kernel: Mapping[str, Any], sources: Path, fixed: bool = False) -> Target:
    """A problem whose first variant is the kernel, and whose second is the fixed one; or so turned."""
    folder = sources / "build" / kernel["name"]
    names = []
    for side in SIDES:
        source = sources / f"{kernel['name']}-{side}.cu"
        launch = make_launch(kernel, side, sources)
        name = write_problem_of_source_file(source, kernel[side]["kernel"], launch, folder / side)
        text = read_text(folder / side / name / f"{name}_as_launched.cu")
        write_text(folder / "kernels" / "pair" / f"{name}_as_launched.cu", text)
        problem = read_text(folder / side / name / "problem.py")
        write_text(folder / "kernels" / "pair" / "problem.py", problem)
        names.append(name)
    if fixed:
        names.reverse()
    places = LabFolders(folder / "kernels", sources / "build" / "out")
    return find_target_by_options(places, names, False, (CASE,), False)


def compile_kernel(kernel: Mapping[str, Any], sources: Path, arch: str) -> str:
    """Compile both sides, and the PTX of the first; what went wrong, or nothing."""
    target = make_target(kernel, sources)
    builds, _ = build_target(target, arch)
    try:
        for built in builds:
            if built.failure:
                raise built.failure
        for built in builds:
            assemble.get_or_write_ptx(built, target.folder)
            assemble.get_or_write_ptx(built, target.folder, run.FAST_MATH)
    except ProfkitError as error:
        return f"{error.message}; {error.hint}"
    return ""


def say_nothing(what: str) -> None:
    """Show no progress: each kernel's line is enough."""


def measure_kernel(kernel: Mapping[str, Any], sources: Path, fixed: bool = False) -> Any:
    """Ablate a kernel as it was, or as it was `fixed`; the other one takes turns with it."""
    began = time.monotonic()
    try:
        target = make_target(kernel, sources, fixed)
        record, _ = run.ablate_with_others(target, say_nothing, CASE)
    except ProfkitError as error:
        return {"error": f"{error.message}; {error.hint}"}
    document = msgspec.to_builtins(record)
    other = SIDES[not fixed]  # whatever its variant is called
    document["others"] = {f"{kernel['name']}-{other}": min(record.others.values())}
    document["seconds"] = time.monotonic() - began
    return document


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="*")
    parser.add_argument("--from", dest="checkouts", type=Path)
    parser.add_argument("--sources", type=Path)
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--arch", default="90")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--list", type=Path, default=LIST, help="of the kernels")
    parser.add_argument("--keep", type=Path, nargs="+", help="recordings, the later ones count")
    given = parser.parse_args()
    listed = read_list(given.list)
    if given.keep:
        kept: dict[str, Any] = {}
        for file in given.keep:
            kept.update(json.loads(file.read_text("utf-8")))
        write_bytes(KEPT / f"{given.list.stem}.json.xz", lzma.compress(json.dumps(kept).encode()))
        return 0
    if given.checkouts:
        write_sources(listed, given.checkouts, given.sources)
        return 0
    chosen = [k for k in listed["kernel"] if not given.only or k["name"] in given.only]
    if given.build:
        with ThreadPoolExecutor(16) as pool:
            problems = pool.map(lambda k: compile_kernel(k, given.sources, given.arch), chosen)
            for kernel, problem in zip(chosen, problems, strict=True):
                print(f"{kernel['name']}: {problem or 'built'}", flush=True)
        return 0
    records: dict[str, Any] = {}
    for kernel in chosen:
        names = {kernel["name"]: False}
        if kernel["ablation"]:  # what the fix has removed is gone, and nothing more to win
            names[f"{kernel['name']}{FIXED}"] = True
        for name, fixed in names.items():
            record = measure_kernel(kernel, given.sources, fixed)
            records[name] = record
            said = record.get("error") or record["verdict"]["cause"] or "cannot tell"
            print(f"{time.strftime('%X')} {name}: {said}", flush=True)
            given.out.write_text(json.dumps(records))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
