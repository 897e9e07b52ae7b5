"""A timeline with its steps  ->  all that the findings' rules look at."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from profkit.program.savings.estimate import Hosts
from profkit.program.savings.scenario import Change
from profkit.program.step.groups import KernelGroup
from profkit.program.step.idle import Split
from profkit.program.step.kinds import is_compiled
from profkit.program.step.steps import Step, StepWork
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


@dataclass(frozen=True)
class Case:
    """One program to be judged.

    Attributes:
        step: The typical step.
        split: Where its time goes.
        hosts: Its replays.
        groups: Its kernels by name, grid and block.
        device: Its GPU.
        spans: Names on its host's threads, in order of start.
        trains: Whether it goes backward.
        gains: Expected speed-ups of groups that were counted, by id.
    """

    step: Step
    split: Split
    hosts: Hosts
    groups: Sequence[KernelGroup]
    device: Device | None
    spans: Sequence[HostSpan] = ()
    trains: bool = False
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
    """What a rule has found, before its saving is known.

    Attributes:
        category: One of the contract's.
        say: What is wrong, with figures, in one sentence.
        advice: What people do about it.
        where: The place.
        works: The works at fault.
        change: What mending does to the step.
        covers: Whether the works are explained by it, so that no other finding names them.
        general: Mends whatever the cause (a captured graph): a special mend that saves about as
            much is named first.
        idle: Whether what it saves is idle time, which a recorder inflates.
        hinders: Whether no graph can be captured while it is there.
    """

    category: str
    say: str
    advice: str
    where: str
    works: tuple[int, ...]
    change: Change
    covers: bool = True
    general: bool = False
    idle: bool = False
    hinders: bool = False


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
