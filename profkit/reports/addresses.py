"""One launch of an open report  ->  what is known of an instruction by its address, and of its waits.

Everything is read when it is first needed, and once: most findings need one metric, few need the
machine code.

Whose results warps wait for at an instruction is what the hardware does: the instruction waits for
scoreboards, and those who hold them are found by walking back until another instruction waited for the
same. The library's own text is asked only for an opcode that is not in our table.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import product
from tokenize import COMMENT, DEDENT, ENDMARKER, INDENT, NEWLINE, NL, TokenError, generate_tokens
from typing import TYPE_CHECKING, Any, Literal

from profkit.errors import is_memory_limited
from profkit.reports.cubin import Function, LineTable, find_launched_function
from profkit.reports.frame import escape_non_utf8
from profkit.reports.instruction import (
    BYTES,
    ENDS,
    GROUPED,
    INDIRECT,
    L1TEX,
    LOADED,
    MIO,
    STORES,
    TENSOR,
    Instruction,
    decode_function,
)

if TYPE_CHECKING:
    from profkit.reports.lanes import RegisterDefinitions, SassStatement
    from profkit.units import (
        Dim3,
        FilePath,
        InstructionAddress,
        InstructionIndex,
        LinesFromTo,
        MachineCode,
        NcuAction,
        NcuMetricName,
        RegisterNumber,
        ScoreboardNumber,
        StallState,
        TenTimesCapabilityOrZero,
        TextOrEmpty,
    )


class DecodedFunction:
    """The instructions of a kernel in the order of their addresses."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.instructions = instructions
        self.index = {x.pc: n for n, x in enumerate(instructions)}  # address -> position
        # Position -> positions that control may come from.
        self.before = _find_predecessors(instructions, self.index)

    def select_opcodes(self, positions: Iterable[int], opcodes: Set[str]) -> set[int]:
        """Return those positions whose instruction has one of these opcodes."""
        selected = set()
        for n in positions:
            if self.instructions[n].opcode in opcodes:
                selected.add(n)
        return selected


def _find_predecessors(
    instructions: Sequence[Instruction], index: dict[InstructionAddress, InstructionIndex]
) -> dict[InstructionIndex, list[InstructionIndex]]:
    """Return position -> those that control comes from: by falling through, or by a jump.

    An indirect jump may lead to where nothing else leads.

    A call falls through: what the callee did is not looked at. A callee's first instruction comes
    from all its calls.
    """
    before: dict[int, list[int]] = defaultdict(list)
    indirect = [n for n, x in enumerate(instructions) if x.opcode in INDIRECT]
    for n, instruction in enumerate(instructions):
        ends = instruction.opcode in ENDS and instruction.guard is None
        if n + 1 < len(instructions) and not ends:
            before[n + 1].append(n)
        if instruction.target in index and instruction.target is not None:
            before[index[instruction.target]].append(n)
    if indirect:
        for n in range(1, len(instructions)):
            if not before[n]:
                before[n] = list(indirect)
    return before


BOUND = 20_000  # instructions that one walk looks at; the longest kernel seen has 18,000
_UNITS = {"long_scoreboard": L1TEX, "short_scoreboard": MIO}
_VARIABLE = L1TEX | MIO  # opcodes whose latency is not fixed
# Waits for a unit or a queue to take the instruction: no result is missing.
_OF_NO_RESULT = frozenset(
    {
        "branch_resolve",
        "dispatch",
        "imc_miss",
        "lg_throttle",
        "math_pipe_throttle",
        "mio_throttle",
        "no_instruction",
        "not_selected",
        "selected",
        "tex_throttle",
    }
)
_SCOREBOARDS = 6  # that a warp has
_GROUP = "LDGDEPBAR"
_NOT_WRITTEN = "???"  # the library's text of an instruction that it could not write
# The warp was sampled behind the instruction that holds it, the next that it will issue.
_BEHIND = {
    "barrier": frozenset({"BAR", "UCGABAR_WAIT", "WARPSYNC", "WARPGROUP", "BSYNC"}),
    "membar": frozenset({"MEMBAR"}),
    "sleeping": frozenset({"NANOSLEEP"}),
    "gmma": frozenset({"WARPGROUP"}),
}
_WARPGROUP = "WARPGROUP"  # .ARRIVE before wgmma, .DEPBAR until its results are there


def find_awaited_instructions(
    program: DecodedFunction, pc: InstructionAddress, stall_state: StallState = ""
) -> list[Instruction]:
    """Return the instructions that the one at an address waits for, in the order of their addresses.

    Of several, those answered by the warp state's unit (L1TEX for long_scoreboard, MIO for
    short_scoreboard). At exits it is the stores before them; at barriers, fences and sleeps these
    themselves; for a fixed latency the instruction before, unless its latency is not fixed. A wait for a
    unit or a queue is for no instruction.
    """
    at = program.index.get(pc)
    if at is None:
        return []
    if stall_state == "drain":
        sources = _find_stores_before_exit(program, at)
    elif stall_state in _BEHIND:
        sources = _find_nearest_opcodes_before(program, at, _BEHIND[stall_state])
    elif stall_state == "wait":
        # A load or a special function has no fixed latency: its result is waited for by another name.
        before = set(program.before[at])
        sources = before - program.select_opcodes(before, _VARIABLE)
    elif stall_state in _OF_NO_RESULT:
        sources = set()
    else:
        sources = _replace_closers_by_async_copies(program, _find_awaited_instructions(program, at))
    if stall_state in _UNITS:
        sources = program.select_opcodes(sources, _UNITS[stall_state]) or sources
    return [program.instructions[n] for n in sorted(sources)]


def is_gather(program: DecodedFunction, pc: InstructionAddress) -> bool:
    """Return whether an address is made of a value loaded for just this access, as x[column[i]] is.

    An index that steps through a loop from a loaded start (a row of a sparse matrix) is none: other
    threads could take its neighbours.
    """
    at = program.index.get(pc)
    if at is None or program.instructions[at].opcode not in LOADED:
        return False
    made: set[str] = set()
    seen: set[tuple[int, int]] = set()
    open_ = [(at, register) for register in program.instructions[at].reads]
    while open_ and len(seen) < BOUND:
        behind, register = open_.pop()
        if (behind, register) in seen:
            continue
        seen.add((behind, register))
        for n in _find_writers(program, behind, register):
            instruction = program.instructions[n]
            if instruction.opcode in LOADED:
                made.add("loaded")
            elif n in _find_writers(program, n, register):
                made.add("stepped")
            else:
                open_ += [(n, source) for source in instruction.reads]
    return made == {"loaded"}


def _find_writers(
    program: DecodedFunction, position: InstructionIndex, register: RegisterNumber
) -> set[InstructionIndex]:
    """Return the instructions that a register's value at a place may be of, the nearest on each path."""
    code = program.instructions
    walk = _iterate_positions_backwards(
        program, position, lambda n: register in code[n].writes and code[n].guard is None
    )
    return {n for n in walk if register in code[n].writes}


def _iterate_positions_backwards(
    program: DecodedFunction, position: InstructionIndex, stop: Callable[[InstructionIndex], bool]
) -> Iterator[InstructionIndex]:
    """Yield positions before one, nearest first; not beyond one at which stop holds."""
    seen: set[int] = set()
    front = list(program.before[position])
    while front and len(seen) < BOUND:
        behind: list[int] = []
        for n in front:
            if n not in seen:
                seen.add(n)
                yield n
                if not stop(n):
                    behind += program.before[n]
        front = behind


def _find_awaited_instructions(
    program: DecodedFunction, position: InstructionIndex
) -> set[InstructionIndex]:
    """Return the instructions that set the scoreboards waited for here, or by a DEPBAR just before."""
    sources = _find_setters_of_awaited_scoreboards(program, position)
    if not sources:
        for n in program.before[position]:
            if program.instructions[n].opcode == "DEPBAR":
                sources |= _find_setters_of_awaited_scoreboards(program, n)
    return sources


def _find_nearest_opcodes_before(
    program: DecodedFunction, position: InstructionIndex, opcodes: frozenset[str]
) -> set[InstructionIndex]:
    """Return the nearest of some opcodes on each path, or the instruction itself when it is of wgmma's.

    A wait for the results of wgmma is a wait for the products before it.
    """
    code = program.instructions

    def find_nearest_named(start: int, names: Set[str]) -> set[InstructionIndex]:
        walk = _iterate_positions_backwards(program, start, lambda n: code[n].opcode in names)
        return program.select_opcodes(walk, names)

    if code[position].opcode == _WARPGROUP:
        return find_nearest_named(position, TENSOR) or {position}
    holders = find_nearest_named(position, opcodes)
    groups = program.select_opcodes(holders, {_WARPGROUP})
    products: set[int] = set()
    for n in groups:
        products |= find_nearest_named(n, TENSOR)
    if products:
        return holders - groups | products
    return holders


def _find_setters_of_awaited_scoreboards(
    program: DecodedFunction, position: InstructionIndex
) -> set[InstructionIndex]:
    """Return the instructions that set the scoreboards which this one waits for."""
    instruction = program.instructions[position]
    mask = instruction.control.wait
    open_ = 0
    if instruction.scoreboard:
        mask = 1 << instruction.scoreboard[0]
        open_ = instruction.scoreboard[1]
    holders: set[int] = set()
    for scoreboard in range(_SCOREBOARDS):
        if mask >> scoreboard & 1:
            holders |= _find_setters_of_scoreboard(program, position, scoreboard, open_)
    return holders


def _find_setters_of_scoreboard(
    program: DecodedFunction,
    position: InstructionIndex,
    scoreboard: ScoreboardNumber,
    newest_left_out: int,
) -> set[InstructionIndex]:
    """Return the instructions that may hold a scoreboard, without the newest `newest_left_out`.

    An earlier wait found the scoreboard free: nothing before that wait can hold it.
    """
    code = program.instructions

    walk = _iterate_positions_backwards(
        program, position, lambda n: bool(code[n].control.wait >> scoreboard & 1)
    )
    holders = [n for n in walk if code[n].control.sets_scoreboard(scoreboard)]
    return set(holders[newest_left_out:] or holders)


def _find_stores_before_exit(
    program: DecodedFunction, position: InstructionIndex
) -> set[InstructionIndex]:
    """Return the stores before an exit, back to a fence; a warp at its exit is sampled behind it."""
    code = program.instructions
    if position and code[position - 1].opcode == "EXIT":
        position -= 1
    walk = _iterate_positions_backwards(
        program, position, lambda n: code[n].opcode in ("MEMBAR", "ERRBAR")
    )
    return program.select_opcodes(walk, STORES)


def _replace_closers_by_async_copies(
    program: DecodedFunction, sources: set[InstructionIndex]
) -> set[InstructionIndex]:
    """Return the copies of a group (cp.async) in the place of the instruction that closes it."""
    code = program.instructions
    closing = program.select_opcodes(sources, {_GROUP})
    copies: set[int] = set()
    for n in closing:
        walk = _iterate_positions_backwards(program, n, lambda m: code[m].opcode == _GROUP)
        copies |= program.select_opcodes(walk, GROUPED)
    if copies:
        return sources - closing | copies
    return sources


@dataclass(frozen=True)
class CallSite:
    """Where an inlined line is called, and the part of the line's cause that comes from there."""

    file: str
    line: int
    share: float = 1.0  # of the line's, 0-1


@dataclass(frozen=True)
class Layout:
    """A change of where an array of shared memory has its elements, and what comes of it.

    `padding`: so many bytes more after each `row` bytes. `swizzle`: chunks of so many bytes change
    places within 128 bytes, by the exclusive or of their number and that of their line of 128 bytes (of
    their row, where it is longer).
    """

    kind: Literal["padding", "swizzle"]
    row: int  # bytes
    bytes: int
    size: int  # bytes of a lane at the access that conflicts most
    file: str | None  # of that access; None where the report knows no lines
    line: int | None
    before: float  # wavefronts of a request there
    after: float
    warps: int  # that it was worked out for, all lanes of each
    accesses: int  # instructions on that array, or those of that layout, that it was worked out for
    share: float  # of the launch's wavefronts beyond the ideal that it takes away, 0-1
    called_at: CallSite | None = (
        None  # where that line is inlined, if there are several such places
    )


@dataclass(frozen=True)
class Layouts:
    """Layouts without bank conflicts of a launch's arrays in shared memory."""

    decoded: float  # share of the wavefronts beyond the ideal at accesses whose addresses are known
    found: tuple[Layout, ...]


# A line is (file, line); an instruction without one is its own: (None, address).
Place = tuple[str | None, int]

# Headers of the toolkit, where atomicAdd and __expf are lines of their own, and Triton's library,
# where tl.sum and tl.cumsum are. Who reads a finding asks for the line that calls them: the nearest
# instruction in a file that is not a library's.
_TOOLKIT = re.compile(
    r"/(?:targets/[^/]+|cuda[^/]*)/include/|/include/(?:cuda|crt|cooperative_groups)"
    r"|/triton/(?:language|experimental)/"
)
_FUNCTION = re.compile(r"(\s*)def\s+(\w+)\s*\(")
_CALL = re.compile(r"(\w+)\s*\(")  # the last name of what is called: sum of tl.sum(
_BETWEEN_STATEMENTS = (NL, COMMENT, INDENT, DEDENT, ENDMARKER)
_NEAR = 24  # instructions before and behind among which it is looked for
_FIRST = 8  # instructions by which a function is known
_OPCODE = re.compile(r"\s*(?:@!?U?P[\dT]\s+)?([A-Z][A-Z0-9_]*)")  # at the start of an instruction


class LaunchedCode:
    """A launch (an ncu_report action) and its machine code; good as long as its report is open."""

    def __init__(
        self,
        action: Any,
        functions: Callable[[], list[Function]],
        has_bounded_lines: Callable[[], bool] = lambda: True,
        shared: dict[Any, Any] | None = None,
    ) -> None:
        self._action = action
        # What was worked out of machine code for another launch of the open report.
        self.shared: dict[Any, Any] = {} if shared is None else shared
        self._functions = functions  # gives the machine code in the report
        self._has_bounded_lines = has_bounded_lines  # whether the library may be asked for lines
        self._metric = cache(partial(_sum_instances_by_address, action))
        self.place: Callable[[int], Place] = cache(self._find_place_in_user_code)
        self.producers: Callable[[int, str], list[int]] = cache(self._list_awaited_addresses)
        self._function_code = cache(self._decode_function)
        self._word = cache(self._disassemble_opcode)
        self._statements = cache(lambda file: find_statement_ends_by_line(self.sources[file]))

    def close(self) -> None:
        """Forget the launch, so that the library can close its report.

        What is kept of a method holds the launch in a circle: a process that ended before a look for
        garbage left the library's unpacked copy of each .ncu-repz in the folder for temporary files.
        """
        vars(self).clear()

    def sum_metrics_by_address(
        self, factor_by_metric: Mapping[NcuMetricName, float]
    ) -> dict[InstructionAddress, float] | None:
        """Return address -> sum of factor x metric; None when one of them was not collected."""
        total: dict[int, float] = {}
        for name, factor in factor_by_metric.items():
            values = self._metric(name)
            if values is None:
                return None
            for pc, value in values.items():
                total[pc] = total.get(pc, 0.0) + factor * value
        return total

    def _find_place_in_user_code(self, pc: InstructionAddress) -> Place:
        """Return file and line of an instruction; a toolkit header's is that of its caller."""
        place = self._get_place_of_address(pc)
        if place[0] is None or not _TOOLKIT.search(place[0]):
            return place
        found = self._find_function_start_and_line_table(pc)
        if found is not None:
            start, table = found
            for file, line in table.find_inlined_lines(pc - start):
                if not _TOOLKIT.search(file):
                    return _cleaned(file), line
        near = self._find_nearby_place(pc)
        return (near and self._find_call_by_name(place, near)) or near or place

    def _find_function_start_and_line_table(
        self, pc: InstructionAddress
    ) -> tuple[InstructionAddress, LineTable] | None:
        """Return where the function of an address begins, and its line table; None without one."""
        start = self._find_function_start(pc)
        if start is None:
            return None
        function = self._functions_by_start[start]
        table = function.cubin.line_tables.get(function.name)
        return None if table is None else (start, table)

    def find_call_telling_uses_apart(self, pc: InstructionAddress) -> Place | None:
        """Return the call of an inlined line, where its line alone does not tell which use it is."""
        found = self._find_function_start_and_line_table(pc)
        if found is None or not self._has_bounded_lines():
            return None
        start, table = found
        frames = table.find_inlined_lines(pc - start)
        while frames and _TOOLKIT.search(frames[0][0]):
            frames = frames[1:]
        call = table.find_distinguishing_call(frames)
        if call is None:
            return None
        return _cleaned(call[0]), call[1]

    def find_call_with_most_of_line(
        self, value_by_address: Mapping[InstructionAddress, float]
    ) -> CallSite | None:
        """Return the call that has most of a line, by the values of the line's instructions."""
        by_call: dict[Place | None, float] = {}
        for pc, value in value_by_address.items():
            call = self.find_call_telling_uses_apart(pc)
            by_call[call] = by_call.get(call, 0.0) + value
        most = max(by_call, key=lambda call: by_call[call], default=None)
        if most is None or most[0] is None:
            return None
        return CallSite(most[0], most[1], by_call[most] / sum(by_call.values()))

    def _find_call_by_name(self, library_place: Place, near: Place) -> Place | None:
        """Return the statement that calls what a line of a Python library is in, the nearest to a line.

        Triton's cubins have no word of who called what is inlined. Where the report has both sources,
        the names tell: tl.sum is `def sum`, and what it adds up with `def _sum_combine`.
        """
        library, (file, line) = self.sources.get(library_place[0] or "", []), near
        own = self.sources.get(file or "", [])
        if file is None or not file.endswith(".py") or not library or not own or line is None:
            return None
        name = find_enclosing_function(library, library_place[1])[0]
        first, last = find_enclosing_function(own, line)[1]
        names = {name, *name.split("_")} - {""}
        calls = set()
        for at, (start, end) in self._statements(file).items():
            is_in_function = first < at <= last
            if is_in_function and names & set(_CALL.findall(" ".join(own[start - 1 : end]))):
                calls.add(start)
        if calls:
            return (file, min(sorted(calls), key=lambda at: abs(at - line)))
        return None

    def _find_nearby_place(self, pc: InstructionAddress) -> Place | None:
        """Return the line of an instruction near by; its operands are made before it."""
        for step in (-BYTES, BYTES):
            for near in range(pc + step, pc + step * (_NEAR + 1), step):
                file, line = self._get_place_of_address(near)
                if file is not None and not _TOOLKIT.search(file):
                    return file, line
        return None

    def _get_place_of_address(self, pc: InstructionAddress) -> Place:
        if not self._has_bounded_lines():
            return None, pc
        info = self._action.source_info(pc)
        if info is None or info.line() <= 0 or not info.file_name():
            return None, pc
        return _cleaned(info.file_name()), info.line()

    @cached_property
    def sources(self) -> dict[FilePath, list[str]]:
        """Return the source files that were imported into the report: name -> lines."""
        if not self._has_bounded_lines():
            return {}
        files = self._action.source_files().items()
        sources = {}
        for name, text in files:
            if text:
                sources[escape_non_utf8(name)] = escape_non_utf8(text).splitlines()
        return sources

    def get_line_or_python_statement(
        self, file: str | None, line: int | None, *, are_python_statements_joined: bool = True
    ) -> str | None:
        """Return the text of a line, None where the report has no source for it.

        Of Python it is the whole statement: `x_ptr + offsets,` alone says nothing. A listing has the
        lines before and behind anyway, and takes it without.
        """
        texts = self.sources.get(file or "", [])
        if not file or not line or line > len(texts):
            return None
        if not are_python_statements_joined or not file.endswith(".py"):
            return texts[line - 1]
        first, last = self._statements(file).get(line, (line, line))
        if first == last:
            return texts[line - 1]
        return " ".join(text.strip() for text in texts[first - 1 : last])[:STATEMENT]

    def get_opcode(self, pc: InstructionAddress) -> TextOrEmpty:
        """Return the opcode at an address; "" when unknown."""
        program = self.get_decoded_function_at(pc)
        at = None
        if program:
            at = program.index.get(pc)
        if program is None or at is None:
            return self._word(pc)
        return program.instructions[at].opcode

    def is_gather(self, pc: InstructionAddress) -> bool:
        """Return whether a load's index was loaded just for it; False if its code is not known."""
        program = self.get_decoded_function_at(pc)
        return program is not None and is_gather(program, pc)

    def _list_awaited_addresses(
        self, pc: InstructionAddress, stall_state: StallState
    ) -> list[InstructionAddress]:
        """Return the addresses of what an instruction in a warp state waits for; see producers."""
        program = self.get_decoded_function_at(pc)
        if program:
            return [x.pc for x in find_awaited_instructions(program, pc, stall_state)]
        return []

    def get_decoded_function_at(self, pc: InstructionAddress) -> DecodedFunction | None:
        """Return the function that an address is in; None where its machine code is not known."""
        start = self._find_function_start(pc)
        if start is None:
            return None
        return self._function_code(start)

    def _decode_function(self, start: InstructionAddress) -> DecodedFunction | None:
        code = decode_function(
            self._functions_by_start[start].code, start, self.capability, self._word
        )
        if code is None:
            return None
        return DecodedFunction(code)

    def get_code_of_function(self, pc: InstructionAddress) -> MachineCode:
        """Return the machine code of the function that an address is in; nothing where not known."""
        start = self._find_function_start(pc)
        if start is not None:
            return self._functions_by_start[start].code
        return b""

    def disassemble_instruction(self, pc: InstructionAddress) -> TextOrEmpty:
        """Return an instruction as the library gives it, which is slow; "" where it gives none.

        Raises:
            MemoryError: It gave none where memory is limited: it tells only its own stderr why.
        """
        if not self._has_bounded_lines():
            return ""
        text = escape_non_utf8(self._action.sass_by_pc(pc) or "")
        if text.strip() not in ("", _NOT_WRITTEN):
            return text
        if is_memory_limited():
            raise MemoryError
        return ""

    def _disassemble_opcode(self, pc: InstructionAddress) -> TextOrEmpty:
        """Return the opcode in the library's text; "" where there is none."""
        word = _OPCODE.match(self.disassemble_instruction(pc))
        if word:
            return word[1]
        return ""

    @cached_property
    def block_size(self) -> Dim3:
        """Return the threads of a block in each dimension; 0 where that was not recorded."""
        return self._read_block_size("x"), self._read_block_size("y"), self._read_block_size("z")

    def _read_block_size(self, axis: str) -> int:
        metric = self._action.metric_by_name(f"launch__block_dim_{axis}")
        size = 0
        if metric:
            size = metric.as_uint64()
        return size

    def _find_function_start(self, pc: InstructionAddress) -> InstructionAddress | None:
        spans = self._functions_by_start.items()
        for start, f in spans:
            if start <= pc < start + len(f.code):
                return start
        return None

    @cached_property
    def _functions_by_start(self) -> dict[InstructionAddress, Function]:
        """Return address -> the kernel, and each other function of the report."""
        known = self._functions()
        spans = {f.start: f for f in known if f.start is not None}
        metric = self._action.metric_by_name("launch__function_pcs")
        if metric is not None:
            starts = {metric.as_uint64(i) for i in range(metric.num_instances())}
            for function, start in product(known, starts if len(starts) > 1 else ()):
                if function.start is None and self._is_function_at(function, start):
                    spans[start] = replace(function, start=start)
            kernel = find_launched_function(
                known, self._action.name(self._action.NameBase_MANGLED), starts
            )
            if kernel is not None and kernel.start is not None:
                spans[kernel.start] = kernel  # another process may have had another there
        return spans

    def _is_function_at(self, function: Function, start: InstructionAddress) -> bool:
        """Return whether a function is here, by the text: before 2023.2 a report has no address."""
        beginning = function.code[: _FIRST * BYTES]
        decoded = decode_function(beginning, start, self.capability, self._word)
        if not decoded:
            return False
        return all(self._word(instruction.pc) == instruction.opcode for instruction in decoded)

    @cached_property
    def capability(self) -> TenTimesCapabilityOrZero:
        """Return ten times the compute capability; 0 where it is not known."""
        cc = "device__attribute_compute_capability_"
        major, minor = (self._action.metric_by_name(cc + part) for part in ("major", "minor"))
        if major and minor:
            return int(major.as_double() * 10 + minor.as_double())
        return 0


def group_addresses_by_function(
    kernel: LaunchedCode, addresses: Iterable[InstructionAddress]
) -> list[tuple[DecodedFunction, list[InstructionAddress]]]:
    """Return each function of a launch with the addresses in it that count."""
    groups: dict[int, tuple[DecodedFunction, list[int]]] = {}
    for pc in sorted(addresses):
        program = kernel.get_decoded_function_at(pc)
        if program is not None and pc in program.index:
            groups.setdefault(id(program), (program, []))[1].append(pc)
    return list(groups.values())


def index_register_definitions(
    kernel: LaunchedCode, program: DecodedFunction
) -> RegisterDefinitions:
    """Return who writes which register in a function of a launch."""
    from profkit.reports.lanes import RegisterDefinitions, parse_sass_statement
    from profkit.reports.operands import bound_written_registers, decode_statement

    instructions = program.instructions
    code = kernel.get_code_of_function(instructions[0].pc)

    def read_statement(n: InstructionIndex) -> SassStatement:
        """Take an instruction apart by its bits, or by its text, which is slow."""
        bits = code[BYTES * n : BYTES * (n + 1)]
        known = decode_statement(bits, instructions[n].opcode, kernel.capability)
        return known or parse_sass_statement(kernel.disassemble_instruction(instructions[n].pc))

    bounds = [bound_written_registers(instruction.opcode) for instruction in instructions]
    return RegisterDefinitions(code, read_statement, program.before, bounds)


_cleaned = cache(escape_non_utf8)
STATEMENT = 160  # characters of a statement over several lines


def find_enclosing_function(
    source_lines: Sequence[str], line: int | None
) -> tuple[TextOrEmpty, LinesFromTo]:
    """Return the name and the lines of the Python function that a line is in; ("", (0, 0)) for none."""
    for at in range(min(line or 0, len(source_lines)), 0, -1):
        found = _FUNCTION.match(source_lines[at - 1])
        if found:
            inside = []
            for n, text in enumerate(source_lines[at:], at + 1):
                if text.strip() and _count_indent_characters(text) <= len(found[1]):
                    inside.append(n)
            return found[2], (at, inside[0] - 1 if inside else len(source_lines))
    return "", (0, 0)


def _count_indent_characters(text: str) -> int:
    return len(text) - len(text.lstrip())


def find_statement_ends_by_line(source_lines: Sequence[str]) -> dict[int, LinesFromTo]:
    """Return line -> first and last line of its statement, as far as the text is Python."""
    lines = iter(f"{text}\n" for text in source_lines)
    spans: dict[int, tuple[int, int]] = {}
    first = 0
    try:
        for token in generate_tokens(lambda: next(lines, "")):
            if token.type in _BETWEEN_STATEMENTS:
                continue
            first = first or token.start[0]
            if token.type == NEWLINE:
                span = first, token.start[0]
                spans |= dict.fromkeys(range(span[0], span[1] + 1), span)
                first = 0
    except (TokenError, SyntaxError):
        return spans  # cut, or no Python: what was read until there is right
    return spans


def _sum_instances_by_address(
    action: NcuAction, name: NcuMetricName
) -> dict[InstructionAddress, float] | None:
    """Return address -> value, where it is not zero; None when it was not collected."""
    metric = action.metric_by_name(name)
    if metric is None or not metric.has_correlation_ids():
        return None
    read = metric.as_double
    address = metric.correlation_ids().as_uint64
    total: dict[int, float] = {}
    for i in range(metric.num_instances()):
        value = read(i)
        if value:
            pc = address(i)
            total[pc] = total.get(pc, 0.0) + value
    return total
