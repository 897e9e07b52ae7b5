"""Python starts in a recorded program  ->  what only Python can tell is written beside the records.

A line of <pid>.hook is a word and its value, with a tab between them. Nothing here may stop the
program: what fails is written down, and the program goes on.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# What a module of another version may raise where it is looked into: the program goes on.
TROUBLE = (AttributeError, KeyError, LookupError, OSError, RuntimeError, TypeError, ValueError)
FOLDER = os.environ.get("PROFKIT_TIMELINE", "")


def write_word(word: str, value: object = "") -> None:
    """Write a line for the one who reads the recording."""
    text = " ".join(str(value).split())
    try:
        with open(f"{FOLDER}/{os.getpid()}.hook", "a", encoding="utf-8") as file:
            file.write(f"{word}\t{text}\n")
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
                write_word("error", f"{name}: {error!r}")

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def watch_profiler(module: Any) -> None:
    """Write down when the program starts torch.profiler: CUPTI is ours, so it sees no GPU events."""
    start = module.profile._start_trace

    def start_trace(self: Any) -> Any:
        if getattr(self, "use_device", None) == "cuda" or getattr(self, "use_cuda", False):
            write_word("profiler")
        return start(self)

    module.profile._start_trace = start_trace


def install_recorder() -> None:
    """Begin to watch what the program imports."""
    sys.meta_path.insert(0, AfterImport({"torch.autograd.profiler": watch_profiler}))
