"""What the terminal shows: it fits, says the verdict, and obeys nothing out of a report."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from profkit.diagnosis.launches import HotLine, Row, rows
from profkit.show.views import diagnosis as text

from .conftest import HOSTILE, Made


def _shown(found: list[Row], width: int = 80, **how: object) -> str:
    on = Console(file=io.StringIO(), width=width, markup=False, emoji=False, highlight=False, **how)
    return text.render(found, found, on)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_every_line_fits(made: Made, width: int) -> None:
    found = rows([made(name, index=i) for i, name in enumerate(HOSTILE)])
    shown = _shown(found, width)
    assert max(cell_len(line) for line in shown.splitlines()) <= width
    assert len(shown.splitlines()) > 10 * len(HOSTILE)


def test_narrow_terminals_lose_columns_not_the_verdict(made: Made) -> None:
    heads = {width: _shown(rows([made()]), width).splitlines()[0] for width in (40, 60, 80)}
    assert "bound" not in heads[40]
    assert "bound" in heads[60]
    assert "finding" not in heads[60]
    assert "finding" in heads[80]


def test_no_control_character_comes_through(made: Made) -> None:
    for name in HOSTILE:
        shown = _shown(rows([made(name, report=f"{name[:200]}.ncu-rep", variant=name[:50])]))
        assert not [c for c in shown if ord(c) < 32 and c != "\n"]
        assert "\x9b" not in shown
        shown.encode("utf-8")


def test_markup_in_a_name_is_text(made: Made) -> None:
    shown = _shown(rows([made("[red]x[/red]")]), force_terminal=True, color_system="standard")
    assert "[red]x[/red]" in shown
    assert "\x1b[31mx" not in shown


def test_a_row_says_time_share_bound_and_finding(made: Made) -> None:
    found = rows([made("slow", 3e-3), made("quick", 1e-3)])
    first, second = _shown(found).splitlines()[2:4]
    assert first.split() == ["1", "slow", "3.00", "ms", "memory", "shared-bank-conflicts"]
    assert second.split() == ["a.ncu-rep", "#0", "75.0", "%", "shared", "8.00x"]


def test_many_launches_are_one_row_with_their_spread(made: Made) -> None:
    shown = _shown(rows([made(time=(10 + i) * 1e-6, index=i) for i in range(105)]))
    assert "105x 10.0-62.0-114 µs" in shown
    assert "105 launches" in shown


def test_the_diagnosis_has_gain_evidence_advice_and_what_is_not_known(made: Made) -> None:
    shown = " ".join(_shown(rows([made()])).split())
    assert "shared-bank-conflicts (at most 8.00x): 87.5 % of the shared-memory wavefronts" in shown
    assert "excess_shared_wavefronts 87.5 %" in shown
    assert "try: Pad rows" in shown
    assert "not known without --section LaunchStats" in shown
    assert "NVIDIA's CPIStall: Warp Stall (Est. Speedup 25 % of a part of it)" in shown


def test_a_failed_launch_says_so(made: Made) -> None:
    shown = _shown(rows([made(status="failed")]))
    assert "failed" in shown
    assert "gave up" in shown


def test_hot_lines_are_listed(made: Made) -> None:
    line = HotLine("/src/k.cu", 41, "x = [red]y;\x1b[2J", 120, 0.25, "barrier", 0.8)
    shown = _shown(rows([made(lines=(line,))]))
    assert "25 % barrier 80 % k.cu:41 x = [red]y;\\x1b[2J" in " ".join(shown.split())


def test_hidden_rows_are_counted(made: Made) -> None:
    found = rows([made("a"), made("b")])
    on = Console(file=io.StringIO(), width=80)
    assert "1 of 2 rows shown" in text.render(found[:1], found, on)
