"""The kernels folder at hand  ->  what the variants' headers say, for the verbs that judge."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError

if TYPE_CHECKING:
    from profkit.evidence.headers import Header
    from profkit.evidence.runs import Evidence


def evidence(artifacts: Path) -> Evidence:
    """A folder of artifacts; its runs say what the headers of the kernels beside it say today."""
    from profkit.evidence.runs import Evidence

    return Evidence(artifacts, headers=headers(artifacts))


def headers(artifacts: Path) -> dict[str, Header]:
    """Variant -> header; none where no kernels lie beside the artifacts, or none can be read.

    An id that two problems use says nothing of a record, so it is left out.
    """
    from profkit.evidence.headers import Header
    from profkit.measure.variants import find, kernels_dir

    try:
        kernels = kernels_dir()
        if kernels.parent not in artifacts.resolve().parents:
            return {}  # of somebody else's kernels, which may have the same names
        found = find(kernels)
    except ProfkitError:
        return {}  # profkit list says what is wrong
    often = Counter(v.id for v in found)
    return {
        v.id: Header(
            v.source_hash,
            v.title,
            v.text,
            v.after,
            v.fixes,
            v.fixes_not,
            tuple(map(str, v.moves)),
            f"{v.problem}/{v.path.name}",
        )
        for v in found
        if often[v.id] == 1
    }
