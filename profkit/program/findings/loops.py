"""Equal turns of a loop whose results are no inputs of each other: they could be one batch.

Experts, heads, tables, tasks, sentences: k equal kernels are one of size k, with one launch. Layers,
steps in time and solvers look alike, but each turn reads what the turn before it has made.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from profkit.program.findings.case import (
    EMPTY,
    REACH,
    SHORT,
    Advice,
    RuleTexts,
    StepCase,
    StepFinding,
    is_launched_by_autograd,
    is_launched_in_optimizer_step,
)
from profkit.program.operators import (
    Flow,
    Flows,
    Needs,
    find_operator_needs,
    guess_tensor_sizes_of_operator,
)
from profkit.program.replay.scenario import Range, StepChange, make_exact_range
from profkit.program.steps.attribution import CallOrigin
from profkit.program.steps.cut import StepWork
from profkit.program.steps.kinds import find_product_precision
from profkit.program.steps.places import replace_layer_numbers, shorten_line_path
from profkit.program.timeline import SourcePlace

if TYPE_CHECKING:
    from profkit.units import (
        ClaimedWorks,
        Clause,
        ModulePath,
        NanosecondsOfModel,
        Share,
        TextOrEmpty,
        TurnLength,
        WorkIndex,
    )


LEAST = 0.02  # of the step
SEVERAL = 8  # equal turns of a loop: queries, keys and values are three
SIBLINGS = 4  # equal modules of one list that run one after another
PHASES = 64  # places where a turn may begin that are tried
LENGTHS = 48  # lengths of a turn that are tried, those that are seen most often
CELLS = frozenset({"RNNCell", "LSTMCell", "GRUCell"})
KNOWN = 0.5  # of a turn's kernels whose sizes must be known, or need not be

EQUAL_LAUNCHES = RuleTexts(
    rule="redundant",
    says=(
        "{count:,} kernels per step are launched one by one in {loops} of equal turns (the longest: "
        "{longest} x {body}); {proof} ({ms:time})"
    ),
    advice=Advice(
        torch=(
            "run all turns at once: keep their tensors in one, with a dimension more (a larger batch, "
            "torch.bmm, torch.vmap), where no turn needs the one before it"
        ),
        jax=(
            "run all turns at once: keep their arrays in one, with a dimension more (jax.vmap), where "
            "no turn needs the one before it"
        ),
        others="keep their arrays in one, and launch once for all (a batched call)",
    ),
    launches=True,
)


CELLS_IN_LOOP = RuleTexts(
    rule="redundant",
    says=(
        "{cell} runs {turns:,} times per step, one time step after another ({count:,} kernels, "
        "{ms:time}): what it computes of inputs known before the loop could be one large product"
    ),
    advice=Advice(
        others=(
            "where the inputs of all time steps are known, run the whole sequence at once "
            "(torch.nn.LSTM, GRU or RNN in place of their cells)"
        ),
    ),
    launches=True,
)
# Of the time of a cell's products, what one call for the sequence leaves: the product of the state has
# to wait for the one before it, that of the input has not. At worst all of it.
LEFT_OF_PRODUCTS = Range(1.0, 0.5, 0.25)


@dataclass(frozen=True)
class Loop:
    """Turns that launch the same kernels."""

    length: int  # launches of a turn
    works: range  # of all turns
    proven: bool = True  # whether sizes tell that no turn needs another; else only how it begins

    @property
    def turns(self) -> int:
        """Return how often it is run."""
        return len(self.works) // self.length

    def list_works_by_place_in_turn(self) -> list[list[WorkIndex]]:
        """Return the works of each place of a turn, of all turns."""
        return [list(self.works[place :: self.length]) for place in range(self.length)]


def find_batchable_launches(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find the same kernels of the same sizes again and again, where one launch could do each."""
    loops = list_independent_loops(case, claimed_works)
    if not loops:
        return
    runs = []
    for loop in loops:
        runs += [
            *loop.list_works_by_place_in_turn(),
            *_list_backward_runs(case, loop, claimed_works),
        ]
    change = make_change_merging_runs(case, runs)
    if (
        case.hosts.estimate_saving(change).expect
        < LEAST * case.hosts.step_ms_without_recorder.expect
    ):
        return
    chosen = sorted([*change.scale, *change.merge])
    longest = max(loops, key=lambda loop: len(loop.works))
    yield case.make_finding(
        EQUAL_LAUNCHES,
        chosen,
        change,
        _describe_loop_place(case, longest, chosen),
        loops="one loop" if len(loops) == 1 else f"{len(loops):,} loops",
        longest=longest.turns,
        body=_say_turn_content(case, longest),
        proof=_say_why_independent(longest),
    )


def find_cells_in_loops(case: StepCase, claimed_works: ClaimedWorks) -> Iterator[StepFinding]:
    """Find recurrent cells that a loop over time calls, with their backward pass.

    One call for the sequence launches its kernels without the program: their launches go, and what is
    elementwise is part of them.
    """
    scale: dict[int, Range] = {}
    gone: list[int] = []
    turns = 0
    cell = ""
    for (called, kind), own in _group_cells_by_caller(case, claimed_works).items():
        count = _count_turns_of_cell(case, own)
        if count < SEVERAL:
            continue
        if count > turns:
            turns = count
            cell = kind
        taken = claimed_works.union(scale, gone)
        lines = _list_lines(case, own)
        members = _list_work_of_each_turn(case, called, lines, count, taken)
        if members:
            kept, left = _leave_products_of_state(case, members)
            scale[kept] = left
            gone += [index for index in members if index != kept]
    if not scale:
        return
    change = StepChange(scale, dict.fromkeys(gone, REACH["launches in a graph"]))
    saved_ms = case.hosts.estimate_saving(change).expect
    if saved_ms < LEAST * case.hosts.step_ms_without_recorder.expect:
        return
    yield case.make_finding(CELLS_IN_LOOP, sorted([*scale, *gone]), change, cell=cell, turns=turns)


def _group_cells_by_caller(
    case: StepCase, claimed_works: ClaimedWorks
) -> dict[tuple[str, str], list[WorkIndex]]:
    """Return the work of recurrent cells, by the call that they belong to and the kind of cell."""
    found: dict[tuple[str, str], list[WorkIndex]] = {}
    for index in case.list_unclaimed_works(_is_of_cell, claimed_works):
        place = case.works[index].maker.place
        if place is not None:
            found.setdefault((place.called, place.kind), []).append(index)
    return found


def _is_of_cell(work: StepWork) -> bool:
    """Return whether a recurrent cell of torch launches it."""
    return _is_of_recurrent_module(work.maker) and not work.activity.graph


def _count_turns_of_cell(case: StepCase, indices: Sequence[WorkIndex]) -> int:
    """Count the calls of a cell: as often it launches what it launches least often, but for a start."""
    counts = Counter(
        (case.works[index].activity.name, case.works[index].activity.grid)
        for index in indices
        if not is_launched_by_autograd(case.works[index])
    )
    return min((count for count in counts.values() if count >= SEVERAL), default=0)


def _list_lines(case: StepCase, indices: Sequence[WorkIndex]) -> set[str]:
    """Return the lines that launch some works."""
    places = [case.works[index].maker.place for index in indices]
    return {place.line for place in places if place is not None}


def _list_work_of_each_turn(
    case: StepCase,
    called: str,
    lines: Collection[str],
    turns: int,
    claimed_works: ClaimedWorks,
) -> list[int]:
    """Return what one call of the model launches in each turn of its loop over time.

    That is its cells, layers between them and behind them, and what autograd does for the slices that a
    turn is given. The last turn has less of a gradient to add.
    """
    alike: dict[Hashable, list[int]] = {}
    for index, work in enumerate(case.works):
        place = work.maker.place
        if place is None or place.called != called or work.activity.graph:
            continue
        # Without a call of a model, a line is all that belongs to the loop for sure.
        if index not in claimed_works and (called or place.line in lines):
            key = (place.line, place.module, place.part, work.activity.name, work.activity.grid)
            alike.setdefault(key, []).append(index)
    members: list[int] = []
    for own in alike.values():
        if len(own) >= turns - 2:
            members += own
    return sorted(members)


def _leave_products_of_state(case: StepCase, members: Sequence[int]) -> tuple[int, Range]:
    """Return the work that stands for all that is left of a loop's cells, with the share of its time."""
    products = [index for index in members if case.works[index].kind == "gemm"]
    kept = (products or members)[0]
    whole = case.sum_work_ms(products) / case.sum_work_ms([kept])
    return kept, Range(*(share * whole for share in LEFT_OF_PRODUCTS))


def _say_why_independent(loop: Loop) -> Clause:
    """Say how it is known that no turn needs the one before it."""
    if loop.proven:
        return "by its size, no result is an input of the next turn"
    return (
        "what a turn begins with is not what a turn makes: can be one batch if none needs the result of "
        "the one before it"
    )


def _say_turn_content(case: StepCase, loop: Loop) -> Clause:
    """Say what a turn launches."""
    main = max(loop.list_works_by_place_in_turn(), key=case.sum_work_ms)
    maker = _find_work_with_sizes(case, main).maker
    name = maker.op or f"a kernel of kind {case.works[main[0]].kind}"
    sizes = " and ".join(" x ".join(map(str, sizes)) for sizes in maker.shapes if sizes)
    if sizes:
        name = f"{name}, {sizes}"
    if loop.length == 1:
        return name
    return f"{loop.length:,} kernels, with {name}"


def _describe_loop_place(case: StepCase, loop: Loop, chosen: Sequence[WorkIndex]) -> Clause:
    """Return where the loop is: the line from which a model is called, if all of it is called there."""
    places = [case.works[index].maker.place for index in loop.works]
    called = {place.called if place is not None else "" for place in places}
    modules = {place.module if place is not None else "" for place in places}
    if len(called) == 1 and len(modules) > 1 and _is_same_module_each_turn(case, loop):
        line = called.pop()
        if line:
            return shorten_line_path(line)
    main = max(loop.list_works_by_place_in_turn(), key=case.sum_work_ms)
    return case.describe_origin_of_works(chosen, fallback_work=main[0])


def _is_same_module_each_turn(case: StepCase, loop: Loop) -> bool:
    """Return whether each turn runs the same modules: they are of one call of the whole."""
    first, second = (case.works[loop.works[at]].maker.place for at in (0, loop.length))
    return first is not None and second is not None and first.module == second.module


def make_change_merging_runs(case: StepCase, runs: Sequence[Sequence[WorkIndex]]) -> StepChange:
    """Return the change to each run as one kernel, with the launch of its first.

    Of the host's time for the others only what is within operators goes, where nobody knows what is
    between them; of a line or module that is run once for all, as much as of launches in a graph.
    """
    heads: dict[int, Range] = {}
    gone: dict[int, Range] = {}
    for run in runs:
        first = max(1, case.works[run[0]].activity.duration)
        together, least = estimate_ns_as_one_kernel(case, run)
        heads[run[0]] = Range(least / first, together / first, together / first)
        for index in run[1:]:
            work = case.works[index]
            if work.maker.place is not None:
                gone[index] = REACH["launches in a graph"]
            else:
                gone[index] = make_exact_range(_compute_host_share_outside_operator(case, work))
    return StepChange(heads, gone)


def _list_backward_runs(
    case: StepCase, loop: Loop, claimed_works: ClaimedWorks
) -> list[list[WorkIndex]]:
    """Return equal kernels that the backward pass runs for each turn, of all turns."""
    members = {_make_place_key(case.works[index]) for index in loop.works} - {None}
    alike: dict[Hashable, list[int]] = {}
    for index, work in enumerate(case.works):
        if (
            index in claimed_works
            or not is_launched_by_autograd(work)
            or _make_place_key(work) not in members
        ):
            continue
        if work.activity.kind == "kernel" and not work.activity.graph:
            key = (_make_place_key_without_numbers(work), work.activity.name, work.activity.grid)
            alike.setdefault(key, []).append(index)
    runs = []
    for own in alike.values():
        each = len(own) // loop.turns
        runs += [own[place : each * loop.turns : each] for place in range(each)]
    return runs


def _make_place_key(work: StepWork) -> Hashable | None:
    """Return the line and module that launched a work; None where they are not known."""
    place = work.maker.place
    if place is None or not place.line:
        return None
    return place.line, place.module, place.kind


def _make_place_key_without_numbers(work: StepWork) -> Hashable:
    """Return the same, with a * for the numbers of modules."""
    place = work.maker.place
    if place is None:
        return None
    return place.line, replace_layer_numbers(place.module), place.kind


def list_independent_loops(case: StepCase, claimed_works: ClaimedWorks) -> list[Loop]:
    """Return loops over equal and independent turns, those of long turns first.

    Each turn has operators of its own, and the host waits for nothing between them. First the same
    modules again, then modules that are alike.
    """
    used: set[int] = set()
    loops = []
    for joined in (False, True):
        launched = [_make_loop_key(case, i, claimed_works, joined) for i in range(len(case.works))]
        for length, begin, end in _find_repeats_of_any_length(launched, SIBLINGS):
            loop = _find_independent_loop(case, length, begin, end)
            if loop is not None and used.isdisjoint(loop.works):
                loops.append(loop)
                used.update(loop.works)
    return loops


def _find_independent_loop(
    case: StepCase, length: TurnLength, begin: WorkIndex, end: WorkIndex
) -> Loop | None:
    """Return the turns of a repeated part that need nothing of each other; None where they do.

    A turn may begin with any of its kernels: what is before the loop may be like its end.
    """
    several = SEVERAL
    if _are_sibling_modules(case, begin, length):
        several = SIBLINGS
    if end - begin < length * several:
        return None
    places = _list_loop_places(case, Loop(length, range(begin, begin + length * several)))
    if sum(place.known for place in places) < KNOWN * length:
        return None
    last = min(begin + min(length, PHASES), end - length * several + 1)
    likely = None
    for first in range(begin, last):
        loop = Loop(length, range(first, first + length * ((end - first) // length)))
        tensors = _collect_tensors_of_turn([*places[first - begin :], *places[: first - begin]])
        if tensors is None or _is_loop_within_one_operator(case, loop):
            continue
        if tensors.is_independent_of_turns(tensors.outside):
            return loop
        is_likely = tensors.entry and tensors.is_independent_of_turns(tensors.entry)
        if likely is None and is_likely and _is_start_of_turn(case, first, length, begin):
            likely = replace(loop, proven=False)
    return likely


def _are_sibling_modules(case: StepCase, first: WorkIndex, length: TurnLength) -> bool:
    """Return whether the same place of two turns is in two modules, which are alike."""
    one, other = (case.works[index].maker.place for index in (first, first + length))
    return one is not None and other is not None and one.module != other.module


def _is_start_of_turn(
    case: StepCase, first: WorkIndex, length: TurnLength, begin: WorkIndex
) -> bool:
    """Return whether a module is entered there: the first of what repeats, or another one of a list."""
    place = case.works[first].maker.place
    if place is None or not place.module:
        return False
    if not _are_sibling_modules(case, first, length):
        return first == begin
    if first == 0:
        return True
    entered = _find_sibling_module(case, first, length)
    return not _is_in_module(case.works[first - 1].maker.place, entered)


def _find_sibling_module(case: StepCase, first: WorkIndex, length: TurnLength) -> TextOrEmpty:
    """Return the path of the module of a list that a work is of: up to the number that changes."""
    one, other = (case.works[index].maker.place for index in (first, first + length))
    if one is None or other is None:
        return ""
    path: list[str] = []
    for name, changed in zip(one.module.split("."), other.module.split("."), strict=False):
        path.append(name)
        if name != changed:
            break
    return ".".join(path)


def _is_in_module(place: SourcePlace | None, path: ModulePath) -> bool:
    """Return whether a place is in a module or in one of its own."""
    return place is not None and (place.module == path or place.module.startswith(f"{path}."))


def _find_repeats_of_any_length(
    launched: Sequence[Hashable | None], min_turns: int
) -> list[tuple[TurnLength, WorkIndex, WorkIndex]]:
    """Return length, begin and end of launches that repeat at once, the longest turns first.

    None repeats nothing. What repeats with a shorter turn is not said to repeat with several of them.
    """
    last: dict[Hashable, int] = {}
    seen: Counter[int] = Counter()
    for index, token in enumerate(launched):
        if token is not None:
            if token in last:
                seen[index - last[token]] += 1
            last[token] = index
    found: list[tuple[int, int, int]] = []
    for length in sorted(length for length, _ in seen.most_common(LENGTHS)):
        for begin, end in _find_repeats_of_length(launched, length, min_turns):
            inner = (
                length % shorter == 0 and first <= begin and end <= stop
                for shorter, first, stop in found
            )
            if not any(inner):
                found.append((length, begin, end))
    return sorted(found, key=lambda row: (-row[0], row[1]))


def _find_repeats_of_length(
    launched: Sequence[Hashable | None], length: TurnLength, min_turns: int
) -> Iterator[tuple[WorkIndex, WorkIndex]]:
    """Yield from where to where launches of some number repeat at once; None repeats nothing."""
    first = 0
    for index in range(length, len(launched) + 1):
        last = index == len(launched)
        if not last and launched[index] is not None and launched[index] == launched[index - length]:
            continue
        if index - first >= length * min_turns:
            yield first, index
        first = index - length + 1


def _make_loop_key(
    case: StepCase, index: WorkIndex, claimed_works: ClaimedWorks, joined: bool
) -> tuple[object, ...] | None:
    """Return what the launches of one place in a loop have in common; None for what is in no loop.

    What autograd and optimizers launch is not the program's to write in another way.
    """
    work = case.works[index]
    activity = work.activity
    maker = work.maker
    member = _make_place_key(work)
    is_named = maker.ordinal >= 0 or member is not None
    is_launched = activity.kind in {"kernel", "set"} and not activity.graph
    if index in claimed_works or not is_launched or not is_named:
        return None
    if (
        is_launched_by_autograd(work)
        or is_launched_in_optimizer_step(work)
        or _is_after_wait(case, index)
    ):
        return None
    shown = (activity.name, activity.grid, activity.block, activity.stream)
    if member is not None:
        return (*shown, _make_place_key_without_numbers(work) if joined else member)
    within = index > 0 and case.works[index - 1].maker.ordinal == maker.ordinal
    return (*shown, within, maker.op, maker.top, maker.shapes, maker.types, maker.source)


def _is_after_wait(case: StepCase, index: WorkIndex) -> bool:
    """Return whether the host or a stream waits between the launch of a work and the one before."""
    if index == 0:
        return False
    between = case.step.calls[case.works[index - 1].call + 1 : case.works[index].call]
    return any(call.waits or "WaitEvent" in call.name for call in between)


def _find_work_with_sizes(case: StepCase, run: Sequence[WorkIndex]) -> StepWork:
    """Return one of some equal works whose sizes are known, or the first of them."""
    for index in run:
        if any(case.works[index].maker.shapes):
            return case.works[index]
    return case.works[run[0]]


@dataclass
class _TensorsOfTurn:
    """The tensors of a turn by how many values of which type they have."""

    unread: list[Flow] = field(default_factory=list)  # made in the turn, and not read yet
    made: list[Flow] = field(default_factory=list)
    outside: list[Flow] = field(default_factory=list)  # read, and not made in the turn before that
    targets: list[Flow] = field(default_factory=list)  # from outside, and added to
    entry: list[Flow] = field(default_factory=list)  # read before anything was computed
    begins: bool = True  # whether nothing was, besides conversions

    def note_tensor_read(self, wanted: Flow) -> None:
        """Read a tensor: one of the turn, or one from outside of it."""
        own = [flow for flow in self.unread if flow.may_be_same_tensor(wanted)]
        if not own:
            self.outside.append(wanted)
            if self.begins:
                self.entry.append(wanted)
            return
        sized = [flow for flow in own if flow.counts is not None]
        read = (sized or own)[0]
        self.unread.remove(read)
        if read.counts is None:  # now its size is known
            self.made[self.made.index(read)] = wanted

    def note_tensor_added_into(self, target: Flow) -> None:
        """Add into a tensor of the turn, or into one that all turns add to."""
        if any(flow.may_be_same_tensor(target) for flow in self.unread):
            self.note_tensor_read(target)
            self.note_tensor_made(target)
        else:
            self.targets.append(target)

    def note_tensor_made(self, flow: Flow) -> None:
        """Make a tensor."""
        self.unread.append(flow)
        self.made.append(flow)

    def is_independent_of_turns(self, read: Sequence[Flow]) -> bool:
        """Return whether nothing of what is read may have been made by a turn before."""
        for wanted in read:
            if any(flow.may_be_same_tensor(wanted) for flow in (*self.made, *self.targets)):
                return False
        return True


class _LoopPlace(NamedTuple):
    """A place of a turn: what is launched there in each."""

    work: StepWork  # one whose sizes are known, if there is one
    flows: Flows
    known: bool


def _list_loop_places(case: StepCase, loop: Loop) -> list[_LoopPlace]:
    """Return the places of a turn."""
    places = []
    for run in loop.list_works_by_place_in_turn():
        work = _find_work_with_sizes(case, run)
        known = any(work.maker.shapes) or work.kind in {"gather", "set"}
        places.append(
            _LoopPlace(work, guess_tensor_sizes_of_operator(work.maker, work.kind), known)
        )
    return places


def _is_loop_within_one_operator(case: StepCase, loop: Loop) -> bool:
    """Return whether one operator launches many kernels, and no loop of the program."""
    first, second = (case.works[loop.works[at]].maker.ordinal for at in (0, loop.length))
    return first >= 0 and first == second


def _collect_tensors_of_turn(places: Sequence[_LoopPlace]) -> _TensorsOfTurn | None:
    """Return the tensors of a turn; None where too little is known of them.

    A tensor whose size no operator of the turn makes comes from outside. Of another, each that the
    turn has made before is read once; a further one may be of the turn before.
    """
    tensors = _TensorsOfTurn()
    before = None
    for work, flows, _ in places:
        maker = work.maker
        same = (maker.ordinal, maker.op, maker.shapes)
        if work.kind == "set" or (maker.ordinal >= 0 and same == before):
            continue  # a library clears its memory, or another kernel of the same operator
        before = same
        if _is_of_recurrent_module(maker):
            return None
        if not flows.sized and not tensors.unread and work.kind != "gather":
            return None  # it reads something, and nothing that was made in the turn
        for wanted in flows.reads:
            tensors.note_tensor_read(wanted)
        if flows.adds_to is not None:
            tensors.note_tensor_added_into(flows.adds_to)
        for flow in flows.makes:
            tensors.note_tensor_made(flow)
        tensors.begins = tensors.begins and work.kind == "convert"
    return tensors


def _is_of_recurrent_module(origin: CallOrigin) -> bool:
    """Return whether a module of torch computes it that needs the state of the step before."""
    return origin.place is not None and origin.place.kind in CELLS


def estimate_ns_as_one_kernel(
    case: StepCase, run: Sequence[WorkIndex]
) -> tuple[NanosecondsOfModel, NanosecondsOfModel]:
    """Return nanoseconds of equal kernels as one: as expected, and if only their launches are saved.

    Where one leaves multiprocessors idle, the blocks of several run beside each other. The bytes and
    operations of all stay, and no kernel takes more than they took one by one.
    """
    took = 1e6 * case.sum_work_ms(run)
    apart = max(float(SHORT), took - EMPTY * (len(run) - 1))
    work = case.works[run[0]]
    maker = _find_work_with_sizes(case, run).maker
    needs = find_operator_needs(maker.op, maker.shapes, maker.types)
    sms = None
    if case.device:
        sms = case.device.multiprocessors
    if not sms or not work.activity.grid:
        return min(took, apart), min(took, apart)
    rounds = max(1.0, len(run) * prod(work.activity.grid) / sms)
    beside = took * min(1.0, rounds / len(run))
    together = max(float(SHORT), beside)
    if needs is not None:
        together = max(together, len(run) * _estimate_least_ns(case, work, needs))
    return min(together, apart, took), min(took, apart)


def _estimate_least_ns(case: StepCase, work: StepWork, needs: Needs) -> NanosecondsOfModel:
    """Return the nanoseconds that the bytes or the operations of a work need at least."""
    moved = (needs.reads + needs.writes) / case.bandwidth * 1e9
    rate = None
    if work.kind == "gemm":
        rate = case.find_reachable_product_rate(find_product_precision(work.activity.name))
    computed = 0.0
    if rate:
        computed = needs.operations / rate * 1e9
    return max(moved, computed)


def _compute_host_share_outside_operator(case: StepCase, work: StepWork) -> Share:
    """Return the share of the host's time up to a launch that is not within the launch's operator."""
    call = case.step.calls[work.call]
    if work.call:
        before = case.step.calls[work.call - 1].end
    else:
        before = case.step.begin
    whole = call.end - before
    first = bisect_left(case.spans, before, key=lambda span: span.start)
    begin = before  # where it begins earlier, all of that time is its own
    for span in islice(case.spans, first, None):
        if span.start > call.start:
            break
        if span.kind == "op" and span.thread == call.thread and span.end >= call.end:
            begin = span.start
            break
    if whole > 0:
        return min(1.0, (begin - before) / whole)
    return 0.0
