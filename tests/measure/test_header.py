import contextlib
import time
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.errors import ProfkitError
from profkit.records import header
from profkit.records.header import Budget

EXAMPLE = dedent("""\
    /* Keep K and V tiles in shared memory.

       Why it should help: the counters say so.
       Note: this line looks like a key and is none.

       after: stage1      fixes: long-scoreboard      flags: -maxrregcount=128      arch: 80+
       tune: BLOCK_M=16,32 STAGES=2,3
       tune: BLOCK_N=32
       budget: regs=128 smem=64K spills=0 stack=0
    */
    #include "x.cuh"
    """)


def test_title_text_and_keys() -> None:
    head = header.parse_header(EXAMPLE, "x.cu")
    assert head.title == "Keep K and V tiles in shared memory."
    assert head.text.splitlines() == [
        "Why it should help: the counters say so.",
        "Note: this line looks like a key and is none.",
    ]
    assert dict(head.keys) == {
        "after": "stage1",
        "fixes": "long-scoreboard",
        "flags": "-maxrregcount=128",
        "arch": "80+",
        "tune": "BLOCK_M=16,32 STAGES=2,3 BLOCK_N=32",
        "budget": "regs=128 smem=64K spills=0 stack=0",
    }


@pytest.mark.parametrize(
    "source",
    [
        "// Title.\n//\n// Text.\n// after: v1  arch: 80\n",
        "/*\n * Title.\n *\n * Text.\n * after: v1  arch: 80\n */\n",
        "\n\n/* Title.\r\n\r\nText.\r\nafter: v1 arch: 80 */\n",
    ],
)
def test_every_way_to_write_a_comment(source: str) -> None:
    head = header.parse_header(source, "x.cu")
    assert (head.title, head.text) == ("Title.", "Text.")
    assert dict(head.keys) == {"after": "v1", "arch": "80"}


@pytest.mark.parametrize("line", ["fixs: tail-effect", "after: v1   fixess: tail-effect"])
def test_an_almost_known_key_is_an_error_with_a_suggestion(line: str) -> None:
    with pytest.raises(ProfkitError) as caught:
        header.parse_header(f"/* T.\n   {line}\n*/", "x.cu")
    assert "x.cu" in caught.value.message
    assert "did you mean 'fixes:'" in caught.value.hint


@pytest.mark.parametrize("source", ["int x;", "", "/* */ int x;", "/*\n\n*/"])
def test_a_file_without_header_is_named(source: str) -> None:
    with pytest.raises(ProfkitError, match=r"x\.cu"):
        header.parse_header(source, "x.cu")


def test_budget() -> None:
    assert header.parse_budget_limits("regs=128 smem=64K, spills=0 stack=0", "x") == Budget(
        128, 65536, 0, 0
    )
    assert header.parse_budget_limits("", "x") == Budget()
    for bad in ("regs=many", "registers=3", "smem=64G"):
        with pytest.raises(ProfkitError, match="x: cannot read"):
            header.parse_budget_limits(bad, "x")


def test_tune_and_its_combinations() -> None:
    tunables = header.parse_values_of_tunables("M=16,32 N=1,2", "x")
    assert tunables == {"M": ("16", "32"), "N": ("1", "2")}
    every = header.list_value_combinations(tunables)
    assert every[0] == {"M": "16", "N": "1"}
    assert len(every) == 4
    with pytest.raises(ProfkitError):
        header.parse_values_of_tunables("16,32", "x")


@pytest.mark.parametrize(
    ("spec", "arch", "target"),
    [
        (None, "89", "89"),
        ("80+", "90", "90"),
        ("80+", "75", None),
        ("90a", "90", "90a"),
        ("90a", "100", None),
        ("80,89", "89", "89"),
        ("80,89", "86", None),
        ("sm_89+", "90", "90"),
    ],
)
def test_target(spec: str | None, arch: str, target: str | None) -> None:
    assert header.choose_compile_target(spec, arch, "x") == target


def test_words_reads_none_in_each_spelling() -> None:
    assert header.split_into_ids("a, b c") == ("a", "b", "c")
    assert (
        header.split_into_ids("-")
        == header.split_into_ids("–")
        == header.split_into_ids("none")
        == ()
    )


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        head = header.parse_header(f"/*{text}*/", "x.cu")
    except ProfkitError:
        return
    assert head.title
    assert set(head.keys) <= set(header.KEYS)


@pytest.mark.parametrize("line", ["// x\n", "//\n", "\n", "/* x */\n"])
def test_millions_of_lines_are_no_wait(line: str) -> None:
    began = time.process_time()
    with contextlib.suppress(ProfkitError):
        header.parse_header(line * 3_000_000 + "/* t */", "x.cu")
    assert time.process_time() - began < 1.0
