"""--where compares columns and does nothing else."""

from __future__ import annotations

import contextlib
import signal
import time
from math import nan

import pandas as pd
import pytest

from profkit.cli import launches
from profkit.cli.launches import filter_rows_by_expression as where
from profkit.cli.launches import match_kernel_names, refuse_unsafe_expression
from profkit.errors import ProfkitError

FRAME = pd.DataFrame(
    {
        "kernel": ["flash", "copy", "gemm"],
        "bound": ["latency", "memory", "compute"],
        "time": [1e-5, 2e-5, nan],
        "cc": ["9.0", "9.0", "8.0"],
    }
)


@pytest.mark.parametrize(
    ("expression", "kernels"),
    [
        ("bound == 'memory'", ["copy"]),
        ('bound == "memory" or bound == "compute"', ["copy", "gemm"]),
        ("bound in ['memory', 'latency']", ["flash", "copy"]),
        ("bound not in ['memory']", ["flash", "gemm"]),
        ("time > 1e-5 and cc == '9.0'", ["copy"]),
        ("1e-6 < time <= 1e-5", ["flash"]),
        ("not bound == 'memory'", ["flash", "gemm"]),
        ("(time * 2 > 3e-5) | (cc == '8.0')", ["copy", "gemm"]),
        ("time == time", ["flash", "copy"]),
        (" bound == 'memory' ", ["copy"]),
    ],
)
def test_where(expression: str, kernels: list[str]) -> None:
    assert where(FRAME, expression)["kernel"].tolist() == kernels


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "@pd.io",
        "kernel.str.len() > 3",
        "bound.__class__ == 1",
        "[x for x in kernel] == 1",
        "(lambda: 1)() == 1",
        "kernel[0] == 'f'",
        "time ** 9 ** 9 > 1",
        "f'{time}' == 'x'",
        "time := 3",
        "time = 3",
        "import os",
        "eval('1') == 1",
        "`time` > 1",
        "bound == 'memory'; time > 1",
        "exit()",
        "time if True else 1",
        "",
        "time",
        "1 > 'a' > (",
        "x" * 5000,
        "-" * 1500 + "1 > 0",
        "bound == {'a': 1}",
        "time > 1_000 @ 3",
        "nothing > 1",
    ],
)
def test_anything_else_is_refused(expression: str) -> None:
    with pytest.raises(ProfkitError) as error:
        where(FRAME, expression)
    assert "--where" in error.value.message
    assert error.value.hint


@pytest.mark.parametrize("expression", ["bound > 3", "kernel + 1 > 2", "(time > 1) + 'a'"])
def test_what_cannot_be_compared_is_said(expression: str) -> None:
    with pytest.raises(ProfkitError, match="--where"):
        where(FRAME, expression)


def test_a_near_column_is_suggested() -> None:
    with pytest.raises(ProfkitError) as error:
        refuse_unsafe_expression("bond == 'memory'", list(FRAME.columns))
    assert error.value.hint == "did you mean bound?"


def test_a_frame_is_never_changed() -> None:
    before = FRAME.copy()
    where(FRAME, "time > 1e-5")
    pd.testing.assert_frame_equal(FRAME, before)


def test_kernel_is_a_regular_expression() -> None:
    assert match_kernel_names(["flash", "copy", "gemm"], "^f|mm$") == [True, False, True]
    with pytest.raises(ProfkitError, match=r"--kernel \["):
        match_kernel_names(["flash"], "[")


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*=$"])
def test_a_pattern_that_tries_every_way_is_stopped(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = "2"
    if pattern != "(a+)+$":  # one waits as long as a user does
        monkeypatch.setattr(launches, "PATTERN_TIME", 0.2)
        limit = "0.2"
    began = time.process_time()
    with pytest.raises(ProfkitError, match=f"gave no answer within {limit} s"):
        match_kernel_names(["a" * 60 + "!"], pattern)
    assert time.process_time() - began < 60, "all ways take longer than anybody lives"
    assert match_kernel_names(["a"], "a") == [True], "the limit is gone"
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


@pytest.mark.parametrize(
    "expression",
    [
        "'a'*2000000000 == kernel",
        "2000000000*'a' == kernel",
        "kernel*2000000000 == 'a'",
        "kernel in ['a']*2000000000",
        "kernel in ('a','b')*2000000000",
        "kernel + kernel == 'a'",
        "('a' + 'b')*2000000000 == kernel",
    ],
)
def test_no_arithmetic_with_text(expression: str) -> None:
    with pytest.raises(ProfkitError, match="arithmetic with text"):
        where(FRAME, expression)


@pytest.mark.parametrize("digits", [400, 1900])
def test_an_integer_beyond_float_is_our_error_or_an_answer(digits: int) -> None:
    with contextlib.suppress(ProfkitError):
        assert where(FRAME, f"time > {'9' * digits}").empty
