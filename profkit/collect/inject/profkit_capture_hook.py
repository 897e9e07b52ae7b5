"""A program's Triton launches  ->  those that were asked for, written into a folder.

Two functions are wrapped as their modules are imported: JITFunction.run, which starts what the program
wrote in Triton, and Inductor's CachingAutotuner.run, which starts what torch.compile wrote. Whatever
goes wrong here is a line in what is left behind, and never the program's error.
"""

from __future__ import annotations

import atexit
import importlib.machinery
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import profkit_capture_launch as launched

InductorModule = Any
InductorTuner = Any
LaunchArgument = Any
NumpyArray = Any
TextOrEmpty = str  # "" where there is nothing to say
TorchTensor = Any
TritonKernel = Any

# What code of ours may raise on a launch that it does not understand.
_TROUBLE = (
    *(ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, OSError),
    *(RuntimeError, SyntaxError, TypeError, ValueError),
)
_ALIGNED = 16  # bytes: Triton compiles another kernel for an address at no multiple of them
_RECORDED = "it was only ever launched while a CUDA graph was recorded: run it once without graphs"


@dataclass
class RepeatableLaunch:
    """A launch that is about to happen: the kernel, its arguments, and how to launch it again."""

    kernel: Any
    arguments: dict[str, Any]  # parameter -> argument, in order
    options: dict[str, Any]  # num_warps, num_stages and so on
    grid: tuple[int, ...]
    grid_text: str  # the grid as an expression of the parameters, where it is known; else empty
    # parameter -> another tensor: launch once more on the current stream
    launch: Callable[[dict[str, Any]], None]
    file: str = ""  # where the function is


@dataclass
class WatchedLaunch:
    """A launch that is about to be."""

    name: str
    arguments: dict[str, Any]  # parameter -> argument, as far as it is known before
    start: Callable[[], RepeatableLaunch]  # what is known once it was launched

    def make_key(self) -> str:
        """Return what tells it from other launches of the function."""
        return repr((self.name, [_describe_shape_or_type(v) for v in self.arguments.values()]))


def _describe_shape_or_type(argument: LaunchArgument) -> Any:
    """Return what two launches of a function have in common: shapes of arrays, types of numbers."""
    if hasattr(argument, "data_ptr"):
        return str(argument.dtype), tuple(argument.shape), tuple(argument.stride())
    return type(argument).__name__ if isinstance(argument, int | float) else repr(argument)


def _list_named_tensors(arguments: dict[str, Any]) -> list[tuple[str, TorchTensor]]:
    """Return the arguments that are memory, with their names."""
    tensors = []
    for name, value in arguments.items():
        if hasattr(value, "data_ptr"):
            tensors.append((name, value))
    return tensors


@dataclass
class AlikeLaunchesOfFunction:
    """Launches of one function that are alike, and what came of them."""

    kernel: str
    launches: int = 0
    folder: str | None = None  # where one was captured
    why_not: str | None = None


@dataclass
class Session:
    """The captures of this process: what was asked for, and which launches were seen."""

    folder: Path
    kernel: re.Pattern[str]
    skip: int
    count: int
    limit: int
    values: bool
    rows: dict[str, AlikeLaunchesOfFunction] = field(default_factory=dict)  # by Seen.make_key
    trouble: str | None = None  # the first of ours
    matched: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    inside: threading.local = field(default_factory=threading.local)

    def run_and_capture_if_wanted(
        self, watched: WatchedLaunch, launch_kernel: Callable[[], Any]
    ) -> Any:
        """Run a launch; capture it if it is one of those."""
        if getattr(self.inside, "busy", False):
            return launch_kernel()
        self.inside.busy = True
        try:
            return self._run_launch_exactly_once(watched, launch_kernel)
        finally:
            self.inside.busy = False

    def _run_launch_exactly_once(
        self, watched: WatchedLaunch, launch_kernel: Callable[[], Any]
    ) -> Any:
        ran: list[Any] = []
        failed: list[bool] = []

        def once() -> Any:
            if not ran:
                failed.append(True)
                ran.append(launch_kernel())
                failed.clear()
            return ran[0]

        try:
            self._count_and_capture_if_wanted(watched, once)
        except _TROUBLE as error:
            if failed:
                raise  # the program's own
            self.trouble = self.trouble or f"{type(error).__name__}: {str(error)[:300]}"
        return once()

    def _count_and_capture_if_wanted(
        self, watched: WatchedLaunch, launch_once: Callable[[], Any]
    ) -> None:
        import torch

        key = watched.make_key()
        recording = torch.cuda.is_current_stream_capturing()
        with self.lock:
            row = self.rows.setdefault(key, AlikeLaunchesOfFunction(watched.name))
            row.launches += 1
            if row.folder or row.why_not not in (None, _RECORDED):
                return
            if recording:
                row.why_not = _RECORDED
            if recording or not self.kernel.search(watched.name):
                return
            self.matched += 1
            captured = sum(row.folder is not None for row in self.rows.values())
            if self.matched <= self.skip or captured >= self.count:
                return
            row.why_not = None
            self._capture_launch(watched, row, launch_once)
            self.write_seen_launches()  # a program that is stopped later has left this

    def _capture_launch(
        self, watched: WatchedLaunch, row: AlikeLaunchesOfFunction, launch_once: Callable[[], Any]
    ) -> None:
        place = self.folder / f"{os.getpid()}-{self.matched}"
        try:
            reached = launched.copy_reachable_memory(
                _list_named_tensors(watched.arguments), self.limit
            )
        except (launched.CannotCapture, RuntimeError) as error:
            row.why_not = str(error).splitlines()[0][:200]
            return
        launch_once()  # Inductor chooses its configuration at the first launch: it is known only now
        try:
            self._replay_on_copies_and_write(watched.start(), reached, place)
            row.folder = place.name
        except launched.CannotCapture as error:
            row.why_not = str(error)
        except _TROUBLE as error:
            row.why_not = f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"

    def _replay_on_copies_and_write(
        self,
        start: RepeatableLaunch,
        reachable_arrays: list[launched.ReachableMemory],
        folder: Path,
    ) -> None:
        """Launch it again on copies, and write everything down."""
        import torch

        torch.cuda.synchronize()
        launched.note_written_arrays(reachable_arrays)
        outcome = launched.launch_twice_and_compare(reachable_arrays, start.launch)
        try:
            outcome.seconds = launched.time_launch_in_seconds(reachable_arrays, start.launch)
        except RuntimeError as error:
            outcome.notes.append(f"not timed: {str(error).splitlines()[0][:200]}")
        drawn = None
        if not self.values:
            drawn = launched.rerun_outputs_on_drawn_inputs(
                outcome, start.launch, _draw_random_values_like
            )
            if drawn is None:
                outcome.notes.append(
                    "its outputs are not finite on inputs of the same statistics: the values are kept"
                )
        _write_captured_launch(start, outcome, folder, drawn)

    def write_seen_launches(self) -> None:
        """Write down which launches this process had, captured or not."""
        whole = {"launches": list(map(asdict, self.rows.values())), "trouble": self.trouble}
        path = self.folder / f"seen-{os.getpid()}.json"
        if self.rows or self.trouble:
            part = path.with_suffix(".part")
            part.write_text(json.dumps(whole), encoding="utf-8")
            os.replace(part, path)


def _write_captured_launch(
    start: RepeatableLaunch,
    outcome: launched.CaptureOutcome,
    folder: Path,
    drawn_inputs: Any,
) -> None:
    """Leave a folder: the arrays of a launch, its source, and how it was started."""
    unaligned = []
    for name, tensor in _list_named_tensors(start.arguments):
        if tensor.data_ptr() % _ALIGNED:
            unaligned.append(name)
    imports, definitions = launched.write_standalone_source(start.kernel, unaligned)
    folder.mkdir()
    inputs = launched.list_inputs(outcome.arrays)
    outputs = launched.list_outputs(outcome.arrays)
    for i, array in enumerate(inputs):
        if drawn_inputs is None or i not in drawn_inputs:
            launched.store_tensor(array.before, folder / f"in{i}.bin")
    for i, array in enumerate(outputs):
        launched.store_tensor(array.after, folder / f"out{i}.bin")
    about = {
        "kernel": str(start.kernel.fn.__name__),
        "file": start.file,
        "inputs": [a.describe_memory(a.before) for a in inputs],
        "outputs": [_describe_output(a, inputs) for a in outputs],
        **_describe_launch_arguments(start, name_arrays_by_parameter(inputs, outputs)),
        "imports": imports,
        "definitions": definitions,
        "seconds": outcome.seconds,
        "bit_equal": outcome.bit_equal,
        "spread": outcome.spread,
        "values": drawn_inputs is None,
        "notes": outcome.notes,
    }
    (folder / "capture.json").write_text(json.dumps(about), encoding="utf-8")


def _describe_output(
    array: launched.ReachableMemory, inputs: Sequence[launched.ReachableMemory]
) -> dict[str, Any]:
    """Return an array that was written, and the number of the input that it begins as, if any."""
    begins = inputs.index(array) if array.works_in_place else None
    return {**array.describe_memory(array.after), "begins": begins}


def _describe_launch_arguments(
    start: RepeatableLaunch, array_by_parameter: dict[str, str]
) -> dict[str, Any]:
    """Return grid, options and arguments of a launch; `array_by_parameter`: parameter -> its array."""
    options = {}
    for name, value in start.options.items():
        if isinstance(value, int | float | str):
            options[name] = value
    parameters = []
    tunable = []
    for name, value in start.arguments.items():
        parameters.append(launched.describe_parameter(name, value, array_by_parameter))
        if launched.is_block_size(name, value):
            tunable.append(name)
    return {
        "grid": start.grid,
        "grid_text": start.grid_text,
        "options": options,
        "parameters": parameters,
        "tunable": tunable,
    }


def name_arrays_by_parameter(
    inputs: Sequence[launched.ReachableMemory], outputs: Sequence[launched.ReachableMemory]
) -> dict[str, str]:
    """Return parameter -> the array that the variant gets in its place; what is both is an output."""
    named: dict[str, str] = {}
    for kind, several in (("in", inputs), ("out", outputs)):
        for i, array in enumerate(several):
            named |= dict.fromkeys(array.parameter_names, f"{kind}{i}")
    return named


def install_capture() -> None:
    """Wrap what starts Triton kernels, as soon as it is imported."""
    request = json.loads(Path(os.environ["PROFKIT_CAPTURE"]).read_text(encoding="utf-8"))
    folder = Path(request.pop("folder"))
    session = Session(folder=folder, kernel=re.compile(request.pop("kernel")), **request)
    atexit.register(session.write_seen_launches)
    wrappers = {
        "triton.runtime.jit": lambda m: _wrap_triton_launches(m, session),
        "triton.runtime.autotuner": lambda m: _exclude_tuner_launches(
            m.Autotuner, "_bench", session
        ),
        "torch._inductor.runtime.triton_heuristics": lambda m: _wrap_inductor_launches(m, session),
    }
    sys.meta_path.insert(0, _WrappingFinder(wrappers))


class _WrappingFinder:
    """Finds the modules to wrap as Python would, and wraps what they define."""

    def __init__(self, wrappers: dict[str, Callable[[ModuleType], None]]) -> None:
        self._wrappers = wrappers

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self._wrappers:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        wrap = self._wrappers[name]
        loader = spec.loader
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            wrap(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _exclude_tuner_launches(owner: Any, name: str, session: Session) -> None:
    """Leave out what a tuner launches to choose: that is no launch of the program."""
    plain = getattr(owner, name)

    def run_quietly(*args: Any, **kwargs: Any) -> Any:
        before = getattr(session.inside, "busy", False)
        session.inside.busy = True
        try:
            return plain(*args, **kwargs)
        finally:
            session.inside.busy = before

    setattr(owner, name, run_quietly)


def _wrap_triton_launches(module: ModuleType, session: Session) -> None:
    plain = module.JITFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        def same() -> Any:
            return plain(self, *args, grid=grid, warmup=warmup, **kwargs)

        if warmup:
            return same()
        options = {}
        named = {}
        for name, value in kwargs.items():
            if name in self.arg_names:
                named[name] = value
            else:
                options[name] = value
        try:
            bound = self.signature.bind(*args, **named)
        except TypeError:
            return same()  # Triton says what is wrong
        bound.apply_defaults()
        arguments = dict(bound.arguments)

        def start() -> RepeatableLaunch:
            counts = tuple(grid(arguments) if callable(grid) else grid)

            def launch(others: dict[str, Any]) -> None:
                plain(self, grid=counts, warmup=False, **{**arguments, **others}, **options)

            blocks = (*map(int, counts), 1, 1)[:3]
            file = self.fn.__code__.co_filename
            return RepeatableLaunch(self, arguments, options, blocks, "", launch, file)

        return session.run_and_capture_if_wanted(
            WatchedLaunch(self.fn.__name__, arguments, start), same
        )

    module.JITFunction.run = run


def _wrap_inductor_launches(module: ModuleType, session: Session) -> None:
    plain = module.CachingAutotuner.run

    def run(
        self: Any, *args: Any, stream: Any = None, benchmark_run: bool = False, **kwargs: Any
    ) -> Any:
        def same() -> Any:
            return plain(self, *args, stream=stream, benchmark_run=benchmark_run, **kwargs)

        if benchmark_run:
            return same()

        names = _list_passed_parameters(module, self)
        arguments = dict(zip(names, args, strict=False))

        def start() -> RepeatableLaunch:
            return _make_repeatable_inductor_launch(module, self, args, plain)

        return session.run_and_capture_if_wanted(
            WatchedLaunch(self.fn.__name__, arguments, start), same
        )

    module.CachingAutotuner.run = run
    for name in ("benchmark_all_configs", "coordinate_descent_tuning"):
        if hasattr(module.CachingAutotuner, name):
            _exclude_tuner_launches(module.CachingAutotuner, name, session)


def _list_passed_parameters(module: InductorModule, tuner: InductorTuner) -> list[str]:
    """Return the parameters of a launcher of Inductor's: all but declared constants."""
    declared = set(module.get_constexprs(tuner.fn))
    return [n for i, n in enumerate(tuner.fn.arg_names) if i not in declared]


def _make_repeatable_inductor_launch(
    module: InductorModule, tuner: InductorTuner, args: Sequence[Any], plain: Any
) -> RepeatableLaunch:
    import torch

    (launcher,) = tuner.launchers
    config = launcher.config
    meta = tuner.inductor_meta
    kernel = _get_or_reload_triton_kernel(tuner)
    # Where a grid is an argument too, it comes after the function's own.
    names = [*_list_passed_parameters(module, tuner), *meta.get("extra_launcher_args", ())]
    arguments = dict(zip(names, args, strict=False))
    compiled = tuner._create_compile_meta(config)
    known = {**compiled["constants"], **config.kwargs, **arguments}
    whole = {n: known.get(n) for n in kernel.arg_names}
    grid = module.GridExpr.from_meta(meta, config).eval_slow(dict(known))
    options = tuner._create_compile_options(config, compiled)

    def launch(others: dict[str, Any]) -> None:
        current = torch.cuda.current_stream().cuda_stream
        plain(tuner, *({**arguments, **others}[n] for n in names[: len(args)]), stream=current)

    blocks = tuple(map(int, grid))
    text = _write_grid_expression(module, meta, config.kwargs)
    return RepeatableLaunch(kernel, whole, options, blocks, text, launch, str(tuner.filename or ""))


def _get_or_reload_triton_kernel(tuner: InductorTuner) -> TritonKernel:
    """Return a tuner's JITFunction, loaded again where Inductor has dropped its source."""
    if tuner.fn.fn is None:
        return tuner._reload_kernel().fn
    return tuner.fn


def _write_grid_expression(
    module: InductorModule, meta: dict[str, Any], constants: dict[str, Any]
) -> TextOrEmpty:
    """Return the grid as an expression of parameters; empty where there is no simple one."""
    try:
        expression = module.GridExpr.from_meta(meta, {name: name for name in constants})
    except (AssertionError, TypeError, KeyError, ValueError):
        return ""
    axes = [str(getattr(expression, f"{axis}_grid")) for axis in "xyz"]
    used = set(re.findall(r"[A-Za-z_]\w*", " ".join(axes)))
    simple = all(re.fullmatch(r"[xyz]numel|r\d_numel", n) for n in used - set(constants))
    return f"({', '.join(axes)})" if simple and not expression.prefix else ""


def _draw_random_values_like(statistics: dict[str, Any], index: int) -> NumpyArray:
    import captured_problem  # brings numpy, which a program's other processes need not pay for

    return captured_problem.drawn(statistics, index, 0)
