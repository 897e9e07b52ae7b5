"""torch.compile writes a file  ->  beside it, the lines and modules that each of its kernels stands for.

Inductor knows for every kernel from which nodes of the graph it was made, and each node knows the
line and the module that it was traced from; with INDUCTOR_PROVENANCE=1 the generated file names a
handle in front of every kernel's call. The lines stand in a file beside it, so that a cache which is
warm the next time has them too: it has to be a cache that only recorded runs fill.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable
from typing import Any

FxNode = Any  # of a graph of torch.fx
FxTarget = Any
InductorBuffer = Any  # a node of Inductor's own, as a library's kernel is
InductorModule = Any
KernelNodes = Any  # of Inductor's scheduler, or the one of a library's kernel
OperatorNameOrEmpty = str  # aten::mm; "" of what is no operator
SchedulerNode = Any

SUFFIX = ".profkit.json"
_HANDLE = re.compile(r"\[Provenance debug handles\] (\S+)")
_FRAME = re.compile(r'File "(.*?)", line (\d+), in (\S+)')
_CALLS = re.compile(r"\s*(def|class) ")
# What Inductor of another version may raise: the program goes on without these lines.
TROUBLE = (AttributeError, LookupError, OSError, TypeError, ValueError)
# What a node of the graph knows of where it was traced from.
ORIGIN_FIELDS = ("stack_trace", "nn_module_stack", "fwd_nn_module_stack", "partitioner_tag")
PRODUCTS = frozenset({"aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm"})
_pending: dict[str, list[dict[str, Any]]] = {}
_files: dict[str, tuple[list[str], dict[str, Any]] | None] = {}


def keep_origins_of_named_kernels(debug: InductorModule) -> None:
    """Keep what Inductor says of a kernel when it gives the kernel its handle."""
    give_handle = debug.set_kernel_post_grad_provenance_tracing

    def set_kernel_post_grad_provenance_tracing(
        nodes: KernelNodes, name: str, is_extern: bool = False
    ) -> Any:
        handle = give_handle(nodes, name, is_extern)
        if handle is not None:
            try:
                _pending[f"{name}:{handle}"] = list_origins_of_kernel(nodes)
            except TROUBLE as error:
                _pending[f"{name}:{handle}"] = [{"error": repr(error)}]
        return handle

    debug.set_kernel_post_grad_provenance_tracing = set_kernel_post_grad_provenance_tracing


def list_origins_of_kernel(nodes: KernelNodes) -> list[dict[str, Any]]:
    """Say for each node of the graph that a kernel computes where it was traced from."""
    return list(map(describe_origin_of_node, find_graph_nodes(nodes)))


def describe_origin_of_node(node: FxNode) -> dict[str, Any]:
    """Say where a node of the graph was traced from, innermost frame first."""
    stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
    module_path = ""
    module_class = ""
    if stack:
        module_path, module_class = list(stack.values())[-1]
    kind = getattr(module_class, "__name__", None)
    if not kind:
        kind = str(module_class).rpartition(".")[2]
    frames = []
    for file, line, name in _FRAME.findall(node.stack_trace or ""):
        frames.append((file, int(line), name))
    return {
        "frames": frames[::-1],
        "module": str(module_path),
        "kind": kind,
        "backward": node.meta.get("partitioner_tag") == "is_backward",
        "weight": count_values_read_or_written(node),
    }


def find_graph_nodes(nodes: KernelNodes) -> Iterable[FxNode]:
    """Return the nodes of the graph, of a kernel that was generated, or of one of a library."""
    if not isinstance(nodes, list):
        return find_node_of_library_kernel(nodes)
    found: dict[Any, None] = {}  # in order, each once
    for scheduled in nodes:
        for origin in find_computed_nodes(scheduled):
            if origin.op != "placeholder":  # what is given to the graph is computed nowhere
                found[origin] = None
    if not found:
        found.update(dict.fromkeys(find_readers_of_copying_kernel(nodes)))
    return list(found)


def find_computed_nodes(scheduled: SchedulerNode) -> list[FxNode]:
    """Find the nodes that a part of a generated kernel computes.

    Its origins have what its inputs were made from among them, also where another kernel made
    these: a bias that is added to a convolution has all that the convolution reads. From its last
    node back, a node that another buffer holds is computed elsewhere, and so is what is before it.
    """
    inner = getattr(scheduled, "node", None)
    if inner is None:
        return []
    last = getattr(inner, "origin_node", None)
    if last is None or last not in inner.origins:
        return list(inner.origins)
    held = find_nodes_read_from_memory(scheduled)
    computed: set[Any] = set()
    left = [last]
    while left:
        node = left.pop()
        if node in computed or node not in inner.origins:
            continue
        if node is not last and node in held:
            continue
        computed.add(node)
        if node not in held:
            left += node.all_input_nodes
    return [origin for origin in inner.origins if origin in computed]


def find_nodes_read_from_memory(scheduled: SchedulerNode) -> set[FxNode]:
    """Find the nodes whose results a part of a kernel reads from memory."""
    held = set()
    buffers = getattr(scheduled.scheduler, "name_to_buf", {})
    for read in scheduled.read_writes.reads:
        buffer = getattr(buffers.get(read.name), "node", None)
        node = getattr(buffer, "origin_node", None)
        if node is not None:
            held.add(node)
        elif getattr(buffer, "op_overload", None) is not None:  # of a library's kernel
            own = find_node_of_library_kernel(buffer)
            if len(own) == 1:
                held.update(own)
    return held


def find_node_of_library_kernel(kernel: InductorBuffer) -> list[FxNode]:
    """Return the node that a library's kernel computes; its origins have those of its inputs, too."""
    if getattr(kernel, "origin_node", None) is not None:
        return [kernel.origin_node]
    name = name_called_operator(getattr(kernel, "op_overload", None))
    origins = list(kernel.origins)
    same = [node for node in origins if name_called_operator(node.target) == name]
    if not name or not same:
        return origins
    order = {node: at for at, node in enumerate(same[0].graph.nodes)}
    return [max(same, key=lambda node: order.get(node, -1))]  # what an input computes comes before


def name_called_operator(target: FxTarget) -> OperatorNameOrEmpty:
    """Return the name of what a node of the graph calls: aten::mm of aten.mm.default."""
    schema = getattr(target, "_schema", None)
    return str(getattr(schema, "name", ""))


def find_readers_of_copying_kernel(nodes: list[SchedulerNode]) -> Iterable[FxNode]:
    """Yield what reads a kernel that computes nothing: a copy in the order that its reader wants."""
    for scheduled in nodes:
        for made in getattr(scheduled, "get_outputs", list)():
            for user in made.users:
                reader = getattr(getattr(user, "node", None), "node", None)
                if reader is not None:
                    yield from find_node_of_library_kernel(reader)


def keep_lines_of_replaced_nodes(matcher: InductorModule) -> None:
    """Have nodes that a pattern puts in place of others keep the line of the heaviest of these."""
    entry = matcher.ReplacementPatternEntry
    replace = entry.replace_with_graph

    def replace_with_graph(match: Any, graph: Any, *args: Any, **more: Any) -> Any:
        before = set(graph.nodes)
        known = [node for node in match.nodes if node.meta.get("stack_trace")]
        heaviest = max(known, key=rank_node_by_work, default=None)
        done = replace(match, graph, *args, **more)
        if heaviest is not None:
            for node in graph.nodes:
                if node not in before and not node.meta.get("stack_trace"):
                    copy_origin_fields(heaviest.meta, node.meta)
        return done

    entry.replace_with_graph = staticmethod(replace_with_graph)


def copy_origin_fields(old_meta: dict[str, Any], new_meta: dict[str, Any]) -> None:
    """Copy what a node of the graph knows of where it was traced from."""
    for name in ORIGIN_FIELDS:
        if name in old_meta:
            new_meta[name] = old_meta[name]


def rank_node_by_work(node: FxNode) -> tuple[bool, int]:
    """Weigh a node of what becomes one: a product of matrices is more work than a sum of its size."""
    return name_called_operator(node.target) in PRODUCTS, count_values_read_or_written(node)


def count_values_read_or_written(node: FxNode) -> int:
    """Return how many values a node reads or writes, the larger: what a line adds to a kernel's work."""
    sizes = [count_values(node.meta.get("val"))]
    for given in getattr(node, "all_input_nodes", ()):
        sizes.append(count_values(given.meta.get("val")))
    return max(sizes)


def count_values(value: Any) -> int:
    """Return the number of values of a tensor of known sizes; 1 of anything else."""
    count = 1
    for size in getattr(value, "shape", ()):
        if not isinstance(size, int):
            return 1
        count *= size
    return count


def write_origins_before_files_load(codecache: InductorModule) -> None:
    """Write the lines beside a generated file, before the file is loaded."""
    owner = codecache.PyCodeCache
    load = owner.load_by_key_path.__func__

    def load_by_key_path(cls: Any, key: str, path: str, *args: Any, **more: Any) -> Any:
        with contextlib.suppress(*TROUBLE):  # no lines of this file, then
            write_origins_beside(path)
        return load(cls, key, path, *args, **more)

    owner.load_by_key_path = classmethod(load_by_key_path)


def write_origins_beside(path: str) -> None:
    """Write what is known of a generated file's kernels beside it, unless that is there."""
    beside = path + SUFFIX
    if read_lines_and_origins(path) is not None:
        return
    with open(path, encoding="utf-8") as file:
        handles = _HANDLE.findall(file.read())
    found = {}
    for handle in handles:
        if handle in _pending:
            found[handle] = _pending.pop(handle)
    if not found:
        return
    part = f"{beside}.{os.getpid()}"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(found, file)
    os.replace(part, beside)


def find_origins_of_kernel_call(path: str, line: int) -> list[dict[str, Any]] | None:
    """Say what the kernel stands for that a line of a generated file calls; None of other files."""
    if path not in _files:
        _files[path] = read_lines_and_origins(path)
    known = _files[path]
    if known is None:
        return None
    lines, origins = known
    for at in range(min(line, len(lines)) - 1, -1, -1):
        if found := _HANDLE.search(lines[at]):
            return list(origins.get(found[1], []))
        if _CALLS.match(lines[at]):
            return []
    return []


def read_lines_and_origins(path: str) -> tuple[list[str], dict[str, Any]] | None:
    """Return the lines of a generated file and what its kernels stand for; None of other files."""
    try:
        with open(path + SUFFIX, encoding="utf-8") as file:
            origins = json.load(file)
        with open(path, encoding="utf-8") as file:
            return file.read().split("\n"), origins
    except (OSError, ValueError):
        return None


WATCHED: dict[str, Callable[[Any], None]] = {
    "torch._inductor.debug": keep_origins_of_named_kernels,
    "torch._inductor.codecache": write_origins_before_files_load,
    "torch._inductor.pattern_matcher": keep_lines_of_replaced_nodes,
}
