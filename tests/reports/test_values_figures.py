"""Numbers as people read them, at the borders where a unit, a point or a word changes."""

from __future__ import annotations

from math import inf, nan

import pytest

from profkit.reports import figures as text


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (None, "byte", "not collected"),
        (nan, "share", "not collected"),
        (inf, "s", "not collected"),
        (0.0, "byte", "0 B"),
        (0.5, "byte", "0.500 B"),
        (999_499, "byte", "999 kB"),
        (999_500, "byte", "1.00 MB"),  # three figures, as 1,000,000 has them
        (-2e6, "byte", "-2.00 MB"),
        (3.35e12, "byte/s", "3.35 TB/s"),
        (1.5e15, "op/s", "1,500 Top/s"),  # no prefix is larger
        (1.98e9, "Hz", "1.98 GHz"),
        (2e3, "cycle", "2.00 kcycles"),
        (0.4, "count", "0.400"),
        (99_999, "count", "99,999"),  # counts are whole up to here
        (100_000, "count", "100 k"),
        (1234.5, "count", "1.23 k"),
        (0.453, "share", "45.3 %"),
        (3.85e-5, "s", "38.5 µs"),
        (7.0, "unheard of", "7.00"),
    ],
)
def test_a_quantity_has_three_figures_and_a_unit(value, unit, shown):
    assert text.format_value_with_unit(value, unit) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "not collected"),
        (nan, "not collected"),
        (0.0, "0 ns"),
        (2.5, "2.50 s"),
        (0.9996, "1.00 s"),
        (0.9994, "999 ms"),
        (1e-3, "1.00 ms"),
        (9.994e-4, "999 µs"),
        (1.5e-6, "1.50 µs"),
        (1e-6, "1.00 µs"),
        (9.994e-7, "999 ns"),
        (1e-9, "1.00 ns"),
        (5e-10, "0.500 ns"),
    ],
)
def test_a_duration_has_the_unit_that_leaves_it_above_one(value, shown):
    assert text.format_seconds(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (9.994e-4, "0.000999"),
        (1.2e-5, "0.0000120"),
        (1.2e-7, "1.20e-07"),
        (1e-3, "0.00100"),
        (0.12345, "0.123"),
        (9.994, "9.99"),
        (9.996, "10.0"),
        (99.94, "99.9"),
        (99.95, "100"),
        (0.9995, "1.00"),
        (999.4, "999"),
        (999.5, "1,000"),
        (1840, "1,840"),
        (-1.5, "-1.50"),
        (8, "8.00"),
    ],
)
def test_three_figures_and_the_point_where_the_rounded_number_has_it(value, shown):
    assert text.format_three_figures(value) == shown


def test_a_sentence_writes_a_number_as_the_tables_do():
    sentence = "{n:,} kernels take {ms:time} of {step:figures} ms, {part:.0%}"
    said = text.fill_sentence(sentence, {"n": 4096, "ms": 0.658, "step": 3190.4, "part": 0.5})
    assert said == "4,096 kernels take 658 µs of 3,190 ms, 50 %"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0 %"),
        (0.00012, "0.012 %"),
        (0.453, "45.3 %"),
        (0.9994, "99.9 %"),
        (0.9995, "100 %"),
        (1.0, "100 %"),
        (2.5, "250 %"),
        (-0.5, "-50 %"),
        (-1.0, "-100 %"),
    ],
)
def test_a_share_is_a_percentage(value, shown):
    assert text.format_share(value) == shown


@pytest.mark.parametrize(
    ("factor", "shown"),
    [(None, ""), (nan, ""), (inf, ""), (1.85, "1.85x"), (0.5, "0.500x"), (12.34, "12.3x")],
)
def test_a_speed_up_that_is_none_is_no_text(factor, shown):
    assert text.format_speedup(factor) == shown


@pytest.mark.parametrize(
    ("number", "words", "shown"),
    [
        (0, ("block",), "0 blocks"),
        (1, ("block",), "1 block"),
        (2, ("block",), "2 blocks"),
        (1320, ("block",), "1,320 blocks"),
        (1, ("launch", "launches"), "1 launch"),
        (2, ("launch", "launches"), "2 launches"),
    ],
)
def test_one_is_singular(number, words, shown):
    assert text.format_count_with_noun(number, *words) == shown


@pytest.mark.parametrize(
    ("name", "shown", "base"),
    [
        ("_Z5scale", "scale", "scale"),
        ("_ZN2at6native3addIfLi4EEEvPT_S2_", "at::native::add<4>", "add"),
        ("_Z6stage2ILi128EEv9Attention", "stage2<128 Attention>", "stage2"),
        ("_ZN12_GLOBAL__N_14kernIfEEvv", "(anonymous namespace)::kern", "kern"),
        ("_Z", "_Z", "_Z"),
        ("plain", "plain", "plain"),
        ("void ns::k<float, (int)4>(float*, int)", None, "k"),
        ("void (anonymous namespace)::k<a::b>(x)", None, "k"),
        ("int ns::f<1>::g(int)", None, "g"),
        ("void <unnamed>::k()", None, "k"),
    ],
)
def test_a_kernel_s_name_is_read_out_of_what_the_compiler_made_of_it(name, shown, base):
    assert text.make_kernel_name_readable(name) == (shown or name)
    assert text.get_base_name_of_kernel(name) == base


def test_a_number_and_its_unit_are_not_parted():
    said = "1 %, 38.5 µs of 2 blocks, 7 GB/s, 5 cycles, 3 k and 2 steps"
    whole = "1_%, 38.5_µs of 2 blocks, 7_GB/s, 5_cycles, 3_k and 2 steps"
    assert text.bind_units(said, "_") == whole
    assert text.bind_units("7 GB/s") == "7\xa0GB/s"
