"""Which leads and goals hold by four protocols: ours, cudnn-frontend's, FlashAttention's, Triton's.

artifacts/protocols.json (`tools/protocols.py`) has the same kernels under all four, opponents beside
them in one process; the file says where each protocol comes from.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from problems import on_l4

from profkit.evidence.claims import Answer, claim, decide
from profkit.evidence.runs import Evidence, MissingEvidence
from profkit.files import read_json

FILE = Path(__file__).resolve().parents[1] / "artifacts" / "protocols.json"
ISSUE = "the goals against the strongest"
FOUR = ("ours", "cudnn-frontend", "flash-attention", "triton")


def _rows(name: str) -> dict[str, dict[str, Any]]:
    """Kernel -> its row in a comparison."""
    try:
        kept = read_json(FILE)
    except (OSError, json.JSONDecodeError) as error:
        raise MissingEvidence(f"cannot read {FILE}", "python tools/protocols.py") from error
    found = {row["kernel"]: row for row in kept["rows"] if row["name"] == name}
    if not found:
        raise MissingEvidence(f"{FILE} has no {name}", "python tools/protocols.py")
    return found


def _us(row: dict[str, Any], protocol: str) -> float:
    return float(row["times"][protocol]["seconds"]) * 1e6


def _leads(name: str, mine: str, theirs: tuple[str, ...]) -> Answer:
    """Whether ours is faster than each of theirs under each protocol."""
    rows, said, ratios = _rows(name), [], []
    for protocol in FOUR:
        best = min(theirs, key=lambda kernel, p=protocol: _us(rows[kernel], p))  # type: ignore[misc]
        ratios.append(_us(rows[best], protocol) / _us(rows[mine], protocol))
        said.append(
            f"{protocol} {_us(rows[mine], protocol):.1f} us, {best} {_us(rows[best], protocol):.1f} "
            f"({ratios[-1]:.2f}x)"
        )
    return decide(min(ratios) > 1, f"{mine} at {name}: " + "; ".join(said), least=min(ratios))


SDPA = ("sdpa-cudnn", "sdpa-flash")


@claim(who=ISSUE, needs=["latev.C"])
def c_leads(_: Evidence) -> Answer:
    """At C latev is faster than SDPA under all four."""
    return _leads("attention C", "latev", SDPA)


@claim(who=ISSUE, needs=["nomax.C-causal"])
def c_causal_leads(_: Evidence) -> Answer:
    """At C, causal, nomax is faster than SDPA under all four."""
    return _leads("attention C-causal", "nomax", SDPA)


@claim(who=ISSUE, needs=["latev.D"])
def d_leads(_: Evidence) -> Answer:
    """At D latev is faster than SDPA under all four."""
    return _leads("attention D", "latev", SDPA)


@claim(who=ISSUE, needs=["latev.D-causal"])
def d_causal_leads(_: Evidence) -> Answer:
    """At D, causal, latev is faster than SDPA under all four."""
    return _leads("attention D-causal", "latev", SDPA)


@claim(who=ISSUE, needs=["latev.D"])
def d_in_217(_: Evidence) -> Answer:
    """At D latev takes at most 217 us by cudnn-frontend's protocol, as NVIDIA says of its own."""
    row = _rows("attention D")["latev"]
    took = row["times"]["cudnn-frontend"]
    return decide(
        took["seconds"] <= 217e-6,
        f"{took['seconds'] * 1e6:.2f} us, shots from {took['least'] * 1e6:.1f} to "
        f"{took['most'] * 1e6:.1f}; in replayed graphs {_us(row, 'ours'):.1f}",
        us=took["seconds"] * 1e6,
    )


@claim(who=ISSUE, needs=["groupwgmma.2k-8to1"])
def gqa_leads(_: Evidence) -> Answer:
    """With eight query heads a key head groupwgmma is faster than SDPA under all four."""
    return _leads("gqa 2k-8to1", "groupwgmma", ("sdpa",))


@claim(who="NVIDIA's published shape", needs=["groupwgmma.2k-8to1"])
def nvidias_shape_leads(_: Evidence) -> Answer:
    """At NVIDIA's shape groupwgmma (fp16) is faster than cuDNN's graph (bf16) under all four."""
    return _leads("gqa NVIDIA's", "groupwgmma", ("sdpa", "cudnn bf16"))


@claim(who="NVIDIA's published shape", needs=["groupwgmma.2k-8to1"])
def nvidias_causal_shape_leads(_: Evidence) -> Answer:
    """At NVIDIA's shape, causal, groupwgmma is faster than cuDNN's graph under all four."""
    return _leads("gqa NVIDIA's causal", "groupwgmma", ("sdpa", "cudnn bf16"))


@claim(who=ISSUE, needs=["earlymerge.16k-8"])
def decode_in_66(evidence: Evidence) -> Answer:
    """Decoding 16k for eight sequences takes at most 66 us in replayed graphs."""
    rows = _rows("decode 16k-8")
    took, copy = (_us(rows[kernel], "ours") for kernel in ("earlymerge", "copy"))
    launch = evidence.load("earlymerge", "16k-8").launch
    return decide(
        took <= 66,
        f"{took:.1f} us; SDPA {_us(rows['sdpa'], 'ours'):.1f}, a copy of as many bytes {copy:.1f}: "
        f"{copy / took:.1%} of the copy's rate, DRAM {launch['dram_busy']:.0%} busy under ncu",
        us=took,
    ).elsewhere(on_l4("decode", "16k-8"))


@claim(who="header of earlymerge", needs=["earlymerge.16k-8"])
def decode_leads(_: Evidence) -> Answer:
    """Decoding, earlymerge is faster than SDPA under all four."""
    return _leads("decode 16k-8", "earlymerge", ("sdpa",))


@claim(who=ISSUE, needs=["widerow.LN4096"])
def layernorm_leads(_: Evidence) -> Answer:
    """At LN4096 widerow is faster than torch.compile under all four."""
    return _leads("layernorm LN4096", "widerow", ("compile",))


@claim(who=ISSUE, needs=["longestfirst.sparse89"])
def blocksparse_leads(_: Evidence) -> Answer:
    """At sparse89 longestfirst is faster than flex_attention under all four."""
    return _leads("blocksparse sparse89", "longestfirst", ("flex",))


@claim(who=ISSUE, needs=["packbeside.2k", "packbeside.4k"])
def fp8_at_700(_: Evidence) -> Answer:
    """FP8 attention does at least 700 TFLOP/s at 2k and 4k under all four."""
    said, least = [], []
    for name in ("fp8 2k", "fp8 4k"):
        row = _rows(name)["packbeside"]
        rates = [row["operations"] / row["times"][p]["seconds"] * 1e-12 for p in FOUR]
        least.append(min(rates))
        said.append(f"{name} {', '.join(f'{r:.0f}' for r in rates)}")
    return decide(min(least) >= 700, "; ".join(said) + " TFLOP/s", least=min(least))


@claim(who="NVIDIA's published 870 TFLOP/s", needs=["packbeside.2k"])
def fp8_leads(_: Evidence) -> Answer:
    """At 2k ours is faster than cuDNN's FP8 graph under all four."""
    return _leads("fp8 2k", "packbeside", ("cudnn e4m3",))


@claim(who="what single shots hide", needs=["latev.D"])
def single_shots_hide_power(_: Evidence) -> Answer:
    """At D a shot after a rest is faster, cold as it is, than calls in a row that power holds back."""
    row = _rows("attention D")["latev"]
    alone, row_of = row["times"]["cudnn-frontend"], row["times"]["ours"]
    return decide(
        alone["seconds"] < 0.98 * row_of["seconds"] and alone["sm_clock"] > row_of["sm_clock"],
        f"{alone['seconds'] * 1e6:.1f} us, {alone['sm_clock'] / 1e9:.2f} GHz after the last shot; in a "
        f"row {row_of['seconds'] * 1e6:.1f}, {row_of['sm_clock'] / 1e9:.2f}",
        faster=row_of["seconds"] / alone["seconds"],
    )


@claim(who="what the profiler hides", needs=["earlymerge.16k-8"])
def overlap_counts_twice(_: Evidence) -> Answer:
    """A launch that waits beside another is counted twice by the sum of kernels' times."""
    row = _rows("decode 16k-8")["earlymerge"]
    summed, events = _us(row, "cudnn-frontend"), _us(row, "triton")
    return decide(
        summed > 1.3 * events,
        f"earlymerge {summed:.1f} us as a sum of kernels, {events:.1f} between two events",
        times=summed / events,
    )


@claim(who="what graphs hide", needs=["earlymerge.16k-8"])
def graphs_hide_the_launch(_: Evidence) -> Answer:
    """Events round plain calls and a cold L2 add a tenth and more to decoding."""
    row = _rows("decode 16k-8")["earlymerge"]
    return decide(
        _us(row, "triton") > 1.1 * _us(row, "ours"),
        f"{_us(row, 'ours'):.1f} us in replayed graphs, {_us(row, 'triton'):.1f} between two events; a "
        f"copy {_us(_rows('decode 16k-8')['copy'], 'triton'):.1f}",
        times=_us(row, "triton") / _us(row, "ours"),
    )
