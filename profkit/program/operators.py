"""An operator with the sizes and types of its tensors  ->  the bytes and operations that it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from profkit.program.steps.attribution import CallOrigin
from profkit.program.steps.cut import StepWork

if TYPE_CHECKING:
    from profkit.units import ByteCount, OperationsPerSecond, OperatorName


# Bytes of a value of each type in PyTorch's words.
VALUE_BYTES = {
    "double": 8,
    "long int": 8,
    "long": 8,
    "float": 4,
    "int": 4,
    "c10::BFloat16": 2,
    "c10::Half": 2,
    "bool": 1,
    "unsigned char": 1,
    "signed char": 1,
    "c10::Float8_e4m3fn": 1,
    "c10::Float8_e5m2": 1,
}


@dataclass(frozen=True)
class Tensor:
    """A tensor that an operator was given."""

    sizes: tuple[int, ...]
    value_bytes: int

    @property
    def count(self) -> int:
        """Return how many values it has."""
        return prod(self.sizes)

    @property
    def bytes(self) -> ByteCount:
        """Return what it takes in memory, if each value is there once."""
        return self.count * self.value_bytes


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The least that an operator moves and computes."""

    reads: int  # bytes
    largest: int  # bytes of the largest tensor that it reads
    writes: int  # bytes
    operations: float = 0.0  # a multiply-add is two
    result: int = 0  # values of what it writes


CountNeeds = Callable[[Sequence[Tensor]], Needs | None]


def _sum_tensor_bytes(tensors: Sequence[Tensor]) -> ByteCount:
    return sum(tensor.bytes for tensor in tensors)


def count_elementwise_needs(tensors: Sequence[Tensor]) -> Needs:
    """Each tensor is read, and a result as large as the largest is written."""
    largest = max(tensors, key=lambda tensor: tensor.bytes)
    return Needs(
        reads=_sum_tensor_bytes(tensors),
        largest=largest.bytes,
        writes=largest.bytes,
        operations=largest.count,
        result=largest.count,
    )


def count_reduction_needs(tensors: Sequence[Tensor]) -> Needs:
    """Each tensor is read, and next to nothing is written."""
    largest = max(tensors, key=lambda tensor: tensor.bytes)
    return Needs(reads=_sum_tensor_bytes(tensors), largest=largest.bytes, writes=0)


def count_copy_needs(tensors: Sequence[Tensor]) -> Needs:
    """The second tensor is read, and the first written."""
    if len(tensors) < 2:
        return count_elementwise_needs(tensors)
    target = tensors[0]
    source = tensors[1]
    return Needs(reads=source.bytes, largest=source.bytes, writes=target.bytes, result=target.count)


def count_fill_needs(tensors: Sequence[Tensor]) -> Needs:
    """The first tensor is written."""
    return Needs(reads=0, largest=0, writes=tensors[0].bytes, result=tensors[0].count)


def count_index_add_needs(tensors: Sequence[Tensor]) -> Needs:
    """Indices and source are read; the places that they name are read and written."""
    largest = max(tensors, key=lambda tensor: tensor.bytes)
    return Needs(reads=_sum_tensor_bytes(tensors), largest=largest.bytes, writes=0)


def count_sort_needs(tensors: Sequence[Tensor]) -> Needs:
    """The values are read once and written once, with an index of 8 bytes each."""
    values = tensors[0]
    return Needs(
        reads=values.bytes,
        largest=values.bytes,
        writes=values.bytes + 8 * values.count,
        result=values.count,
    )


def count_selection_needs(tensors: Sequence[Tensor]) -> Needs:
    """The values are read once; few are written."""
    return Needs(reads=tensors[0].bytes, largest=tensors[0].bytes, writes=0)


def count_product_needs(tensors: Sequence[Tensor]) -> Needs | None:
    """Count what two matrices need, or as many pairs of them as there are in a batch."""
    matrices = [tensor for tensor in tensors if len(tensor.sizes) > 1][-2:]
    if len(matrices) < 2:
        return None
    left, right = matrices
    if left.sizes[-1] != right.sizes[-2]:
        return None
    result = prod(left.sizes[:-1]) * right.sizes[-1]
    return Needs(
        reads=left.bytes + right.bytes,
        largest=max(left.bytes, right.bytes),
        writes=result * left.value_bytes,
        operations=2.0 * result * left.sizes[-1],
        result=result,
    )


def count_attention_needs(tensors: Sequence[Tensor]) -> Needs | None:
    """Queries, keys and values (batch, heads, tokens, width) are read, and a result is written."""
    if len(tensors) < 3 or len(tensors[0].sizes) != 4:
        return None
    queries = tensors[0]
    keys = tensors[1]
    tokens = max(keys.sizes[1], keys.sizes[2])
    return Needs(
        reads=_sum_tensor_bytes(tensors[:3]),
        largest=queries.bytes,
        writes=queries.bytes,
        operations=4.0 * queries.count * tokens,
        result=queries.count,
    )


ELEMENTWISE = (
    "abs add add_ addcdiv addcdiv_ addcmul addcmul_ bitwise_and clamp clamp_ clamp_max clamp_min "
    "clamp_min_ cos div div_ dropout elu eq erf exp exp_ fmod ge gelu gelu_backward gt hardtanh "
    "le leaky_relu lerp lerp_ log lt masked_fill masked_fill_ maximum minimum mul mul_ "
    "native_dropout native_dropout_backward ne neg pow reciprocal relu relu_ remainder round rsqrt "
    "rsub sigmoid sigmoid_ sigmoid_backward sign silu silu_ silu_backward sin softplus sqrt sqrt_ "
    "square sub sub_ tanh tanh_ tanh_backward threshold_backward where roll flip tril triu "
    "native_layer_norm native_layer_norm_backward native_group_norm _fused_rms_norm "
    "_softmax _log_softmax softmax log_softmax layer_norm rms_norm gelu_ "
    "_softmax_backward_data _log_softmax_backward_data "
    "cudnn_batch_norm native_batch_norm cumsum cumprod"
).split()
REDUCTIONS = (
    "sum mean amax amin max min argmax argmin norm linalg_vector_norm var std prod any all "
    "mse_loss nll_loss_forward logsumexp count_nonzero"
).split()
COPIES = "copy_ _to_copy clone contiguous".split()
FILLS = "fill_ zero_ normal_ uniform_ bernoulli_ random_".split()
ADDITIONS_BY_INDEX = (
    "index_add_ index_add scatter_add_ scatter_add _index_put_impl_ index_put_ index_copy_ "
    "embedding_dense_backward scatter_ scatter_reduce_"
).split()
SORTS = ("sort", "argsort")
SELECTIONS = ("topk", "kthvalue", "median")
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "matmul", "_scaled_mm")
ATTENTION = (
    "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_cudnn_attention _flash_attention_forward _efficient_attention_forward "
    "_cudnn_attention_forward"
).split()
FORMS: tuple[tuple[Sequence[str], CountNeeds], ...] = (
    (ELEMENTWISE, count_elementwise_needs),
    (REDUCTIONS, count_reduction_needs),
    (COPIES, count_copy_needs),
    (FILLS, count_fill_needs),
    (ADDITIONS_BY_INDEX, count_index_add_needs),
    (SORTS, count_sort_needs),
    (SELECTIONS, count_selection_needs),
    (PRODUCTS, count_product_needs),
    (ATTENTION, count_attention_needs),
)


def _make_operator_table() -> dict[str, CountNeeds]:
    table: dict[str, CountNeeds] = {}
    for names, row in FORMS:
        for name in names:
            table[f"aten::{name}"] = row
    return table


TABLE = _make_operator_table()


def make_tensors_of_known_sizes(
    shapes: Sequence[Sequence[int]], types: Sequence[str]
) -> list[Tensor]:
    """Return an operator's tensors whose sizes and types are known."""
    tensors = []
    for sizes, kind in zip(shapes, types, strict=False):
        if sizes and kind in VALUE_BYTES:
            tensors.append(Tensor(tuple(sizes), VALUE_BYTES[kind]))
    return tensors


def find_operator_needs(
    operator: OperatorName, shapes: Sequence[Sequence[int]], types: Sequence[str]
) -> Needs | None:
    """Return what an operator needs; None where the table does not know it, or sizes are missing."""
    row = TABLE.get(operator)
    tensors = make_tensors_of_known_sizes(shapes, types)
    if row is None or not tensors:
        return None
    return row(tensors)


# Bytes: the tensor memory accelerator and vector loads want rows to begin at multiples.
ALIGNED = 16
LEAST = 5e8  # floating-point operations: smaller products are bound by other things
# Of these a trace does not say how much of their first operand they read.
_PARTLY = frozenset({"aten::index", "aten::index_select", "aten::embedding", "aten::gather"})
_IN_PLACE = frozenset({"reduce", "scatter"})  # write next to nothing that they do not read
_PRODUCTS = {"aten::mm": 0, "aten::addmm": 1, "aten::bmm": 0, "aten::baddbmm": 1}


class Traffic(NamedTuple):
    """Bytes of an operator."""

    reads: int
    largest: int  # of what it reads, one operand's
    writes: int


def estimate_traffic_by_inputs(work: StepWork) -> Traffic | None:
    """Return what the operator of a work moves; None where its sizes or types do not tell."""
    maker = work.maker
    activity = work.activity
    sizes = [
        prod(shape) * VALUE_BYTES[kind]
        for shape, kind in zip(maker.shapes, maker.types, strict=False)
        if shape and kind in VALUE_BYTES
    ]
    if not sizes or maker.op in _PARTLY:
        return None
    if maker.op == "aten::copy_" and len(sizes) > 1:
        return Traffic(sizes[1], sizes[1], sizes[0])
    largest = writes = max(sizes)
    if (
        is_native_kernel_but_not_elementwise(work.kind, activity.name)
        and activity.grid
        and activity.block
    ):
        # A value a thread, at least.
        writes = max(writes, prod(activity.grid) * prod(activity.block))
    return Traffic(sum(sizes), largest, 0 if work.kind in _IN_PLACE else writes)


def is_native_kernel_but_not_elementwise(kernel_kind: str, name: str) -> bool:
    """Return whether it is a loop of PyTorch's own that is no elementwise one (pooling, depthwise)."""
    return kernel_kind in {"other", "conv"} and "at::native" in name


@dataclass(frozen=True)
class Product:
    """One product of matrices."""

    rows: int  # of the left matrix
    inner: int  # columns of the left one, rows of the right one
    columns: int  # of the right matrix
    batch: int  # how many such products
    size: int  # bytes of an element
    seconds: float  # how long it took

    @property
    def operations(self) -> float:
        """Return multiplications and additions."""
        return 2.0 * self.batch * self.rows * self.inner * self.columns

    @property
    def bytes(self) -> ByteCount:
        """Return the bytes of both operands and the result."""
        rows = self.rows
        inner = self.inner
        columns = self.columns
        return self.batch * self.size * (rows * inner + inner * columns + rows * columns)

    @property
    def rate(self) -> OperationsPerSecond:
        """Return operations a second."""
        return self.operations / self.seconds

    @property
    def misfits(self) -> list[int]:
        """Return sizes that are rows in memory for one of the operands, and no multiple of 16 bytes."""
        unit = ALIGNED // self.size
        misfits = []
        for n in (self.inner, self.columns, self.rows):
            if n >= unit and n % unit:
                misfits.append(n)
        return misfits


def get_matrix_product(work: StepWork) -> Product | None:
    """Return the product that a work computes, where its operator and sizes are known."""
    first = _PRODUCTS.get(work.maker.op)
    shapes = work.maker.shapes
    types = work.maker.types
    if work.kind != "gemm" or first is None or len(shapes) < first + 2 or len(types) < first + 2:
        return None
    left = shapes[first]
    right = shapes[first + 1]
    size = VALUE_BYTES.get(types[first])
    seconds = work.activity.duration * 1e-9
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2] or not size or seconds <= 0:
        return None
    made = Product(left[-2], left[-1], right[-1], prod(left[:-2]), size, seconds)
    if made.operations >= LEAST:
        return made
    return None


# No recording says which tensor is which: two are told apart where they have other numbers of values,
# or values of another type.
FLOATING = "floating"  # values of a floating-point type that is not known
INTEGERS = frozenset({"long int", "long", "int", "short", "bool", "unsigned char", "signed char"})
GATHERS = frozenset({"gather", "index_select", "index", "embedding"})
IN_PLACE = frozenset({*ADDITIONS_BY_INDEX, "add_"})
# Outermost operators with weights beside the tensor that they compute with: the first of those that
# take part in a product or norm is read, the weights are the model's.
WEIGHTED = ("linear", "conv", "norm")
SAME_SIZE = frozenset({"elementwise", "convert", "norm", "softmax"})  # kinds of kernels
FLOAT_KINDS = frozenset({"gemm", "conv", "norm", "softmax", "attention", "gather"})


@dataclass(frozen=True)
class Flow:
    """A tensor by how many values of which type it has."""

    counts: frozenset[int] | None  # what it may be; None where it may be any
    type: str = ""  # empty: any

    def may_be_same_tensor(self, other: Flow) -> bool:
        """Return whether two may be one tensor."""
        if not _are_types_alike(self.type, other.type):
            return False
        if self.counts is None or other.counts is None:
            return True
        return not self.counts.isdisjoint(other.counts)


@dataclass(frozen=True, kw_only=True)
class Flows:
    """What an operator does with tensors."""

    reads: tuple[Flow, ...] = ()
    makes: tuple[Flow, ...] = ()
    adds_to: Flow | None = None  # a tensor that it adds into
    sized: bool = True  # whether its sizes are known


SizesAndType = tuple[tuple[int, ...], str]  # sizes of a tensor and the type of its values


def _are_types_alike(one: str, other: str) -> bool:
    if not one or not other or one == other:
        return True
    if one == FLOATING:
        return other not in INTEGERS
    return other == FLOATING and one not in INTEGERS


def guess_tensor_sizes_of_operator(origin: CallOrigin, kernel_kind: str) -> Flows:
    """Return the tensors of the operator that launched a kernel of some kind."""
    tensors: list[SizesAndType] = []
    for sizes, name in zip(origin.shapes, origin.types, strict=False):
        if sizes and name in VALUE_BYTES:
            tensors.append((sizes, name))
    name = origin.op.removeprefix("aten::")
    if kernel_kind == "set" and name not in FILLS:
        return Flows(sized=bool(tensors))  # a library clears its own memory
    if not tensors:
        return Flows(
            makes=(Flow(None, FLOATING if kernel_kind in FLOAT_KINDS else ""),), sized=False
        )
    if name in GATHERS:
        return _find_flows_of_gather(origin, tensors)
    if name in IN_PLACE:
        reads = tuple(_make_flow(tensor) for tensor in tensors[1:])
        return Flows(reads=reads, adds_to=_make_flow(tensors[0]))
    return Flows(
        reads=_list_tensors_read(origin, name, tensors),
        makes=_list_tensors_made(origin, kernel_kind, tensors),
    )


def _make_flow(tensor: SizesAndType) -> Flow:
    sizes, name = tensor
    return Flow(frozenset({prod(sizes)}), name)


def _find_flows_of_gather(origin: CallOrigin, tensors: Sequence[SizesAndType]) -> Flows:
    """Numbers are read, and what they name; no number is computed. Tables of embeddings are weights."""
    reads = [_make_flow(tensor) for tensor in tensors if tensor[1] in INTEGERS]
    others = [tensor for tensor in tensors if tensor[1] not in INTEGERS]
    if not others:
        return Flows(reads=tuple(reads))
    if "embedding" not in origin.top:
        reads.append(_make_flow(others[0]))
    return Flows(reads=tuple(reads), makes=(Flow(None, others[0][1]),))


def _list_tensors_read(
    origin: CallOrigin, name: str, tensors: Sequence[SizesAndType]
) -> tuple[Flow, ...]:
    """Return what an operator reads besides weights."""
    if name in FILLS:
        return ()
    if name == "copy_":
        return tuple(_make_flow(tensor) for tensor in tensors[1:2])
    chosen = tensors
    if any(word in origin.top for word in WEIGHTED):
        if name == "addmm":
            chosen = tensors[1:2]
        elif "linear" not in origin.top or name == "mm":
            chosen = tensors[:1]
    return tuple(_make_flow(tensor) for tensor in chosen)


def _list_tensors_made(
    origin: CallOrigin, kernel_kind: str, tensors: Sequence[SizesAndType]
) -> tuple[Flow, ...]:
    """Return what an operator makes."""
    name = origin.op.removeprefix("aten::")
    sizes, values = max(tensors, key=lambda tensor: prod(tensor[0]))
    count = frozenset({prod(sizes)})
    if name in SORTS:
        return Flow(count, values), Flow(count, "long int")
    if name in SELECTIONS:
        return Flow(None, values), Flow(None, "long int")
    if name in REDUCTIONS or kernel_kind == "reduce":
        reduced = Flow(
            _list_reduced_value_counts(sizes), "long int" if name.startswith("arg") else values
        )
        return (reduced,)
    if name == "copy_" or name in FILLS:
        return (_make_flow(tensors[0]),)
    needs = find_operator_needs(origin.op, origin.shapes, origin.types)
    if needs is not None and needs.result:
        return (Flow(frozenset({needs.result}), values),)
    if kernel_kind in SAME_SIZE:
        return (Flow(count, values),)
    return (Flow(None, FLOATING if kernel_kind in FLOAT_KINDS else ""),)


def _list_reduced_value_counts(sizes: Sequence[int]) -> frozenset[int]:
    """Return how many values may be left where some of a tensor's dimensions are reduced to one."""
    left = {1}
    for size in sizes:
        left |= {size * count for count in left}
    if prod(sizes) > 1:
        left.discard(prod(sizes))
    return frozenset(left)
