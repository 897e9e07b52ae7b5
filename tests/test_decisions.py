"""Pages of docs/decisions: their form, and that the files they name are there."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.found import find_files

PAGES = find_files(ROOT / "docs" / "decisions", "[0-9]*.md")
# Where a path may begin that is named as `cli/app.py`.
BASES = (ROOT, ROOT / "profkit", ROOT / "profkit" / "show")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_decision_has_a_number_a_title_a_status_and_a_date(page: Path) -> None:
    number = page.name.split("-")[0]
    lines = page.read_text("utf-8").splitlines()
    assert re.fullmatch(rf"# {number}\. \S.*", lines[0]), lines[0]
    head = " ".join(lines[1:6])
    assert re.search(r"Status: (proposed|accepted|replaced by \d{3})", head), head
    assert re.search(r"Date: \d{4}-\d\d-\d\d", head), head


def test_a_number_is_used_once() -> None:
    numbers = Counter(page.name.split("-")[0] for page in PAGES)
    assert not [number for number, times in numbers.items() if times > 1]


# A replaced decision names what was there then.
IN_FORCE = [page for page in PAGES if "Status: replaced" not in page.read_text("utf-8")]


@pytest.mark.parametrize("page", IN_FORCE, ids=lambda page: page.stem)
def test_the_files_that_a_decision_names_are_there(page: Path) -> None:
    named = re.findall(
        r"`([\w./-]+/[\w.-]+\.(?:py|cpp|toml|js|json|md|cuh|cu))`", page.read_text("utf-8")
    )
    missing = [name for name in named if not any((base / name).exists() for base in BASES)]
    assert not missing
