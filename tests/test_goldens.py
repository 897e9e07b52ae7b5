"""tools/goldens.py tells a changed answer from a float's last bits. The goldens: `make goldens`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import goldens


@pytest.mark.parametrize("size", [1e-300, 1e-9, 1.0, 1e9, 1e17, -1e-5])
def test_the_last_bits_of_a_float_are_no_difference(size: float) -> None:
    one, other = 0.12345678912345 * size, 0.12345678912345 * size * (1 + 1e-13)
    assert repr(one) != repr(other)
    assert goldens.normal(f'{{"time_s": {one!r}}}') == goldens.normal(f'{{"time_s": {other!r}}}')
    assert goldens.normal(f"{one!r}") != goldens.normal(f"{one * (1 + 1e-7)!r}")


def test_names_versions_and_short_numbers_stay_as_they_are() -> None:
    text = "ncu 2025.3.1.0, sm_90, 2.01x (1.51 to 2.40), nvjet_64x3.1234567891234, 12345678912345"
    assert goldens.normal(text) == text


def test_a_changed_missing_or_new_document_is_a_difference(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before, after = (
        {"same": "a", "changed": "b", "gone": "c"},
        {"same": "a", "changed": "d", "new": "e"},
    )
    assert goldens.differences("group", before, after, 5) == 3
    assert "group: changed" in capsys.readouterr().out


def test_what_is_accepted_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(goldens, "GOLDENS", tmp_path)
    goldens.write("group", {"b": "ü\n", "a": "x"})
    assert goldens.read("group") == {"a": "x", "b": "ü\n"}
    assert goldens.read("other") == {}


def test_where_the_checkout_lies_is_no_difference() -> None:
    assert goldens.normal(f'"{goldens.ROOT}/kernels/a.cu"') == '"kernels/a.cu"'
