"""Lines of a backward pass on the CPU: each operation is a launch, over a CUPTI that needs no GPU.

A Python with torch is needed: this one, or the one that PROFKIT_TORCH_PYTHON names.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from profkit.collect.inject.profkit_recorder_operators import WORKLESS
from profkit.program.readers.store import read_saved_timeline, write_timeline
from profkit.program.steps.attribution import NOBODY, list_origins_of_calls
from profkit.program.timeline import SourcePlace
from tests.measure.timeline.standin_cupti import build_over_standin, is_cupti_here
from tests.measure.timeline.test_lines import Recording, place_of


@cache
def find_torch() -> str | None:
    """A Python that has torch."""
    for python in (os.environ.get("PROFKIT_TORCH_PYTHON"), sys.executable):
        if python is None:
            continue
        command = [
            python,
            "-c",
            "import importlib.util as u; raise SystemExit(not u.find_spec('torch'))",
        ]
        if subprocess.run(command, check=False).returncode == 0:
            return python
    return None


pytestmark = [
    pytest.mark.nvcc,
    pytest.mark.slow,
    pytest.mark.skipif(not is_cupti_here(), reason="no CUPTI here"),
    pytest.mark.skipif(find_torch() is None, reason="no torch here"),
]
# What launches stands in a file of the recorder's name: its frames are nobody's.
EVERY_OPERATION = """
import torch
from profkit_recorder_started import launch
from torch.utils._python_dispatch import TorchDispatchMode

class EveryOperation(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        node = torch._C._current_autograd_node()
        print(launch(), function.name(), node.name() if node is not None else "-")
        return function(*args, **(kwargs or {}))
"""
PROGRAM = """
import torch
from profkit_recorder_operations import EveryOperation
from torch.utils.checkpoint import checkpoint

class Custom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.erf(x)  # aten::erf
    @staticmethod
    def backward(ctx, grad):
        return grad * torch.cosh(*ctx.saved_tensors)  # aten::cosh

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(8, 8)
        self.act = torch.nn.Tanh()
    def forward(self, x):
        return self.act(self.fc(x))  # aten::tanh aten::tanh_backward aten::addmm aten::mm

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block() for _ in range(3)])
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        x = Custom.apply(x)
        return checkpoint(torch.atan, x, use_reentrant=False)  # aten::atan

net = Net()
opt = torch.optim.AdamW(net.parameters())
x = torch.randn(4, 8)
with EveryOperation():
    for _ in range(2):
        net(x).sum().backward()
        opt.step()  # aten::addcdiv_
        opt.zero_grad()
    values = torch.randn(5, requires_grad=True)
    total = torch.tan(values).sum()  # aten::tan
    (grad,) = torch.autograd.grad(total, values, create_graph=True)
    grad.pow(2).sum().backward()
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    python = find_torch()
    assert python is not None
    folder = tmp_path_factory.mktemp("backward")
    (folder / "profkit_recorder_operations.py").write_text(EVERY_OPERATION)
    library = build_over_standin(tmp_path_factory.mktemp("standin"))
    return Recording(library, folder, PROGRAM, python)


def test_each_operation_has_its_line(recording: Recording) -> None:
    lines = {}
    for number, text in enumerate(recording.program.read_text().split("\n"), 1):
        _, mark, words = text.partition("  # ")
        for word in words.split() if mark else ():
            lines[word] = number
    places = recording.places()
    seen = set()
    for told in recording.said.splitlines():
        number, name, node = told.split()
        word = name.removesuffix(".default").split(".")[0]
        if word not in lines or "MmBackward" in node:
            continue
        seen.add(word)
        assert places[int(number)].line == f"{recording.program}:{lines[word]}", told
    assert seen == set(lines)


def test_a_backward_operation_has_the_module_of_its_forward(recording: Recording) -> None:
    places = recording.places()
    modules = set()
    for told in recording.said.splitlines():
        number, name, node = told.split()
        if name.startswith("aten::tanh_backward"):
            assert node == "TanhBackward0"
            assert places[int(number)].part == "backward"
            modules.add(places[int(number)].module)
    assert modules == {f"blocks.{layer}.act" for layer in range(3)}


def test_every_operation_has_a_line_and_nothing_is_said(recording: Recording) -> None:
    (process,) = recording.timeline.processes
    assert len(process.activities) > 200
    assert SourcePlace() not in {place_of(process, a.origin) for a in process.activities}
    assert not recording.timeline.notes


STEPS = """
import os, time, torch
from profkit_recorder_operations import EveryOperation

net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
opt = torch.optim.AdamW(net.parameters())
x = torch.randn(3, 8)
file = os.path.join(os.environ["PROFKIT_TIMELINE"], f"{os.getpid()}.operators")
left, until = 5, time.monotonic() + 60
with EveryOperation():
    while left and time.monotonic() < until:
        net(x).sum().backward()
        opt.step()
        opt.zero_grad()
        left -= os.path.exists(file)
"""


def test_launches_of_all_steps_have_the_operators_of_a_few(
    recording: Recording, tmp_path: Path
) -> None:
    """Three steps are profiled when they have begun to repeat; all others are joined to them."""
    del recording  # it says that torch is here, and has built what is asked for
    python = find_torch()
    assert python is not None
    (tmp_path / "profkit_recorder_operations.py").write_text(EVERY_OPERATION)
    library = build_over_standin(tmp_path)
    of = Recording(library, tmp_path, STEPS, python, PROFKIT_OPERATORS="1")
    (process,) = of.timeline.processes
    assert not of.timeline.notes
    told = {}
    for line in of.said.splitlines():
        number, name, _ = line.split()
        told[int(number)] = name.split(".")[0]
    made = dict(
        zip(
            [call.correlation for call in process.calls],
            list_origins_of_calls(process),
            strict=True,
        )
    )
    named = [number for number in told if made[number].op]
    assert len(named) > 0.9 * len(told) > 100
    wrong = {(made[number].op, told[number]) for number in named if made[number].op != told[number]}
    # What an operator calls past the dispatcher's record of it has no span of its own.
    unseen = {"aten::detach", "profiler::_record_function_exit", *WORKLESS}
    assert {name for _, name in wrong} <= unseen
    products = [maker for maker in made.values() if maker.op == "aten::addmm"]
    assert {maker.top for maker in products} == {"aten::linear"}
    assert {maker.shapes for maker in products} == {
        ((16,), (3, 8), (8, 16), (), ()),
        ((4,), (3, 16), (16, 4), (), ()),
    }


# A step is captured, and replayed: torch's own part of a capture needs a GPU.
GRAPH = """
import torch
from profkit_recorder_operations import EveryOperation
from profkit_recorder_started import capture, clone, launch
from torch.utils._python_dispatch import TorchDispatchMode

class Base:
    capture_begin = capture_end = lambda self, **named: None
torch.cuda.graphs.CUDAGraph.__bases__ = (Base,)
graph = object.__new__(torch.cuda.graphs.CUDAGraph)
graph._tracker = None
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
x = torch.randn(3, 8)
nodes = []

class EveryCapture(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        nodes.append((1000 + len(nodes), function.name()))
        capture(nodes[-1][0])
        return function(*args, **(kwargs or {}))

with EveryOperation():
    net(x)  # not captured
graph.capture_begin()
with EveryCapture():
    net(x).sum().backward()
graph.capture_end()
for node, _ in nodes:
    clone(node + 1000, node)
for _ in range(3):
    for node, name in nodes:
        print(launch(node + 1000), name, "-")
"""


def test_what_a_graph_replays_has_the_operators_of_its_capture(
    recording: Recording, tmp_path: Path
) -> None:
    del recording  # it says that torch is here, and has built what is asked for
    python = find_torch()
    assert python is not None
    (tmp_path / "profkit_recorder_operations.py").write_text(EVERY_OPERATION)
    library = build_over_standin(tmp_path)
    of = Recording(library, tmp_path, GRAPH, python, PROFKIT_OPERATORS="1")
    write_timeline(of.timeline, tmp_path / "kept")
    (process,) = read_saved_timeline(tmp_path / "kept").processes
    assert process.disturbed  # the capture
    calls = {call.correlation: call for call in process.calls}
    made = dict(zip(calls, list_origins_of_calls(process), strict=True))
    replayed = {a.correlation: made.get(a.captured, NOBODY) for a in process.activities}
    told = [line.split() for line in of.said.splitlines()]
    outside = [number for number, _, _ in told if not replayed[int(number)].op]
    assert len(outside) < 0.2 * len(told)
    wrong = set()
    for number, name, _ in told:
        own = replayed[int(number)].op
        if own and own != name.split(".")[0]:
            wrong.add(name)
    assert wrong <= {"aten::detach", *WORKLESS}  # which launch nothing, but here
    products = [maker for maker in replayed.values() if maker.op == "aten::addmm"]
    assert len(products) == 6
    assert {maker.shapes for maker in products} == {
        ((16,), (3, 8), (8, 16), (), ()),
        ((4,), (3, 16), (16, 4), (), ()),
    }
