"""Which tensors operators were given  ->  which of them are needless.

A tensor that was there before the recorded steps, and that nothing writes in them, is the same in
each. So is what an operator makes of such tensors alone, with the same numbers, and nothing drawn at
random. A program may be recorded with one batch again and again: then only what comes of tensors that
its modules hold is known to be the same whatever the batch is.

And a gradient that no operator reads once it is there was computed for nothing, with all that only
leads to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profkit.files import is_file, open_regular_file

if TYPE_CHECKING:
    from profkit.units import CountOrZero


MOST = 1_000_000  # operators that are read
LONGEST_LINE = 1 << 20  # bytes: an optimizer is given thousands of tensors
REPEATS = 2  # of a step that are seen at least
SAME, UNREAD = "same", "unread"  # why an operator is needless
NODE = "autograd::engine::evaluate_function"  # how the names of autograd's nodes begin
GRADIENT = "AccumulateGrad"  # the node that puts a gradient where its weight has it
# A node that Python code computes, as torch.compile's and those of a kernel of one's own are: torch's
# have a number behind their names. Its kernels may read what its operators make.
PYTHON_NODE = re.compile(rf"{NODE}.*[A-Za-z]Backward$")
CLEARS = ("zero_", "fill_")
# Drawn at random, by parts of operators' names.
RANDOM = "rand normal uniform bernoulli multinomial exponential poisson dropout geometric".split()
# Make no tensor, or one whose values nobody wrote.
VIEWS = frozenset(
    "view as_strided expand slice select t transpose permute reshape squeeze unsqueeze detach alias "
    "unbind split chunk narrow _unsafe_view empty empty_like empty_strided new_empty resize_ size "
    "unflatten flatten resolve_conj resolve_neg lift_fresh set_ item _local_scalar_dense "
    "_reshape_alias as_strided_".split()
)


class Dependence(IntEnum):
    """What a tensor depends on; of several what comes first counts.

    Where steps are given new data, what does not change is known not to depend on it.
    """

    CHANGING = 0  # something new in each step, or nobody knows
    UNCHANGED = 1  # only what the recorded steps do not change
    HELD = 2  # only what a module holds, and they do not change


@dataclass(frozen=True)
class Operand:
    """A tensor that an operator was given."""

    number: int  # of its memory, from when it is taken until it is given back; 0 of none
    is_held: bool  # by a module
    on_cpu: int  # 1 and its dimensions where it is on the CPU, else 0


@dataclass
class OperatorUse:
    """An operator with its tensors."""

    start: int
    end: int
    thread: int
    name: str  # empty: memory was taken
    groups: Sequence[Sequence[Operand]]  # what it was given: a tensor is a list of one
    made: Sequence[int]
    numbers: str  # that it was given beside tensors

    @property
    def is_of_torch(self) -> bool:
        """Return whether it is one of torch's own operators, no range and no node of autograd."""
        return self.name.startswith("aten::")

    @property
    def operands(self) -> Iterator[Operand]:
        """Yield all tensors that it was given."""
        for group in self.groups:
            yield from group

    @property
    def written(self) -> Iterable[Operand]:
        """Yield the tensors among them that it writes, as its name says."""
        word = self.name.rpartition("::")[2]
        if not word.endswith("_") or word.endswith("__") or word in VIEWS:
            return ()
        if word.startswith("_fused"):
            return self.operands
        return next(iter(self.groups), ())


BeginAndOperatorName = tuple[int, str]  # when an operator began, and its name


def read_needless_operators(path: Path) -> dict[BeginAndOperatorName, str]:
    """Read which operators are needless, by when they began and their names, and for which reason.

    Args:
        path: What the recorder's hook wrote; where it is not there, nothing is known.

    Raises:
        ValueError: The file is damaged, or cannot be read.
    """
    found: dict[BeginAndOperatorName, str] = {}
    if not is_file(path):
        return found
    try:
        for uses in _iterate_recordings(path):
            found |= find_needless_operators(uses)
        return found
    except (OSError, ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise ValueError(f"{path.name} is damaged, too long, or cannot be read") from error


def _iterate_recordings(path: Path) -> Iterator[list[OperatorUse]]:
    """Yield the operators of each recording; of a file that names none, all are of one.

    Raises:
        ValueError: It has more lines than are read: of a part nobody can say what reads nothing.
    """
    uses: list[OperatorUse] = []
    with open_regular_file(path) as file:
        for _ in range(MOST):
            line = file.readline(LONGEST_LINE)
            if not line:
                yield uses
                return
            row = json.loads(line)
            if isinstance(row, dict) and "recording" in row:
                yield uses
                uses = []
            else:
                uses.append(_make_use(row))
    raise ValueError(f"more than {MOST:,} lines")


def _make_use(row: Sequence[Any]) -> OperatorUse:
    start, end, thread, name, given, made, numbers = row
    groups = []
    for one in given:
        several = one
        if one and not isinstance(one[0], list):
            several = [one]
        groups.append([Operand(who, bool(held), int(cpu)) for who, held, cpu in several])
    return OperatorUse(start, end, thread, str(name), groups, made, str(numbers))


def find_needless_operators(uses: Sequence[OperatorUse]) -> dict[BeginAndOperatorName, str]:
    """Find the operators that are needless in each step; none where no step is seen to repeat."""
    repeats = _list_repeats(uses)
    if not repeats:
        return {}
    least = Dependence.HELD
    if is_given_new_data(uses):
        least = Dependence.UNCHANGED
    origins = TensorOrigins(uses, repeats).trace_operators()
    unread = GradientReaders(uses).find_unread_work()
    found: dict[BeginAndOperatorName, str] = {}
    for places, lag in repeats:
        for first in range(lag):
            alike = places[first::lag]
            reason = ""
            # What was made before the recording began is lasting for the first step alone, and what
            # is read after its end is not known of the last one.
            if all(origins[at] >= least for at in alike[1:]):
                reason = SAME
            elif unread.issuperset(alike[:-1]):
                reason = UNREAD
            if reason:
                found |= {(uses[at].start, uses[at].name): reason for at in alike}
    return found


def is_given_new_data(uses: Sequence[OperatorUse]) -> bool:
    """Return whether steps are given anything that the one before did not have.

    That is what is copied to the GPU, or what a step leaves to the next: at each of its uses some
    tensor is between where it was made and where it is read.
    """
    made: dict[int, int] = {}
    read: dict[int, int] = {}
    for use in uses:
        made |= dict.fromkeys(use.made, use.start)
        is_copy = use.name == "aten::copy_" and not any(one.on_cpu for one in use.written)
        for one in use.operands:
            if is_copy and one.on_cpu > 1:
                return True
            if one.number in made:
                read[one.number] = max(use.end, read.get(one.number, 0))
    third = len(uses) // 3  # a whole step is in the middle
    reach = uses[third].start
    for begin, end in sorted((made[number], end) for number, end in read.items()):
        if begin > reach:
            break
        reach = max(reach, end)
    return reach > uses[2 * third].start


Repeats = list[tuple[list[int], int]]  # of each thread the places of its uses, and after how many


def _list_repeats(uses: Sequence[OperatorUse]) -> Repeats:
    """List the places of each thread's uses, with after how many they come again; none that do not."""
    threads: dict[int, list[int]] = {}
    for at, use in enumerate(uses):
        if use.name:
            threads.setdefault(use.thread, []).append(at)
    repeats = []
    for places in threads.values():
        lag = find_period_of_names([uses[at].name for at in places])
        if lag:
            repeats.append((places, lag))
    return repeats


def find_period_of_names(names: Sequence[str]) -> CountOrZero:
    """Find after how many names all of them come again; 0 where they do not.

    The least such number is the length without its longest border: names that are both its beginning
    and its end. The borders of all beginnings take one pass (Knuth, Morris and Pratt).
    """
    borders = [0] * len(names)  # of each beginning: how long its longest border is
    length = 0
    for at in range(1, len(names)):
        while length and names[at] != names[length]:
            length = borders[length - 1]
        if names[at] == names[length]:
            length += 1
        borders[at] = length
    lag = len(names) - length
    if lag > len(names) // REPEATS:
        return 0
    return lag


@dataclass
class OpenOperator:
    """An operator that is open, and what it has read and made so far."""

    at: int
    use: OperatorUse
    origin: Dependence = Dependence.HELD
    made: set[int] = field(default_factory=set)


class TensorOrigins:
    """What tensors depend on, from operator to operator in their order."""

    def __init__(self, uses: Sequence[OperatorUse], repeats: Repeats) -> None:
        self.uses = uses
        self.fresh: set[int] = set()  # memory that was taken and not written yet
        self.made = {number for use in uses for number in use.made}
        self.known = self._find_lasting_tensors(repeats)
        self.differing = self._find_differing_uses(repeats)
        # What operators have made or written, of those that may be the same in each step.
        self.results: dict[int, set[int]] = {}

    def _find_lasting_tensors(self, repeats: Repeats) -> dict[int, Dependence]:
        """Find the tensors that were there before, and are used after the first step."""
        known: dict[int, Dependence] = {}
        for places, lag in repeats:
            for at in places[lag:]:
                for one in self.uses[at].operands:
                    if one.number not in self.made:
                        known[one.number] = Dependence(1 + one.is_held)
        for use in self.uses:
            for one in use.written:
                if one.number in known:
                    known[one.number] = Dependence.CHANGING
        return known

    def _find_differing_uses(self, repeats: Repeats) -> set[int]:
        """Find the places of uses given other numbers or lasting tensors a step before or after."""
        differing = set()
        for places, lag in repeats:
            told = []
            for at in places:
                use = self.uses[at]
                lasting = [one.number for one in use.operands if one.number in self.known]
                told.append((use.numbers, lasting))
            for one in range(len(places) - lag):
                if told[one] != told[one + lag]:
                    differing |= {places[one], places[one + lag]}
        return differing

    def trace_operators(self) -> list[Dependence]:
        """Return what each operator depends on.

        What is cleared to be written in the step, as a gradient that is summed, has to be made again:
        it depends on what is written there.
        """
        found = [Dependence.CHANGING] * len(self.uses)
        opened: dict[int, list[OpenOperator]] = {}
        for at, use in enumerate(self.uses):
            frames = opened.setdefault(use.thread, [])
            self._close_frames(frames, use.start, found)
            if not use.name:
                self.fresh.update(use.made)
                if frames:
                    frames[-1].made.update(use.made)
                continue
            frame = OpenOperator(at, use)
            self._note_operands_of_operator(frame, any(outer.use.is_of_torch for outer in frames))
            frames.append(frame)
        for frames in opened.values():
            self._close_frames(frames, None, found)
        for at, results in self.results.items():
            for number in results:
                found[at] = min(found[at], self.known.get(number, Dependence.HELD))
        return found

    def _note_operands_of_operator(self, frame: OpenOperator, is_inside: bool) -> None:
        """Note of an operator that begins what it depends on, and write what it writes."""
        use = frame.use
        word = use.name.rpartition("::")[2]
        written = {one.number for one in use.written}
        if frame.at in self.differing or any(part in word for part in RANDOM):
            frame.origin = Dependence.CHANGING
        is_on_gpu = any(not one.on_cpu for one in use.operands)
        for one in use.operands:
            if one.on_cpu and is_on_gpu:
                # A number beside tensors on the GPU; what is copied there is the step's input.
                if word in {"copy_", "_to_copy"}:
                    frame.origin = Dependence.CHANGING
            elif self._is_taken_but_unwritten(one.number):
                # Inside of torch's operators it is where the result goes; else a kernel that is known to
                # no operator may have written it, as those of torch.compile.
                if not is_inside and word not in VIEWS and one.number not in written:
                    frame.origin = self.known[one.number] = Dependence.CHANGING
                    self.fresh.discard(one.number)
            elif one.number:
                frame.origin = min(frame.origin, self.known.get(one.number, Dependence.CHANGING))
        for number in written:
            before = self.known.get(number, Dependence.HELD)
            self.known[number] = min(before, frame.origin)
            self.fresh.discard(number)

    def _is_taken_but_unwritten(self, memory_number: int) -> bool:
        """Return whether memory is taken in the recorded steps, and was not written yet."""
        return memory_number in self.fresh or (
            memory_number in self.made and memory_number not in self.known
        )

    def _close_frames(
        self, frames: list[OpenOperator], now: int | None, found: list[Dependence]
    ) -> None:
        """End the operators of a thread that are over: what they made is known then."""
        while frames and (now is None or frames[-1].use.end <= now):
            frame = frames.pop()
            word = frame.use.name.rpartition("::")[2]
            if word not in VIEWS:
                for number in frame.made:
                    self.known[number] = min(self.known.get(number, frame.origin), frame.origin)
                self.fresh -= frame.made
            found[frame.at] = frame.origin
            if frame.origin > Dependence.CHANGING:
                written = {one.number for one in frame.use.written}
                self.results[frame.at] = frame.made | written
            if frames:
                outer = frames[-1]
                outer.origin = min(outer.origin, frame.origin)
                outer.made |= frame.made


class GradientReaders:
    """Which gradients of weights are read, and what only makes those that are not."""

    def __init__(self, uses: Sequence[OperatorUse]) -> None:
        self.uses = uses
        self.made: list[set[int]] = [set() for _ in uses]  # also by operators inside of it
        self.is_backward = [False] * len(uses)
        # The outermost of torch's operators that each is in: it may read what those in it make.
        self.outer = list(range(len(uses)))
        self.is_gradient = [False] * len(uses)  # puts a gradient where its weight has it
        self.is_in_python_node = [False] * len(uses)
        opened: dict[int, list[int]] = {}
        for at, use in enumerate(uses):
            frames = opened.setdefault(use.thread, [])
            while frames and uses[frames[-1]].end <= use.start:
                frames.pop()
            for outer in frames:
                self.made[outer].update(use.made)
            if not use.name:
                continue
            frames.append(at)
            self._note_enclosing_operators(at, frames)

    def _note_enclosing_operators(self, operator_index: int, open_operators: Sequence[int]) -> None:
        """Note of an operator what those are that it runs in, the outermost first and itself last."""
        names = [self.uses[frame].name for frame in open_operators]
        nodes = [name for name in names if name.startswith(NODE)]
        self.outer[operator_index] = next(
            (frame for frame in open_operators if self.uses[frame].is_of_torch), operator_index
        )
        self.is_backward[operator_index] = bool(nodes)
        self.is_in_python_node[operator_index] = (
            bool(nodes) and PYTHON_NODE.match(nodes[-1]) is not None
        )
        self.is_gradient[operator_index] = any(GRADIENT in name for name in names)

    def find_unread_work(self) -> set[int]:
        """Find the places of operators of a backward pass that make what nothing reads afterwards.

        What a node of Python code makes is taken to be read: by kernels that no operator launches.
        Where no gradient at all is read, the recorded steps hold no optimizer's: nothing is known.
        """
        read: set[int] = set()  # later
        unread: set[int] = set()
        is_any_gradient_read = False
        for at in reversed(range(len(self.uses))):
            use = self.uses[at]
            numbers = {one.number for one in use.operands}
            if not self.is_backward[at]:
                if not use.name.endswith(CLEARS):
                    read |= numbers
                continue
            if self.is_gradient[at] and not numbers.isdisjoint(read):
                is_any_gradient_read = True
            results = self.made[at] | {one.number for one in use.written}
            if not results or self.outer[at] != at:
                continue
            if results.isdisjoint(read) and not self.is_in_python_node[at]:
                unread.add(at)
            else:
                read |= numbers
        if not is_any_gradient_read:
            return set()
        return {at for at, outer in enumerate(self.outer) if outer in unread}
