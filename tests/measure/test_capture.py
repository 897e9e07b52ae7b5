"""What a hook left of a launch becomes a problem with a variant that the verbs take."""

import ast
import importlib.util
import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from profkit.collect import timeline
from profkit.collect.inject.profkit_capture_launch import CannotCapture, write_standalone_source
from profkit.errors import ProfkitError
from profkit.lab.measure import capture, data
from profkit.lab.measure.capture import (
    make_unused_folder_name,
    write_captured_problem,
)
from profkit.lab.measure.variants import problem, variants

INJECT = timeline.INJECTED
N = 300


def array(name: str, dtype: str = "float32", **more: Any) -> dict[str, Any]:
    size = np.dtype({"bfloat16": "uint16"}.get(dtype, dtype)).itemsize
    about = {"name": name, "dtype": dtype, "length": N, "bytes": N * size, "shape": [N]}
    return {**about, "mean": 1.0, "std": 2.0, "min": -3.0, "max": 5.0, **more}


def left(folder: Path, **more: Any) -> Path:
    """A folder as the hook leaves it: y += 2 x, where y is worked on in place."""
    place = folder / "left"
    place.mkdir()
    about = {
        "kernel": "triton_poi_fused_add_0",
        "file": '/tmp/x"""/y.py',
        "inputs": [array("x", "bfloat16"), array("y")],
        "outputs": [array("y", begins=1)],
        "grid": [3, 1, 1],
        "grid_text": "((xnumel + (XBLOCK - 1)) // XBLOCK, 1, 1)",
        "options": {"num_warps": 4, "num_stages": 1},
        "parameters": [
            {"name": "x", "array": "in0"},
            {"name": "y", "array": "out0"},
            {"name": "xnumel", "value": N},
            {"name": "XBLOCK", "value": 128},
        ],
        "tunable": ["XBLOCK"],
        "imports": "import triton\nimport triton.language as tl",
        "definitions": "@triton.jit\n"
        "def triton_poi_fused_add_0(x, y, xnumel, XBLOCK: tl.constexpr):\n    pass",
        "seconds": 2e-6,
        "bit_equal": True,
        "spread": 0.0,
        "values": False,
        "notes": [],
        **more,
    }
    (place / "capture.json").write_text(json.dumps(about))
    np.arange(N, dtype=np.float32).tofile(place / "in1.bin")
    np.full(N, 7, np.float32).tofile(place / "out0.bin")
    return place


def test_a_launch_becomes_a_problem(tmp_path: Path) -> None:
    file = write_captured_problem(left(tmp_path), tmp_path / "k" / "add", 'python "x"""', 12)
    read = variants.read_variant(file)
    assert (read.id, read.problem, read.language.name) == ("captured", "add", "Triton")
    assert read.space.values == {
        "XBLOCK": ("128", "64", "256"),
        "WARPS": ("4", "2", "8"),
        "STAGES": ("1", "2"),
    }
    launch = ast.unparse(ast.parse(file.read_text()).body[-1])
    assert "launch(in0, in1, out0, args)" in launch
    assert "triton_poi_fused_add_0[grid](in0, out0, xnumel, XBLOCK, num_warps=WARPS" in launch
    assert "launched it 12 times" in read.header.text

    loaded = problem.load_problem(file.parent)
    assert problem.is_complete_problem_folder(file.parent)
    made = data.load_or_compute_case_data(loaded, "captured", 0, tmp_path / "build")
    drawn, kept = made.load_inputs()
    assert kept.tolist() == list(range(N)), "what was kept is what the program gave"
    wide = (drawn.astype(np.uint32) << 16).view(np.float32)
    assert abs(float(wide.mean()) - 1) < 0.5, "what was not is drawn with the same statistics"
    assert -3 <= wide.min() <= wide.max() <= 5
    assert made.begins == ((0, 1),)
    assert made.load_reference()[0].tolist() == [7.0] * N
    assert loaded.module.compulsory_bytes(loaded.get_case("captured")) == N * (2 + 4)


def test_without_the_grids_expression_blocks_are_no_tunables(tmp_path: Path) -> None:
    file = write_captured_problem(
        left(tmp_path, grid_text=""), tmp_path / "k" / "add", "python x", 1
    )
    assert set(variants.read_variant(file).space.values) == {"WARPS", "STAGES"}
    assert "grid = (3, 1, 1)" in file.read_text()
    assert "(in0, out0, 300, 128," in " ".join(file.read_text().split()).replace("( ", "(")


def test_a_spread_that_is_none_leaves_a_tolerance(tmp_path: Path) -> None:
    """Memory that held anything: float32 overflowed, or was never written."""
    outputs = [array("y", begins=1, std=float("inf")), array("z", begins=None, std=float("nan"))]
    place = left(tmp_path, outputs=outputs)
    file = write_captured_problem(place, tmp_path / "k" / "add", "python x", 1)
    loaded = problem.load_problem(file.parent)
    assert loaded.get_tolerance("captured") == (1e-7, 1e-6)


def test_a_block_of_no_size_is_no_tunable(tmp_path: Path) -> None:
    place = left(tmp_path, tunable=["XBLOCK", "OTHER"])
    about = json.loads((place / "capture.json").read_text())
    about["parameters"].append({"name": "OTHER", "code": "None"})
    (place / "capture.json").write_text(json.dumps(about))
    file = write_captured_problem(place, tmp_path / "k" / "add", "python x", 1)
    assert set(variants.read_variant(file).space.values) == {"XBLOCK", "WARPS", "STAGES"}


def test_two_launches_differ_by_finite_values_only() -> None:
    torch = pytest.importorskip("torch")
    from profkit.collect.inject.profkit_capture_launch import _measure_largest_difference

    nan, inf = float("nan"), float("inf")
    one = torch.tensor([1.0, inf, -inf, nan])
    assert _measure_largest_difference(one, torch.tensor([1.5, inf, -inf, nan])) == 0.5
    assert _measure_largest_difference(one[1:], one[1:]) == 0.0
    for other in ([nan, inf, -inf, nan], [1.0, -inf, -inf, nan], [1.0, inf, -inf, 0.0]):
        assert _measure_largest_difference(one, torch.tensor(other)) is None


def test_two_parameters_of_one_memory_are_one_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """add(x, y, x) works in place; only memory that is shared in part cannot be said."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(INJECT))
    import profkit_capture_hook as hook
    import profkit_capture_launch as arrays

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 30, 1 << 30))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    x, y = torch.arange(8.0), torch.ones(8)

    def add(given: dict[str, Any]) -> None:
        given["out"].copy_(given["x"] + given["y"])

    reach = arrays.copy_reachable_memory([("x", x), ("y", y), ("out", x)], limit_bytes=1 << 20)
    assert [array.parameter_names for array in reach] == [("x", "out"), ("y",)]
    add({"x": x, "y": y, "out": x})
    arrays.note_written_arrays(reach)
    outcome = arrays.launch_twice_and_compare(reach, add)
    assert outcome.bit_equal
    assert [(a.is_written, a.works_in_place) for a in reach] == [(True, True), (False, False)]
    assert (
        arrays.rerun_outputs_on_drawn_inputs(
            outcome, add, lambda about, i: np.full(8, i, np.float32)
        )
        is not None
    )
    assert reach[0].after.tolist() == [1.0] * 8, "y is drawn as 0 and x, behind it, as 1"
    named = hook.name_arrays_by_parameter(arrays.list_inputs(reach), reach[:1])
    assert [named[name] for name in ("x", "y", "out")] == ["out0", "in0", "out0"]
    apart = arrays.copy_reachable_memory(
        [("x", x[:6]), ("y", y), ("out", x[2:])], limit_bytes=1 << 20
    )
    add({"x": x[:6], "y": y[:6], "out": x[2:]})
    with pytest.raises(arrays.CannotCapture, match="shares memory"):
        arrays.note_written_arrays(apart)


SCRIPT = """
def helper(a):
    return a * SCALE

def add(x, y, out, n, B: tl.constexpr, kind=KIND):
    i = tl.program_id(0) * B + tl.arange(0, B)
    for offset in range(0, 4):
        tl.store(out + i + offset, helper(tl.load(x + i, mask=i < n)) + y[[x for x in (0, 1)][0]])
    return add
"""


def test_parameters_of_a_kernel_may_have_the_names_of_a_script(tmp_path: Path) -> None:
    """A script's tensors are often called as the parameters are that they are passed for."""
    space: dict[str, Any] = {"tl": SimpleNamespace(constexpr=int), "SCALE": 2, "KIND": "sum"}
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    exec(compile(SCRIPT, str(file), "exec"), space)
    functions = {name: space[name] for name in ("helper", "add")}
    for name, function in functions.items():
        kernel = SimpleNamespace(fn=function, arg_names=[], src=inspect.getsource(function))
        space[name] = kernel
    space |= {"x": object(), "y": object(), "out": object(), "n": object(), "i": object()}
    imports, definitions = write_standalone_source(space["add"], [])
    assert imports.splitlines() == ["import triton", "import triton.language as tl"]
    assert [line for line in definitions.splitlines() if line[:1].strip()] == [
        "KIND = 'sum'",
        "SCALE = 2",
        "@triton.jit",
        "def helper(a):",
        "@triton.jit",
        "def add(x, y, out, n, B: tl.constexpr, kind=KIND):",
    ]
    space["SCALE"] = object()
    with pytest.raises(CannotCapture, match="it uses SCALE, a object"):
        write_standalone_source(space["add"], [])


def test_folders_have_names_of_their_own() -> None:
    taken: set[str] = set()
    for wanted in ("a_b", "a_b-2", "a_b-3"):
        name = make_unused_folder_name("a_b", taken)
        assert name == wanted
        taken.add(name)
    assert make_unused_folder_name("a/../b c", set()) == "a-b-c"


def test_a_program_without_kernels_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('nothing here')"]
    with pytest.raises(ProfkitError, match="launched no Triton kernel") as caught:
        capture.capture_program_launches(command, tmp_path / "out", capture.CaptureOptions())
    assert "profkit profile" in caught.value.hint
    failing = [sys.executable, "-c", "print('no such model'); raise SystemExit(3)"]
    with pytest.raises(ProfkitError, match="ended with 3: no such model"):
        capture.capture_program_launches(failing, tmp_path / "out", capture.CaptureOptions())
    with pytest.raises(ProfkitError, match="--kernel"):
        capture.capture_program_launches(command, tmp_path, capture.CaptureOptions(kernel="("))
    assert not list((tmp_path / "out").iterdir())


FAKE_TRITON = '''
class JITFunction:
    """As much of Triton's as the hook wraps."""
    arg_names = ["x", "n"]

    def __init__(self, fn):
        import inspect
        self.fn, self.signature = fn, inspect.signature(fn)

    def run(self, *args, grid, warmup, **kwargs):
        return "ran"
'''
FAKE_TORCH = "class cuda:\n    is_current_stream_capturing = staticmethod(lambda: {recording})\n"


@pytest.mark.parametrize("recording", [False, True])
def test_the_hook_sees_launches_and_the_program_runs_on(tmp_path: Path, recording: bool) -> None:
    """A Triton and a torch that do nothing: whatever fails in the hook is not the program's."""
    (tmp_path / "triton" / "runtime").mkdir(parents=True)
    for place in ("triton", "triton/runtime"):
        (tmp_path / place / "__init__.py").write_text("")
    (tmp_path / "triton/runtime/jit.py").write_text(FAKE_TRITON)
    (tmp_path / "torch.py").write_text(FAKE_TORCH.replace("{recording}", str(recording)))
    (tmp_path / "sitecustomize.py").write_text("print('the machine has one of its own')")
    program = tmp_path / "train.py"
    program.write_text(
        "from triton.runtime.jit import JITFunction\n"
        "class Tensor:\n    shape = (3,)\n    dtype = 'f'\n    data_ptr = stride = lambda s: (1,)\n"
        "def layer_norm(x, n): pass\n"
        "kernel = JITFunction(layer_norm)\n"
        "for _ in range(3):\n"
        "    print(kernel.run(Tensor(), 4, grid=(1,), warmup=False))\n"
        "print(kernel.run(Tensor(), 4, grid=(1,), warmup=True))\n"
    )
    environment = capture._write_request_and_make_environment(
        tmp_path, capture.CaptureOptions(kernel="norm")
    )
    environment["PYTHONPATH"] += f":{tmp_path}"
    done = subprocess.run(
        [sys.executable, program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[0] == "the machine has one of its own"
    assert done.stdout.count("ran") == 4
    assert done.stderr == ""
    (row,) = (r for r in capture._read_seen_launches(tmp_path) if r["launches"])
    assert (row["kernel"], row["launches"], row["folder"]) == ("layer_norm", 3, None)
    if recording:
        assert "while a CUDA graph was recorded" in row["why_not"]


FAKE_PROGRAM_S = """
class Tensor:
    dtype = "f"
    def __init__(self, *shape, device="cuda"):
        self.shape = shape
    def data_ptr(self):
        return 1
    def stride(self):
        return (self.shape[1], 1)
rand, empty_like, softmax = Tensor, lambda x: Tensor(*x.shape), lambda x, dim: x
class cuda:
    is_current_stream_capturing = staticmethod(lambda: False)
    synchronize = staticmethod(lambda: None)
"""
FAKE_JIT = """
from triton.runtime.jit import JITFunction
class jit(JITFunction):
    arg_names = ["x", "y", "width", "BLOCK"]
    def __getitem__(self, grid):
        return lambda *args: self.run(*args, grid=grid, warmup=False)
"""


def test_the_kernel_that_the_page_ablates_is_captured(tmp_path: Path) -> None:
    """The folder's name is made of the kernel's, and a number from the second size of arrays on."""
    from tests.gpu.test_readme import COMMANDS, TRAIN

    (tmp_path / "triton" / "runtime").mkdir(parents=True)
    (tmp_path / "triton/__init__.py").write_text(FAKE_JIT)
    (tmp_path / "triton/language.py").write_text("constexpr = int")
    (tmp_path / "triton/runtime/__init__.py").write_text("")
    (tmp_path / "triton/runtime/jit.py").write_text(FAKE_TRITON)
    (tmp_path / "torch.py").write_text(FAKE_PROGRAM_S)
    program = tmp_path / "train.py"
    program.write_text(TRAIN)
    environment = capture._write_request_and_make_environment(
        tmp_path, capture.CaptureOptions(count=None)
    )
    environment["PYTHONPATH"] += f":{tmp_path}"
    subprocess.run([sys.executable, program], env=environment, check=True)
    names: set[str] = set()
    for row in capture._read_seen_launches(tmp_path):
        if row["launches"]:
            names.add(capture.make_unused_folder_name(row["kernel"], names))
    (ablated,) = (command.split()[-1] for command in COMMANDS if "ablate --kernels" in command)
    assert ablated in {f"{name}/captured" for name in names}


def test_what_a_function_uses_goes_with_it(tmp_path: Path) -> None:
    (tmp_path / "code_x.py").write_text(
        "import math as m\nSCALE = 3\n"
        "def helper(x):\n    return x * SCALE\n"
        "def kernel(x, n):\n    return helper(x) + m.pi\n"
    )
    spec = importlib.util.spec_from_file_location("code_x", tmp_path / "code_x.py")
    assert spec
    assert spec.loader
    code = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(code)

    def jit(fn: Any, text: str) -> Any:
        return SimpleNamespace(fn=fn, arg_names=["x"], src=text, do_not_specialize=["n"])

    code.helper = jit(code.helper, "def helper(x):\n    return x * SCALE\n")
    kernel = jit(code.kernel, "def kernel(x, n):\n    return helper(x) + m.pi\n")
    kernel.fn.__globals__["helper"] = code.helper
    imports, definitions = write_standalone_source(kernel, ["x"])
    assert "import math as m" in imports.splitlines()
    assert definitions.index("SCALE = 3") < definitions.index("def helper")
    assert definitions.index("def helper") < definitions.index("def kernel")
    assert "do_not_specialize_on_alignment=['x'])\ndef kernel" in definitions
    kernel.fn.__globals__["helper"] = object()
    with pytest.raises(CannotCapture, match="it uses helper, a object"):
        write_standalone_source(kernel, [])


def test_the_table_counts_launches_and_says_what_is_left_out() -> None:
    from profkit.show.text.terminal import make_console, render_text
    from profkit.show.views import measured

    kernels = [
        {"kernel": "add", "launches": 9, "file": "x", "in_program_s": 2e-6, "here_s": 2.1e-6}
        | {"ratio": 1.05, "equal": "bit-equal", "notes": ["a note"]},
        {"kernel": "mul", "launches": 1, "why_not": "it is [red]too large"},
        {"kernel": "sub"},
    ]
    blank = capture.CapturedEntry(kernel="?").to_json()
    text = render_text(
        measured.show_captured_kernels([{**blank, **k} for k in kernels]), make_console(width=100)
    )
    assert "1.05" in text
    assert "mul, 1 launches, skipped: it is [red]too large" in text
    assert "add: a note" in text
    assert "1 of 3 kernels, 9 of 10 launches (90 %)" in text
    assert "sub" not in text
