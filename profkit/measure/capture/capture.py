"""A command  ->  launches of its Triton kernels, each a problem with a variant, checked and timed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import BinaryIO, Literal, TypedDict

from profkit.errors import ProfkitError
from profkit.files import read_json, temporary_folder
from profkit.measure import process
from profkit.measure.capture.folder import CASE, folder_name, write_problem
from profkit.measure.cuda import device
from profkit.measure.pipeline import measure_target, why_not
from profkit.measure.targets import Target
from profkit.measure.variants import build, problem, variants
from profkit.measure.workers.session import Progress
from profkit.records.store import JsonObject

_INJECTED = Path(__file__).with_name("inject")
_EVERY = 1_000_000


@dataclass(frozen=True)
class CaptureOptions:
    """What to capture."""

    kernel: str = "."
    skip: int = 0  # how many matching kernels to leave out
    count: int | None = 1  # how many to capture; None takes every one
    values: bool = False  # whether inputs keep their very values; else those of whole numbers only
    limit: int = 512 << 20  # the most bytes of arrays that one launch may have
    timeout: float | None = None


@dataclass(frozen=True)
class CapturedKernel:
    """One kernel of the program, with the arrays that it was launched on. Seconds."""

    kernel: str
    launches: int  # how often it was launched like this
    file: Path | None = None
    why_not: str = ""
    in_program: float | None = None  # time of a launch in the program, in a CUDA graph of its own
    here: float | None = None  # the variant's, timed the same way
    equal: str = ""  # `bit-equal`, `within tolerance` or `wrong`; empty if it was not checked
    notes: tuple[str, ...] = ()  # what else there is to know

    @property
    def ratio(self) -> float | None:
        """The variant's time over the program's."""
        if self.here is None or not self.in_program:
            return None
        return self.here / self.in_program

    def to_json(self) -> CapturedEntry:
        """Plain values; null where not known."""
        return {
            "kernel": self.kernel,
            "launches": self.launches,
            "file": str(self.file) if self.file else None,
            "why_not": self.why_not or None,
            "in_program_s": self.in_program,
            "here_s": self.here,
            "ratio": self.ratio,
            "equal": self.equal or None,
            "notes": list(self.notes),
        }


class CapturedEntry(TypedDict):
    """A CapturedKernel as JSON; null where not known."""

    kernel: str
    launches: int
    file: str | None
    why_not: str | None
    in_program_s: float | None
    here_s: float | None
    ratio: float | None
    equal: str | None
    notes: list[str]


class CaptureDocument(TypedDict):
    """What `profkit capture --json` prints."""

    schema: Literal["profkit.capture/1"]
    kernels: list[CapturedEntry]


def capture_program(
    command: Sequence[str], place: Path, options: CaptureOptions, echo: BinaryIO | None = None
) -> list[CapturedKernel]:
    """Run a program to its end and capture launches on the way.

    Raises:
        ProfkitError: The program launched no Triton kernel that a hook could see.
    """
    try:
        re.compile(options.kernel)
    except re.error as error:
        raise ProfkitError(
            f"--kernel {options.kernel}: {error}", "give a regular expression"
        ) from error
    place.mkdir(parents=True, exist_ok=True)
    with temporary_folder(place) as folder:
        done = process.run_command(command, options.timeout, _environment(folder, options), echo)
        seen = _seen(folder)
        if not seen:
            raise ProfkitError(_ended(command, done), _HINT)
        return [_kept(folder, place, row, " ".join(command)) for row in seen]


_HINT = (
    "a kernel is captured where a Python program launches it through Triton or torch.compile; "
    "profkit profile -- COMMAND looks at any kernel"
)


def _ended(command: Sequence[str], done: process.Done) -> str:
    if done.status is None:
        return f"{command[0]} was stopped at --timeout before it launched a Triton kernel"
    words = (done.output.strip().splitlines() or [""])[-1][:200]
    how = f"ended with {done.status}: {words}" if done.status else "launched no Triton kernel"
    return f"{command[0]} {how}"


def _environment(folder: Path, options: CaptureOptions) -> dict[str, str]:
    count = _EVERY if options.count is None else options.count
    request = {**asdict(options), "folder": str(folder), "count": count}
    del request["timeout"]  # not the hook's business
    request_file = folder / "request.json"
    request_file.write_text(json.dumps(request), encoding="utf-8")
    paths = [str(_INJECTED), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"PYTHONPATH": os.pathsep.join(paths), "PROFKIT_CAPTURE": str(request_file)}
    return {**os.environ, **own}


def _seen(folder: Path) -> list[JsonObject]:
    """What the hooks of all the program's processes saw, the most launched first."""
    rows: list[JsonObject] = []
    for left in sorted(folder.glob("seen-*.json")):
        document = read_json(left)
        rows += document["launches"]
        if document["trouble"]:
            rows.append(
                {"kernel": "?", "launches": 0, "folder": None, "why_not": document["trouble"]}
            )
    return sorted(rows, key=lambda row: -row["launches"])


def _kept(folder: Path, place: Path, row: JsonObject, program: str) -> CapturedKernel:
    kernel = CapturedKernel(row["kernel"], row["launches"], why_not=row["why_not"] or "")
    if row["folder"] is None:
        return kernel
    left = folder / row["folder"]
    about = read_json(left / "capture.json")
    name = folder_name(row["kernel"], {p.name for p in place.iterdir()})
    file = write_problem(left, place / name, program, row["launches"])
    notes = (*about["notes"], *([] if about["bit_equal"] else ["it is not the same each time"]))
    return replace(kernel, file=file, in_program=about["seconds"], notes=notes)


def tried(
    kernels: Sequence[CapturedKernel], folder: Path, progress: Progress
) -> list[CapturedKernel]:
    """Check and time what was captured."""
    progress("build")
    files = [k.file for k in kernels if k.file]
    arch = device.gpu().arch
    build.compile_variants(
        [variants.read_variant(f) for f in files], [arch], folder
    )  # side by side; later they are there
    results = []
    for kernel in kernels:
        results.append(tried_kernel(kernel, folder, progress) if kernel.file else kernel)
    return results


def tried_kernel(kernel: CapturedKernel, folder: Path, progress: Progress) -> CapturedKernel:
    """The same with its verdict and its time here; the folder is that of builds."""
    assert kernel.file is not None  # noqa: S101 - the caller looked
    variant = variants.read_variant(kernel.file)
    loaded = problem.load_problem(variants.problem_of(kernel.file))
    target = Target(loaded, (variant,), (), (CASE,), folder)
    try:
        run = measure_target(target, lambda text: progress(f"{kernel.kernel}: {text}"), checks=())
    except ProfkitError as error:  # the others go on
        return replace(kernel, notes=(*kernel.notes, error.message.splitlines()[0]))
    check = run.measured.checks.get(variant.id)
    times = run.measured.times.get((variant.id, CASE))
    failed = why_not(run, variant.id, CASE)
    notes = (*kernel.notes, *([failed.message.splitlines()[0]] if failed else []))
    equal = ""
    if check is not None:
        right = "bit-equal" if check.max_abs == 0 else "within tolerance"
        equal = right if check.status == "right" else check.status
    return replace(kernel, equal=equal, here=median(times.warm) if times else None, notes=notes)
