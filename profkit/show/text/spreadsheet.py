"""A frame  ->  CSV that a spreadsheet shows as text, and back.

A spreadsheet takes a cell that begins with = + - @, a tab or a carriage return for a formula, and a
kernel may be called `=cmd|...`. Such a text gets an apostrophe in front, and so does one that begins
with an apostrophe: whoever reads the file takes one apostrophe off, and has what was there. Numbers
are left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pandas import DataFrame

_BEGINS = ("=", "+", "-", "@", "\t", "\r", "'")


def csv_text(frame: DataFrame) -> str:
    """A frame as CSV, without its index; see above for its texts."""
    plain = frame.copy()
    for name in plain.columns:
        if not _is_number(plain, name):
            plain[name] = plain[name].map(quoted_cell, na_action="ignore")
    plain.columns = [quoted_cell(name) for name in plain.columns]
    text: str = plain.to_csv(index=False)
    return text


def quoted_cell(value: object) -> object:
    """A text that no spreadsheet takes for a formula; anything else as it is."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_BEGINS) else value


def plain_cell(value: object) -> object:
    """What quoted_cell was given."""
    return value[1:] if isinstance(value, str) and value.startswith("'") else value


def _is_number(frame: DataFrame, name: str) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return is_numeric_dtype(frame[name]) or is_bool_dtype(frame[name])
