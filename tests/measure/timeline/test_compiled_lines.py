"""What a kernel of torch.compile stands for, without torch."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from profkit.collect import timeline


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(timeline.INJECTED))
    import profkit_recorder_inductor

    yield profkit_recorder_inductor
    sys.modules.pop("profkit_recorder_inductor")


class Node:
    """A node of a graph, which can be in a set."""

    op = "call_function"

    def __init__(self, graph: Any, operator: str) -> None:
        self.target = SimpleNamespace(_schema=SimpleNamespace(name=operator))
        self.graph = graph


def make_graph(*operators: str) -> list[Any]:
    graph = SimpleNamespace()
    graph.nodes = [Node(graph, operator) for operator in operators]
    return graph.nodes


def test_a_library_s_kernel_is_of_its_own_node_and_not_of_its_inputs(hook: Any) -> None:
    up, gate, down = make_graph("aten::mm", "aten::gelu", "aten::mm")
    product = SimpleNamespace(_schema=SimpleNamespace(name="aten::mm"))
    kernel = SimpleNamespace(origin_node=None, op_overload=product, origins={gate, up, down})
    assert hook.find_node_of_library_kernel(kernel) == [down]
    kernel.origin_node = up
    assert hook.find_node_of_library_kernel(kernel) == [up]


def test_a_copy_that_is_of_no_node_is_of_what_reads_it(hook: Any) -> None:
    (convolution,) = make_graph("aten::convolution")
    reader = SimpleNamespace(origin_node=convolution)
    user = SimpleNamespace(node=SimpleNamespace(node=reader))
    weight = SimpleNamespace(op="placeholder")
    copy = SimpleNamespace(
        node=SimpleNamespace(origins=[weight], origin_node=None),
        get_outputs=lambda: [SimpleNamespace(users=[user])],
    )
    assert hook.find_graph_nodes([copy]) == [convolution]


def test_a_part_of_a_kernel_is_of_what_it_computes_and_not_of_what_its_inputs_were(
    hook: Any,
) -> None:
    """A bias is added to a convolution that reads a norm: the convolution's line, not the norm's."""
    norm, convolution, relu = make_graph("aten::batch_norm", "aten::convolution", "aten::relu")
    norm.all_input_nodes, convolution.all_input_nodes = [], [norm]
    relu.all_input_nodes = [convolution]
    buffers = {"buf1": SimpleNamespace(node=SimpleNamespace(origin_node=convolution))}
    scheduled = SimpleNamespace(
        scheduler=SimpleNamespace(name_to_buf=buffers),
        read_writes=SimpleNamespace(reads=[SimpleNamespace(name="buf1")]),
    )
    scheduled.node = SimpleNamespace(origins=[norm, convolution], origin_node=convolution)
    assert hook.find_graph_nodes([scheduled]) == [convolution]
    kernel = SimpleNamespace(origin_node=None, op_overload=convolution.target)
    kernel.origins = {norm, convolution}  # of a library's kernel torch 2.11 knows no node
    buffers["buf1"] = SimpleNamespace(node=kernel)
    assert hook.find_graph_nodes([scheduled]) == [convolution]
    scheduled.node = SimpleNamespace(origins=[norm, convolution, relu], origin_node=relu)
    assert hook.find_graph_nodes([scheduled]) == [relu]
    buffers.clear()  # nothing of it is held: all of it is computed here
    assert hook.find_graph_nodes([scheduled]) == [norm, convolution, relu]


def test_what_a_pattern_puts_in_place_keeps_the_line(hook: Any) -> None:
    """torch 2.11 gives a product and a sum that it makes one no trace of where they were."""
    graph = SimpleNamespace(nodes=make_graph("aten::mm", "aten::add", "aten::gelu"))
    product, total, other = graph.nodes
    product.meta = {"stack_trace": "line 64", "val": SimpleNamespace(shape=(8, 8))}
    total.meta = {"stack_trace": "line 65", "val": SimpleNamespace(shape=(8,))}
    other.meta = {}

    class Entry:
        """As torch has it."""

        @staticmethod
        def replace_with_graph(match: Any, of: Any, name: str) -> None:
            (both,) = make_graph(name)
            both.meta = {}
            of.nodes = [both, other]

    hook.keep_lines_of_replaced_nodes(SimpleNamespace(ReplacementPatternEntry=Entry))
    match = SimpleNamespace(nodes=[product, total])
    Entry.replace_with_graph(match, graph, "aten::addmm")
    assert [node.meta for node in graph.nodes] == [{"stack_trace": "line 64"}, {}]
