"""The same source compiled with fast math, where it has divisions and functions that are accurate.

Results differ in their last digits; whether they may is not for a profiler to say.
"""

from profkit.lab.ablation.change import (
    Ablation,
    CodeChange,
    make_nothing_to_remove_refusal,
)


class FastMath(Ablation):
    id = "fast-math"
    title = "accurate functions"
    reachable = True
    rules = ("issue-slots", "fp32-pipe")  # no probe has accurate functions

    def make_change(self) -> CodeChange:
        if not self.code.fast or self.code.fast == self.code.module.text:
            nothing = "it has no accurate function or division, or no source to recompile"
            raise make_nothing_to_remove_refusal(nothing)
        changed = "compiled with --use_fast_math; results differ in their last digits"
        return CodeChange(self.code.fast, changed, other_code=True)


ABLATION = FastMath
