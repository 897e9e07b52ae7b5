"""One launch of an open report  ->  what is known of an instruction by its address.

Everything is read when it is first needed, and once: most findings need one metric, few need the
machine code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, cached_property, partial
from typing import Any

from profkit.reports.launch import clean
from profkit.reports.sass import images
from profkit.reports.sass.images import Function
from profkit.reports.sass.instruction import BYTES, decode
from profkit.reports.sass.producers import Program, producers

# A line is (file, line); an instruction without one is its own: (None, address).
Place = tuple[str | None, int]

# Headers of the toolkit, where atomicAdd and __expf are lines of their own. Who reads a finding asks
# for the line that calls them: the nearest instruction in a file that is not the toolkit's.
_TOOLKIT = re.compile(
    r"/(?:targets/[^/]+|cuda[^/]*)/include/|/include/(?:cuda|crt|cooperative_groups)"
)
_NEAR = 24  # instructions before and behind among which it is looked for
_NO_SASS = ("", "???")  # what the library says when it cannot disassemble


class LaunchedCode:
    """A launch (an ncu_report action) and its machine code; good as long as its report is open."""

    def __init__(self, action: Any, functions: Callable[[], list[Function]]) -> None:
        self._action = action
        self._functions = functions  # gives the machine code in the report
        self._metric = cache(partial(_instances, action))
        self.place: Callable[[int], Place] = cache(self._place_or_caller)
        self.producers: Callable[[int, str], list[int]] = cache(self._producers)
        self._function_code = cache(self._decoded)

    def values(self, terms: Mapping[str, float]) -> dict[int, float] | None:
        """Return address -> sum of factor x metric; None when one of them was not collected."""
        total: dict[int, float] = {}
        for name, factor in terms.items():
            values = self._metric(name)
            if values is None:
                return None
            for pc, value in values.items():
                total[pc] = total.get(pc, 0.0) + factor * value
        return total

    def _place_or_caller(self, pc: int) -> Place:
        """Return file and line of an instruction; a toolkit header's is that of its caller."""
        place = self._place(pc)
        if place[0] is None or not _TOOLKIT.search(place[0]):
            return place
        start = self._start(pc)
        function = self._spans[start] if start is not None else None
        table = function.cubin.lines.get(function.name) if function else None
        for file, line in table.stack(pc - (start or 0)) if table else ():
            if not _TOOLKIT.search(file):
                return _cleaned(file), line
        return self._neighbour(pc) or place

    def _neighbour(self, pc: int) -> Place | None:
        """Return the line of an instruction near by; its operands are made before it."""
        for step in (-BYTES, BYTES):
            for near in range(pc + step, pc + step * (_NEAR + 1), step):
                file, line = self._place(near)
                if file is not None and not _TOOLKIT.search(file):
                    return file, line
        return None

    def _place(self, pc: int) -> Place:
        info = self._action.source_info(pc)
        if info is None or info.line() <= 0 or not info.file_name():
            return None, pc
        return _cleaned(info.file_name()), info.line()

    @cached_property
    def sources(self) -> dict[str, list[str]]:
        """The source files that were imported into the report: name -> lines."""
        files = self._action.source_files().items()
        return {clean(name): clean(text).splitlines() for name, text in files if text}

    def source(self, file: str | None, line: int | None) -> str | None:
        """Return the text of a line, None where the report has no source for it."""
        texts = self.sources.get(file or "", [])
        return texts[line - 1] if line and line <= len(texts) else None

    def opcode(self, pc: int) -> str:
        """Return the opcode at an address; "" when unknown."""
        program = self._program(pc)
        at = program.index.get(pc) if program else None
        return program.instructions[at].opcode if program and at is not None else ""

    def _producers(self, pc: int, state: str) -> list[int]:
        """Return the addresses of what an instruction in a warp state waits for; see producers."""
        program = self._program(pc)
        return [x.pc for x in producers(program, pc, state)] if program else []

    def _program(self, pc: int) -> Program | None:
        start = self._start(pc)
        return (None if start is None else self._function_code(start)) or self._texts

    def _decoded(self, start: int) -> Program | None:
        code = decode(self._spans[start].code, start, self._capability)
        return None if code is None else Program(code)

    def _start(self, pc: int) -> int | None:
        spans = self._spans.items()
        return next((start for start, f in spans if start <= pc < start + len(f.code)), None)

    @cached_property
    def _spans(self) -> dict[int, Function]:
        """Address -> the kernel, and each other function of the report."""
        known = self._functions()
        spans = {f.start: f for f in known if f.start is not None}
        metric = self._action.metric_by_name("launch__function_pcs")
        if metric is not None:
            starts = {metric.as_uint64(i) for i in range(metric.num_instances())}
            kernel = images.of(known, self._action.name(self._action.NameBase_MANGLED), starts)
            if kernel is not None and kernel.start is not None:
                spans[kernel.start] = kernel  # another process may have had another there
        return spans

    @cached_property
    def _texts(self) -> Program | None:
        """The code as the library disassembles it: slow, and only where the bytes say too little."""
        from profkit.reports.sass.text import parse_sass

        counted = self._metric("inst_executed")
        if not counted:
            return None
        addresses = range(min(counted), max(counted) + BYTES, BYTES)
        lines = {pc: self._action.sass_by_pc(pc) or "" for pc in addresses}
        if all(line.strip() in _NO_SASS for line in lines.values()):
            return None
        code = [i for pc, line in lines.items() if (i := parse_sass(clean(line), pc)) is not None]
        return Program(code) if code else None

    @cached_property
    def _capability(self) -> int:
        cc = "device__attribute_compute_capability_"
        major, minor = (self._action.metric_by_name(cc + part) for part in ("major", "minor"))
        return int(major.as_double() * 10 + minor.as_double()) if major and minor else 0


_cleaned = cache(clean)


def _instances(action: Any, name: str) -> dict[int, float] | None:
    """Return address -> value, where it is not zero; None when it was not collected."""
    metric = action.metric_by_name(name)
    if metric is None or not metric.has_correlation_ids():
        return None
    read = metric.as_double
    values = [(i, value) for i in range(metric.num_instances()) if (value := read(i))]
    if not values:
        return {}
    address = metric.correlation_ids().as_uint64
    total: dict[int, float] = {}
    for i, value in values:
        pc = address(i)
        total[pc] = total.get(pc, 0.0) + value
    return total
