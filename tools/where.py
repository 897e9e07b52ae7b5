"""Do the lines of a memory or latency finding lead to what the probe was built round?

    python tools/score.py lines [--verbose]

Every probe of kernels/probes says in its header what it is bound by. From that, and from its source
alone, follows which lines hold the load, store, barrier, atomic or fence that it was built round.
Its report says at which lines its warps waited and for whose result. The score is the share of these
samples that lead to one of the former; the exit status is 1 when a bar is missed.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from profkit.diagnosis.launches import LINES
from profkit.diagnosis.rules import BY_ID
from profkit.reports.addresses import LaunchedCode
from profkit.reports.hotlines import CounterLine, HotLines, LinesRequest, answer_line_requests
from profkit.reports.reader import open_report_actions, read_report_files

sys.path.insert(0, str(Path(__file__).parent))
import verdicts
from verdicts import PROBES, RECORDED

COMMON = PROBES.parent / "common"
BAR = 0.9  # of the samples
MANY = 10_000  # lines: all of them
_GROWN = 12  # lines that a header comment may have grown by

# What a limiter's probe is built round; others (a full pipe, a fixed latency) wait for no access.
MECHANISMS = {
    "dram": "global",
    "l2": "global",
    "l1": "global",
    "long_scoreboard": "load",
    "lg_throttle": "global",
    "drain": "store",
    "shared": "shared",
    "short_scoreboard": "answer",
    "mio_throttle": "shared",
    "atomics": "atomic",
    "constant": "constant",
    "texture": "fetch",
    "tex_throttle": "fetch",
    "barrier": "barrier",
    "membar": "fence",
    "sleeping": "sleep",
    "gmma": "wgmma",
}
# A cause that says more than the limiter.
CAUSES = {
    "atomics-contention": "atomic",
    "wgmma-wait": "wgmma",
    "register-spills": "local",
    "local-memory": "local",
}
_CALLS = {
    "atomic": r"\batomic\w+\(",
    "barrier": r"__syncthreads\w*\(|\bbar\.sync",
    "sleep": r"__nanosleep\(",
    "fence": r"__threadfence\w*\(",
    "fetch": r"\btex[123]D\w*(?:<\w+>)?\(",
    "wgmma": r"\bwgmma\w*(?:<[^>]*>)?\(",
}
# What another mechanism is part of.
_PARTS = {"global": ("load", "store", "atomic"), "answer": ("shared", "answer")}
_ASSEMBLY = {
    "load": r"\bld\.(?:\w+\.)*global",
    "store": r"\bst\.(?:\w+\.)*global",
    "shared": r"\b(?:ld|st|ldmatrix|stmatrix)\.(?:\w+\.)*shared",
    "atomic": r"\b(?:atom|red)\.",
    "wgmma": r"\bwgmma\.",
    "barrier": r"\bbar\.sync",
    "answer": r"\b(?:ex2|rcp|lg2|rsqrt)\.approx",
    "local": r"\b(?:ld|st)\.(?:\w+\.)*local",
}


@dataclass(frozen=True)
class Row:
    """One probe: what it was built round, and what part of its samples leads there."""

    probe: str
    limiter: str  # the true one
    mechanism: str  # what it was built round
    part: float | None  # share of the samples whose producer stands on such a line; None without
    own: float | None  # the same of what the finding shows: its three lines by its own counter
    samples: float
    elsewhere: str  # the line with most of the rest, and its share; "" when there is none


def sites(source: str, mechanism: str) -> set[int]:
    """The lines of a source that hold what a mechanism is about; comments and signatures do not."""
    code = _bare(source)
    patterns = list(_patterns(code, mechanism))
    lines = _blank(r"__(?:global|device)__[^{;]*", code).split("\n")
    found = {n for n, line in enumerate(lines, 1) if any(p.search(line) for p in patterns)}
    return found | set(_statements(lines, mechanism))


def _bare(source: str) -> str:
    """The source with its comments blank, line for line."""
    return _blank(r"//[^\n]*", _blank(r"/\*.*?\*/", source))


def _blank(pattern: str, text: str) -> str:
    """The text with blanks for every match, line for line."""
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.DOTALL)


def _patterns(source: str, mechanism: str) -> Iterator[re.Pattern[str]]:
    if mechanism in ("load", "store", "global"):
        reads, writes = _pointers(source)
        for name in reads | writes:
            # An element, what it points to, or a builtin and a function of this file that get it.
            access = (
                rf"\b{name}\s*\[|\*\s*{name}\b(?!\s*[=,)])|\((?:[^()]|\([^()]*\))*\b{name}\s*[+,)]"
            )
            target = rf"\b{name}\s*\[[^;]*\]|\*\s*(?:reinterpret_cast<[^;]*?\()?{name}\b[^;=]*"
            stored = rf"(?:{target})\s*[+*]?=[^=]"
            if mechanism != "store" or name in writes:
                yield re.compile(stored if mechanism == "store" else access)
    if mechanism in ("shared", "answer"):
        for name in re.findall(r"__shared__[^;=]*?\b(\w+)\s*(?:\[|;)", source):
            yield re.compile(rf"\b{name}\s*\[")
        yield re.compile(r"\bload_shared\w*\(|__shfl\w*\(")
    if mechanism == "constant":
        for name in re.findall(r"__constant__[^;=]*?\b(\w+)\s*\[", source):
            yield re.compile(rf"\b{name}\s*\[")
    if mechanism == "local":
        body = source[source.find("__global__") :]
        for name in set(re.findall(r"^\s+\w+ (\w+)\[\w+\]", body, re.MULTILINE)):
            yield re.compile(rf"\b{name}\s*\[")
    if mechanism in _CALLS:
        yield re.compile(_CALLS[mechanism])


def _pointers(source: str) -> tuple[set[str], set[str]]:
    """Names of the device functions' pointers to constants, and of the others."""
    reads: set[str] = set()
    writes: set[str] = set()
    for start in re.finditer(r"__global__|__device__", source):
        signature = source[start.start() : source.find("{", start.start())]
        for constant, name in re.findall(
            r"(const\s+)?[\w:]+\s*\*\s*(?:__restrict__\s+)?(\w+)\s*[,)]", signature
        ):
            (reads if constant else writes).add(name)
    # Pointers derived from them: const float4* rows = reinterpret_cast<...>(in) + ...
    for constant, name, value in re.findall(
        r"(const\s+)?(?:auto|[\w:]+)\s*\*\s*(?:__restrict__\s+)?(\w+)\s*=([^;]*);", source
    ):
        if any(re.search(rf"\b{known}\b", value) for known in reads | writes):
            (reads if constant else writes).add(name)
    return reads, writes


def _statements(lines: Sequence[str], mechanism: str) -> Iterator[int]:
    """Lines of the assembly statements that are what the mechanism is about."""
    wanted = [_ASSEMBLY[name] for name in _PARTS.get(mechanism, (mechanism,)) if name in _ASSEMBLY]
    for n, line in enumerate(lines, 1):
        if any(re.search(pattern, line) for pattern in wanted):
            start = max((k for k in range(1, n + 1) if "asm" in lines[k - 1]), default=n)
            stop = next((k for k in range(n, len(lines) + 1) if lines[k - 1].endswith(");")), n)
            yield from range(start, stop + 1)


def expected(path: Path, mechanism: str, recorded: Mapping[str, Set[int]]) -> set[tuple[str, int]]:
    """(file name, line as recorded) of what a probe was built round, in it and its headers.

    `recorded`: file name -> lines that the report's line table names.
    """
    found: set[tuple[str, int]] = set()
    for name, table in recorded.items():
        if name == path.name:
            source = path.read_text("utf-8")
            lines = sites(source, mechanism)
        else:  # what all probes share: only what does it by itself
            places = product((PROBES, COMMON), (f"probe_{name}", name))
            headers = [folder / file for folder, file in places]
            source = next((h.read_text("utf-8") for h in headers if h.exists()), "")
            lines = set(_statements(_bare(source).split("\n"), mechanism))
        moved = _moved(_bare(source).split("\n"), table, exits=name == path.name)
        found |= {(name, line - moved) for line in lines}
    return found


def _moved(lines: Sequence[str], table: Set[int], *, exits: bool) -> int:
    """How many lines a file has grown above its code since it was recorded, by its header comment.

    By so many that the most lines of the table hold code now; where a kernel exits there, that the
    last one ends a function.
    """

    def fits(moved: int) -> tuple[int, int]:
        now = [lines[n + moved - 1] if 0 < n + moved <= len(lines) else "" for n in sorted(table)]
        code = sum(bool(re.search(r"[;({]", line)) and "#" not in line for line in now)
        return code + 2 * (exits and now[-1] == "}"), -abs(moved)

    return max(range(-_GROWN, _GROWN + 1), key=fits) if table else 0


def rows() -> list[Row]:
    """Every recorded probe that is bound by memory or latency, and built round an access."""
    known = verdicts.truths()
    main = verdicts.main_launches(read_report_files(sorted(RECORDED.glob("probes-*.ncu-rep*"))))
    asked: dict[str, list[tuple[str, Mapping[str, str], int]]] = defaultdict(list)
    for name, path in known.probes(PROBES).items():
        keys = known.header(path)
        if name in main and keys["bound"] in ("memory", "latency") and mechanism_of(keys):
            asked[main[name]["report"]].append((name, keys, int(main[name]["launch"])))
    return [row for report, probes in asked.items() for row in _of_report(report, probes)]


def _of_report(report: str, probes: Sequence[tuple[str, Mapping[str, str], int]]) -> Iterator[Row]:
    wishes = [
        LinesRequest(
            report, launch, {"stalls": (stalls_of(keys),), "own": BY_ID[keys["cause"]].lines}, MANY
        )
        for _, keys, launch in probes
    ]
    answers = answer_line_requests(wishes)
    with open_report_actions(report) as action_of:
        every = _tables([LaunchedCode(action_of(launch), list) for *_, launch in probes])
        for (name, keys, _), answer in zip(probes, answers, strict=True):
            path = verdicts.truths().probes(PROBES)[name]
            tables = {file: lines for file, lines in every.items() if not file.endswith(".cu")}
            tables[path.name] = every[path.name]
            yield _row(name, keys, expected(path, mechanism_of(keys) or "", tables), answer)


def _tables(kernels: Iterable[LaunchedCode]) -> dict[str, set[int]]:
    """File name -> lines that have instructions."""
    tables: dict[str, set[int]] = defaultdict(set)
    for kernel in kernels:
        for pc in kernel.sum_metrics_by_address({"inst_executed": 1.0}) or {}:
            file, line = kernel.place(pc)
            if file is not None:
                tables[Path(file).name].add(line)
    return tables


def stalls_of(keys: Mapping[str, str]) -> str:
    """The counter of the samples that are a finding's: of its state, or of all waits for memory."""
    if keys["bound"] == "memory":
        return "stalls shared" if keys["limiter"] == "shared" else "stalls memory"
    return f"stall {keys['limiter']}"


def mechanism_of(keys: Mapping[str, str]) -> str | None:
    """What the probe with this header is built round; None when it is no access."""
    return CAUSES.get(keys["cause"], MECHANISMS.get(keys["limiter"]))


def _row(name: str, keys: Mapping[str, str], wanted: Set[tuple[str, int]], answer: HotLines) -> Row:
    lines = answer.counters["stalls"]
    rest = [line for line in lines if _place(line) not in wanted]
    worst = max(rest, key=lambda line: line.value, default=None)
    elsewhere = "" if worst is None else f"{_place(worst)[0]}:{_place(worst)[1]} {worst.share:.0%}"
    return Row(
        probe=name,
        limiter=keys["limiter"],
        mechanism=mechanism_of(keys) or "",
        part=_part(lines, wanted),
        own=_part(answer.counters["own"][:LINES], wanted),
        samples=sum(line.value for line in lines),
        elsewhere=elsewhere,
    )


def _part(lines: Sequence[CounterLine], wanted: Set[tuple[str, int]]) -> float | None:
    total = sum(line.value for line in lines)
    return sum(line.value for line in lines if _place(line) in wanted) / total if total else None


def _place(line: CounterLine) -> tuple[str, int]:
    """Where the producer stands; where the warp stands when it waits for none."""
    file, number = line.producer_file, line.producer_line
    if line.producer_pc is None:
        file, number = line.file, line.line
    return Path(file or "").name, number or 0


def main(arguments: list[str]) -> int:
    """Print the score; 1 when less than 90 % of all samples lead where they should."""
    found = rows()
    for row in sorted(found, key=lambda row: row.part or 0):
        if "--verbose" in arguments or row.part is None or row.part < BAR:
            own = "-" if row.own is None else f"{row.own:.0%}"
            part = "-" if row.part is None else f"{row.part:.1%}"
            print(
                f"{row.probe:20} {row.limiter:16} {row.mechanism:9} {part:>7} of {row.samples:6.0f} "
                f"samples, shown lines {own:>5}   {row.elsewhere}"
            )
    good = sum((row.part or 0) >= BAR for row in found)
    mean = sum(row.part or 0 for row in found) / len(found)
    shown = sum((row.own or 0) >= BAR for row in found)
    print(
        f"{good} of {len(found)} probes have {BAR:.0%} of their samples on lines whose producer they "
        f"were built round, {mean:.1%} on average; of {shown} so have the lines shown"
    )
    return 0 if mean >= BAR else 1
