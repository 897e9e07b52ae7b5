"""A module  ->  the same that writes down when each of its blocks ran, and on which SM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from profkit.lab.ablation.ptx import PtxEdits, PtxModule

if TYPE_CHECKING:
    from profkit.units import BeginAndEndNs, Nanoseconds, PtxText


PLACE = "profkit_times"
MOST_BLOCKS = 1 << 21
FIELDS = 3  # begin and end in ns, SM
_BEGIN = """
mov.u32 %profkit_t, %ctaid.z;
mov.u32 %profkit_u, %nctaid.y;
mov.u32 %profkit_v, %ctaid.y;
mad.lo.u32 %profkit_t, %profkit_t, %profkit_u, %profkit_v;
mov.u32 %profkit_u, %nctaid.x;
mov.u32 %profkit_v, %ctaid.x;
mad.lo.u32 %profkit_t, %profkit_t, %profkit_u, %profkit_v;
ld.const.u64 %profkit_a, [profkit_times];
mad.wide.u32 %profkit_a, %profkit_t, 24, %profkit_a;
mov.u32 %profkit_u, %tid.x;
mov.u32 %profkit_v, %tid.y;
or.b32 %profkit_u, %profkit_u, %profkit_v;
mov.u32 %profkit_v, %tid.z;
or.b32 %profkit_u, %profkit_u, %profkit_v;
setp.eq.u32 %profkit_p, %profkit_u, 0;
mov.u64 %profkit_b, %globaltimer;
@%profkit_p st.global.u64 [%profkit_a], %profkit_b;
mov.u32 %profkit_u, %smid;
cvt.u64.u32 %profkit_b, %profkit_u;
@%profkit_p st.global.u64 [%profkit_a+16], %profkit_b;
"""
_END = """
mov.u64 %profkit_b, %globaltimer;
{guard}red.global.max.u64 [%profkit_a+8], %profkit_b;
"""


def write_module_recording_times(module: PtxModule) -> PtxText:
    changes = PtxEdits(module)
    changes.outside[f".visible .const .align 8 .b64 {PLACE};"] = None
    changes.add_registers("b32", "%profkit_t", "%profkit_u", "%profkit_v")
    changes.add_registers("b64", "%profkit_a", "%profkit_b")
    changes.add_registers("pred", "%profkit_p")
    for kernel in module.kernels.values():
        if not kernel.is_entry:
            continue
        changes.insert_before(kernel.statements[0], _BEGIN.strip())
        for statement in kernel.statements:
            if statement.words[0] in ("ret", "exit"):
                text = _END.format(guard=statement.condition)
                changes.insert_before(statement, text.strip())
    return changes.write_edited_module()


@dataclass(frozen=True)
class BlockTimeline:
    idle: float  # share of the SMs' time in which they had no block
    longest: float  # the longest block's time over the median's


def parse_block_timeline(recorded_words: Sequence[int], sm_count: int) -> BlockTimeline | None:
    """Return what the blocks wrote down; None where their times do not make sense."""
    by_sm: dict[int, list[tuple[int, int]]] = {}
    lengths = []
    for at in range(0, len(recorded_words), FIELDS):
        begin, end, place = recorded_words[at : at + FIELDS]
        if not begin or end < begin:
            return None
        by_sm.setdefault(place, []).append((begin, end))
        lengths.append(end - begin)
    if not any(lengths):
        return None
    first = min(recorded_words[0::FIELDS])
    last = max(recorded_words[1::FIELDS])
    busy = sum(_measure_union_of_spans_ns(spans) for spans in by_sm.values())
    whole = (last - first) * max(sm_count, len(by_sm))
    return BlockTimeline(1 - busy / whole, max(lengths) / max(1, median(lengths)))


def _measure_union_of_spans_ns(spans: list[BeginAndEndNs]) -> Nanoseconds:
    """Return how long at least one of them lasted."""
    total = 0
    until = 0
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, until))
        until = max(until, end)
    return total
