"""A kernel file in Python and its problem  ->  the plan of its launches; the process that runs it.

`python -m profkit.measure.workers.ahead REQUEST.json` is started by languages/triton.py. The
file's own code runs here and nowhere else, without a GPU and for as long as that allows.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

from profkit.errors import ProfkitError
from profkit.measure.languages.language import CompileJob
from profkit.measure.languages.plan import CallPlan, CasePlan, DeviceArray, LaunchArgs, array_of
from profkit.measure.languages.python_source import LAUNCH
from profkit.measure.languages.triton import CASE, Recorder
from profkit.measure.process import end_with_parent
from profkit.measure.variants import problem
from profkit.measure.variants.problem import Problem


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
    launch = getattr(_module(job), LAUNCH)
    recorder, dtypes = Recorder(plan, job.arch), _dtypes(loaded, job.grid)
    for name, case in {**loaded.cases, **loaded.checks}.items():
        sys.stderr.write(f"{CASE}{name}\n")
        values = dict(loaded.module.arguments(case))
        args = LaunchArgs(values, job.arch, job.sms)
        inputs = _inputs(loaded, case, dtypes)
        outputs = [array_of(True, i, d, s) for i, (s, d) in enumerate(loaded.module.outputs(case))]
        try:
            with recorder.recording(args) as starts:
                launch(*inputs, *outputs, args)
        except NotImplementedError:  # as CUDA variants say cudaErrorNotSupported
            plan.cases.append(CasePlan(values))
            continue
        if not starts:
            raise ProfkitError(f"{LAUNCH} started no kernel", "kernel[grid](...) starts one")
        plan.cases.append(CasePlan(values, tuple(starts), tuple(args.asked)))
    return plan


def _module(job: CompileJob) -> ModuleType:
    """The file, imported, its tunables set."""
    module = problem.import_file(job.path, f"_profkit_{job.path.stem}")
    for name, text in job.defines.items():
        setattr(module, name, like(getattr(module, name), text))
    return module


def like(default: Any, text: str) -> Any:
    """A tunable's value out of a header, of the kind that the file's own default is."""
    kind = type(getattr(default, "value", default))
    if kind is bool:
        value: Any = text in ("1", "True", "true")
    else:
        value = kind(text) if kind in (int, float, str) else text
    # tl.constexpr and its like wrap a value
    return type(default)(value) if hasattr(default, "value") else value


def _dtypes(loaded: Problem, grid: str | None) -> list[str] | None:
    """The types of the inputs, from the smallest of them; None where the problem says them."""
    if hasattr(loaded.module, "input_types"):
        return None
    known = {**loaded.cases, **loaded.checks}
    small = min(known.values(), key=loaded.module.operations)
    return [str(a.dtype) for a in loaded.module.inputs(small, 0, grid)]


def _inputs(loaded: Problem, case: Any, dtypes: list[str] | None) -> list[DeviceArray]:
    """The inputs of a case; without the problem's `input_types`, each of one axis of unknown length."""
    if dtypes is None:
        types = [(tuple(s), str(d)) for s, d in loaded.module.input_types(case)]
    else:
        types = [((0,), d) for d in dtypes]
    return [array_of(False, i, dtype, shape) for i, (shape, dtype) in enumerate(types)]


if __name__ == "__main__":
    sys.exit(serve_ahead(sys.argv[1:]))
