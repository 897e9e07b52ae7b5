"""Layouts that shared memory could have  ->  what to do about its bank conflicts."""

from __future__ import annotations

from os.path import basename

from profkit.reports.addresses import Layout, Layouts
from profkit.reports.figures import format_count_with_noun, format_share

WORD, LINE = 4, 128  # bytes of a bank, and of all of them
MOST = 0.5  # of the conflicts, from which nothing else needs to be said


def write_layout_advice(layouts: Layouts, usual_advice: str) -> str:
    """Return layouts without conflicts as advice; the usual one too where they are not most of it."""
    sentences = [say_layout(layout) for layout in layouts.found]
    if sum(layout.share for layout in layouts.found) < MOST:
        sentences.append(usual_advice)
    return " ".join(sentences)


def say_layout(layout: Layout) -> str:
    """Return a layout in two sentences: what to change and what comes of it, and how that is known."""
    where = ""
    if layout.file:
        where = f" at {basename(layout.file)}:{layout.line}"
    if layout.file and layout.called_at:
        call = layout.called_at
        where += f", called from {basename(call.file)}:{call.line}"
    accesses = format_count_with_noun(layout.accesses, "access", "accesses")
    warps = format_count_with_noun(layout.warps, "warp", "warps")
    return (
        f"{_describe_layout_change(layout)}: {layout.before:.3g} wavefronts per request become "
        f"{layout.after:.3g}{where}. That is {format_share(layout.share)} of the conflicts, computed "
        "from the "
        f"addresses of all lanes of {warps} at {accesses}, which agree with the counters."
    )


def _describe_layout_change(layout: Layout) -> str:
    if layout.kind == "padding":
        words = layout.row // WORD
        more = f"a row of {words} words becomes {words + layout.bytes // WORD}"
        return f"Pad the array by {layout.bytes} bytes after each {layout.row} ({more})"
    line = max(layout.row, LINE)
    chunks = min(layout.row, LINE) // layout.bytes
    swizzled = f"x ^ x / {line} % {chunks} * {layout.bytes}"
    return f"Swizzle the array, the byte at offset x to offset {swizzled}"
