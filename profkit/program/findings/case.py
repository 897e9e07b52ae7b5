"""A timeline with its steps  ->  all that the findings' rules look at."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from profkit.program.replay.estimate import Hosts
from profkit.program.replay.scenario import Change, Reach
from profkit.program.steps.cut import Step, StepWork
from profkit.program.steps.groups import KernelGroup
from profkit.program.steps.idle import Split
from profkit.program.steps.kinds import is_compiled
from profkit.program.timeline import Device, HostSpan
from profkit.records.gpus import of_generation

BYTES = {
    "float": 4, "double": 8, "c10::BFloat16": 2, "c10::Half": 2, "long int": 8, "int": 4,
    "long": 8, "bool": 1, "unsigned char": 1, "signed char": 1,
}  # fmt: skip
SHORT = 2_500  # nanoseconds: a kernel that has next to nothing to do takes so long
MEMBERS = {"elementwise", "convert", "set", "random"}
# A compiler fuses these with what stands round them.
PASSED = {"reduce", "norm", "softmax", "concat"}
_STRIDED = re.compile(r"[:\s]elementwise_kernel<.*nocast.*direct_copy")
_TENSORS = re.compile(r"array<char\s?\*, (\d+)")
_TWO_INPUTS = re.compile(
    r"BinaryFunctor|CUDAFunctor_add|CUDAFunctorOnSelf_add<.*3ul|addcmul|addcdiv|lerp|where"
)
INDICES = {"long int", "long", "int"}
CHOOSE_ROWS = frozenset({"aten::index_select", "aten::embedding"})
CHOOSE_VALUES = frozenset({"aten::gather"})
_OF_XLA = re.compile(r"^(wrapped_\w+|(loop|input|gemm)_(\w+_)?fusion\w*)$")


# What each kind of fix leaves: at worst, as expected, at best. The only place of these shares.
REACH = {
    # The host.
    "launches in a graph": Reach(0.35, 0.03, 0.0),
    "pauses done ahead": Reach(0.4, 0.05, 0.0),
    "allocations kept": Reach(0.3, 0.0, 0.0),
    "values read once": Reach(0.5, 0.1, 0.1),
    "values not wanted": Reach(1.0, 1.0, 0.1),
    "sizes that are known": Reach(1.0, 0.1, 0.0),
    "copies in one": Reach(0.6, 0.05, 0.0),
    # Of a merged launch's host time.
    "launch of a chain": Reach(0.1, 0.1, 0.1),
    "launch of a parameter": Reach(0.02, 0.02, 0.02),
    "launch of a cast": Reach(1.0, 1.0, 0.1),
    # Transfers: times the pinned rate's time; what stays exposed beside learning, or without it.
    "copy pinned": Reach(1.6, 1.0, 0.9),
    "copy in its place": Reach(1.0, 0.0, 0.0),
    "collective beside learning": Reach(0.7, 0.25, 1.0),
    "collective": Reach(1.0, 0.25, 1.0),
    "collective in its place": Reach(1.0, 1.0, 0.0),
    # Layouts: conversions round a convolution go, what a product reads in either order nearly goes,
    # a permuted copy may be needed by what reads it.
    "layout of images": Reach(0.45, 0.2, 0.0),
    "layout of products": Reach(0.6, 0.15, 0.0),
    "layout": Reach(1.0, 0.6, 0.1),
    # At best every part is written where it belongs; at worst what makes it cannot.
    "join": Reach(0.8, 0.3, 0.0),
    # Of what moves 8 bytes a value, moving 4.
    "float64": Reach(0.65, 0.5, 0.45),
    # What the fused call takes of the products it replaces, which write and read the scores: on an
    # H200 0.34 forward and 0.47 backward where a causal mask leaves half of the work; twice that
    # without one is inferred, not seen.
    "attention": Reach(1.1, 0.6, 0.33),
    # What padding leaves, with newer units that odd sizes cannot use, or without. An H200 took a
    # sixth for a vocabulary of 50,304 in place of 50,257; before 9.0 nothing was measured.
    "padding, newer": Reach(0.6, 0.2, 0.14),
    "padding, older": Reach(0.9, 0.5, 0.3),
    # Of casts of one size all but one are of a tensor that was cast before, at best; at worst each is
    # of a tensor of its own, and half of them are needed.
    "casts": Reach(0.6, 0.12, 0.0),
    "sums in half precision": Reach(0.8, 0.5, 0.4),  # half of the bytes
    # Adam touches four tensors and writes three; done singly it does so in 18 to 20 accesses.
    "adam": Reach(0.6, 0.4, 0.3),
    # One H200, 50 of 32,000 in bfloat16: topk took a quarter of the sort.
    "sort": Reach(0.6, 0.3, 0.1),
}


@dataclass(frozen=True)
class Case:
    """One program to be judged."""

    step: Step
    split: Split  # where its time goes
    hosts: Hosts  # its replays
    groups: Sequence[KernelGroup]  # its kernels by name, grid and block
    device: Device | None
    spans: Sequence[HostSpan] = ()  # names on its host's threads, in order of start
    trains: bool = False  # whether it goes backward
    # expected speed-ups of groups that were counted, by id
    gains: Mapping[str, float] = field(default_factory=dict)

    @property
    def works(self) -> Sequence[StepWork]:
        """What the GPU did in the step."""
        return self.step.works

    def time(self, indices: Sequence[int]) -> float:
        """Milliseconds that some of the works take together."""
        return sum(self.works[i].activity.duration for i in indices) / 1e6

    def chosen(self, which: Callable[[StepWork], bool]) -> list[int]:
        """Indices of the works that are so."""
        return [i for i, work in enumerate(self.works) if which(work)]

    @cached_property
    def jax(self) -> bool:
        """Whether XLA made most of the kernels, by their names: PyTorch's advice is of no use."""
        names = [w.activity.name for w in self.works]
        return 2 * sum(_OF_XLA.match(name) is not None for name in names) > len(names)

    @cached_property
    def torch(self) -> bool:
        """Whether it is a program of PyTorch's, by its operators or its kernels."""
        return any(
            w.maker.op.startswith("aten::")
            or "at::native" in w.activity.name
            or is_compiled(w.activity.name)
            for w in self.works
        )

    def advice(self, torch: str, others: str, jax: str = "") -> str:
        """What to do, in the words of what the program is written with."""
        return (jax or others) if self.jax else torch if self.torch else others

    @cached_property
    def bandwidth(self) -> float:
        """Bytes a second that memory-bound work reaches here: seen in the step, or assumed."""
        seen = [
            moved / (w.activity.duration * 1e-9)
            for w in self.works
            if w.kind in {"elementwise", "convert"} and w.activity.duration > 20_000
            and (moved := needed_bytes(w))
        ]  # fmt: skip
        # No ceiling is shown from the table: it tells only how far a kernel is from its bytes.
        known = of_generation(self.device.cc) if self.device else None
        usual = known.stream if known and known.stream else 1e12
        return min(max([*seen, 0.5 * usual]), 1.5 * usual) if seen else usual  # more is cache


@dataclass(frozen=True)
class Draft:
    """What a rule has found, before its saving is known."""

    category: str  # one of the contract's
    say: str  # what is wrong, with figures, in one sentence
    advice: str
    where: str
    works: tuple[int, ...]
    change: Change  # what mending does to the step
    # whether the works are explained by it, so that no other finding names them
    covers: bool = True
    # mends whatever the cause (a captured graph): a special mend that saves about as much is named
    # first
    general: bool = False
    idle: bool = False  # whether what it saves is idle time, which a recorder inflates
    hinders: bool = False  # whether no graph can be captured while it is there


def needed_bytes(work: StepWork) -> int:
    """Bytes of an operator's inputs and its output (as large as the largest); 0 if unknown."""
    maker = work.maker
    if maker.op in CHOOSE_ROWS | CHOOSE_VALUES:
        return _chosen_bytes(work)
    if maker.op == "aten::index":
        return 0  # a trace does not say how many it takes
    sizes = []
    for shape, kind in zip(maker.shapes, maker.types, strict=False):
        if shape and kind in BYTES:
            sizes.append(prod(shape) * BYTES[kind])
    return sum(sizes) + max(sizes) if sizes else 0


def _chosen_bytes(work: StepWork) -> int:
    """Of an operator that takes some rows or values: these twice, or once what they are taken from."""
    maker = work.maker
    parts = list(zip(maker.shapes, maker.types, strict=False))
    table = next(((shape, kind) for shape, kind in parts if shape and kind in BYTES), None)
    index = next((shape for shape, kind in parts[1:] if shape and kind in INDICES), None)
    if table is None or index is None:
        return 0
    width = prod(table[0][1:]) if maker.op in CHOOSE_ROWS else 1
    out = prod(index) * width * BYTES[table[1]]
    return out + min(out, prod(table[0]) * BYTES[table[1]]) + prod(index) * BYTES["long"]


def input_bytes(work: StepWork) -> int:
    """Bytes of an operator's inputs; 0 if unknown."""
    total = 0
    for shape, kind in zip(work.maker.shapes, work.maker.types, strict=False):
        if shape and kind in BYTES:
            total += prod(shape) * BYTES[kind]
    return total


def goes_back(work: StepWork) -> bool:
    """Whether autograd launched it."""
    return work.maker.top.startswith("autograd::") or "Backward" in work.maker.top


def of_optimizer(work: StepWork) -> bool:
    """Whether it was launched inside of an optimiser's step."""
    return "ptimizer.step" in work.maker.range or work.maker.top.startswith("Optimizer.step")


def is_strided(work: StepWork) -> bool:
    """Whether it copies a tensor into another order, by its kernel's name."""
    return _STRIDED.search(work.activity.name) is not None


def accesses(work: StepWork) -> int:
    """Tensors that an elementwise kernel reads and writes."""
    name = work.activity.name
    if counted := _TENSORS.search(name):
        return max(1, int(counted[1]))
    if work.kind in PASSED:
        return 1 if work.kind == "reduce" else 2
    return 3 if _TWO_INPUTS.search(name) else 1 if work.kind == "set" else 2
