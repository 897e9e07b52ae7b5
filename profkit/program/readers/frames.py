"""A stack of Python frames  ->  the line that says what is computed, and who called it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from profkit.program.steps.places import CORE, is_compiler_generated_file
from profkit.program.timeline import SourcePlace

if TYPE_CHECKING:
    from profkit.units import FileAndLine, ModulePath, PlainValues, TextOrEmpty


_PACKAGE = re.compile(r"/(?:site|dist)-packages/([^/]+)")
_STANDARD = re.compile(r"/lib/python3[^/]*/")
_TYPED = frozenset({"<stdin>", "<string>"})  # python -c, and what is typed
_HOOK = "profkit_recorder"
# A compiler wraps a module into one of its own, and a replicated model is one more.
_WRAPPERS = re.compile(r"(^|\.)(_orig_mod|_checkpoint_wrapped_module|_fsdp_wrapped_module)(?=\.|$)")
_WRAPPING = frozenset({"OptimizedModule", "DistributedDataParallel", "DataParallel"})
_LOCAL = re.compile(r"^(L\['\w+'\]|L__self___?)")
_ITEM = re.compile(r"\[['\"]?(\w+)['\"]?\]")
_BACKWARD = "/torch/autograd/__init__.py"
_REPLICAS = "/torch/nn/parallel/distributed.py"
ENGINE = "_engine_run_backward"  # the frame that only waits for autograd's threads


@dataclass(frozen=True, slots=True)
class PythonFrame:
    """One frame of a stack."""

    file: str
    line: int
    function: str

    @property
    def place(self) -> FileAndLine:
        """Return the file and the line."""
        return f"{self.file}:{self.line}"

    @property
    def package(self) -> TextOrEmpty:
        """Return its installed package; "python" for Python's own library, empty for the user's code."""
        if self.file.startswith("<"):
            if self.file in _TYPED:
                return ""
            return "python"
        if _HOOK in self.file or self.is_compiler_generated:
            return "python"
        if installed := _PACKAGE.search(self.file):
            return installed[1].removesuffix(".py")
        if _STANDARD.search(self.file):
            return "python"
        return ""

    @property
    def is_user_code(self) -> bool:
        """Return whether it is of the program's own code."""
        return not self.package

    @property
    def is_core(self) -> bool:
        """Return whether everything goes through such frames."""
        return self.package == "python" or self.package in CORE

    @property
    def is_compiler_generated(self) -> bool:
        """Return whether torch.compile wrote its file."""
        return is_compiler_generated_file(self.file)

    @property
    def is_forward(self) -> bool:
        """Return whether it is what a module computes."""
        return self.function.endswith(".forward")


@dataclass(frozen=True)
class PythonStack:
    """Frames and modules of one launch, innermost first."""

    frames: tuple[PythonFrame, ...]
    modules: tuple[tuple[str | None, str], ...] = ()  # path in the outermost one, and class
    generated: str = ""  # the file among the frames' that a compiler wrote
    origins: tuple[GraphOrigin, ...] = ()  # what the kernel there stands for


@dataclass(frozen=True, slots=True)
class GraphOrigin:
    """One of the operations that a compiler made a kernel of."""

    frames: tuple[PythonFrame, ...]
    module: str
    kind: str  # the module's class
    backward: bool
    weight: int  # values that it reads or writes


def parse_stack(row: Mapping[str, PlainValues]) -> PythonStack:
    """Make a stack of what the recorder wrote of it.

    Raises:
        ValueError: It is no stack.
    """
    frames = row.get("frames")
    modules = row.get("modules")
    if not isinstance(frames, list) or not isinstance(modules, list):
        raise ValueError("a stack without frames or modules")
    read = []
    for file, line, function in frames:
        read.append(PythonFrame(str(file), int(line), str(function)))
    named = []
    for path, kind in modules:
        named.append((None if path is None else str(path), str(kind)))
    origins = []
    for origin in row.get("origins", ()):
        if "frames" in origin:
            origins.append(parse_graph_origin(origin))
    return PythonStack(
        frames=tuple(read),
        modules=tuple(named),
        generated=str(row.get("generated", "")),
        origins=tuple(origins),
    )


def parse_graph_origin(row: Mapping[str, PlainValues]) -> GraphOrigin:
    """Make an origin of what the hook wrote of it.

    Raises:
        ValueError, TypeError, KeyError: It is none.
    """
    frames = []
    for file, line, function in row["frames"]:
        frames.append(PythonFrame(str(file), int(line), str(function)))
    return GraphOrigin(
        frames=tuple(frames),
        module=convert_dynamo_module_path(str(row["module"])),
        kind=str(row["kind"]),
        backward=row["backward"] is True,
        weight=int(row["weight"]),
    )


def is_waiting_for_autograd(stack: PythonStack) -> bool:
    """Return whether Python only waits there while autograd works in C++.

    What torch has around an operation (a dispatch mode, a hook of its own) is no Python of a backward
    pass; a function of the user's, or what a compiler made, is.
    """
    for frame in stack.frames:
        if frame.function == ENGINE:
            return not stack.generated
        if not frame.is_core:
            return False
    return False


def is_calling_backward(stack: PythonStack) -> bool:
    """Return whether the program is inside of its call of a backward pass."""
    return any(
        frame.file.endswith(_BACKWARD) and frame.function in {"backward", "grad"}
        for frame in stack.frames
    )


def is_called_by_ddp(stack: PythonStack) -> bool:
    """Return whether DistributedDataParallel has called what was launched."""
    return any(frame.file.endswith(_REPLICAS) for frame in stack.frames)


def is_compiled_without_origins(stack: PythonStack) -> bool:
    """Return whether a compiler made what was launched, and what it stands for is not known."""
    return not stack.generated and any(frame.is_compiler_generated for frame in stack.frames)


def find_place_of_stack(stack: PythonStack) -> SourcePlace:
    """Say where something comes from."""
    frames = []
    for frame in stack.frames:
        if frame.file != stack.generated:
            frames.append(frame)
    compiled = find_place_of_origins(stack.origins)
    at = find_computing_frame(frames)
    if at is None:
        return compiled
    own = frames[at]
    if compiled.line:
        return replace(compiled, called=find_line_of_model_call(frames, own) or own.place)
    path, kind = find_innermost_module(stack.modules)
    part = "forward"
    # Outside of its line, an optimizer only calls what computes the loss for it (a closure).
    if any("/torch/optim/" in frame.file for frame in frames[:at]):
        part = "optimizer"
    return SourcePlace(
        own.place, own.function, path, kind, find_line_of_model_call(frames, own), part
    )


def find_place_of_origins(origins: Sequence[GraphOrigin]) -> SourcePlace:
    """Say where a compiler's kernel comes from: the line of most of its work, and all others."""
    weights: Counter[PythonFrame] = Counter()
    modules: dict[PythonFrame, Counter[tuple[str, str]]] = {}
    backward = 0
    for origin in origins:
        backward += origin.backward
        at = find_computing_frame(origin.frames)
        if at is None:
            continue
        frame = origin.frames[at]
        weights[frame] += origin.weight
        modules.setdefault(frame, Counter())[origin.module, origin.kind] += origin.weight
    if not weights:
        return SourcePlace()
    ordered = [frame for frame, _ in weights.most_common()]
    first = ordered[0]
    ((module, kind), _), *_ = modules[first].most_common()
    return SourcePlace(
        line=first.place,
        function=first.function,
        module=module,
        kind=kind,
        part="backward" if 2 * backward > len(origins) else "forward",
        lines=tuple(frame.place for frame in ordered),
    )


def convert_dynamo_module_path(path: str) -> ModulePath:
    """Make a path of what Dynamo calls a module: L['self']._modules['blocks']['0'] is blocks.0."""
    plain = _LOCAL.sub("", path)
    plain = plain.replace("._modules[", "[")
    plain = _ITEM.sub(lambda found: f".{found[1]}", plain)
    plain = _WRAPPERS.sub(r"\1", plain.strip("."))
    return plain.replace("..", ".").strip(".")


def find_computing_frame(frames: Sequence[PythonFrame]) -> int | None:
    """Find the frame whose line says what is computed.

    It is the user's innermost one; but a library's model (of transformers, timm) is named itself
    where its modules compute: what a user wrote of it is a single call.
    """
    users = next((at for at, frame in enumerate(frames) if frame.is_user_code), None)
    near = next((at for at, frame in enumerate(frames) if not frame.is_core), None)
    if near is None or near == users:
        return users
    if users is None:
        inside = frames[near:]
    else:
        inside = frames[near:users]
    if users is None or any(frame.is_forward and not frame.is_core for frame in inside):
        return near
    return users


def find_line_of_model_call(frames: Sequence[PythonFrame], own: PythonFrame) -> TextOrEmpty:
    """Find the user's line from which the outermost module was called, where it is another one."""
    outermost = None
    for at, frame in enumerate(frames):
        if frame.function == "Module._call_impl":
            outermost = at
    if outermost is None:
        return ""
    for frame in frames[outermost:]:
        if frame.is_user_code:
            if frame != own:
                return frame.place
            return ""
    return ""


def find_innermost_module(
    modules: Sequence[tuple[ModulePath | None, str]],
) -> tuple[ModulePath, str]:
    """Find the innermost module that has a path: its path and its class."""
    is_wrapped = bool(modules) and modules[-1][1] in _WRAPPING
    for path, kind in modules:
        if path is None or kind in _WRAPPING:
            continue
        plain = _WRAPPERS.sub(r"\1", path).replace("..", ".").strip(".")
        if is_wrapped and (plain == "module" or plain.startswith("module.")):
            plain = plain.removeprefix("module").removeprefix(".")
        if plain:
            return plain, kind
    if modules:
        inner = [kind for _, kind in modules if kind not in _WRAPPING]
        return "", inner[-1] if inner else modules[-1][1]
    return "", ""
