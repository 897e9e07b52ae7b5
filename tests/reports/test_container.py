"""The frame check: a whole report is ok, and nothing else is."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.reports import container, contents
from profkit.reports.container import check_report_bytes, write_readable_rest_of_report
from tests.reports import made

NAMES = [*made.METRICS]
OPCODES = "sass__inst_executed_per_opcode"
WHOLE = made.report([made.result(NAMES)] * 3, NAMES)


@pytest.fixture
def at(tmp_path: Path):
    """Bytes -> the frame check of a file that holds them."""

    def checked(data: bytes, name: str = "made.ncu-rep") -> container.ContainerVerdict:
        path = tmp_path / name
        path.write_bytes(data)
        return check_report_bytes(path)

    return checked


def test_whole(at) -> None:
    frames = at(WHOLE)
    assert (frames.status, frames.message) == ("ok", "")
    assert (frames.launches, frames.ncu_version) == (3, "2025.3.1.0")
    assert len(frames.sha256) == 64


@pytest.mark.parametrize(
    "start",
    [b"", b"text", b"NVR\0", WHOLE, WHOLE[:-5], zstandard.FRAME_HEADER, zstandard.compress(WHOLE)],
)
def test_a_hole_is_not_read(tmp_path: Path, monkeypatch, start: bytes) -> None:
    """A file of 12 GB of which nearly all is a hole: 46 s to read, whatever it begins with."""
    path = tmp_path / "hole.ncu-rep"
    with path.open("wb") as file:
        file.write(start)
        file.truncate(12 << 30)
    real, taken = container.open_regular_file, []

    @contextlib.contextmanager
    def open_counting(name: str):
        with real(name) as file:
            counted = SimpleNamespace(fileno=file.fileno, seek=file.seek, tell=file.tell)
            counted.read = lambda size: taken.append(size) or file.read(size)
            yield counted

    monkeypatch.setattr(container, "open_regular_file", open_counting)
    monkeypatch.setattr(container, "SMALL", 1 << 20)
    monkeypatch.setattr(contents, "HOLLOW_BYTES", 1 << 20)
    found = check_report_bytes(path)
    assert found.status == ("damaged" if start not in (b"", b"text") else "unreadable")
    assert found.sha256 is None
    assert sum(taken) < 10 << 20


@pytest.mark.slow
def test_every_truncation_is_seen_but_those_between_launches(at) -> None:
    data = made.report([made.result(NAMES)] * 2, NAMES)
    second = len(made.block([made.result(NAMES)]))
    verdicts = {cut: at(data[:cut]).status for cut in range(len(data))}
    assert verdicts.pop(0) == "empty"
    # What only the run record's sha256 can see; before the session's details it is at least said.
    assert verdicts.pop(len(data) - second) == "ok"
    first = len(data) - second - len(made.block(session=made.details()))
    assert verdicts.pop(first) == "ok"
    assert at(data[:first]).message == container.NO_SESSION
    # Behind the file header, the first session block and the source it is whole, without a launch.
    assert Counter(verdicts.values()) == {"damaged": len(data) - 6, "empty": 3}


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=60))
def test_an_overwrite_never_raises_and_ok_keeps_every_launch(offset: int, noise: bytes) -> None:
    path = Path(os.environ["PYTEST_TMP"]) / "over.ncu-rep"
    path.write_bytes(WHOLE[:offset] + noise + WHOLE[offset + len(noise) :])
    frames = check_report_bytes(path)
    if frames.status == "ok":
        assert (frames.launches, frames.ncu_version is None) == (3, False)


@pytest.fixture(autouse=True)
def _folder(tmp_path_factory, monkeypatch) -> None:
    # hypothesis and function-scoped fixtures do not go together
    monkeypatch.setenv("PYTEST_TMP", str(tmp_path_factory.getbasetemp()))


@pytest.mark.parametrize(
    ("data", "status", "said"),
    [
        (b"", "empty", "0 bytes"),
        (b"NVR", "damaged", "first 4 bytes"),
        (b"root:x:0:0:root:/root:/bin/bash\n", "unreadable", "not an Nsight Compute report"),
        (b"SQLite format 3\0", "unreadable", "not an Nsight Compute report"),
        (b"NVR\0" + made.frame(made.field(1, 7)), "empty", "no launch"),
        (WHOLE + b"\0\0", "damaged", "it is cut off"),
        (
            WHOLE + made.frame(made.field(2, 1) + made.field(5, 0)),
            "damaged",
            "as long as its header",
        ),
        (WHOLE + made.frame(made.field(2, 1) + made.field(5, 8)), "damaged", "file ends"),
        # Counts that nothing could hold are no reason to try.
        (WHOLE + made.frame(made.field(2, 1 << 31) + made.field(5, 8)), "damaged", "as long as"),
        (
            WHOLE + made.frame(made.field(2, 1 << 29) + made.field(5, (1 << 32) - 1)),
            "damaged",
            "file ends",
        ),
        (WHOLE + made.frame(made.field(5, 9)), "damaged", "as long as its header says"),
        (made.report([made.result(NAMES)], NAMES[:3]), "damaged", "has no name"),
        (made.report(names=[*NAMES, "bad\x01name"]), "damaged", "names of metrics"),
        (made.report(names=[*NAMES, NAMES[0]]), "damaged", "names of metrics"),
    ],
)
def test_verdicts(at, data: bytes, status: str, said: str) -> None:
    frames = at(data)
    assert frames.status == status
    assert said in frames.message


def test_a_field_that_this_ncu_does_not_know_is_damage_and_a_newer_ncu_may_write_it(at) -> None:
    result = made.result(NAMES, extra=made.field(77, 1))
    assert at(made.report([result], NAMES)).status == "damaged"
    assert at(made.report([result], NAMES, "2031.1.0.0 (build 1)")).status == "ok"


def test_a_value_that_becomes_an_unknown_field_is_damage(at) -> None:
    double = made.field(3, 1500.0)
    assert at(WHOLE.replace(double, b"\x11" + double[1:], 1)).status == "damaged"


@pytest.mark.parametrize(
    ("samples", "risky"), [([0, 2, 4], False), ([0, 3, 2], True), ([0, 9, 9], True), (None, True)]
)
def test_warp_samples_that_may_crash_the_library(
    at, samples: list[int] | None, risky: bool
) -> None:
    times = b"".join(i.to_bytes(8, "little") for pair in enumerate(samples or [1]) for i in pair)
    taken = b"\0" * (16 * 4 + (samples is None))
    per_sm = made.field(1, 0) + made.field(2, times) + made.field(3, taken)
    entry = made.field(1, "pmsampling:x") + made.field(2, made.field(1, per_sm))
    frames = at(made.report([made.result(NAMES, extra=made.field(36, entry))], NAMES))
    assert (frames.status, frames.risky) == ("ok", risky)


def test_who_wrote_it(at) -> None:
    whole = made.report()
    assert at(made.report(version="2031.2.0.0 (build 9)")).ncu_version == "2031.2.0.0"
    other = at(whole.replace(b"Nsight Compute Target", b"Something quite other"))
    assert (other.status, other.ncu_version) == ("ok", None)
    # Some versions write a block for each thing they say, and the machine's last.
    apart = made.block(session=made.field(8, made.field(1, "CUDA Version") + made.field(2, "11.2")))
    last = made.block(session=made.field(4, made.field(1, "Linux")))
    separate = at(whole[: -len(made.block(session=made.details()))] + apart + last)
    assert (separate.status, separate.ncu_version) == ("ok", None)
    ended = at(whole[: -len(made.block(session=made.details()))])
    assert (ended.status, ended.launches, ended.ncu_version) == ("ok", 1, None)
    assert ended.message == container.NO_SESSION


def test_a_range_and_a_graph_are_launches(at) -> None:
    for counter in (7, 9):
        data = made.report([made.range_result(NAMES, made.METRICS)], NAMES, counter=counter)
        assert (at(data).status, at(data).launches) == ("ok", 1)


def test_long_texts_and_instances_are_walked(at) -> None:
    many = {f"OP{i}": float(i) for i in range(300)}
    result = made.result(
        [*NAMES, OPCODES],
        {**made.METRICS, "device__attribute_display_name": "ü" * 200},
        instances={OPCODES: many},
    )
    assert at(made.report([result], [*NAMES, OPCODES])).message == ""


def test_a_launch_without_what_the_report_names_is_told(at) -> None:
    """It was not measured there, or its id is damaged: nobody can say which."""
    frames = at(made.report([made.result(NAMES)], [*NAMES, OPCODES, "what__nobody_reads"]))
    said = f"launch 0 has no {OPCODES}, which the report names"
    assert (frames.status, frames.message) == ("ok", said)
    more, fewer = dict(made.METRICS), dict(made.TIME)
    two = made.report([made.result(NAMES, more), made.result(NAMES, fewer)], NAMES)
    assert at(two).message == (
        "launch 1 has no device__attribute_display_name (and 8 more), which the report names"
    )


def test_two_reports_in_one_file_are_damage(at) -> None:
    """One behind the other, without the second one's first bytes; other names, or the same."""
    other = made.report(names=["other__name.sum", *NAMES][:1], results=[made.result([], {})])
    for second in (WHOLE, other):
        joined = WHOLE + second[4 + 4 + 2 :]
        frames = at(joined)
        assert (frames.status, "two reports in one file" in frames.message) == ("damaged", True)


def test_compressed(at) -> None:
    packed = zstandard.compress(WHOLE)
    frames = at(packed, "made.ncu-repz")
    assert (frames.status, frames.launches, frames.wrong_suffix) == ("ok", 3, False)
    assert at(packed).wrong_suffix
    assert at(WHOLE, "made.ncu-repz").wrong_suffix
    assert at(packed[: len(packed) // 2], "made.ncu-repz").status == "damaged"
    assert at(packed[:20] + b"\xff" * 20 + packed[40:], "made.ncu-repz").status == "damaged"


def test_a_compressed_file_that_swells_is_left(at, monkeypatch) -> None:
    monkeypatch.setattr(container, "LIMIT", 10_000)
    bomb = (
        b"NVR\0" + made.frame(made.field(1, 7)) + (1 << 24).to_bytes(4, "little") + bytes(1 << 24)
    )
    assert at(zstandard.compress(bomb), "made.ncu-repz").status == "damaged"


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    assert "no such file" in check_report_bytes(tmp_path / "gone").message
    assert "folder" in check_report_bytes(tmp_path).message
    assert {check_report_bytes(tmp_path / "gone").status, check_report_bytes(tmp_path).status} == {
        "unreadable"
    }


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    path = tmp_path / "mine.ncu-rep"
    path.write_bytes(WHOLE)
    path.chmod(0)
    assert (check_report_bytes(path).status, check_report_bytes(path).message) == (
        "unreadable",
        "permission denied",
    )


def test_rescue_keeps_what_is_whole(tmp_path: Path) -> None:
    path, copy = tmp_path / "cut.ncu-rep", tmp_path / "left.ncu-rep"
    path.write_bytes(WHOLE[:-30])
    write_readable_rest_of_report(path, copy)
    assert (check_report_bytes(copy).status, check_report_bytes(copy).launches) == (
        "ok",
        3,
    )  # the cut one without its end
    assert b"GPU Speed Of Light Throughput" in copy.read_bytes()
    write_readable_rest_of_report(path, copy, metrics_only=True)
    assert b"GPU Speed Of Light Throughput" not in copy.read_bytes()


def test_launches_that_take_more_than_their_bytes_are_not_all_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch of 274 bytes is 2 kB of findings: without a bound a report could ask for any memory."""
    path = tmp_path / "many.ncu-rep"
    path.write_bytes(made.numbered(200))
    assert container.check_report_bytes(path).status == "ok"
    monkeypatch.setattr(container.ReadBudget, "DOCUMENT", 0)
    container._walked.clear()
    frames = container.check_report_bytes(path)
    assert frames.status == "damaged"
    assert "it asks for more memory than its bytes can need" in frames.message
