"""Real reports, the committed ones and those of others: read whole, and never ok when damaged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from profkit.reports import reader
from profkit.reports.container import check_report_bytes
from profkit.reports.isolated import count_processors_to_use, run_in_child_processes
from profkit.reports.reader import read_report_files
from tests.conftest import CORPUS, committed, kinds, others
from tests.reports.child import in_a_child
from tests.sweeps import take_part

pytestmark = pytest.mark.slow

ALL = [*committed(), *others()]
# Those that read in milliseconds, for what is done hundreds of times.
SMALL = [
    p
    for p in [*kinds(), *others()]
    if p.stat().st_size < (4 << 20 if p.suffix == ".ncu-rep" else 1 << 20)
]
DAMAGED = len(take_part(range(200), one_of=8))  # of each kind
LACKING = r"launch \d+ has no \S+( \(and \d+ more\))?, which the report names"


def _id(path: Path) -> str:
    return path.name[:40]


@pytest.mark.parametrize("path", take_part(ALL, one_of=10), ids=_id)
@in_a_child
def test_is_whole(path: Path) -> None:
    """As its bytes say and as the library reads them; of the bytes of all, the next test."""
    frames = check_report_bytes(path)
    assert frames.status == "ok"
    # Launches of different kinds, or metrics that ncu asked for and did not get.
    assert frames.message == "" or re.fullmatch(LACKING, frames.message)
    assert frames.launches == sum(1 for _ in reader.iterate_actions(str(path)))
    assert re.fullmatch(r"20\d\d\.\d\.\d\.\d", frames.ncu_version or "")


def test_few_launches_lack_what_their_report_names() -> None:
    every = [check_report_bytes(path) for path in ALL]
    assert {frames.status for frames in every} == {"ok"}
    assert min(frames.launches for frames in every) >= 1
    assert all(re.fullmatch(LACKING, frames.message) for frames in every if frames.message)
    assert sum(bool(frames.message) for frames in every) <= len(ALL) // 20


@pytest.mark.parametrize("path", others(), ids=_id)
@in_a_child
def test_versions_and_launches_of_others(path: Path) -> None:
    """Their names say which ncu wrote them, their list how many launches they hold."""
    lines = (CORPUS / "README.md").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"| {path.name} ")]
    cells = [cell.strip() for cell in line.split("|")]
    frames = check_report_bytes(path)
    assert frames.ncu_version == path.name.split("_")[2] == cells[4]
    assert frames.launches == int(cells[5])
    launches = read_report_files([path]).launches
    assert set(launches.cc) == {cells[3]}
    assert set(launches.device) == {cells[2]}
    failed = (launches.status == "failed").sum()
    assert (failed > 0) == ("failed-action" in cells[6])
    assert (failed == len(launches)) == ("ALL-failed" in cells[6])
    assert launches.nvtx.notna().any() == ("nvtx-ranges" in cells[6])


def test_one_process_or_two_give_the_same() -> None:
    some = take_part(SMALL, one_of=8)
    one, two = read_report_files(some, jobs=1), read_report_files(some, jobs=2)
    assert one.files == two.files
    assert one.launches.equals(two.launches)
    assert one.rules.equals(two.rules)


@pytest.mark.parametrize("how", ["cut", "overwritten"])
def test_none_that_lost_anything_is_ok(how: str) -> None:
    """Seeded: the same damage on every run. An overwrite of nothing but values is not seen."""
    items = [(str(SMALL[n % len(SMALL)]), how, n) for n in range(DAMAGED)]
    died = "tests.reports.damage:verdict"
    found = run_in_child_processes(
        died, items, count_processors_to_use(), lambda _item, why: ("damaged", why, [])
    )
    ok = [lost for status, _, lost in found if status == "ok"]
    assert [lost for lost in ok if lost] == []
    assert all(message for status, message, _ in found if status != "ok")
    if how == "cut":
        assert not ok
    else:  # what hits machine code, source text or a rule's words loses no launch
        assert len(ok) < DAMAGED // 2


def test_what_is_left_of_the_damaged_is_read(tmp_path: Path) -> None:
    """Cut in the last tenth, a report of many launches still gives most of them."""
    many = max(ALL, key=lambda path: check_report_bytes(path).launches)
    data = many.read_bytes()
    cut = tmp_path / many.name
    cut.write_bytes(data[: len(data) * 9 // 10])
    before, after = read_report_files([many]), read_report_files([cut])
    assert after.files[0].status == "damaged"
    # The last tenth of what is packed is more than a tenth of the report.
    most = 8 if many.suffix == ".ncu-rep" else 5
    assert len(after.launches) >= len(before.launches) * most // 10
    both = min(len(after.launches), len(before.launches)) - 1  # the last one may be half there
    assert after.launches.time[:both].equals(before.launches.time[:both])
