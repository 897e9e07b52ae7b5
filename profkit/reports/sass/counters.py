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
_WAITS = "long_scoreboard short_scoreboard lg_throttle mio_throttle tex_throttle drain membar"
MEMORY = tuple(_WAITS.split())
ACTIVE = ("selected", "not_selected")  # the warp was issuing, or could have
_RAW_OF = {state: raw for raw, state in SAMPLES.items()}


@dataclass(frozen=True)
class Counter:
    meaning: str  # what is counted, in the plural
    alternatives: tuple[Terms, ...] = ()  # of raw metrics with one instance per instruction address
    opcodes: frozenset[str] = frozenset()  # only at these; at all when empty
    # Warp states whose samples are counted instead, each laid to what is waited for.
    states: tuple[str, ...] = ()


def _any(*names: str) -> tuple[Terms, ...]:
    return tuple({name: 1.0} for name in names)


def _excess(new: str, old: str) -> tuple[Terms, ...]:
    """Return something beyond the ideal: as derived by ncu, or the difference, under both names."""
    derived = [{f"derived__{name}_excessive": 1.0} for name in (new, old)]
    differences: list[Terms] = [{name: 1.0, f"{name}_ideal": -1.0} for name in (new, old)]
    return derived[0], differences[0], derived[1], differences[1]


_SECTORS = ("memory_l2_theoretical_sectors_global", "memory_l2_sectors_global")
_WAVEFRONTS = ("memory_l1_wavefronts_shared", "memory_l1_sectors_shared")
_LOCAL = ("memory_l2_theoretical_sectors_local", "memory_l2_sectors_local")
# Family of opcodes -> which they are; each is the counter "instructions <family>".
FAMILIES = {
    "tensor": opcodes.TENSOR,
    "fp32": opcodes.FP32,
    "fp64": opcodes.FP64,
    "fp16": opcodes.FP16,
    "int": opcodes.INTEGER,
    "xu": opcodes.XU,
    "exponential": opcodes.EXPONENTIAL,
    "atomics": opcodes.ATOMICS,
    "texture": opcodes.TEXTURE,
    "constant": opcodes.CONSTANT,
    "local": opcodes.LOCAL,
    "unfused": opcodes.UNFUSED,
    "fma": opcodes.FP32 | opcodes.FP16,
    "branches": opcodes.BRANCHES,
}
_LANES = tuple({_EXECUTED: _WARP, f"thread_{_EXECUTED}{kind}": -1.0} for kind in ("_true", ""))
_WAITING = tuple(s for s in STATES if s not in ACTIVE)

COUNTERS: dict[str, Counter] = {
    "sectors": Counter("L2 sectors of global memory", _any(*_SECTORS)),
    "excess-sectors": Counter("L2 sectors beyond the ideal", _excess(*_SECTORS)),
    "l1-requests": Counter("L1 tag requests", _any("memory_l1_tag_requests_global")),
    "wavefronts": Counter("shared-memory wavefronts", _any(*_WAVEFRONTS)),
    "excess-wavefronts": Counter(
        "shared-memory wavefronts beyond the ideal", _excess(*_WAVEFRONTS)
    ),
    "local-sectors": Counter("L2 sectors of local memory", _any(*_LOCAL)),
    "divergent-branches": Counter(
        "branches at which threads part", _any("smsp__branch_targets_threads_divergent")
    ),
    "lost-lanes": Counter("lanes without work", _LANES),
    "instructions": Counter("executed instructions", _any(_EXECUTED)),
    **{
        f"instructions {family}": Counter(
            f"executed {family} instructions", _any(_EXECUTED), opcodes=names
        )
        for family, names in FAMILIES.items()
    },
    **{f"stall {state}": Counter(f"samples in {state}", states=(state,)) for state in STATES},
    "stalls shared": Counter(
        "samples of warps that wait for shared memory", states=("short_scoreboard", "mio_throttle")
    ),
    "stalls memory": Counter("samples of warps that wait for memory", states=MEMORY),
    "stalls": Counter("samples of waiting warps", states=_WAITING),
}


def samples_metric(state: str) -> str:
    return _RAW_OF[state]
