"""What a record goes stale with: code, and nothing that is only said."""

import time
from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.lab.measure.variants.variants import read_all_variants, read_variant
from profkit.records import header
from profkit.records import header as source

ROOT = Path(__file__).parents[2]
CODE = (
    '#define TWO(x) \\\n  (x + 2)\nint f(int a) { return TWO(a) - -1\'000; }\nauto s = "a // b";\n'
)


def strip_comments(text: str) -> str:
    """The tokens of a source, one a line."""
    return source.encode_code_tokens(text).decode()


@pytest.mark.parametrize(
    "other",
    [
        CODE + "// a last word",
        CODE.replace("{ return", "{\n    return").replace("(int a)", "( int a )"),
        CODE.replace("TWO(a)", "TWO(a) /* it's \" two */"),
        CODE.replace("int f", "/* one\n two */ int\nf"),
        CODE.replace("\n", "\r\n"),
        CODE.replace("TWO(x) \\", "TWO(x) /* which\n is two */ \\"),
    ],
)
def test_comments_and_layout_are_no_code(other: str) -> None:
    assert other != CODE
    assert strip_comments(other) == strip_comments(CODE)


@pytest.mark.parametrize(
    "other",
    [
        CODE.replace("a // b", "a // c"),
        CODE.replace("a // b", "a  // b"),
        CODE.replace("- -1", "--1"),
        CODE.replace("int f", "intf"),
        CODE.replace("(x + 2)", "(x + 2)\nint g;"),
        CODE.replace("\\\n", "\n"),  # the macro ends with its line
        CODE.replace("1'000", "1'001"),
        CODE.replace("int f", "// int f"),
    ],
)
def test_everything_else_is(other: str) -> None:
    assert strip_comments(other) != strip_comments(CODE)


def test_a_quote_in_a_number_or_a_raw_string_hides_no_code() -> None:
    assert "b" in strip_comments("int a = 1'000; // it's\nint b;").splitlines()
    assert strip_comments('auto a = R"x(" // )x";').splitlines()[-2:] == [
        'R"x(" // )x"',
        ";",
    ]
    assert strip_comments("a = '\"'; // b") == strip_comments("a = '\"';")


def kernel(folder: Path, header: str, code: str = "int x;") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "k_x.cu").write_text(f"/* {header}\n*/\n{code}\n")
    return read_variant(folder / "k_x.cu").source_hash


def test_only_what_is_compiled_and_run_makes_a_record_stale(tmp_path: Path) -> None:
    first = kernel(tmp_path, "One.")
    assert kernel(tmp_path, "Two.\n more\n fixes: x after: y budget: regs=3") == first
    assert kernel(tmp_path, "One.\n flags: -DX=1") != first
    assert kernel(tmp_path, "One.\n inputs: e4m3") != first
    assert kernel(tmp_path, "One.", "int y;") != first


def test_an_include_that_is_only_a_comment_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "h.cuh").write_text("int a;")
    first = kernel(tmp_path / "k", "One.", '// #include "../h.cuh"')
    (tmp_path / "h.cuh").write_text("int b;")
    assert kernel(tmp_path / "k", "One.", '/*\n#include "../h.cuh"\n*/') == first


def test_the_build_follows_the_text_to_the_letter(tmp_path: Path) -> None:
    kernel(tmp_path, "One.")
    first = source.hash_cpp_text_with_includes(tmp_path / "k_x.cu")
    kernel(tmp_path, "Two.")
    assert source.hash_cpp_text_with_includes(tmp_path / "k_x.cu") != first


def test_every_key_that_only_speaks_is_a_key() -> None:
    assert header.KEYS.keys() >= source.SPEAKS


def test_no_two_variants_are_one_code() -> None:
    hashes = {v.path: v.source_hash for v in read_all_variants(ROOT / "kernels")}
    assert len(set(hashes.values())) == len(hashes)


def test_one_wide_letter_does_not_make_a_source_four_times_as_large(tmp_path: Path) -> None:
    """All copies of its text draw on one budget; a source of some kB has room for any letters."""
    path = tmp_path / "v1_x.cu"
    path.write_text("// t\n" + "int caf\u00e9; // \U0001f600\n" * 1000)
    assert read_variant(path).source_hash
    path.write_text("// t\n\U0001f600" + "ab;" * 1_000_000)
    with pytest.raises(
        ProfkitError, match=r"v1_x.cu: it asks for more memory than its bytes can need"
    ):
        _ = read_variant(path).source_hash


def test_strings_that_never_end_take_the_time_of_their_bytes() -> None:
    """They took the square of it: half a minute for 300 kB."""
    text = "// t\n" + 'R"(' * 100_000
    before = time.process_time()
    assert strip_comments(text).endswith('R"(' * 100)
    assert time.process_time() - before < 10
    kept = 'R"x(/* kept */)x"'
    assert kept in strip_comments(f"{kept} /* gone */ 1")
