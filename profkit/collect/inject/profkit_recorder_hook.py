"""Python starts in a recorded program  ->  what only Python can tell is written beside the records.

A line of <pid>.hook is a word and its value, with a tab between them. Nothing here may stop the
program: what fails is written down, and the program goes on.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from profkit_recorder_inductor import WATCHED

TorchModule = Any  # the package torch, or a module of it

# What a module of another version may raise where it is looked into: the program goes on.
TROUBLE = (AttributeError, KeyError, LookupError, OSError, RuntimeError, TypeError, ValueError)
PYTHON_HEAD = 16  # bytes of a Python object before its own fields
FOLDER = os.environ.get("PROFKIT_TIMELINE", "")


def append_hook_line(keyword: str, value: object = "") -> None:
    """Write a line for the one who reads the recording."""
    text = " ".join(str(value).split())
    try:
        with open(f"{FOLDER}/{os.getpid()}.hook", "a", encoding="utf-8") as file:
            file.write(f"{keyword}\t{text}\n")
    except OSError:
        pass  # the recording is gone: the program is not stopped for it


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls a function with a module, right after the program has imported it for itself."""

    def __init__(self, then: Mapping[str, Callable[[Any], None]]) -> None:
        self.then = dict(then)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find the module as Python would, and have the function called behind its code."""
        del path, target  # an importer is asked with them
        if name not in self.then:
            return None
        then = self.then.pop(name)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            try:
                then(module)
            except TROUBLE as error:  # another version of it
                append_hook_line("error", f"{name}: {error!r}")

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def note_starts_of_torch_profiler(module: TorchModule) -> None:
    """Write down when the program starts torch.profiler: CUPTI is ours, so it sees no GPU events."""
    start = module.profile._start_trace

    def start_trace(self: Any) -> Any:
        if getattr(self, "use_device", None) == "cuda" or getattr(self, "use_cuda", False):
            append_hook_line("profiler")
        return start(self)

    module.profile._start_trace = start_trace


def watch_torch(torch: TorchModule) -> None:
    """Find out how torch's nodes lie; and record operators, where that was asked for."""
    export_autograd_node_layout(torch)
    if os.environ.get("PROFKIT_OPERATORS") == "1":
        from profkit_recorder_operators import wait_for_steps_in_thread

        wait_for_steps_in_thread(torch)


def export_autograd_node_layout(torch: TorchModule) -> None:
    """Write into the environment where torch's nodes of autograd keep their number and thread.

    It is seen in three nodes of a chain: their numbers, their heights and their thread's are told
    apart. Nothing is written where not exactly one place fits each.
    """
    try:
        library = ctypes.CDLL("libtorch_cpu.so", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:  # another program's module of that name
        return
    find_thread = library._ZN2at14RecordFunction15currentThreadIdEv
    find_thread.restype = ctypes.c_uint64
    value = torch.ones(1, requires_grad=True)
    nodes = []
    for _ in range(3):
        value = value.exp()
        nodes.append(value.grad_fn)
    numbers = _find_offsets_of_number(nodes, [node._sequence_nr() for node in nodes])
    threads = _find_offsets_of_number(nodes, [find_thread()] * len(nodes))
    if len(numbers) == len(threads) == 1:
        os.environ["PROFKIT_NODE"] = f"{numbers[0]} {threads[0]}"


def _find_offsets_of_number(nodes: list[Any], wanted_numbers: list[int]) -> list[int]:
    """Return offsets at which each node has the number that it should have."""
    places = []
    for offset in range(16, 112, 8):
        found = []
        for node in nodes:
            start = ctypes.c_void_p.from_address(id(node) + PYTHON_HEAD).value or 0
            found.append(ctypes.c_int64.from_address(start + offset).value)
        if found == wanted_numbers:
            places.append(offset)
    return places


def install_recorder() -> None:
    """Begin to watch what the program imports."""
    then: dict[str, Callable[[Any], None]] = {
        "torch.autograd.profiler": note_starts_of_torch_profiler
    }
    if os.environ.get("PROFKIT_LINES") != "0":
        then["torch"] = watch_torch
        then |= WATCHED
    sys.meta_path.insert(0, AfterImport(then))
