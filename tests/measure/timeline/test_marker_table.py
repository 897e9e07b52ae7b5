"""The table of lines in the documentation is what was recorded."""

from __future__ import annotations

import json

from tests.conftest import ROOT
from tests.gpu.lines.markers.table import RECORD, write_tables


def test_the_documented_table_is_the_recorded_one() -> None:
    page = (ROOT / "docs" / "decisions" / "363-lines-held-against-sizes.md").read_text("utf-8")
    assert write_tables(json.loads(RECORD.read_text("utf-8"))).strip() in page
