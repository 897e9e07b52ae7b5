"""What a limit of registers spilled, in registers: the limit is lifted, the occupancy stays.

Shared memory that nobody uses holds the occupancy down where more registers would leave more of it;
where they leave less, that is said.
"""

import re

from profkit.lab.ablation.change import (
    Ablation,
    CodeChange,
    make_nothing_to_remove_refusal,
)

_LIMIT = re.compile(r"\.(?:maxnreg|minnctapersm)\s+\d+\n?")


class SpillsGone(Ablation):
    id = "no-spills"
    title = "spills"
    reachable = True
    rules = ("register-spills",)
    probes = ("spill",)

    def make_change(self) -> CodeChange:
        if not self.code.local_bytes:
            raise make_nothing_to_remove_refusal("nothing is spilled")
        text = self.code.module.text
        for kernel in self.code.module.kernels.values():
            text = text.replace(kernel.directives, _LIMIT.sub("", kernel.directives))
        if text == self.code.module.text and not self.code.capped:
            nothing = "nothing limits its registers but the size of its blocks"
            raise make_nothing_to_remove_refusal(nothing)
        changed = "assembled without its limit of registers"
        return CodeChange(text, changed, other_code=True, uncapped=True)


ABLATION = SpillsGone
