"""A step with all that the findings' rules look at, and what a rule finds in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Any

from profkit.judge import NO_SAVING, Estimate, Finding
from profkit.program.operators import Product, estimate_traffic_by_inputs, find_operator_needs
from profkit.program.replay.scenario import UNCHANGED, HostModels, Range, StepChange
from profkit.program.steps.attribution import is_compilers_operator
from profkit.program.steps.cut import KernelGroup, Step, StepWork
from profkit.program.steps.idle import PeriodSplit, describe_launch_place
from profkit.program.steps.kinds import is_inductor_kernel
from profkit.program.steps.places import describe_place_of_works, find_main_place
from profkit.program.timeline import Activity, Device, HostSpan
from profkit.records.gpus import Gpu, find_nearest_of_generation, get_measured_levels
from profkit.reports.figures import fill_sentence

if TYPE_CHECKING:
    from profkit.units import (
        BytesPerSecond,
        CallIndex,
        ClaimedWorks,
        Framework,
        Milliseconds,
        Nanoseconds,
        NanosecondsOfModel,
        NanosecondsOrZero,
        OperationsPerSecond,
        Seconds,
        TextOrEmpty,
        WorkIndex,
    )


SHORT = 2_500  # nanoseconds: a kernel that has next to nothing to do takes so long
EMPTY = 1_200  # nanoseconds: a kernel of a graph that does nothing takes about so long
REACHED = 0.75  # of the fastest product that fits: what a padded one is expected to reach
MANY_COPIES = 16  # small ones to the GPU a step: they are a batch in pieces, no stray scalar
SMALL_COPY = 1 << 16  # bytes up to which a copy is there to look at a value
NEW = 0.5  # of second operands: new tensors, the others results of the same run
MEMBERS = {"elementwise", "convert", "set", "random"}
# A compiler fuses these with what is round them.
PASSED = {"reduce", "norm", "softmax", "concat"}
_STRIDED = re.compile(r"[:\s]elementwise_kernel<.*nocast.*direct_copy")
_TENSORS = re.compile(r"array<char\s?\*, (\d+)")
_TWO_INPUTS = re.compile(
    r"BinaryFunctor|CUDAFunctor_add|CUDAFunctorOnSelf_add<.*3ul|addcmul|addcdiv|lerp|where"
)
_OF_XLA = re.compile(r"^(wrapped_\w+|(loop|input|gemm)_(\w+_)?fusion\w*)$")

# By what is fixed: the share that is left.
REACH = {
    # The host.
    "launches in a graph": Range(0.35, 0.03, 0.0),
    "pauses done ahead": Range(0.4, 0.05, 0.0),
    "copies of that work": Range(1.0, 1.0, 0.0),
    "allocations kept": Range(0.3, 0.0, 0.0),
    "values read once": Range(0.5, 0.1, 0.1),
    "values not wanted": Range(1.0, 1.0, 0.1),
    "sizes that are known": Range(1.0, 0.1, 0.0),
    # Of a merged launch's host time.
    "launch of a parameter": Range(0.02, 0.02, 0.02),
    "launch of a cast": Range(1.0, 1.0, 0.1),
    "launch of a copy": Range(1.0, 0.0, 0.0),
    # What remains exposed in training, or without it.
    "collective during training": Range(0.7, 0.25, 1.0),
    "collective": Range(1.0, 0.25, 1.0),
    "collective in its place": Range(1.0, 1.0, 0.0),
    # At worst two buffers are needed, and half of the copies with them.
    "copy again": Range(0.5, 0.0, 0.0),
    # Where only the copy is known, it may be a new tensor that is needed.
    "copy again by name": Range(1.0, 0.5, 0.0),
    # What padding leaves, with newer units that odd sizes cannot use, or without. An H200 took a
    # sixth for a vocabulary of 50,304 in place of 50,257; before 9.0 nothing was measured.
    "padding, newer": Range(0.6, 0.2, 0.14),
    "padding, older": Range(0.9, 0.5, 0.3),
    # Of casts of one size all but one are of a tensor that was cast before, at best; at worst each is
    # of a tensor of its own, and half of them are needed.
    "casts": Range(0.6, 0.12, 0.0),
    "sums in half precision": Range(0.8, 0.5, 0.4),  # half of the bytes
    # Adam touches four tensors and writes three; done singly it does so in 18 to 20 accesses.
    "adam": Range(0.6, 0.4, 0.3),
    "optimizer": Range(1.0, 0.7, 0.42),
    # One H200, 50 of 32,000 in bfloat16: topk took a quarter of the sort.
    "sort": Range(0.6, 0.3, 0.1),
    # Where only names are known: sums into places that may be many, orders that may all be read.
    "atomics by name": Range(1.0, 0.5, 0.1),
    "sort by name": Range(1.0, 0.5, 0.1),
}


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What to do, in the words of what a program is written with."""

    others: str
    torch: str = ""  # empty: as others
    jax: str = ""

    def get_text_for_language(self, framework: Framework) -> str:
        """Return what to do in a language: torch, jax or others."""
        by_language = {"torch": self.torch, "jax": self.jax}
        return by_language.get(framework) or self.others

    def list_texts(self) -> list[str]:
        """Return all that it may say."""
        return [text for text in (self.torch, self.jax, self.others) if text]


@dataclass(frozen=True, kw_only=True)
class RuleTexts:
    """What is said of one form of a rule.

    A text may name {count}, how many kernels it is about, and {ms}, their milliseconds per step; what
    else it names, its function works out.
    """

    rule: str  # the id of the rule
    says: str
    advice: Advice
    # By the name of a case in which something else is to be done.
    instead: Mapping[str, Advice] = field(default_factory=dict)
    # It fixes whatever the cause (a captured graph): a special fix that saves about as much comes first.
    general: bool = False
    # It takes away launches for which a general fix would only take less time.
    launches: bool = False
    idle: bool = False  # what it saves is idle time, which a recorder inflates
    # Its change is a floor of this kind (kernel, run or transfer), and people get a known share of
    # floors; empty: the change has an interval of its own.
    floor: str = ""
    # Its fix changes kernels that it does not name, too: a layout is that of a whole model.
    spreads: bool = False

    def list_advice(self) -> list[str]:
        """Return all that it may advise."""
        texts = self.advice.list_texts()
        for advice in self.instead.values():
            texts += advice.list_texts()
        return texts


@dataclass(frozen=True)
class StepCase:
    """One program to be judged."""

    step: Step
    split: PeriodSplit  # where its time goes
    hosts: HostModels  # its replays
    groups: Sequence[KernelGroup]  # its kernels by name, grid and block
    device: Device | None
    spans: Sequence[HostSpan] = ()  # names on its host's threads, in order of start
    trains: bool = False  # whether it goes backward
    captures: bool = False  # whether the recording holds the capture of a graph
    alone: bool = False  # whether it was recorded once: nobody knows what other steps do of it
    repeats: bool = True  # whether it runs again: a graph replays what was launched before
    # expected speed-ups of groups that were counted, by id
    gains: Mapping[str, float] = field(default_factory=dict)
    # pages of unified memory that moved because they were touched, in order of start
    page_moves: Sequence[Activity] = ()

    @property
    def works(self) -> Sequence[StepWork]:
        """Return what the GPU did in the step."""
        return self.step.works

    def sum_work_ms(self, indices: Iterable[WorkIndex]) -> Milliseconds:
        """Return milliseconds that some of the works take together."""
        return sum(self.works[i].activity.duration for i in indices) / 1e6

    def find_longest_work(self, indices: Iterable[WorkIndex]) -> StepWork:
        """Return the one of some works that takes longest."""
        return max((self.works[i] for i in sorted(indices)), key=lambda w: w.activity.duration)

    def describe_origin_of_works(
        self, indices: Sequence[WorkIndex], fallback_work: WorkIndex | None = None
    ) -> str:
        """Say where some works come from: the line of most of their time.

        Where no line is known, it is said where `fallback_work` comes from, or the longest of them.
        """
        works = [self.works[i] for i in indices]
        found = find_main_place((work.maker.place, work.activity.duration) for work in works)
        if found:
            return describe_place_of_works(found)
        if fallback_work is None:
            work = self.find_longest_work(indices)
        else:
            work = self.works[fallback_work]
        return describe_launch_place(work)

    def list_unclaimed_works(
        self, is_wanted: Callable[[StepWork], bool], claimed_works: ClaimedWorks = frozenset()
    ) -> list[WorkIndex]:
        """Return indices of the works that are so and not claimed."""
        return [
            i for i, work in enumerate(self.works) if i not in claimed_works and is_wanted(work)
        ]

    def sum_allocation_ns(self) -> Nanoseconds:
        """Return nanoseconds that the host takes or gives back memory."""
        return sum(call.end - call.start for call in self.step.calls if call.allocates)

    def sum_idle_ns(self, cause: str) -> Nanoseconds:
        """Return nanoseconds that the GPU is idle for a cause."""
        return sum(row.time for row in self.split.idle if row.cause == cause)

    @cached_property
    def program_framework(self) -> Framework:
        """Return what it is written with, by operators and names of kernels: torch, jax, or others."""
        names = [w.activity.name for w in self.works]
        if 2 * sum(bool(_OF_XLA.match(name)) for name in names) > len(names):
            return "jax"
        by_operator = any(w.maker.op.startswith("aten::") for w in self.works)
        by_name = any("at::native" in name or is_inductor_kernel(name) for name in names)
        if by_operator or by_name:
            return "torch"
        return "others"

    def make_finding(
        self,
        words: RuleTexts,
        work_indices: Sequence[WorkIndex],
        change: StepChange,
        where: str = "",
        advice: str = "",
        **figures: Any,
    ) -> StepFinding:
        """Return what a check has found.

        Args:
            words: What is said of it.
            work_indices: What it explains, so that no other finding names them.
            change: What the fix does to the step.
            where: Empty: where the longest of the works comes from.
            advice: The case in which something else is to be done; empty for the usual advice.
            figures: What its sentences name.
        """
        figures = {"count": len(work_indices), "ms": self.sum_work_ms(work_indices), **figures}
        if advice:
            chosen = words.instead[advice]
        else:
            chosen = words.advice
        numbers = {name: value for name, value in figures.items() if is_number(value)}
        return StepFinding(
            rule=words.rule,
            cause=self.adapt_graph_name_to_gpu(fill_sentence(words.says, figures)),
            advice=self.adapt_graph_name_to_gpu(
                fill_sentence(chosen.get_text_for_language(self.program_framework), figures)
            ),
            where=(where,) if where else (),
            evidence=numbers,
            works=work_indices,
            change=change,
            general=words.general,
            launches=words.launches,
            idle=words.idle,
            floor=words.floor,
            spreads=words.spreads,
        )

    @cached_property
    def is_amd(self) -> bool:
        """Return whether it ran on a GPU of AMD's, by the calls of its host."""
        return any(call.name.startswith("hip") for call in self.step.calls)

    def adapt_graph_name_to_gpu(self, text: str) -> str:
        """Call captured graphs what they are called on this GPU."""
        if self.is_amd:
            return text.replace("CUDA graph", "HIP graph")
        return text

    def is_mostly_compiled(self, indices: Collection[WorkIndex]) -> bool:
        """Return whether most of some works' time is launched by code of torch.compile."""
        own = [i for i in indices if is_from_compiled_code(self.works[i])]
        return 2 * self.sum_work_ms(own) > self.sum_work_ms(indices)

    @property
    def cc(self) -> tuple[int, int] | None:
        """Return the GPU's compute capability."""
        if self.device:
            return self.device.cc
        return None

    @cached_property
    def gpu(self) -> Gpu | None:
        """Return what the table knows of the GPU."""
        return find_nearest_of_generation(self.cc)

    @cached_property
    def bandwidth(self) -> BytesPerSecond:
        """Return bytes a second that memory-bound work reaches here: seen in the step, or assumed."""
        seen = []
        for w in self.works:
            if (
                w.kind in {"elementwise", "convert"}
                and w.activity.duration > 20_000
                and (moved := estimate_traffic_by_inputs(w))
            ):
                seen.append((moved.reads + moved.writes) / (w.activity.duration * 1e-9))
        # No ceiling is shown from the table: it tells only how far a kernel is from its bytes.
        usual = 1e12
        if self.gpu and self.gpu.stream:
            usual = self.gpu.stream
        # more is cache
        if seen:
            return min(max([*seen, 0.5 * usual]), 1.5 * usual)
        return usual

    def estimate_ns_of_bytes(self, indices: Iterable[WorkIndex]) -> NanosecondsOrZero:
        """Return nanoseconds that the bytes of some works' operators need.

        0 where no sizes are known.
        """
        moved = [estimate_traffic_by_inputs(self.works[i]) for i in indices]
        return sum(m.reads + m.writes for m in moved if m) / self.bandwidth * 1e9

    def find_reachable_product_rate(self, precision: str) -> OperationsPerSecond | None:
        """Return operations a second that products of a precision reach at most; None where unknown."""
        if self.gpu:
            half = self.gpu.half
        else:
            half = None
        if half is None or precision == "unknown":
            return None
        # TF32 has half of that rate, the pipes that are no tensor cores what TF32 gains less.
        return {"half": half, "tf32": half / 2}.get(
            precision, half / 2 / get_measured_levels("tensor", self.cc)[1]
        )

    def compute_product_floor_seconds(self, product: Product) -> Seconds:
        """Return the seconds that a product needs at least, by its bytes and by the best rate."""
        least = product.bytes / self.bandwidth
        if product.size != 2:
            return least
        rate = None
        if self.gpu:
            rate = self.gpu.half
        if rate:
            return max(least, product.operations * REACHED / rate)
        return product.seconds


def is_number(value: object) -> bool:
    """Return whether a figure of a sentence is a number, and no words."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


@dataclass(frozen=True, kw_only=True)
class StepFinding(Finding):
    """Something to do about a step; what it saves is known when its change was replayed."""

    where: tuple[str, ...] = ()
    evidence: Mapping[str, float] = field(default_factory=dict)  # the figures of its sentence
    saving: Estimate = NO_SAVING  # milliseconds
    works: Sequence[int] = ()  # what it explains, so that no other finding names them
    change: StepChange = (
        UNCHANGED  # what the fix does to the step; nothing where equal parts are all of it
    )
    general: bool = False  # see Words
    launches: bool = False
    idle: bool = False
    floor: str = ""
    spreads: bool = False
    optional: bool = False  # it may be so on purpose: perhaps nothing is saved
    waits_before_graph: Sequence[int] = ()  # calls without which a graph could be captured
    # milliseconds that a graph between two waits saves while the waits are there
    before_waits_go: float | None = None
    # milliseconds after the findings before it: fixes that share an obstacle do not add up
    on_top: float = 0.0
    kernels: tuple[str, ...] = ()  # ids of the groups at fault

    @property
    def place(self) -> TextOrEmpty:
        """Return where most of it comes from; empty where nobody knows."""
        if self.where:
            return self.where[0]
        return ""


def is_from_compiled_code(work: StepWork) -> bool:
    """Return whether code of torch.compile launched it: Inductor's kernels, or by its makers."""
    maker = work.maker
    names = (maker.op, maker.top, maker.range)
    return is_inductor_kernel(work.activity.name) or any(map(is_compilers_operator, names))


def is_launched_by_autograd(work: StepWork) -> bool:
    """Return whether autograd launched it."""
    place = work.maker.place
    if place is not None and place.part == "backward":
        return True
    return work.maker.top.startswith("autograd::") or "Backward" in work.maker.top


def is_launched_in_optimizer_step(work: StepWork) -> bool:
    """Return whether it was launched inside of an optimiser's step, and by no module that it calls."""
    place = work.maker.place
    if place is not None and place.part == "optimizer":
        return not place.module
    return "ptimizer.step" in work.maker.range or work.maker.top.startswith("Optimizer.step")


def is_strided_copy(work: StepWork) -> bool:
    """Return whether it copies a tensor into another order, by its kernel's name."""
    return _STRIDED.search(work.activity.name) is not None


def is_only_moving_data(work: StepWork) -> bool:
    """Return whether a kernel only puts a tensor into another order, or tensors together."""
    return work.kind in {"layout", "concat"} or is_strided_copy(work)


def count_tensor_accesses(work: StepWork) -> int:
    """Return tensors that an elementwise kernel reads and writes."""
    name = work.activity.name
    if counted := _TENSORS.search(name):
        return max(1, int(counted[1]))
    if work.kind in PASSED:
        if work.kind == "reduce":
            return 1
        return 2
    if _TWO_INPUTS.search(name):
        return 3
    if work.kind == "set":
        return 1
    return 2


def find_too_many_small_uploads(case: StepCase) -> frozenset[WorkIndex]:
    """Return small copies to the GPU, where there are so many that they should be one."""
    copies = case.list_unclaimed_works(
        lambda w: w.kind == "copy" and w.activity.direction == "HtoD"
    )
    small = [i for i in copies if case.works[i].activity.bytes <= SMALL_COPY]
    return frozenset(small if len(small) >= MANY_COPIES else ())


def find_calls_waiting_for_works(
    case: StepCase, awaited_works: Collection[WorkIndex]
) -> list[CallIndex]:
    """Return the calls that wait for some works."""
    return [i for i, e in enumerate(case.hosts.usual.events) if e.awaits in awaited_works]


def list_runs_that_compiler_would_merge(
    case: StepCase, claimed_works: ClaimedWorks
) -> list[list[WorkIndex]]:
    """Return runs on one stream, of one direction of the training, of what a compiler would merge.

    Copies that go away (they are claimed) end no run.
    """
    runs: list[list[int]] = []
    open_runs: dict[int, list[int]] = {}  # by stream
    for index, work in enumerate(case.works):
        if index in claimed_works and is_only_moving_data(work):
            continue
        stream = work.activity.stream
        run = open_runs.get(stream, [])
        fits = _can_be_merged_by_compiler(work) and index not in claimed_works
        if run and (
            not fits or is_launched_by_autograd(case.works[run[0]]) != is_launched_by_autograd(work)
        ):
            runs.append(open_runs.pop(stream))
        if fits:
            open_runs.setdefault(stream, []).append(index)
    runs.extend(open_runs.values())
    return runs


def _can_be_merged_by_compiler(work: StepWork) -> bool:
    moves = work.kind in MEMBERS | PASSED or is_only_moving_data(work)
    return (
        moves
        and not is_inductor_kernel(work.activity.name)
        and not is_launched_in_optimizer_step(work)
    )


def estimate_ns_as_merged_kernel(case: StepCase, run: Sequence[WorkIndex]) -> NanosecondsOfModel:
    """Return the time of a run as one kernel: it reads what comes from outside, and writes its end.

    Of each kernel after the first the largest tensor is the last one's result. Of its other tensors
    half are taken to come from outside; on the way back all, for they were kept on the way forward,
    where one more is written for that.
    """
    back = is_launched_by_autograd(case.works[run[0]])
    keeps = case.trains and not back
    if back:
        new = 1.0
    else:
        new = NEW
    works = [case.works[index] for index in run]
    needs = [
        find_operator_needs(work.maker.op, work.maker.shapes, work.maker.types) for work in works
    ]
    known = [need for need in needs if need is not None]
    if len(known) == len(run):
        outside = sum(need.reads - need.largest for need in known[1:])
        moved = known[0].reads + new * outside + known[-1].writes * (2 if keeps else 1)
        return max(SHORT, moved / case.bandwidth * 1e9)
    took = 0.0
    touched = 0
    second = 0
    for work in works:
        count = count_tensor_accesses(work)
        took += work.activity.duration
        touched += count
        second += max(0, count - 2)
    return max(SHORT, took * (2 + new * second + keeps) / touched)
