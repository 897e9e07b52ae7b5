"""Launches made by hand, from the examples that the rules carry themselves."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from typing import Any

import pytest

from profkit.diagnosis.launches import JudgedLaunch, NvidiaRule
from profkit.diagnosis.rules import BY_ID
from profkit.diagnosis.verdict import judge_launch
from profkit.reports.metrics import CATALOGUE

HOSTILE = (
    "[red]x[/red]",
    "\x1b[2J\x1b]0;title\x07",
    "<script>alert(1)</script>",
    "two\nlines\r\n\ttabbed",
    "a" * 10_000,
    "k<" * 5_000 + ">" * 5_000,
    "| cell | `code` ``more`` | [a](http://b.c) ![i](x) **bold** @somebody #1 &lt; \\",
    "\u202eright to left\u2066",
    "lone \udc80 surrogate",
    "",
)

Made = Callable[..., JudgedLaunch]


@pytest.fixture(scope="session")
def made() -> Made:
    """A judged launch on which a rule's example fires; keywords replace anything."""

    def build(kernel: str = "f(float *)", time: float = 1e-4, **changes: Any) -> JudgedLaunch:
        rule = changes.pop("rule", "shared-bank-conflicts")
        status = changes.pop("status", "ok")
        values = dict.fromkeys(CATALOGUE, nan)
        values |= {"time": time, **BY_ID[rule].fires[0], **changes.pop("values", {})}
        return JudgedLaunch(
            **{
                "report": "a.ncu-rep",
                "index": 0,
                "kernel": kernel,
                "device": "NVIDIA H200",
                "cc": "9.0",
                "grid": (64, 2, 1),
                "block": (128, 1, 1),
                "variant": None,
                "case": None,
                "status": status,
                "values": values,
                "diagnosis": judge_launch({**values, "status": status}),
                "nvidia": (NvidiaRule("CPIStall", "Warp Stall", "text", 0.25, "local"),),
            }
            | changes
        )

    return build
