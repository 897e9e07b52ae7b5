"""What ncu prints goes to the log, what its program prints goes on, and the kernel it is at is told."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from profkit.collect import profiler
from profkit.collect.ncu_output import NcuOutputSplitter, make_pattern_case_insensitive
from profkit.errors import ProfkitError

PRINTED = (
    b"==PROF== Connected to process 7\nepoch 1: == loss ==\n"
    b'==PROF== Profiling "void ns::softmax<int>(float *)" - 0 (1/2): 0%....50%'
    b"....100% - 40 passes\nstep 1\rstep 2\r"
    b'==PROF== Profiling "gemm" - 1 (2/2): 0%....100% - 40 passes\n=done\nno end'
)


@pytest.mark.parametrize("size", [1, 2, 7, 4096])
def test_words_are_parted_however_they_come(tmp_path: Path, size: int) -> None:
    program, seen = io.BytesIO(), []
    words = NcuOutputSplitter(tmp_path / "x.log", program, lambda *at: seen.append(at))
    for at in range(0, len(PRINTED), size):
        words.write(PRINTED[at : at + size])
        words.flush()
    words.close()
    assert (tmp_path / "x.log").read_bytes() == PRINTED
    assert program.getvalue() == b"epoch 1: == loss ==\nstep 1\rstep 2\r=done\nno end"
    assert seen == [(1, 2, "softmax"), (2, 2, "gemm")]


def test_the_kernel_is_told_while_it_is_profiled(tmp_path: Path) -> None:
    seen: list[str] = []
    words = NcuOutputSplitter(tmp_path / "x.log", None, lambda _n, _of, name: seen.append(name))
    words.write(b'==PROF== Profiling "scan" - 0: 0%..')
    assert seen == ["scan"]
    words.close()


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfkitError, match=r"x\.log: cannot be written"):
        NcuOutputSplitter(tmp_path / "none" / "x.log")


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("softmax", "void SoftMax_warp<8>"),
        (r"^void\s\w+gemm", "VOID cutlassGEMM"),
        ("[a-c]+_k[^x-z]", "ABC_KW"),
        (r"\bAdd\b|mul", "MUL"),
        ("[[:digit:]a]", "A"),
    ],
)
def test_letters_match_in_either_case(pattern: str, name: str) -> None:
    posix = make_pattern_case_insensitive(pattern).replace("[:digit:]", r"\d")
    assert re.search(posix, name)
    assert not re.search(posix, "---")


def test_a_range_is_given_to_ncu_in_both_of_its_forms() -> None:
    asked = profiler.make_launch_filter_options(None, 0, 5, "step/1 [a]")
    assert asked == (
        "--launch-count",
        "5",
        "--nvtx-include",
        r"step\/1 \[a\]/",
        "--nvtx-include",
        r"step\/1 \[a\]",
    )
