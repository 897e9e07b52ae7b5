"""The same source compiled with fast math, where it has divisions and functions that are accurate.

Results differ in their last digits; whether they may is not for a profiler to say.
"""

from __future__ import annotations

from profkit.lab.ablation.change import (
    Ablation,
    CodeChange,
    SurveyedCode,
    make_nothing_to_remove_refusal,
)


def use_fast_math(code: SurveyedCode) -> CodeChange:
    if not code.fast or code.fast == code.module.text:
        raise make_nothing_to_remove_refusal(
            "it has no accurate function or division, or no source to recompile"
        )
    return CodeChange(
        text=code.fast,
        table=b"",
        control=b"",
        changed="compiled with --use_fast_math; results differ in their last digits",
        other_code=True,
    )


ABLATION = Ablation(
    id="fast-math",
    title="accurate functions",
    reachable=True,
    rules=("issue-slots", "fp32-pipe"),
    probes=(),  # none has accurate functions
    keeps="",
    make=use_fast_math,
)
