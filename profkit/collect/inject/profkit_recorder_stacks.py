"""A stack that the recorder meets for the first time  ->  a line that says which it is.

The recorder calls write_stack inside of a launch, with the GIL: no tensor is touched here. A line of
<pid>.stacks is a JSON object: id, frames (file, line, function; innermost first, to the program's
first), modules (path in the outermost module, class; innermost first) and, inside of a file that
torch.compile wrote, generated (that file) and origins (what the kernel stands for).
"""

from __future__ import annotations

import json
import os
import sys
import weakref
from collections.abc import Sequence
from io import TextIOBase
from types import CodeType, FrameType
from typing import Any

from profkit_recorder_inductor import find_origins_of_kernel_call

CodeAddressOrZero = int
ModulePath = str  # of an nn.Module: transformer.h.0
NnModule = Any

FOLDER = os.environ.get("PROFKIT_TIMELINE", "")
TYPED = frozenset({"<stdin>", "<string>"})  # python -c, and what is typed
# Code objects of all stacks: while they are kept, no other code takes their place in memory.
_kept: set[CodeType] = set()
_files: dict[int, TextIOBase] = {}  # of this process, by its number: a forked child opens its own


def find_module_call() -> CodeAddressOrZero:
    """Return where the code is through which every nn.Module is called; 0 before torch is there."""
    module = sys.modules.get("torch.nn.modules.module")
    call = getattr(getattr(module, "Module", None), "_call_impl", None)
    code = getattr(call, "__code__", None)
    return id(code) if code is not None else 0


def write_stack(
    stack_number: int, codes: Sequence[CodeType], offsets: Sequence[int], modules: Sequence[object]
) -> int:
    """Write a stack down if Python's own frames say the same as those that were read; 1 if they do."""
    frame = sys._getframe(1)
    frames = []
    for code, offset in zip(codes, offsets, strict=True):
        if frame is None or frame.f_code is not code or frame.f_lasti != offset:
            return 0
        line = frame.f_lineno or code.co_firstlineno
        frames.append((get_file_of_frame(frame), line, code.co_qualname))
        frame = frame.f_back  # type: ignore[assignment]
    if frame is not None:
        return 0
    _kept.update(codes)
    row: dict[str, Any] = {
        "id": stack_number,
        "frames": frames,
        "modules": list_paths_and_classes_of_modules(modules),
    }
    for file, line, _ in frames:
        origins = find_origins_of_kernel_call(file, line)
        if origins is not None:
            row |= {"generated": file, "origins": origins}
            break
    _open_file().write(json.dumps(row) + "\n")
    return 1


def get_file_of_frame(frame: FrameType) -> str:
    """Return the file of a frame; text that a library has run is not what was typed."""
    file = frame.f_code.co_filename
    if file in TYPED and frame.f_globals.get("__name__") != "__main__":
        return "<generated>"
    return file


def _open_file() -> TextIOBase:
    pid = os.getpid()
    if pid not in _files:
        path = f"{FOLDER}/{pid}.stacks"
        _files[pid] = open(path, "a", buffering=1, encoding="utf-8")  # noqa: SIM115 - to the end
    return _files[pid]


class ModuleNames:
    """The paths of a module's parts, as it named them when they were first asked for."""

    def __init__(self, root: Any) -> None:
        self.root = weakref.ref(root)
        self.names: dict[int, str] = {}
        self.strangers: set[int] = (
            set()
        )  # modules that are called inside of it and are no part of it

    def find_name(self, module: NnModule) -> ModulePath | None:
        """Return the path of a module; None for one that is no part of the root."""
        root = self.root()
        if id(module) in self.strangers or root is None:
            return None
        if id(module) not in self.names:  # parts may have come since
            self.names = {id(part): name for name, part in root.named_modules()}
        if id(module) not in self.names:
            self.strangers.add(id(module))
        return self.names.get(id(module))


_roots: dict[int, ModuleNames] = {}


def list_paths_and_classes_of_modules(
    modules: Sequence[NnModule],
) -> list[tuple[ModulePath | None, str]]:
    """Return the path and class of each module; the last one is the outermost, whose parts they are."""
    if not modules:
        return []
    root = modules[-1]
    known = _roots.get(id(root))
    if known is None or known.root() is not root:
        known = _roots[id(root)] = ModuleNames(root)
    return [(known.find_name(module), type(module).__name__) for module in modules]
