"""The table of four protocols on the ladder's page: artifacts/protocols.json as Markdown.

What each protocol is stands in tools/protocols.py. Used by ladder_page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from profkit.files import read_json

Table = Callable[[tuple[str, ...], list[tuple[str, ...]]], list[str]]

_TEXT = """\
The same calls as four benchmarks time them, opponents beside them in one process, in microseconds:
in replayed graphs with a warm L2 (ours, the median); single shots by the profiler after 256 MB were
cleared (cudnn-frontend, the median of ten); events round each call after as much, for 10 ms after a
second's rest (FlashAttention) and for 100 ms (Triton's `do_bench`), the means. Graphs hide the
launch and cold caches; single shots and rests hide what power costs calls in a row; the sum of
kernels' times hides the launch, and counts a kernel that waits beside another twice (decode).
Events count the host where it is late. `profkit verify analyses/by_their_protocol.py` says what
holds under all four."""


def protocol_table(file: Path, table: Table) -> Iterator[str]:
    """Lines of Markdown.

    Args:
        file: What tools/protocols.py wrote.
        table: Rows as Markdown.
    """
    kept: dict[str, Any] = read_json(file)
    protocols = tuple(kept["rows"][0]["times"])
    said = sorted({_session(session) for session in kept["sessions"]})
    yield from (_TEXT, "", f"On {'; '.join(said)}.", "")
    rows, before = [], ""
    for row in kept["rows"]:
        name, kernel = row["name"], row["kernel"]
        times = (f"{row['times'][p]['seconds'] * 1e6:.1f}" for p in protocols)
        rows.append(
            (
                "" if name == before else name,
                f"{kernel}{'' if row['mine'] else ' (theirs)'}",
                *times,
            )
        )
        before = name
    yield from table(("call", "kernel", *(f">{p}" for p in protocols)), rows)


def _session(session: dict[str, Any]) -> str:
    """The GPU and the versions that decide."""
    versions, gpu = session["versions"], session["gpu"]
    return (
        f"{gpu['name']} ({session['power_limit']:.0f} W, driver {gpu['driver']}), torch "
        f"{versions['torch']} with CUDA {versions['cuda']} and cuDNN {versions['cudnn']}, Triton "
        f"{versions['triton']}"
    )
