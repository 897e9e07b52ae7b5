"""What a limit of registers spilled, in registers: the limit is lifted, the occupancy stays.

Shared memory that nobody uses holds the occupancy down where more registers would leave more of it;
where they leave less, that is said.
"""

from __future__ import annotations

import re

from profkit.lab.ablation.change import (
    Ablation,
    CodeChange,
    SurveyedCode,
    make_nothing_to_remove_refusal,
)

_LIMIT = re.compile(r"\.(?:maxnreg|minnctapersm)\s+\d+\n?")


def remove_register_limit(code: SurveyedCode) -> CodeChange:
    if not code.local_bytes:
        raise make_nothing_to_remove_refusal("nothing is spilled")
    text = code.module.text
    for kernel in code.module.kernels.values():
        text = text.replace(kernel.directives, _LIMIT.sub("", kernel.directives))
    if text == code.module.text and not code.capped:
        raise make_nothing_to_remove_refusal(
            "nothing limits its registers but the size of its blocks"
        )
    return CodeChange(
        text=text,
        table=b"",
        control=b"",
        changed="assembled without its limit of registers",
        other_code=True,
        uncapped=True,
    )


ABLATION = Ablation(
    id="no-spills",
    title="spills",
    reachable=True,
    rules=("register-spills",),
    probes=("spill",),
    keeps="",
    make=remove_register_limit,
)
