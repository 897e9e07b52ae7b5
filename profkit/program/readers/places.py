"""What the recorder wrote of launches, stacks and nodes of autograd  ->  where each thing comes from.

A kernel has the number of the call that launched it, or of a node of a CUDA graph. The call has a
stack of Python frames, and in a backward pass the number of the node of autograd that ran: that node
was made in the forward pass, by a stack of its own, whose line is the kernel's.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from profkit.files import list_folder_entries, open_regular_file
from profkit.program.readers.frames import (
    PythonStack,
    find_place_of_stack,
    is_called_by_ddp,
    is_calling_backward,
    is_compiled_without_origins,
    is_waiting_for_autograd,
    parse_stack,
)
from profkit.program.timeline import SourcePlace

MODULE_CALL = "Module._call_impl"  # through which torch calls every module
BUCKET = "DDP bucket"  # in the place of a module's class
MODULES = 2  # kModules of profkit/collect/injection/frames.h

if TYPE_CHECKING:
    import numpy as np

    from profkit.units import (
        CallAndNodeStacks,
        CorrelationId,
        CorrelationIdOrZero,
        GraphNodeId,
        IndexOrMinusOne,
        ProcessId,
        Sentence,
        StackNumber,
        StackNumberOrZero,
        ThreadId,
    )

# Of each kind of file: the fields of its rows, little-endian (profkit/collect/injection), and the
# one that is zero only in rows that were never written.
_LAUNCH = "sequence:u8 correlation:u4 stack:u4 forward:u4 how:u4"
LAYOUTS = {
    "launches": (_LAUNCH, "correlation"),
    "nodes": ("sequence:u8 parent:u8 thread:u4 stack:u4 parent_thread:u4 unused:u4", "thread"),
    "graphs": (f"id:u8 original:u8 {_LAUNCH}", "id"),
}
NO_NODE = (1 << 64) - 1
NODE_RUNS = 1  # in `how`
FARTHEST = 16  # copies of a graph's node, or nodes made while others ran, that are followed
STACKS_MOST = 1 << 18  # bytes of a line: a stack of a thousand frames


class LaunchSource(NamedTuple):
    """Who launched something."""

    sequence: int  # of the node of autograd that ran, or NO_NODE
    stack: int  # 0: no Python on that thread
    forward: int  # the thread that made the node
    how: int


class AutogradNode(NamedTuple):
    """A node of autograd, when it was made."""

    parent: int  # that ran meanwhile, or NO_NODE
    stack: int
    parent_thread: int


class SourcePlaces:
    """The places of one process, each once, and which of them is whose."""

    def __init__(self, folder: Path, pid: ProcessId) -> None:
        self.places: list[SourcePlace] = []
        self.stacks = dict(_read_stacks(folder / f"{pid}.stacks"))
        self.launches: dict[int, LaunchSource] = {}
        self.threads: dict[int, int] = {}  # of each launch, the system's number of its thread
        self.nodes: dict[tuple[int, int], AutogradNode] = {}
        self.graph_nodes: dict[int, tuple[int, LaunchSource]] = {}
        self.captured: dict[int, int] = {}  # of each node of a graph, the number of its making call
        self.uncaptured: set[int] = set()  # nodes of graphs that ran and whose making was not seen
        self.unexplained: set[int] = set()  # stacks in compiled code that does not tell its lines
        self._numbers: dict[SourcePlace, int] = {}
        self._similar: dict[int, int] = {}
        self._shapes: dict[tuple[Any, ...], int] = {}
        self._of_launch: dict[LaunchSource, int] = {}
        self._of_stack: dict[int, SourcePlace] = {}
        self._read_files(folder, pid)

    def _read_files(self, folder: Path, pid: ProcessId) -> None:
        """Read what was launched, by which nodes of autograd, and into which graphs."""
        for by, (sequence, correlation, *rest) in _read_rows_of_threads(folder, pid, "launches"):
            self.launches[correlation] = LaunchSource(sequence, *rest)
            self.threads[correlation] = by
        for _, (sequence, parent, thread, stack, *rest) in _read_rows_of_threads(
            folder, pid, "nodes"
        ):
            self.nodes[thread, sequence] = AutogradNode(parent, stack, rest[0])
        for _, (number, original, sequence, call, *rest) in _read_rows_of_threads(
            folder, pid, "graphs"
        ):
            self.graph_nodes[number] = original, LaunchSource(sequence, *rest)
            self.captured[number] = call

    def find_place_number(
        self, correlation: CorrelationId, graph_node: GraphNodeId = 0
    ) -> IndexOrMinusOne:
        """Find the number of the place of a call, or of a graph's node; -1 where it has none."""
        launch = self.launches.get(correlation)
        if graph_node:
            made = self._find_source_node_or_zero(graph_node)
            launch = None
            if made:
                launch = self.graph_nodes[made][1]
            elif self.launches:
                self.uncaptured.add(graph_node)
        if launch is None:
            return -1
        if launch not in self._of_launch:
            self._of_launch[launch] = self._get_or_add_place_number(
                self._find_place_of_launch(launch)
            )
        return self._of_launch[launch]

    def find_stack_numbers(self, correlation: CorrelationId) -> CallAndNodeStacks:
        """Find the numbers of a call's stack, and of the stack that made the node that ran."""
        launch = self.launches.get(correlation)
        if launch is None:
            return 0, 0
        return launch.stack, self._find_forward_stack(launch.sequence, launch.forward)

    def find_similar_stack_numbers(self, correlation: CorrelationId) -> tuple[int, int]:
        """Find the same as numbers that stacks share whose lines differ within libraries alone.

        A library goes other ways while a profiler is on.
        """
        stack, forward = self.find_stack_numbers(correlation)
        return self._get_similar_stack_number(stack), self._get_similar_stack_number(forward)

    def _get_similar_stack_number(self, number: StackNumberOrZero) -> int:
        if number not in self._similar:
            stack = self.stacks.get(number)
            shape: tuple[Any, ...] = ()
            if stack is not None:
                shape = make_stack_key(stack)
            self._similar[number] = self._shapes.setdefault(shape, len(self._shapes))
        return self._similar[number]

    def describe_missing_lines(self) -> list[Sentence]:
        """Say what has no line, and why; empty where everything has what can be had."""
        gaps = []
        if self.uncaptured:
            gaps.append(
                f"{len(self.uncaptured)} nodes of CUDA graphs have no line: their graph was made "
                "before the recording began, or by the GPU's own libraries"
            )
        if self.unexplained:
            gaps.append(
                "some kernels of torch.compile have only the line of their call: this torch "
                "version does not record their origin, or they came from another cache"
            )
        return gaps

    def _get_or_add_place_number(self, place: SourcePlace) -> IndexOrMinusOne:
        if place == SourcePlace():
            return -1
        if place not in self._numbers:
            self._numbers[place] = len(self.places)
            self.places.append(place)
        return self._numbers[place]

    def is_called_from_python(
        self, correlation: CorrelationId, graph_node: GraphNodeId = 0
    ) -> bool:
        """Return whether Python, outside of a backward pass, called it or what its node was made of."""
        launch = self.launches.get(correlation)
        if graph_node:
            launch = None
            if made := self._find_source_node_or_zero(graph_node):
                launch = self.graph_nodes[made][1]
        return launch is not None and launch.stack != 0 and not launch.how & NODE_RUNS

    def find_place_of_gradient_bucket(
        self, correlation: CorrelationId, graph_node: GraphNodeId = 0
    ) -> IndexOrMinusOne:
        """Find the number of the place of a collective that torch starts itself; -1 where it has none.

        Gradients are reduced when the last one of a bucket is there, on a thread of autograd that has
        no Python. The backward pass was called before it, and launched something there: its first
        gradient, which is one.
        """
        number = self.find_capturing_call_or_zero(graph_node) if graph_node else correlation
        before = bisect_left(self._correlations_of_backward_calls, number) - 1
        if before < 0 or not self._uses_ddp:
            return -1
        called = self.launches[self._correlations_of_backward_calls[before]]
        place = self._get_place_of_stack(called.stack)
        if not place.line:
            return -1
        return self._get_or_add_place_number(
            replace(place, module="", kind=BUCKET, called="", part="backward")
        )

    @cached_property
    def _correlations_of_backward_calls(self) -> list[CorrelationId]:
        """Return the launches that calls of a backward pass made themselves, in order."""
        calls = []
        for number, launch in self.launches.items():
            stack = self.stacks.get(launch.stack)
            if stack is not None and is_calling_backward(stack):
                calls.append(number)
        return sorted(calls)

    @cached_property
    def _uses_ddp(self) -> bool:
        """Return whether a model of the program is called by DistributedDataParallel."""
        return any(map(is_called_by_ddp, self.stacks.values()))

    def find_capturing_call_or_zero(self, graph_node: GraphNodeId) -> CorrelationIdOrZero:
        """Find the number of the call that was captured as a graph's node; 0 where none is known."""
        return self.captured.get(self._find_source_node_or_zero(graph_node), 0)

    def _find_source_node_or_zero(self, node_number: GraphNodeId) -> GraphNodeId:
        """Find the node that a call made, of which a graph's node is a copy; 0 where it is not known."""
        for _ in range(FARTHEST):
            found = self.graph_nodes.get(node_number)
            if found is None:
                return 0
            original, _ = found
            if not original:
                return node_number
            node_number = original
        return 0

    def _find_place_of_launch(self, launch: LaunchSource) -> SourcePlace:
        own = self.stacks.get(launch.stack)
        runs = bool(launch.how & NODE_RUNS)
        waits = own is not None and runs and is_waiting_for_autograd(own)
        through = self._find_forward_stack(launch.sequence, launch.forward)
        if own is None or waits:
            place = self._get_place_of_stack(through)
            if place.line:
                return replace(place, part="backward")
            return self._get_place_of_stack(launch.stack)
        place = self._get_place_of_stack(launch.stack)
        if not runs:
            return place
        # Python of a backward pass: a function of the user's own, or what is computed once more.
        forward = self._get_place_of_stack(through)
        called = place.called or forward.called
        if place.lines and forward.called:  # compiled: the forward pass says who called it
            called = forward.called
        return replace(
            place,
            line=place.line or forward.line,
            function=place.function or forward.function,
            module=place.module or forward.module,
            kind=place.kind or forward.kind,
            called=called,
            part="backward",
        )

    def _find_forward_stack(self, sequence: int, thread: int) -> StackNumberOrZero:
        """Find the stack that made a node; of one that a backward pass made, of the node it ran for."""
        for _ in range(FARTHEST):
            node = self.nodes.get((thread, sequence))
            if node is None:
                return 0
            stack = self.stacks.get(node.stack)
            within = node.parent != NO_NODE and stack is not None and is_waiting_for_autograd(stack)
            if stack is not None and not within:
                return node.stack
            sequence = node.parent
            thread = node.parent_thread
        return 0

    def _get_place_of_stack(self, number: StackNumberOrZero) -> SourcePlace:
        if number not in self._of_stack:
            stack = self.stacks.get(number)
            if stack is not None:
                self._of_stack[number] = find_place_of_stack(stack)
            else:
                self._of_stack[number] = SourcePlace()
            if stack is not None and is_compiled_without_origins(stack):
                self.unexplained.add(number)
        return self._of_stack[number]


def make_stack_key(stack: PythonStack) -> tuple[tuple[str, str, int], ...]:
    """Return what of a stack is the same whichever way a library goes through its functions.

    What called the second module is none of it: the recorder does not look at that, either.
    """
    shape = []
    modules = 0
    for frame in stack.frames:
        line = frame.line
        if frame.is_core and not frame.is_compiler_generated:
            line = 0
        shape.append((frame.file, frame.function, line))
        modules += frame.function == MODULE_CALL
        if modules == MODULES:
            break
    return tuple(shape)


def _read_stacks(path: Path) -> Iterator[tuple[StackNumber, PythonStack]]:
    """Yield the stacks that can be read; a line that was cut when the program ended is none."""
    try:
        with open_regular_file(path) as file:
            while line := file.readline(STACKS_MOST):
                try:
                    row = json.loads(line)
                    yield int(row["id"]), parse_stack(row)
                except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                    continue
    except OSError:
        return


def _read_rows_of_threads(
    folder: Path, pid: ProcessId, row_kind: str
) -> Iterator[tuple[ThreadId, Any]]:
    """Yield the rows of all threads of a process, each with the system's number of its thread."""
    layout, written = LAYOUTS[row_kind]
    form = _parse_row_type(layout)
    for path in list_folder_entries(folder):
        if not path.name.startswith(f"{pid}-") or path.suffix != f".{row_kind}":
            continue
        rows = _load_rows(path, form)
        thread = path.stem.rpartition("-")[2]
        for row in rows[rows[written] != 0].tolist():
            yield int(thread) if thread.isdigit() else 0, row


def _parse_row_type(text: str) -> np.dtype[Any]:
    import numpy as np

    columns = [column.split(":") for column in text.split()]
    return np.dtype([(name, f"<{form}") for name, form in columns])


def _load_rows(path: Path, form: np.dtype[Any]) -> Any:
    import numpy as np

    try:
        with open_regular_file(path) as file:
            content = file.read()
    except OSError:
        content = b""
    whole = len(content) // form.itemsize * form.itemsize
    return np.frombuffer(content[:whole], form)
