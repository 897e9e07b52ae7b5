"""The protobuf walker: what fits is walked, what does not is Malformed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.reports.wire import (
    BYTES,
    FIXED64,
    VARINT,
    Malformed,
    MessageShape,
    Oddities,
    iterate_fields,
    read_varint,
    verify_message,
)
from tests.reports import made

INNER = MessageShape("Inner", wires={1: VARINT}, required={1})
OUTER = MessageShape(
    "Outer",
    wires={1: VARINT, 2: FIXED64, 3: BYTES, 4: BYTES, 5: BYTES},
    texts={3},
    parts={5: INNER},
)


@given(st.integers(0, 2**64 - 1))
def test_varint_comes_back(number: int) -> None:
    data = made.varint(number)
    assert read_varint(data, 0) == (number, len(data))


def test_varint_of_more_than_64_bits() -> None:
    with pytest.raises(Malformed, match="64 bits"):
        read_varint(b"\xff" * 11, 0)


def test_fields_of_every_wire_type() -> None:
    data = made.field(1, 300) + made.field(2, 1.5) + made.field(3, "x") + b"\x25abcd"
    found = [(number, wire) for number, wire, _, _ in iterate_fields(data, 0, len(data))]
    assert found == [(1, 0), (2, 1), (3, 2), (4, 5)]


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05abc",  # leaves its message
        b"\x09abc",  # eight bytes that are three
        b"\x0b",  # a group, which no report has
        b"\x0a",  # no size
        b"\x00\x01",  # field 0
        made.field(2, 1),  # of another wire type
        made.field(3, b"\xff\xfe"),  # not UTF-8
        made.field(5, made.field(2, 1)),  # lacks a part, further in
        made.field(5, b"\x0a\x7f"),
    ],
)
def test_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        verify_message(data, 0, len(data), OUTER, Oddities())


def test_a_number_that_is_not_known_is_of_a_newer_ncu() -> None:
    odd = Oddities()
    verify_message(made.field(1, 1) + made.field(9, 1), 0, 4, OUTER, odd)
    assert odd.first == "field 9 of Outer"


@given(st.binary(max_size=40))
def test_any_bytes_are_walked_or_malformed(data: bytes) -> None:
    try:
        verify_message(data, 0, len(data), OUTER, Oddities())
    except Malformed:
        return
    assert sum(1 for _ in iterate_fields(data, 0, len(data))) <= len(data)
