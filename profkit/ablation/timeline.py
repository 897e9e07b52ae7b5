"""A module  ->  the same that writes down when each of its blocks ran, and on which SM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from profkit.ablation import ptx
from profkit.ablation.ptx import Changes, Module

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
""".split("\n")[1:-1]
_END = ["mov.u64 %profkit_b, %globaltimer;", "red.global.max.u64 [%profkit_a+8], %profkit_b;"]


def write_timeline(module: Module) -> str:
    changes = Changes(module)
    changes.outside[f".visible .const .align 8 .b64 {PLACE};"] = None
    for name in ("%profkit_t", "%profkit_u", "%profkit_v"):
        changes.registers[name] = "b32"
    for name in ("%profkit_a", "%profkit_b"):
        changes.registers[name] = "b64"
    changes.registers["%profkit_p"] = "pred"
    for kernel in module.kernels.values():
        if not kernel.is_entry:
            continue
        changes.begin(kernel, _BEGIN)
        for statement in kernel.statements:
            if statement.words[0] in ("ret", "exit"):
                guard = ptx.write_guard(statement)
                changes.put_before(statement, [_END[0], f"{guard}{_END[1]}"])
    return changes.write()


@dataclass(frozen=True)
class Timeline:
    idle: float  # share of the SMs' time in which they had no block
    longest: float  # the longest block's time over the median's
    sms: int  # how many SMs had a block


def read_timeline(words: Sequence[int], sms: int) -> Timeline | None:
    """What the blocks wrote down; None where their times do not make sense."""
    by_sm: dict[int, list[tuple[int, int]]] = {}
    lengths = []
    for at in range(0, len(words), FIELDS):
        begin, end, place = words[at : at + FIELDS]
        if not begin or end < begin:
            return None
        by_sm.setdefault(place, []).append((begin, end))
        lengths.append(end - begin)
    if not by_sm:
        return None
    first = min(begin for spans in by_sm.values() for begin, _ in spans)
    last = max(end for spans in by_sm.values() for _, end in spans)
    busy = sum(_add_spans(spans) for spans in by_sm.values())
    whole = (last - first) * max(sms, len(by_sm))
    middle = median(lengths)
    return Timeline(
        idle=1 - busy / whole if whole else 0.0,
        longest=max(lengths) / middle if middle else 1.0,
        sms=len(by_sm),
    )


def _add_spans(spans: list[tuple[int, int]]) -> int:
    """How long at least one of them lasted."""
    total, until = 0, 0
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, until))
        until = max(until, end)
    return total
