"""What a limit of registers spilled, in registers: the limit is lifted, the occupancy stays.

Shared memory that nobody uses holds the occupancy down where more registers would leave more of it;
where they leave less, that is said.
"""

from __future__ import annotations

import re

from profkit.ablation.change import Ablation, Change, Code, refuse_nothing
from profkit.records.ablation import Refusal

ID = "no-spills"
_LIMIT = re.compile(r"\.(?:maxnreg|minnctapersm)\s+\d+\n?")


def make_unspilled(code: Code) -> Change | Refusal:
    if not code.local_bytes:
        return refuse_nothing(ID, "nothing is spilled")
    text = code.module.text
    for kernel in code.module.kernels.values():
        without = _LIMIT.sub("", kernel.directives)
        text = text.replace(kernel.directives, without) if without != kernel.directives else text
    if text == code.module.text and not code.capped:
        return refuse_nothing(ID, "nothing limits its registers but the size of its blocks")
    return Change(
        text=text,
        table=b"",
        control=b"",
        changed="assembled without its limit of registers",
        other_code=True,
    )


ABLATION = Ablation(
    id=ID,
    title="spills",
    reachable=True,
    rules=("register-spills",),
    probes=("spill",),
    make=make_unspilled,
)
