"""One of the models is trained: in eager mode, compiled, or captured into a CUDA graph by hand.

    python -m tests.gpu.lines.markers.train MODEL eager|compile|reduce|hand [--truth FILE]

A kernel that nothing else has (lgamma) stands before each of the last steps. --truth: torch's
profiler sees the last step, and what it says of each kernel (the operators that were open when it
was launched, with the sizes of what they read) is written into a file. No line is asked of it: lines
follow from sizes.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, record_function

from tests.gpu.lines.markers.models import MODELS

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# What is open around all kernels of a compiled graph says nothing of one of them.
AROUND = ("## ", "Torch-Compiled", "CompiledFunction", "autograd::engine")
# Calls of CUDA have numbers of their own; and the profiler's own work is in its trace, too.
NO_OPERATORS = (
    *("cu", "Lazy Function Loading", "Activity Buffer Request", "Buffer Flush"),
    *("Instrumentation", "Resource", "Command Buffer Full", "Runtime Triggered Module Loading"),
)
WARM = 3
STEPS = 3
SIDE = 112, 136  # widths of what a second thread trains


class Training:
    """A model, its optimizer, and one step of both."""

    def __init__(self, model: str, mode: str) -> None:
        torch.manual_seed(0)
        self.mode = mode
        self.net = MODELS[model]().to(DEVICE)
        self.given, self.wanted = self.net.make_inputs(DEVICE)
        self.opt = torch.optim.AdamW(
            self.net.parameters(), lr=1e-4, foreach=True, capturable=mode == "hand"
        )
        self.called: Callable[[Tensor], Tensor] = self.net
        if mode == "compile":
            self.called = torch.compile(self.net)
        elif mode == "reduce":
            self.called = torch.compile(self.net, mode="reduce-overhead")
        self.side = nn.Linear(*SIDE).to(DEVICE)
        self.side_given = torch.randn(64, SIDE[0], device=DEVICE)
        self.marked = torch.rand(7, device=DEVICE)
        self.replay: Callable[[], None] | None = None

    def learn(self) -> None:
        """Everything of a step that a graph can hold."""
        with record_function("phase forward"):
            y = self.called(self.given)
            loss = functional.mse_loss(y, self.wanted)  # loss
        with record_function("phase backward"):
            loss.backward()  # backward
        with record_function("phase optimizer"):
            nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)  # clip
            self.opt.step()  # step

    def learn_aside(self) -> None:
        """What a second thread trains meanwhile."""
        y = self.side(self.side_given)  # side linear
        y.square().sum().backward()  # side sum

    def run_step(self) -> None:
        """One step."""
        if self.replay is not None:
            self.replay()  # replay
        else:
            self.opt.zero_grad(set_to_none=True)
            self.learn()
        with record_function("phase side"):
            thread = threading.Thread(target=self.learn_aside)
            thread.start()
            thread.join()

    def mark_step(self) -> None:
        """Begin a step that is looked at."""
        torch.lgamma(self.marked)  # marked

    def capture(self) -> None:
        """Capture the step into a graph."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM):
                self.opt.zero_grad(set_to_none=True)
                self.learn()
        torch.cuda.current_stream().wait_stream(side)
        self.opt.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.learn()
        self.replay = graph.replay


def train(training: Training, truth: str, steps: int) -> None:
    """Train, and have torch's profiler look at the last step where that is asked for."""
    if training.mode == "hand" and not truth:
        training.capture()
    for _ in range(WARM):
        training.run_step()
    if not truth:
        for _ in range(steps):
            training.mark_step()
            training.run_step()
    else:
        activities = [ProfilerActivity.CPU]
        if DEVICE == "cuda":
            activities.append(ProfilerActivity.CUDA)
        wait_for_all()
        with profile(activities=activities, record_shapes=True) as profiled:
            training.mark_step()
            training.run_step()
            wait_for_all()
        rows = list_kernels(profiled.profiler.kineto_results.events())
        Path(truth).write_text(json.dumps(rows), encoding="utf-8")
    wait_for_all()


def wait_for_all() -> None:
    """Wait for the GPU."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def list_kernels(events: Any) -> list[dict[str, Any]]:
    """Say of each kernel, in order, in which operators and in which phase it was launched."""
    on_host = [event for event in events if "CPU" in str(event.device_type())]
    on_gpu = [event for event in events if "CUDA" in str(event.device_type())]
    on_gpu = [event for event in on_gpu if not event.is_user_annotation()]
    phases = [event for event in on_host if event.name().startswith("phase ")]
    operators = [event for event in on_host if not event.name().startswith(NO_OPERATORS)]
    makers = {event.correlation_id(): event for event in operators}
    rows = []
    for kernel in sorted(on_gpu, key=lambda event: event.start_ns()):
        # A thread that the program starts is not looked at: what it launched has no operator.
        row: dict[str, Any] = {"name": kernel.name(), "operators": [], "sizes": [], "phase": "side"}
        row["stack"] = []
        number = kernel.linked_correlation_id()
        if number > 0 and number in makers:
            row["phase"] = find_phase(makers[number], phases)
            add_operators(row, list_open(makers[number], operators))
        rows.append(row)
    return rows


def add_operators(row: dict[str, Any], operators: Iterable[Any]) -> None:
    """Add to a kernel's row the operators in which it was launched, and the sizes of what they read."""
    sizes: set[int] = set()
    for event in operators:
        row["operators"].append(event.name())
        row["stack"].append((event.name(), event.shapes(), event.dtypes()))
        if not event.name().startswith(AROUND):
            sizes.update(list_sizes(event.shapes()))
    row["sizes"] = sorted(sizes)


def find_phase(maker: Any, phases: list[Any]) -> str:
    """Find the phase in which an operator began, whichever thread it is on."""
    for phase in phases:
        if phase.start_ns() <= maker.start_ns() <= phase.end_ns():
            return str(phase.name().removeprefix("phase "))
    return ""


def list_open(maker: Any, events: list[Any]) -> list[Any]:
    """List the operators that were open on an operator's thread when it began, outermost first."""
    own = []
    for event in events:
        same = event.start_thread_id() == maker.start_thread_id()
        if same and event.start_ns() <= maker.start_ns() and maker.end_ns() <= event.end_ns():
            own.append(event)
    return sorted(own, key=lambda event: event.start_ns())


def list_sizes(shapes: Any) -> list[int]:
    """List the sizes of tensors, and of tensors in lists."""
    sizes: list[int] = []
    for shape in shapes:
        if isinstance(shape, list | tuple):
            sizes += list_sizes(shape)
        elif isinstance(shape, int):
            sizes.append(shape)
    return sizes


def main(arguments: list[str]) -> None:
    """Train what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=sorted(MODELS))
    parser.add_argument("mode", choices=("eager", "compile", "reduce", "hand"))
    parser.add_argument("--truth", default="")
    parser.add_argument(
        "--proton", default="", help="run under Triton's Proton, which writes FILE.hatchet"
    )
    parser.add_argument("--steps", type=int, default=STEPS, help="that are looked at")
    asked = parser.parse_args(arguments)
    training = Training(asked.model, asked.mode)
    if not asked.proton:
        train(training, asked.truth, asked.steps)
        return
    from triton import profiler as proton

    proton.start(asked.proton, context="python")
    train(training, asked.truth, asked.steps)
    proton.finalize()


if __name__ == "__main__":
    main(sys.argv[1:])
