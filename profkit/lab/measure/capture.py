"""A command  ->  launches of its Triton kernels, each a problem with a variant, checked and timed."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
from msgspec import structs

from profkit.collect import process
from profkit.collect.profiler import require_valid_kernel_regex
from profkit.collect.timeline import INJECTED
from profkit.errors import ProfkitError
from profkit.files import list_folder_entries, make_temporary_folder, read_json, write_text
from profkit.lab.measure.cuda import device
from profkit.lab.measure.pipeline import (
    explain_missing_verdict,
    measure_target,
)
from profkit.lab.measure.session import Progress
from profkit.lab.measure.targets import Target
from profkit.lab.measure.variants import build, problem, variants
from profkit.records.store import Document, JsonObject

if TYPE_CHECKING:
    from profkit.units import CommandWords, MacroName, PythonText, Sentence


CASE = "captured"
VARIANT = "captured"
# Units in the last place of what an output is stored in: two of them, and of its own spread.
_EPSILON = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-22, "float64": 2**-22}
_KEPT = ("kernel", "grid", "options", "inputs", "outputs", "seconds", "bit_equal", "notes")
_RENAMED = {"num_warps": "WARPS", "num_stages": "STAGES"}
_AROUND = {"num_warps": (1, 16), "num_stages": (1, 5)}


def write_captured_problem(
    hook_folder: Path, folder: Path, program: str, launch_count: int
) -> Path:
    """Make a problem of the folder that the hook left; return its variant's file.

    `folder` must not be there yet.
    """
    about = read_json(hook_folder / "capture.json")
    folder.mkdir(parents=True)
    for array in sorted(hook_folder.glob("*.bin")):
        shutil.move(array, folder / array.name)
    shutil.copy(INJECTED / "captured_problem.py", folder / "problem.py")
    document = {**_choose_allowed_differences(about), **{key: about[key] for key in _KEPT}}
    write_text(folder / "captured.json", json.dumps(document, indent=1) + "\n")
    path = folder / f"{VARIANT}_{_make_word_for_folder_name(about['kernel'])}.py"
    write_text(path, _render_variant(about, program, launch_count))
    return path


CapturedKernel = Mapping[str, Any]  # what the hook wrote of one, in capture.json


def make_unused_folder_name(kernel: str, taken_names: set[str]) -> str:
    """Return a folder name for a kernel that is not taken yet."""
    stem = _make_word_for_folder_name(kernel)
    name = stem
    number = 1
    while name in taken_names:
        number += 1
        name = f"{stem}-{number}"
    return name


def _render_variant(captured_kernel: CapturedKernel, program: str, launch_count: int) -> PythonText:
    """Return the text of a variant: prose, imports, constants, definitions, the launch."""
    tunables = _choose_tunable_values(captured_kernel)
    prose = _render_prose(captured_kernel, program, launch_count, tunables)
    constants = [f"{name} = {values[0]}" for name, values in tunables.items()]
    parts = [
        prose + captured_kernel["imports"],
        "\n".join(constants),
        captured_kernel["definitions"],
        _render_launch(captured_kernel, tunables),
    ]
    return "\n\n\n".join(filter(None, parts)) + "\n"


def _write_arguments_and_locals(
    captured_kernel: CapturedKernel, tunables: Mapping[str, Any]
) -> tuple[list[PythonText], list[PythonText]]:
    """Return a launch's arguments as code, and the lines that give numbers of the grid a name."""
    arguments = []
    lines = []
    for parameter in captured_kernel["parameters"]:
        name = parameter["name"]
        if "array" in parameter:
            arguments.append(parameter["array"])
        elif name in tunables:
            arguments.append(name)
        elif isinstance(parameter.get("value"), int) and captured_kernel["grid_text"]:
            lines.append(f"    {name} = {parameter['value']!r}\n")
            arguments.append(name)
        else:
            arguments.append(parameter.get("code", repr(parameter.get("value"))))
    return arguments, lines


def _render_launch(captured_kernel: CapturedKernel, tunables: Mapping[str, Any]) -> PythonText:
    arrays = []
    for i in range(len(captured_kernel["inputs"])):
        arrays.append(f"in{i}")
    arrays += [f"out{i}" for i in range(len(captured_kernel["outputs"]))]
    arguments, locals_ = _write_arguments_and_locals(captured_kernel, tunables)
    options = []
    for k, v in captured_kernel["options"].items():
        options.append(f"{k}={_RENAMED.get(k, repr(v))}")
    grid = captured_kernel["grid_text"] or repr(tuple(captured_kernel["grid"]))
    return (
        f"def launch({', '.join(arrays)}, args):\n"
        '    """As the program launched it."""\n'
        f"{''.join(locals_)}"
        f"    grid = {grid}\n"
        f"    {captured_kernel['kernel']}[grid](\n        {', '.join([*arguments, *options])},\n    )"
    )


def _choose_tunable_values(captured_kernel: CapturedKernel) -> dict[MacroName, list[int]]:
    """Return tunable -> values, the program's own first: warps, stages, blocks of the grid."""
    sizes = {}
    for parameter in captured_kernel["parameters"]:
        sizes[parameter["name"]] = parameter.get("value")
    tunables: dict[str, list[int]] = {}
    for name in captured_kernel["tunable"] if captured_kernel["grid_text"] else ():
        size = sizes[name]
        if not isinstance(size, int) or size <= 0:
            continue
        tunables[name] = [size]
        if size > 1:
            tunables[name].append(size // 2)
        tunables[name].append(size * 2)
    for option, (least, most) in _AROUND.items():
        number = captured_kernel["options"].get(option)
        if not isinstance(number, int):
            continue
        near = (number - 1, number + 1)
        if option == "num_warps":
            near = (number // 2, number * 2)
        allowed = []
        for other in near:
            if least <= other <= most:
                allowed.append(other)
        tunables[_RENAMED[option]] = [number, *allowed]
    return tunables


def _render_prose(
    captured_kernel: CapturedKernel,
    program: str,
    launch_count: int,
    tunables: Mapping[str, Sequence[int]],
) -> str:
    """Return the docstring of a variant, which is its header too."""
    times = "once" if launch_count == 1 else f"{launch_count} times"
    file = _clean_docstring_text(captured_kernel["file"]) or "a file of the program"
    lines = [
        f'"""{captured_kernel["kernel"]} as a program launched it.',
        "",
        f"Captured by profkit from `{_clean_docstring_text(program)}`, which launched it {times}.",
        f"The function is in {file}.",
    ]
    choices = []
    for name, values in tunables.items():
        listed = ",".join(map(str, values))
        choices.append(f"{name}={listed}")
    if choices:
        lines += ["", f"tune: {' '.join(choices)}"]
    return "\n".join([*lines, '"""', ""])


def _choose_allowed_differences(captured_kernel: CapturedKernel) -> JsonObject:
    """Return what another version may differ by; the captured one is bit-equal or nearly."""
    worst = spread = 0.0
    for output in captured_kernel["outputs"]:
        worst = max(worst, _EPSILON.get(output["dtype"], 0.0))
        deviation = float(output.get("std") or 0.0)
        if isfinite(deviation):
            spread = max(spread, deviation)
    return {
        "rtol": max(2 * worst, 1e-6),
        "atol": max(2 * worst * spread, 4 * captured_kernel["spread"], 1e-7),
    }


def _make_word_for_folder_name(text: str) -> str:
    return re.sub(r"\W+", "-", text)[:80].strip("-") or "kernel"


def _clean_docstring_text(text: str) -> str:
    """Return text that a docstring can hold: it comes from the program."""
    return re.sub(r'[^\x20-\x7e]|\\|"""', "?", text)[:200]


_EVERY = 1_000_000


@dataclass(frozen=True)
class CaptureOptions:
    """Which launches of a program are captured, and how much of each."""

    kernel: str = "."
    skip: int = 0  # how many matching kernels to leave out
    count: int | None = 1  # how many to capture; None takes every one
    values: bool = False  # whether inputs keep their very values; else those of whole numbers only
    limit: int = 512 << 20  # the most bytes of arrays that one launch may have
    timeout: float | None = None


class CapturedEntry(Document, frozen=True, kw_only=True):
    """One kernel of the program, with the arrays that it was launched on; null where not known."""

    kernel: str = ""
    launches: int = 0  # how often it was launched like this
    file: str | None = None
    why_not: str | None = None
    # seconds of a launch in the program, in a CUDA graph of its own
    in_program: float | None = msgspec.field(default=None, name="in_program_s")
    # the variant's, timed the same way
    here: float | None = msgspec.field(default=None, name="here_s")
    ratio: float | None = None  # the variant's time over the program's
    equal: str | None = None  # `bit-equal`, `within tolerance`, `wrong` ...; null: not checked
    notes: tuple[str, ...] = ()  # what else there is to know


class CaptureDocument(
    Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.capture/1"
):
    """What `profkit capture --json` prints."""

    kernels: tuple[CapturedEntry, ...] = ()


def capture_program_launches(
    command: CommandWords, output: Path, options: CaptureOptions, echo: BinaryIO | None = None
) -> list[CapturedEntry]:
    """Run a program to its end and capture launches on the way; an error if a hook saw none."""
    require_valid_kernel_regex(options.kernel)
    output.mkdir(parents=True, exist_ok=True)
    with make_temporary_folder(output) as folder:
        done = process.run_command(
            command, options.timeout, _write_request_and_make_environment(folder, options), echo
        )
        seen = _read_seen_launches(folder)
        if not seen:
            raise ProfkitError(_explain_no_launch(command, done), _HINT)
        return [_write_problem_of_kernel(folder, output, row, " ".join(command)) for row in seen]


_HINT = (
    "a kernel is captured where a Python program launches it through Triton or torch.compile; "
    "profkit profile -- COMMAND looks at any kernel"
)


def _explain_no_launch(command: CommandWords, done: process.FinishedCommand) -> Sentence:
    if done.status is None:
        return f"{command[0]} was stopped at --timeout before it launched a Triton kernel"
    words = (done.output.strip().splitlines() or [""])[-1][:200]
    how = "launched no Triton kernel"
    if done.status:
        how = f"ended with {done.status}: {words}"
    return f"{command[0]} {how}"


def _write_request_and_make_environment(folder: Path, options: CaptureOptions) -> dict[str, str]:
    count = _EVERY if options.count is None else options.count
    request = {**asdict(options), "folder": str(folder), "count": count}
    del request["timeout"]  # not the hook's business
    request_file = folder / "request.json"
    request_file.write_text(json.dumps(request), encoding="utf-8")
    paths = [str(INJECTED), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"PYTHONPATH": os.pathsep.join(paths), "PROFKIT_CAPTURE": str(request_file)}
    return {**os.environ, **own}


def _read_seen_launches(folder: Path) -> list[JsonObject]:
    """Return what the hooks of all the program's processes saw, the most launched first."""
    rows: list[JsonObject] = []
    for left in sorted(folder.glob("seen-*.json")):
        document = read_json(left)
        rows += document["launches"]
        if why := document["trouble"]:
            rows.append({"kernel": "?", "launches": 0, "folder": None, "why_not": why})
    return sorted(rows, key=lambda row: -row["launches"])


def _write_problem_of_kernel(
    folder: Path, output: Path, row: JsonObject, program: str
) -> CapturedEntry:
    name = row["kernel"]
    launches = row["launches"]
    if row["folder"] is None:
        return CapturedEntry(kernel=name, launches=launches, why_not=row["why_not"] or None)
    left = folder / row["folder"]
    about = read_json(left / "capture.json")
    new = output / make_unused_folder_name(name, {p.name for p in list_folder_entries(output)})
    file = str(write_captured_problem(left, new, program, launches))
    notes = (*about["notes"], *(() if about["bit_equal"] else ("it is not the same each time",)))
    return CapturedEntry(
        kernel=name, launches=launches, file=file, in_program=about["seconds"], notes=notes
    )


def measure_captured_kernels(
    kernels: Sequence[CapturedEntry], build_folder: Path, progress: Progress
) -> list[CapturedEntry]:
    """Return the same with their verdicts and their times here; the folder is that of builds."""
    progress("build")
    files = {}
    for k in kernels:
        if k.file:
            files[k.file] = variants.read_variant(Path(k.file))
    # Side by side; later they are there.
    build.compile_variants_not_built_yet(
        files.values(), [device.query_first_gpu().arch], build_folder
    )
    tried = []
    for kernel in kernels:
        if kernel.file:
            kernel = _check_and_time_kernel(kernel, files[kernel.file], build_folder, progress)  # noqa: PLW2901
        tried.append(kernel)
    return tried


def _check_and_time_kernel(
    kernel: CapturedEntry, variant: variants.Variant, build_folder: Path, progress: Progress
) -> CapturedEntry:
    loaded = problem.load_problem(variants.find_problem_folder_of_kernel(variant.path))
    target = Target(loaded, (variant,), (), (CASE,), build_folder)
    try:
        run = measure_target(
            target, lambda text: progress(f"{kernel.kernel}: {text}"), check_cases=()
        )
    except ProfkitError as error:  # the others go on
        return structs.replace(kernel, notes=(*kernel.notes, error.message.splitlines()[0]))
    check = run.measured.checks.get(variant.id)
    times = run.measured.times.get((variant.id, CASE))
    failed = explain_missing_verdict(run, variant.id, CASE)
    here = median(times.warm) if times else None
    before = kernel.in_program
    equal = None
    if check is not None:
        if check.max_abs == 0:
            right = "bit-equal"
        else:
            right = "within tolerance"
        if check.status == "right":
            equal = right
        else:
            equal = check.status
    return structs.replace(
        kernel,
        here=here,
        ratio=here / before if here is not None and before else None,
        equal=equal,
        notes=(*kernel.notes, *([failed.message.splitlines()[0]] if failed else ())),
    )
