"""What `diagnose` shows on a terminal: the answer first, it fits, and it obeys nothing of a report."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from profkit.diagnosis.launches import HotLine, LaunchRow, group_and_rank_launches
from profkit.diagnosis.rule import Diagnosis, LaunchFinding
from profkit.diagnosis.rule import SourceShare as SourceLine
from profkit.diagnosis.rules import ALL
from profkit.diagnosis.rules.waits import WAITING
from profkit.model.resources import RESOURCES
from profkit.show.text import words
from profkit.show.text.terminal import render_text
from profkit.show.text.words import write_headline
from profkit.show.views.diagnosis import show_diagnosis, suggest_next_commands

from .conftest import HOSTILE, Made

# 32 wavefronts where 1 would do: of so much counters cannot tell what comes of it.
WIDE = {"excess_shared_wavefronts": 31 / 32}


def _shown(
    table: list[LaunchRow], width: int = 80, details: int | None = None, **how: object
) -> str:
    looks = {"force_terminal": True, "color_system": None, **how}
    on = Console(
        file=io.StringIO(), width=width, markup=False, emoji=False, highlight=False, **looks
    )
    return render_text(show_diagnosis(table, table[:details]), on)


def _table(shown: str) -> list[str]:
    """The lines between the answer and what is said of the order."""
    return shown.split("\n\n")[1].splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_every_line_fits(made: Made, width: int) -> None:
    table = group_and_rank_launches([made(name, index=i) for i, name in enumerate(HOSTILE)])
    shown = _shown(table, width)
    prose = [line for line in shown.splitlines() if not line.startswith(("  profkit ", "  ncu "))]
    assert max(map(cell_len, prose)) <= width
    assert len(shown.splitlines()) > 8 * len(HOSTILE)


@pytest.mark.parametrize(
    ("width", "lines", "left_out"),
    [
        (40, 2, ("launch ", "share ", "bound ")),
        (60, 1, ("launch ", "share ", "bound ")),
        (80, 1, ("share ", "bound ")),
        (120, 1, ()),
        (200, 1, ()),
    ],
)
def test_columns_that_say_least_give_way_where_there_is_no_room(
    made: Made, width: int, lines: int, left_out: tuple[str, ...]
) -> None:
    """Time, finding and what to expect of it never do."""
    table = _table(_shown(group_and_rank_launches([made(values=WIDE)]), width))
    heads, cells = " ".join(table[:lines]).split(), " ".join(table[lines:]).split()
    wanted = "# kernel launch time share bound top finding expected"
    row = "1 f a.ncu-rep #0 100 µs 100 % memory: shared shared-bank-conflicts 4.31x to 24.4x"
    shown = {"launch ": "a.ncu-rep #0 ", "share ": "100 % ", "bound ": "memory: shared "}
    for column in left_out:
        wanted = wanted.replace(column, "")
        row = row.replace(shown[column], "")
    assert " ".join(heads) == wanted
    assert " ".join(cells) == row


@pytest.mark.parametrize("width", [60, 120, 200])
def test_no_width_is_filled_with_blanks(made: Made, width: int) -> None:
    for line in _table(_shown(group_and_rank_launches([made("quick<int>(float *)")]), width)):
        assert " " * 26 not in line


def test_one_long_name_does_not_part_the_other_rows(made: Made) -> None:
    long = "_".join(f"word{i}" for i in range(60))
    quick, grown = _table(
        _shown(group_and_rank_launches([made("quick", 2e-3), made(long, 1e-3)]), 200)
    )[1:]
    assert grown.index("ms") <= 3 + 60 + 2 + len("1.00 ms")
    assert " " * 50 not in quick


def test_no_control_character_comes_through(made: Made) -> None:
    for name in HOSTILE:
        shown = _shown(
            group_and_rank_launches([made(name, report=f"{name[:200]}.ncu-rep", variant=name[:50])])
        )
        assert not [c for c in shown if ord(c) < 32 and c != "\n"]
        assert "\x9b" not in shown
        shown.encode("utf-8")


def test_markup_in_a_name_is_text(made: Made) -> None:
    shown = _shown(
        group_and_rank_launches([made("[red]x[/red]")]),
        force_terminal=True,
        color_system="standard",
    )
    assert "[red]x[/red]" in shown
    assert "\x1b[31mx" not in shown


def test_a_row_says_time_share_bound_and_finding(made: Made) -> None:
    table = _table(_shown(group_and_rank_launches([made("slow", 3e-3), made("quick", 1e-3)]), 120))
    assert " ".join(table[1].split()) == (
        "1 slow a.ncu-rep #0 3.00 ms 75 % memory: shared shared-bank-conflicts 7.90x (3.30 to 7.98)"
    )


def test_many_launches_are_one_row_with_their_spread(made: Made) -> None:
    shown = _shown(
        group_and_rank_launches([made(time=(10 + i) * 1e-6, index=i) for i in range(105)])
    )
    assert "105 launches, 6.51 ms in all; median 62.0 µs (10.0 to 114)" in shown


def test_the_diagnosis_has_gain_evidence_advice_and_what_is_not_known(made: Made) -> None:
    shown = " ".join(_shown(group_and_rank_launches([made(values=WIDE)])).split())
    assert (
        "shared-bank-conflicts, expect 4.31x to 24.4x, at most 24.4x; "
        "`profkit ablate` can measure it: 96.9 % of the shared" in shown
    )
    assert "excess_shared_wavefronts 96.9 %" in shown
    assert "try: Pad rows" in shown
    assert "not checked without --set full (" in shown
    assert "LaunchStats" in shown.partition("--set full (")[2].partition(")")[0]
    assert "NVIDIA's CPIStall: Warp Stall (estimate: 25 % of its unit's time only)" in shown


def test_what_a_small_set_leaves_open_is_said_once(made: Made) -> None:
    runs = [made(kernel=f"k{i}", index=i, values={}) for i in range(3)]
    shown = _shown(group_and_rank_launches(runs))
    assert shown.count("not checked without --set full (") == 1
    assert shown.count("not checked, as in the launch before: ") == 2
    assert shown.count("not known") <= 6


def test_what_to_doubt_of_the_measurement_stands_apart(made: Made) -> None:
    clocks = {"sm_clock": 0.8e9, "sm_clock_max": 2e9, "dram_clock": 6e9, "dram_clock_max": 6e9}
    shown = _shown(group_and_rank_launches([made(values=clocks)]))
    findings, _, doubts = shown.partition("About the measurement")
    assert "clocks-unsteady: the SM clock was 800 of 2,000 MHz (40 %): ncu locks it" in " ".join(
        doubts.split()
    )
    assert "clocks-unsteady" not in findings
    assert "gain unknown" not in doubts


def test_a_failed_launch_says_so(made: Made) -> None:
    shown = _shown(group_and_rank_launches([made(status="failed")]))
    assert "failed" in shown
    assert "could not profile" in shown


def test_hot_lines_are_listed(made: Made) -> None:
    line = HotLine("/src/k.cu", 41, "x = [red]y;\x1b[2J", 120, 0.25, "barrier", 0.8)
    shown = _shown(group_and_rank_launches([made(lines=(line,))]))
    said = "25 % at k.cu:41 (80 % of it barrier) x = [red]y;\\x1b[2J"
    assert said in " ".join(shown.split())


def test_hidden_rows_are_counted_and_the_first_three_told(made: Made) -> None:
    table = group_and_rank_launches([made(f"kernel_{i}") for i in range(20)])
    shown = _shown(table, details=3)
    assert "12 of 20 rows shown (--all)" in " ".join(shown.split())
    assert len([line for line in shown.splitlines() if line.startswith(("3. ", "4. "))]) == 1


# --- the answer in three sentences ---


def test_the_answer_comes_first(made: Made) -> None:
    table = group_and_rank_launches([made("slow<int>(float *)", 3e-3), made("quick", 1e-3)])
    assert write_headline(table) == [
        "slow<int> is limited by shared memory: 87.5 % of the shared-memory wavefronts are "
        "bank conflicts (8 wavefronts where 1 would do).",
        "Pad rows by one access width, swizzle 16-byte chunks with the row, or use ldmatrix on a "
        "conflict-free layout: expect 7.90x (3.30 to 7.98), at most 7.98x, saving about 2.62 ms of "
        "4.00 ms in all.",
    ]
    assert _shown(table).startswith("slow<int> is limited by shared memory: 87.5 %")


def test_the_answer_names_the_line_where_it_is_known(made: Made) -> None:
    run = made()
    top = replace(run.diagnosis.findings[0], where=(SourceLine("/s/k.cu", 18, "wait", 0.6),))
    found = replace(run.diagnosis, findings=(top, *run.diagnosis.findings[1:]))
    assert write_headline(group_and_rank_launches([replace(run, diagnosis=found)]))[0].startswith(
        "f is limited by shared memory: 87.5 % of the shared-memory wavefronts are bank conflicts (8 "
        "wavefronts where 1 would do), 60 % of it at k.cu:18."
    )


def test_an_answer_of_nothing_and_of_not_known(made: Made) -> None:
    run = made()
    clear = Diagnosis("memory", "dram", "dram at 93 % of peak", (), ())
    assert write_headline(group_and_rank_launches([replace(run, diagnosis=clear)])) == [
        "f is limited by DRAM bandwidth: dram at 93 % of peak.",
        "No rule finds a cause to fix: less work is what would make it faster.",
    ]
    unknown = Diagnosis("unknown", None, "no throughput was collected", (), ())
    told_of = write_headline(group_and_rank_launches([replace(run, diagnosis=unknown)]))
    assert told_of[0].startswith("f waits, and what it waits for was not collected")
    assert "ncu --set full" in told_of[1]
    assert write_headline([]) == []


def test_a_finding_without_a_gain_promises_none(made: Made) -> None:
    run = made(time=1e-3)
    finding = LaunchFinding(
        rule="cache-resident", status="fires", cause="it is", advice="Look. Twice."
    )
    judged = replace(run.diagnosis, findings=(finding,))
    assert write_headline(group_and_rank_launches([replace(run, diagnosis=judged)]))[1:] == [
        "Look; the gain is not known. It takes 1.00 ms.",
    ]


def test_the_next_commands_have_the_real_names_in_them(made: Made) -> None:
    table = group_and_rank_launches(
        [made("slow<int>(float *)", 3e-3, report="my runs/a.ncu-rep"), made("quick")]
    )
    lines = [command.line for command in suggest_next_commands(table, are_lines_shown=False)]
    assert "profkit explain shared-bank-conflicts" in lines
    assert "profkit diagnose 'my runs/a.ncu-rep' --kernel slow --lines 5" in lines
    page = [command.line for command in suggest_next_commands(table, are_lines_shown=True)]
    assert "profkit report 'my runs/a.ncu-rep' a.ncu-rep -o page.html" in page
    hostile = [
        command.line
        for command in suggest_next_commands(
            group_and_rank_launches([made("\x1b[2J;rm -rf")]), False
        )
    ]
    assert not [line for line in hostile if "rm -rf" in line or "\x1b" in line]


def test_every_word_of_the_verdict_has_plain_words() -> None:
    assert set(words.WAITS) == set(WAITING)
    assert set(words.UNITS) == {resource.limiter for resource in RESOURCES}
    assert set(words.SHAPES) == {r.shape for r in ALL if r.shape}
    assert set(words.BOUNDS) == {"memory", "compute", "latency", "launch", "balanced", "unknown"}


@pytest.mark.parametrize(
    ("bound", "limiter", "said"),
    [
        (
            "latency",
            "short_scoreboard",
            "waits for data from shared memory or special functions (short-scoreboard)",
        ),
        ("launch", "tail", "is limited by a last wave of blocks that fills only some SMs"),
        ("balanced", "dram+fp32", "is limited by DRAM bandwidth and the FP32 pipe"),
        ("latency", None, "is limited by latency"),
        ("unknown", None, "waits, and what it waits for was not collected"),
    ],
)
def test_the_verdict_in_plain_words(bound, limiter, said) -> None:
    assert words.say_verdict(Diagnosis(bound, limiter, "", (), ())) == said


def test_a_unit_that_the_verdict_names_is_named_once(made: Made) -> None:
    text = " ".join(write_headline(group_and_rank_launches([made("k", rule="dram-bandwidth")])))
    assert text.startswith("k is limited by DRAM bandwidth, at ")
