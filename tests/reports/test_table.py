"""What `ncu --csv` prints, as several versions lay it out: the frame of the report."""

from __future__ import annotations

import csv
import hashlib
import io
from pathlib import Path
from typing import Any

import pytest

from profkit.errors import ProfkitError
from profkit.reports import raw_counters as table
from profkit.reports.frame import ReportFile
from profkit.reports.metrics import CATALOGUE
from profkit.reports.raw_counters import open_printed_table
from profkit.reports.reader import load_reports, read_raw_frame, read_report_files
from tests.conftest import committed

REPORT = next(p for p in committed() if p.name == "copy.1GiB.ncu-rep")
FRONT = {  # columns in front by version, and what stands in them for one launch
    "2019": {
        "ID": "0",
        "Process ID": "7",
        "Process Name": "a.out",
        "Host Name": "127.0.0.1",
        "Kernel Name": "copy(float*)",
        "Kernel Time": "2020-May-29 12:02:46",
        "Context": "1",
        "Stream": "7",
    },
    "2022": {
        "ID": "0",
        "Process ID": "7",
        "Process Name": "a.out",
        "Host Name": "127.0.0.1",
        "Kernel Name": "copy(float*)",
        "Context": "1",
        "Stream": "7",
        "Block Size": "(256, 1, 1)",
        "Grid Size": "(1056, 1, 1)",
        "Device": "0",
        "CC": "9.0",
    },
    "nvtx": {
        "ID": "0",
        "Process ID": "7",
        "Process Name": "a.out",
        "Host Name": "127.0.0.1",
        "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg": "",
        "Kernel Name": "copy(float*)",
        "Context": "1",
        "Stream": "7",
        "Block Size": "256,  1,  1",
        "Grid Size": "1056,  1,  1",
        "Device": "NVIDIA H200",
        "CC": "9.0",
    },
}
METRICS = {  # name -> (unit, value) scaled, (unit, value) in base units
    "gpu__time_duration.sum": (("usecond", "12.50"), ("nsecond", "12,500")),
    "dram__bytes_read.sum": (("Mbyte", "2,000.25"), ("byte", "2,000,250,000")),
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": (("%", "80.50"), ("%", "80.5")),
    "sm__cycles_elapsed.avg.per_second": (("Ghz", "1.98"), ("hz", "1,980,000,000")),
    "dram__cycles_elapsed.avg.per_second": (("cycle/nsecond", "2.50"), ("cycle/second", "2.5e9")),
    "launch__grid_size": (("", "1,056"), ("", "1056")),
    "launch__shared_mem_per_block_allocated": (("Kbyte/block", "49.15"), ("byte/block", "49,152")),
    "smsp__inst_executed.sum": (("inst", "1,000,000"), ("inst", "1,000,000")),
}
EXPECTED = {
    "time": 12.5e-6,
    "dram_read": 2.00025e9,
    "dram_busy": 0.805,
    "sm_clock": 1.98e9,
    "dram_clock": 2.5e9,
    "grid_size": 1056,
    "instructions": 1e6,
}


def printed(rows: list[list[str]], noise: bool = True) -> str:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows(rows)
    if not noise:
        return out.getvalue()
    head = '==PROF== Connected to process 7\n==PROF== Profiling "copy": 0%....100%\nall, "done"\n'
    return head + out.getvalue() + "==PROF== Disconnected from process 7\n"


def wide(version: str, base: bool) -> str:
    front, values = FRONT[version], {name: both[base] for name, both in METRICS.items()}
    head = [*front, *values]
    units = [*[""] * len(front), *(unit for unit, _ in values.values())]
    return printed([head, units, [*front.values(), *(value for _, value in values.values())]])


def long(version: str, base: bool) -> str:
    front = FRONT[version]
    head = [*front, "Section Name", "Metric Name", "Metric Unit", "Metric Value"]
    section = "Command line profiler metrics"
    body = [[*front.values(), section, name, *both[base]] for name, both in METRICS.items()]
    return printed([head, *body])


@pytest.mark.parametrize("layout", [wide, long])
@pytest.mark.parametrize("base", [False, True])
@pytest.mark.parametrize("version", FRONT)
def test_every_layout_gives_the_same_values(tmp_path, layout, base, version):
    path = tmp_path / "raw.csv"
    path.write_text(layout(version, base))
    frame = load_reports(path)
    assert len(frame) == 1
    for name, value in EXPECTED.items():
        assert frame.loc[0, name] == pytest.approx(value), name
    assert frame.loc[0, "shared_block"] == pytest.approx(49152, rel=1e-3)
    assert frame.loc[0, "kernel"] == "copy(float*)"
    if version != "2019":
        assert frame.loc[0, ["grid", "block", "cc"]].tolist() == [(1056, 1, 1), (256, 1, 1), "9.0"]
    assert frame.loc[0, "device"] == ("NVIDIA H200" if version == "nvtx" else None)


def test_a_report_printed_raw_reads_like_the_report(tmp_path):
    values = read_raw_frame(REPORT).iloc[0].dropna().to_dict()
    front = FRONT["2022"]
    rows = [
        [*front, *values],
        [""] * (len(front) + len(values)),
        [*front.values(), *map(str, values.values())],
    ]
    path = tmp_path / "copy.csv"
    path.write_text(printed(rows))
    made, original = load_reports(path), load_reports(REPORT)
    for name in CATALOGUE:
        if not name.startswith(("inst_", "declared_")):
            assert made.loc[0, name] == pytest.approx(original.loc[0, name], nan_ok=True), name
    assert made.loc[0, "device"] == original.loc[0, "device"]


def read_launches(text: str, name: str) -> list[dict[str, Any]]:
    return list(open_printed_table(text.splitlines, name).iterate_launches())


@pytest.mark.parametrize("size", [(1 << 17) + 1, 3 << 20, 12 << 20])
@pytest.mark.parametrize("at", ["before", "head", "row"])
def test_a_field_too_long_for_a_table_is_a_clear_error(size, at):
    texts = {"before": "", "head": "ID,Kernel Name,sm__cycles_elapsed.max", "row": "0,k,1"}
    texts[at] += "," + "x" * size
    with pytest.raises(ProfkitError, match=r"x\.csv: no table that can be read: field larger"):
        read_launches("\n".join(texts.values()), "x.csv")


def test_a_table_without_units_is_in_base_units(tmp_path):
    lines = wide("2022", base=True).splitlines()
    text = "\n".join(line for line in lines if "nsecond" not in line)
    path = tmp_path / "raw.csv"
    path.write_text(text)
    assert load_reports(path).loc[0, "time"] == pytest.approx(12.5e-6)


def test_a_launch_of_no_named_process_is_no_line_of_units():
    """Of a line of units the first cell is blank; other cells of a launch may be."""
    head = ["ID", "Process Name", "Kernel Name", "gpu__time_duration.sum"]
    rows = read_launches(
        printed([head, ["0", "", "copy", "12500"], ["1", "", "copy", "500"]]), "raw.csv"
    )
    assert [row["gpu__time_duration.sum"] for row in rows] == [12_500, 500]


@pytest.mark.parametrize(
    ("cc", "known"),
    [
        ("9.0", (9, 0)),
        ("12.1", (12, 1)),
        ("9", None),
        ("9.", None),
        (".0", None),
        ("sm_90", None),
        ("", None),
    ],
)
def test_a_compute_capability_is_two_numbers_or_not_known(cc, known):
    head = ["ID", "Kernel Name", "CC", "gpu__time_duration.sum"]
    (row,) = read_launches(printed([head, ["0", "copy", cc, "12500"]]), "raw.csv")
    names = (f"device__attribute_compute_capability_{part}" for part in ("major", "minor"))
    assert tuple(row.get(name) for name in names) == (known or (None, None))


def test_what_stands_before_the_header_is_no_launch():
    head = ["ID", "Kernel Name", "gpu__time_duration.sum"]
    noise = ["epoch", "loss", "0.5"]
    likely = [["ID", "loss", "0.5"], ["epoch", "ID", "Kernel Name"]]
    printed_ = printed([noise, *likely, head, ["0", "copy", "12500"], head, noise[:2]])
    rows = read_launches(printed_, "raw.csv")
    assert [row["gpu__time_duration.sum"] for row in rows] == [12_500]


@pytest.mark.parametrize(
    ("unit", "factor"),
    [
        ("byte", 1),
        ("b", 1),
        ("Kbyte", 1e3),
        ("Mbyte/second", 1e6),
        ("Gb/s", 1e9),
        ("Pbyte", 1e15),
        ("second", 1),
        ("ms", 1e-3),
        ("usecond", 1e-6),
        ("nsecond", 1e-9),
        ("Ghz", 1e9),
        ("hz", 1),
        ("cycle/nsecond", 1e9),
        ("Kbyte/block", 1e3),
        ("Top/s", 1e12),
        ("Kinst", 1),
        ("inst", 1),
        ("%", 1),
        ("", 1),
    ],
)
def test_a_unit_with_its_prefix_becomes_si(unit, factor):
    """A prefix counts before a unit that has prefixes: Kinst would be a word of its own."""
    assert table._get_factor_of_printed_unit(unit) == pytest.approx(factor)


def test_numbers_of_another_locale_are_read_by_the_whole_table():
    head = [*FRONT["2022"], "Section Name", "Metric Name", "Metric Unit", "Metric Value"]
    front = [*FRONT["2022"].values(), "s"]
    text = printed(
        [
            head,
            [*front, "gpu__time_duration.sum", "ns", "117.344"],
            [*front, "dram__bytes_read.sum", "byte", "27.595.520"],
            [*front, "l1tex__t_sector_hit_rate.pct", "%", "1,25"],
        ]
    )
    (row,) = read_launches(text, "raw.csv")
    assert row["gpu__time_duration.sum"] == pytest.approx(117_344)
    assert row["dram__bytes_read.sum"] == 27_595_520
    assert row["l1tex__t_sector_hit_rate.pct"] == pytest.approx(1.25)


def test_instances_behind_a_value_are_read_by_their_names():
    head = [*FRONT["2022"], "sass__inst_executed_per_opcode"]
    cells = [*FRONT["2022"].values(), "1,009 (FFMA: 1,000; MUFU: 9)"]
    (row,) = read_launches(printed([head, [""] * len(head), cells]), "raw.csv")
    assert row["sass__inst_executed_per_opcode"] == 1009
    assert row["sass__inst_executed_per_opcode[FFMA]"] == 1000
    assert row["sass__inst_executed_per_opcode[MUFU]"] == 9


def test_not_available_is_not_zero():
    head = [*FRONT["2022"], "gpu__time_duration.sum", "dram__bytes_read.sum"]
    rows = [head, [""] * len(head), [*FRONT["2022"].values(), "n/a", ""]]
    (row,) = read_launches(printed(rows), "raw.csv")
    assert "gpu__time_duration.sum" not in row
    assert "dram__bytes_read.sum" not in row


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "has no line with ID and Kernel Name"),
        (
            printed(
                [
                    [*FRONT["2022"], "Section Name", "Metric Name", "Metric Unit", "Metric Value"],
                    [*FRONT["2022"].values(), "Speed", "Duration", "us", "1"],
                ]
            ),
            "has labels",
        ),
        (printed([[*FRONT["2022"]], [*FRONT["2022"].values()]]), "no column is a metric"),
    ],
)
def test_another_table_is_no_report_and_says_how_to_print_one(tmp_path, text, said):
    with pytest.raises(ProfkitError) as error:
        read_launches(text, "x.csv")
    assert said in error.value.message
    assert "--page raw" in error.value.hint
    path = tmp_path / "x.csv"
    path.write_text(text)
    (file,) = read_report_files([path]).files
    assert (file.status, file.launches) == ("unreadable", 0)
    assert said in file.message


def test_empty_and_missing_tables_say_so(tmp_path):
    (tmp_path / "e.csv").write_text("")
    files = read_report_files([tmp_path / "e.csv", tmp_path / "gone.csv"]).files
    assert [f.status for f in files] == ["empty", "unreadable"]


def _table(*rows: list[str]) -> str:
    return printed([["ID", "Process ID", "Kernel Name", *TWO], *rows], noise=False)


TWO = ["gpu__time_duration.sum", "launch__grid_size"]


def test_launches_of_a_long_table_are_told_apart_by_process_and_number():
    """Their metrics may stand between each other's: a launch is where its first one is."""
    head = ["ID", "Process ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value"]
    time, size = TWO
    body = [
        ["1", "7", "b", time, "ns", "2"],
        ["0", "7", "a", time, "ns", "1"],
        ["1", "8", "c", time, "us", "3"],
        ["0", "7", "a", size, "", "10"],
        ["1", "7", "b", size, "", "20"],
        ["1", "7", "b", "Duration", "us", "9"],
    ]
    rows = read_launches(printed([head, *body]), "raw.csv")
    assert rows == [
        {"kernel": "b", time: 2.0, size: 20.0},
        {"kernel": "a", time: 1.0, size: 10.0},
        {"kernel": "c", time: pytest.approx(3000.0)},
    ]


def test_a_row_that_is_cut_is_no_launch_and_the_others_keep_their_order():
    text = _table(["0", "7", "a", "1", "2"], ["1", "7", "b", "1"], ["2", "7", "c", "3", "4"])
    assert read_launches(text, "raw.csv") == [
        {"kernel": "a", TWO[0]: 1.0, TWO[1]: 2.0},
        {"kernel": "c", TWO[0]: 3.0, TWO[1]: 4.0},
    ]


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("+5", 5),
        ("-5", -5),
        ("1e9", 1e9),
        ("1.5E-3", 1.5e-3),
        (" 7 ", 7),
        ("0", 0),
        ("1\u202f056", 1056),
        ("1\xa0056", 1056),
        ("1,056.5", 1056.5),
        ("1.2.3.4", None),
        (".", None),
        ("seven", None),
        ("7 blocks", None),
        ("-", None),
    ],
)
def test_what_is_a_number(cell, value):
    assert [row.get(TWO[1]) for row in read_launches(_table(["0", "7", "a", "1", cell]), "x")] == [
        value
    ]


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1,5", "1.056"], [1.5, 1056]),  # one cell says it for the whole table
        (["1.234.567", "0,125"], [1234567, 0.125]),
        (["1.056,25", "7"], [1056.25, 7]),
        (["1,056", "1.056"], [1056, 1.056]),  # neither of these does
        (["1,056,000", "2.5"], [1056000, 2.5]),
    ],
)
def test_a_comma_is_the_decimal_mark_where_it_can_be_nothing_else(cells, values):
    (row,) = read_launches(_table(["0", "7", "a", *cells]), "x")
    assert [row[name] for name in TWO] == values


def test_the_instances_of_a_scaled_value_are_scaled_too_and_such_as_are_no_numbers_are_none():
    head = ["ID", "Kernel Name", "dram__bytes_read.sum"]
    cell = "2.5 (one: 1.5; two: n/a; three: 1)"
    (row,) = read_launches(printed([head, ["", "", "Mbyte"], ["0", "a", cell]]), "x")
    name = head[2]
    assert row == {"kernel": "a", name: 2.5e6, f"{name}[one]": 1.5e6, f"{name}[three]": 1e6}


@pytest.mark.parametrize(
    ("content", "status", "message", "launches"),
    [
        (
            _table(["0", "7", "a", "1", "2"], ["1", "7", "b", "3", "4"]).encode("utf-8-sig"),
            "ok",
            "",
            2,
        ),
        (_table(["0", "7", "caf\xe9", "1", "2"]).encode("latin-1"), "ok", "", 1),
        (_table().encode(), "empty", "a header without launches", 0),
        (_table(["", "", "", "ns", ""]).encode(), "empty", "a header without launches", 0),
        (b" \n", "empty", "0 bytes", 0),
        (
            b"a,b\n",
            "unreadable",
            "has no line with ID and Kernel Name: print it with: ncu --import "
            "REPORT --csv --page raw > FILE.csv",
            0,
        ),
        (b"x" * 1001, "unreadable", "is larger than 0 MB", 0),
    ],
)
def test_what_a_table_s_file_is(tmp_path, monkeypatch, content, status, message, launches):
    monkeypatch.setattr(table, "TABLE_MOST", 1000)
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    part = table.read_printed_table(str(path))
    sha256 = None if len(content) > 1000 else hashlib.sha256(content).hexdigest()
    assert part.file == ReportFile(str(path), sha256, status, message, launches, None)
    assert [row["launch"] for row in part.iterate_launches()] == [*range(launches)]
    if b"caf" in content:
        assert [row["kernel"] for row in part.iterate_launches()] == [r"caf\xe9"]


def test_a_row_of_cells_without_end_is_refused() -> None:
    head = ["ID", "Kernel Name", *TWO]
    assert len(read_launches(printed([head, ["0", "a", "1", "2"]]) + "\n" * 1000, "x.csv")) == 1
    for wrong in ("," * 200_000, '"\n",' * 200_000):
        with pytest.raises(ProfkitError, match="has a row of more than 100,000 cells"):
            read_launches(printed([head, ["0", "a", "1", "2"]]) + f"\n{wrong}\n", "x.csv")


def test_more_launches_than_a_table_has_bytes_for_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.csv"
    rows = [[str(n), "a", "1", "2"] for n in range(200)]
    path.write_text(printed([["ID", "Kernel Name", *TWO], *rows]))
    assert table.read_printed_table(str(path)).file.launches == 200
    monkeypatch.setattr(table.ReadBudget, "DOCUMENT", 0)
    file = table.read_printed_table(str(path)).file
    assert file.status == "unreadable"
    assert file.message == "it asks for more memory than its bytes can need"


def test_a_letter_that_is_no_ascii_is_read_wherever_a_piece_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.csv"
    rows = [[str(n), "\u00fc" * n, "1", "2"] for n in range(9)]
    path.write_text("\ufeff" + printed([["ID", "Kernel Name", *TWO], *rows]), encoding="utf-8")
    for piece in (1, 7, 1000):
        monkeypatch.setattr(table, "_PIECE", piece)
        part = table.read_printed_table(str(path))
        assert [row[2] or "" for row in part.identity] == [row[1] for row in rows]
