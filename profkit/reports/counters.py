"""What of a launch is counted per instruction, by the name that a rule asks for.

A counter has alternatives, newest names first: the first whose metrics the report has is taken, so
that a report of 2020 has lines too. Nothing collected is no counter, and never zero.
"""

from __future__ import annotations

from dataclasses import dataclass

from profkit.reports.metrics.warps import SAMPLES, STATES
from profkit.reports.sass import instruction as opcodes

# Raw metric -> factor: the value of an instruction is the sum of factor x value.
Terms = dict[str, float]

_WARP = 32.0
_EXECUTED = "inst_executed"
# A warp in these states waits for memory of any kind, or for room to ask for it.
MEMORY = ("long_scoreboard", "short_scoreboard", "lg_throttle", "mio_throttle", "tex_throttle",
          "drain", "membar")  # fmt: skip
ACTIVE = ("selected", "not_selected")  # the warp was issuing, or could have
_RAW_OF = {state: raw for raw, state in SAMPLES.items()}


@dataclass(frozen=True)
class Counter:
    """Something that instructions have a share of.

    Attributes:
        meaning: What is counted, in the plural.
        alternatives: Sums of raw metrics with one instance per instruction address.
        opcodes: Only at these; at all when empty.
        states: Warp states whose samples are counted instead, each laid to what is waited for.
    """

    meaning: str
    alternatives: tuple[Terms, ...] = ()
    opcodes: frozenset[str] = frozenset()
    states: tuple[str, ...] = ()


def _excess(new: str, old: str) -> tuple[Terms, ...]:
    """Something beyond the ideal: as derived by ncu, or the difference, under both names."""
    return tuple(
        terms
        for name in (new, old)
        for terms in ({f"derived__{name}_excessive": 1.0}, {name: 1.0, f"{name}_ideal": -1.0})
    )


_SECTORS = ("memory_l2_theoretical_sectors_global", "memory_l2_sectors_global")
_WAVEFRONTS = ("memory_l1_wavefronts_shared", "memory_l1_sectors_shared")
_LOCAL = ("memory_l2_theoretical_sectors_local", "memory_l2_sectors_local")
# Family of opcodes -> which they are; each is the counter "instructions <family>".
FAMILIES = {
    "tensor": opcodes.TENSOR, "fp32": opcodes.FP32, "fp64": opcodes.FP64, "fp16": opcodes.FP16,
    "int": opcodes.INTEGER, "xu": opcodes.XU, "exponential": opcodes.EXPONENTIAL,
    "atomics": opcodes.ATOMICS, "texture": opcodes.TEXTURE, "constant": opcodes.CONSTANT,
    "local": opcodes.LOCAL, "unfused": opcodes.UNFUSED, "fma": opcodes.FP32 | opcodes.FP16,
    "branches": opcodes.BRANCHES,
}  # fmt: skip

COUNTERS: dict[str, Counter] = {
    "sectors": Counter("L2 sectors of global memory", tuple({name: 1.0} for name in _SECTORS)),
    "excess-sectors": Counter("L2 sectors beyond the ideal", _excess(*_SECTORS)),
    "l1-requests": Counter("L1 tag requests", ({"memory_l1_tag_requests_global": 1.0},)),
    "wavefronts": Counter("shared-memory wavefronts", tuple({name: 1.0} for name in _WAVEFRONTS)),
    "excess-wavefronts": Counter("shared-memory wavefronts beyond the ideal", _excess(*_WAVEFRONTS)),
    "local-sectors": Counter("L2 sectors of local memory", tuple({name: 1.0} for name in _LOCAL)),
    "divergent-branches": Counter(
        "branches at which threads part", ({"smsp__branch_targets_threads_divergent": 1.0},)
    ),
    "lost-lanes": Counter(
        "lanes without work",
        tuple({_EXECUTED: _WARP, threads: -1.0}
              for threads in ("thread_inst_executed_true", "thread_inst_executed")),
    ),
    "instructions": Counter("executed instructions", ({_EXECUTED: 1.0},)),
    **{
        f"instructions {family}": Counter(f"executed {family} instructions", ({_EXECUTED: 1.0},), names)
        for family, names in FAMILIES.items()
    },
    **{f"stall {state}": Counter(f"samples in {state}", states=(state,)) for state in STATES},
    "stalls shared": Counter(
        "samples of warps that wait for shared memory", states=("short_scoreboard", "mio_throttle")
    ),
    "stalls memory": Counter("samples of warps that wait for memory", states=MEMORY),
    "stalls": Counter("samples of waiting warps", states=tuple(s for s in STATES if s not in ACTIVE)),
}  # fmt: skip


def samples_metric(state: str) -> str:
    """The raw metric that has a warp state's samples per instruction."""
    return _RAW_OF[state]
