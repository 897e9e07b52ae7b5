"""A kernel file in Python and its problem  ->  the plan of its launches; the process that runs it.

`python -m profkit.measure.aot REQUEST.json` is started by languages/triton.py. The
file's own code runs here and nowhere else, without a GPU and for as long as that allows.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError
from profkit.measure.languages.language import CompileJob
from profkit.measure.languages.plan import CallPlan, CasePlan, LaunchArgs, array_of
from profkit.measure.languages.python_source import LAUNCH
from profkit.measure.languages.triton import CASE, Recorder
from profkit.measure.process import end_with_parent
from profkit.measure.variants import problem
from profkit.measure.variants.problem import Problem

Types = Sequence[tuple[Sequence[int], Any]]


def serve_ahead(arguments: list[str]) -> int:
    """Do what a request says; what goes wrong ends in a traceback, or in one line."""
    end_with_parent()
    request_file = Path(arguments[0])
    request = json.loads(request_file.read_text(encoding="utf-8"))
    path, folder = Path(request.pop("path")), Path(request.pop("problem"))
    warnings.simplefilter("ignore")
    try:
        plan = planned(CompileJob(path=path, problem=folder, **request))
    except ProfkitError as error:
        hint = f"; {error.hint}" if error.hint else ""
        sys.stderr.write(f"{error.message}{hint}\n")
        return 2
    place = request_file.parent
    for i, image in enumerate(plan.images):
        (place / f"image{i}.cubin").write_bytes(image.cubin)
    written = {
        "plan.h": plan.to_c(),
        "plan.json": json.dumps(plan.to_json()),
        "ptxas.log": "".join(image.log for image in plan.images),
    }
    for name, text in written.items():
        (place / name).write_text(text, encoding="utf-8")
    return 0


def planned(job: CompileJob) -> CallPlan:
    """Run a file's launch function at every case of its problem."""
    if not problem.is_complete(job.problem):
        raise ProfkitError(
            f"{job.problem} has no problem.py with cases",
            "a function is compiled for the arrays of its problem's cases",
        )
    loaded, plan = problem.load_problem(job.problem), CallPlan()
    module = problem.import_file(job.path, f"_profkit_{job.path.stem}")
    for name, text in job.defines.items():
        setattr(module, name, like(getattr(module, name), text))
    launch = getattr(module, LAUNCH)
    recorder, types_of = Recorder(plan, job.arch), _types_of(loaded, job.grid)
    for name, case in {**loaded.cases, **loaded.checks}.items():
        sys.stderr.write(f"{CASE}{name}\n")
        values = dict(loaded.module.arguments(case))
        args = LaunchArgs(values, job.arch, job.sms)
        inputs = [array_of(False, i, str(d), s) for i, (s, d) in enumerate(types_of(case))]
        outputs = [array_of(True, i, d, s) for i, (s, d) in enumerate(loaded.module.outputs(case))]
        try:
            with recorder.recording(args) as starts:
                launch(*inputs, *outputs, args)
        except NotImplementedError:  # as CUDA variants say cudaErrorNotSupported
            plan.cases.append(CasePlan(values))
            continue
        if not starts:
            raise ProfkitError(f"{LAUNCH} started no kernel", "kernel[grid](...) starts one")
        plan.cases.append(CasePlan(values, tuple(starts), tuple(args.requested)))
    return plan


def like(default: Any, text: str) -> Any:
    """A tunable's value out of a header, of the kind that the file's own default is."""
    kind = type(getattr(default, "value", default))
    value: Any = kind(text) if kind in (int, float, str) else text
    if kind is bool:
        value = text in ("1", "True", "true")
    # tl.constexpr and its like wrap a value
    return type(default)(value) if hasattr(default, "value") else value


def _types_of(loaded: Problem, grid: str | None) -> Callable[[Any], Types]:
    """Case -> (shape, dtype) of each input.

    Without the problem's `input_types`, the types are those of the smallest case, and each has one
    axis of unknown length.
    """
    if hasattr(loaded.module, "input_types"):
        declared: Callable[[Any], Types] = loaded.module.input_types
        return declared
    small = min({**loaded.cases, **loaded.checks}.values(), key=loaded.module.operations)
    types: Types = [((0,), str(a.dtype)) for a in loaded.module.inputs(small, 0, grid)]
    return lambda _: types


if __name__ == "__main__":
    sys.exit(serve_ahead(sys.argv[1:]))
