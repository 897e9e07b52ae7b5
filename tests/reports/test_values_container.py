"""The container byte by byte: field numbers, sizes and borders that a whole report never reaches."""

from __future__ import annotations

import hashlib
import random
import re
import struct
from itertools import pairwise
from pathlib import Path

import pytest
import zstandard

from profkit.reports import container, wire
from profkit.reports.container import check_report_bytes, write_readable_rest_of_report
from profkit.reports.contents import (
    _verify_metric,
    find_misplaced_ids,
    has_id_without_name,
    make_single_frame_header,
    parse_block_header,
    repair_result,
    verify_and_summarize_result,
)
from profkit.reports.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Malformed,
    MessageShape,
    Oddities,
    iterate_fields,
    load_message_shape,
    read_field,
    read_varint,
    verify_message,
)
from tests.reports import made

KERNEL, RANGE, LISTED, GRAPH = wire.KINDS


def test_a_message_is_described_by_its_fields_in_their_order() -> None:
    """Each number once, from the lowest up, and every message is part of a frame."""
    known = set()
    for name in ("FileHeader", "BlockHeader", "Source", *(kind.name for kind in wire.KINDS)):
        _collect(load_message_shape(name), known)
    lines = wire._list_field_lines()
    assert known == {name.removesuffix("|") for name in lines}
    for described in lines.values():
        numbers = [int(re.match(r"\d+", field)[0]) for field in described]
        assert numbers == sorted(set(numbers))


def _collect(shape: MessageShape, known: set[str]) -> None:
    known.add(shape.name)
    for part in shape.parts.values():
        _collect(part, known)


def test_where_a_kind_of_result_has_what_all_kinds_have() -> None:
    numbers = [(k.counter, k.metrics, k.nvtx, k.samples) for k in wire.KINDS]
    assert numbers == [(2, 13, 21, 36), (7, 4, 10, 22), (8, 4, 10, 26), (9, 4, 10, 24)]
    assert wire.COUNTERS == (1, 2, 7, 8, 9, 10)
    assert (wire.SESSION, wire.NAMES, wire.SIZE, wire.PROCESS) == (3, 4, 5, 6)
    for kind in wire.KINDS:
        assert kind.message.parts[kind.metrics].name == "Metric"
        assert kind.message.parts[kind.samples].name == "Samples"
        assert kind.message.parts[kind.nvtx].name == "Nvtx"


# --- varints and fields


@pytest.mark.parametrize("number", [0, 1, 0x7F, 0x80, 0x3FFF, 0x4000, 2**63, 2**64 - 1])
def test_a_varint_ends_where_it_ends(number: int) -> None:
    data = b"\xff" + made.varint(number) + b"\x00"
    assert read_varint(data, 1) == (number, len(data) - 1)


def test_ten_bytes_are_a_number_and_eleven_are_not() -> None:
    assert read_varint(b"\x80" * 9 + b"\x01", 0) == (1 << 63, 10)
    with pytest.raises(Malformed, match="64 bits"):
        read_varint(b"\x80" * 10 + b"\x01", 0)
    with pytest.raises(IndexError):
        read_varint(b"\x80", 0)


def test_one_field_at_an_offset() -> None:
    assert read_field(b"??" + made.field(5, 300), 2, 5) == (5, VARINT, 300, 0, 5)
    assert read_field(made.field(16, 7), 0, 3) == (
        16,
        VARINT,
        7,
        0,
        3,
    )  # a key of two bytes
    assert read_field(made.field(3, b"abc"), 0, 5) == (3, BYTES, 2, 5, 5)
    assert read_field(made.field(3, b"a" * 127), 0, 129) == (3, BYTES, 2, 129, 129)
    assert read_field(made.field(3, b"a" * 128), 0, 131) == (3, BYTES, 3, 131, 131)
    assert read_field(made.field(2, 1.5), 0, 9) == (2, FIXED64, 1, 9, 9)
    assert read_field(b"\x15abcd", 0, 5) == (2, FIXED32, 1, 5, 5)


@pytest.mark.parametrize("data", [made.field(3, b"abc"), made.field(2, 1.5), made.field(5, 300)])
def test_a_field_may_end_with_its_message_and_not_behind_it(data: bytes) -> None:
    assert read_field(data, 0, len(data))[4] == len(data)
    with pytest.raises(Malformed, match="leaves its message"):
        read_field(data, 0, len(data) - 1)


def test_no_fields_in_nothing() -> None:
    assert list(iterate_fields(b"", 0, 0)) == []
    assert list(iterate_fields(b"\x08\x01", 0, 2)) == [(1, VARINT, 1, 0)]


def _odd_of(data: bytes, name: str) -> str:
    odd = Oddities()
    verify_message(data, 0, len(data), load_message_shape(name), odd)
    return odd.first


@pytest.mark.parametrize(
    ("data", "odd"),
    [
        (made.field(1, 1) + made.field(3, 2), ""),
        (made.field(1, 1) + made.field(9, 2), "field 9 of Dimensions"),
        (made.field(1, 1) + made.field(1, 2), "field 1 of Dimensions twice"),
        (made.field(2, 1) + made.field(1, 2), "field 1 of Dimensions behind field 2"),
    ],
)
def test_what_no_known_ncu_writes_is_told(data: bytes, odd: str) -> None:
    assert _odd_of(data, "Dimensions") == odd


def test_a_value_is_one_value_and_a_list_may_be_long() -> None:
    assert _odd_of(made.field(3, 1.5), "MetricValue") == ""
    assert _odd_of(made.field(3, 1.5) + made.field(4, 1), "MetricValue") == (
        "a MetricValue with 2 values"
    )
    assert _odd_of(made.field(1, "a") * 9, "StringTable") == ""


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x88\x00\x01", "a number with zeros in front"),  # field 1 in two bytes
        (b"\x08\x81\x00", "a number with zeros in front"),
        (b"\x12\x81\x00a", "a number with zeros in front"),
        (b"\x08" + b"\xff" * 9 + b"\x03", "a number of more than 64 bits"),
    ],
)
def test_a_number_is_as_short_as_it_can_be(data: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why):
        read_field(data, 0, len(data))


def test_a_number_has_the_bits_of_its_kind() -> None:
    assert _odd_of(made.field(1, 2**32 - 1), "FileHeader") == ""
    with pytest.raises(Malformed, match="field 1 is too large a number"):
        _odd_of(made.field(1, 2**32), "FileHeader")
    with pytest.raises(Malformed, match="field 12 is too large a number"):
        _odd_of(made.field(12, 2), "SessionDetails")
    assert _odd_of(made.field(1, 2**64 - 1), "Dimensions") == ""


# --- block headers


@pytest.mark.parametrize("size", [0, 1, 122, 123, 124, 300, 20_000])
def test_the_header_of_one_frame_says_its_size(size: int) -> None:
    about = parse_block_header(make_single_frame_header(2, b"x" * size), Oddities())
    assert about.counts == {1: 0, 2: 1, 7: 0, 8: 0, 9: 0, 10: 0}
    assert about.size == 4 + size


def test_what_a_block_header_says() -> None:
    strings = made.field(1, "one__name.sum") + made.field(1, "another")
    process = made.field(6, made.field(1, 42))
    data = (
        made.field(1, 3) + made.field(2, 5) + made.field(4, strings) + made.field(5, 99) + process
    )
    about = parse_block_header(data, Oddities())
    assert {n: c for n, c in about.counts.items() if c} == {1: 3, 2: 5}
    assert (about.size, about.names, about.version) == (99, [b"one__name.sum", b"another"], None)
    assert about.process == process
    assert about.about == made.field(4, strings) + process


@pytest.mark.parametrize(
    ("session", "version"),
    [
        (b"", None),
        (made.details(), "2025.3.1.0"),
        (made.field(9, made.field(1, "Nsight Compute") + made.field(2, "9.9")), None),
        (made.field(8, made.field(1, "CUDA Version") + made.field(2, "13.0")), ""),
    ],
)
def test_who_wrote_it_is_in_the_session_s_versions(session: bytes, version: str | None) -> None:
    assert parse_block_header(session and made.field(3, session), Oddities()).version == version


def test_names_longer_than_a_byte_counts_and_with_newlines_are_walked() -> None:
    for name in ("n" * 127, "n" * 128, "n" * 10, "\u00fc" * 9):
        about = parse_block_header(
            made.field(4, made.field(1, "a") + made.field(1, name)), Oddities()
        )
        assert about.names == [b"a", name.encode()]
    long = made.field(4, made.field(1, "n" * 1001))
    assert parse_block_header(long, Oddities()).names is None, "each launch would say it again"
    assert parse_block_header(made.field(4, made.field(1, "a\nb")), Oddities()).names is None
    assert parse_block_header(made.field(4, made.field(1, "same") * 2), Oddities()).names is None
    assert parse_block_header(made.field(4, made.field(2, "a")), Oddities()).names is None
    two = made.field(4, made.field(1, "a")) + made.field(4, made.field(1, "b"))
    odd = Oddities()
    assert parse_block_header(two, odd).names == [b"a", b"b"]
    assert odd.first == "field 4 of BlockHeader twice"


# --- metrics by pattern


def _before_source(launch: bytes, metrics: bytes) -> bytes:
    """A launch with more metrics, behind those that it has."""
    at = launch.index(made.field(17, b"")[:2])
    return launch[:at] + metrics + made.field(15, made.field(1, 1)) + launch[at:]


def test_a_metric_may_be_there_twice_if_it_is_the_same() -> None:
    launch = made.result(NAMES).replace(made.field(15, made.field(1, 1)), b"")
    same, other = (made.field(13, made.metric(0, value)) for value in ("NVIDIA H200", "another"))
    assert same in launch
    verify_and_summarize_result(_before_source(launch, same), KERNEL, Oddities())
    with pytest.raises(Malformed, match="twice, with two values"):
        verify_and_summarize_result(_before_source(launch, other), KERNEL, Oddities())
    kept = repair_result(_before_source(launch, other), KERNEL)
    assert kept is not None
    assert same not in kept
    assert other not in kept


@pytest.mark.parametrize(
    ("ids", "wrong"),
    [
        ([1, 2, 3, 4, 5], []),
        ([1, 2, 7, 4, 5], [7]),
        ([1, 2, 1, 4, 5], [1]),
        ([2, 9, 4, 5], [9]),  # two neighbours on one side
        ([9, 4, 5, 6], []),  # the first of a run may have any number
        ([1, 2, 4, 5, 6], []),  # a name without a value
        ([1, 2, 7, 4, 5, 3], []),  # the one that belongs there is elsewhere
        ([300, 301, 558, 303, 304], [558]),
    ],
)
def test_an_id_that_breaks_a_run_is_another_s(ids: list[int], wrong: list[int]) -> None:
    found = find_misplaced_ids(tuple(made.varint(id_) for id_ in ids))
    assert found == tuple(made.varint(id_) for id_ in wrong)


def test_ranges_are_of_a_domain_that_is_there() -> None:
    launch = made.result(NAMES, ranges=["step"])
    verify_and_summarize_result(launch, KERNEL, Oddities())
    domain = made.field(1, 0) + made.field(2, "<default domain>")
    assert domain in launch
    with pytest.raises(Malformed, match="a domain that is not there"):
        verify_and_summarize_result(
            launch.replace(domain, made.field(1, 1) + domain[2:]), KERNEL, Oddities()
        )


@pytest.mark.parametrize(
    ("ids", "names", "lacking"),
    [
        ([], 0, False),
        ([5], 6, False),
        ([5], 5, True),
        ([5, 300], 301, False),
        ([5, 300], 300, True),
        ([200, 300, 129], 300, True),  # of two bytes each: 300 is the largest
        ([16383, 16384], 16384, True),
    ],
)
def test_an_id_beyond_the_string_table(ids: list[int], names: int, lacking: bool) -> None:
    assert has_id_without_name([tuple(made.varint(n) for n in ids)], names) is lacking


# --- warp samples


def _samples(times: bytes, taken: bytes, group: int = 2) -> bytes:
    per_sm = made.field(1, 0) + made.field(2, times) + made.field(3, taken)
    return made.field(36, made.field(1, "x") + made.field(group, made.field(1, per_sm)))


def _stamps(*samples: int) -> bytes:
    return b"".join(struct.pack("<QQ", 7, so_far) for so_far in samples)


@pytest.mark.parametrize(
    ("times", "taken", "risky"),
    [
        (_stamps(0, 1, 2), 16 * 2, False),
        (_stamps(2, 2, 2), 16 * 2, False),
        (_stamps(0, 3), 16 * 2, True),  # more than there are
        (_stamps(2, 1), 16 * 2, True),  # back in time
        (_stamps(1) + b"12345678", 16 * 2, True),  # half a record
        (_stamps(1), 16 * 2 + 8, True),  # half a sample
        (b"", 0, False),
    ],
)
def test_samples_that_the_library_trusts(times: bytes, taken: int, risky: bool) -> None:
    data = made.result(list(made.METRICS), extra=_samples(times, bytes(taken)))
    assert verify_and_summarize_result(data, KERNEL, Oddities()).risky is risky
    # A good one behind does not make up for it.
    assert (
        verify_and_summarize_result(data + _samples(_stamps(0), b""), KERNEL, Oddities()).risky
        is risky
    )


# --- what is left of a damaged result


def test_salvage_keeps_identity_metrics_and_ranges() -> None:
    names = list(made.METRICS)
    whole = made.result(names, ranges=["step"], rules=[made.rule("T", "M", 2)])
    kept = repair_result(whole, KERNEL)
    numbers = [number for number, *_ in iterate_fields(kept or b"", 0, len(kept or b""))]
    assert sorted(set(numbers)) == [*range(1, 12), 13, 15, 21]
    assert numbers.count(13) == len(names)
    assert repair_result(made.field(1, 1) + made.field(2, 2), KERNEL) is None
    ranged = made.range_result(names, made.METRICS)
    assert repair_result(ranged, RANGE) == ranged


def test_salvage_goes_on_behind_a_bad_metric_and_makes_up_for_the_source() -> None:
    names = list(made.METRICS)
    source = made.field(15, made.field(1, 1))
    whole = made.result(names)
    assert whole.count(source) == 1
    kept = repair_result(whole.replace(source, b""), KERNEL)
    assert kept is not None
    assert kept.endswith(b"\x7a\x00")
    bad = made.field(13, b"\x12\x03abc")  # no id, and a value that is none
    assert repair_result(bad + whole, KERNEL) == repair_result(whole, KERNEL)
    assert repair_result(whole + b"\x0a\xff", KERNEL) == repair_result(whole, KERNEL)


def _listed_metric(chance: random.Random) -> bytes:
    """A metric as ncu writes them, of instances of every kind; now and then of one that it does not."""
    values = (
        chance.random(),
        chance.randrange(1 << 64),
        "text",
        "",
        chance.choice(["\x07", "\xe9"]),
    )
    packed = [made.metric_value(chance.choice(values)) for _ in range(7)]
    pairs = [made.field(1, a) + made.field(2, b) for a, b in pairwise(packed)]
    pairs.append(chance.choice([pairs[0], made.field(2, packed[0]) + made.field(3, packed[1])]))
    listed = b"".join(made.field(3, pair) for pair in pairs)
    value = chance.choice([b"", made.field(2, packed[-1])])
    body = made.field(1, chance.randrange(9999)) + value + listed
    return body + chance.choice([b"", made.field(4, 0), made.field(4, 300)])


def test_salvage_takes_a_metric_where_a_walk_of_its_fields_does() -> None:
    """A pattern says yes to most of them: never to one that the walk refuses."""
    chance, kept = random.Random(7), 0
    identity = repair_result(made.result([], {}), KERNEL)
    assert identity is not None
    source = made.field(15, made.field(1, 1))
    without_source = identity.removesuffix(source)
    for n in range(4000):
        body = bytearray(_listed_metric(chance))
        if n % 4:  # a byte that is wrong, is not there, or is there twice
            at = chance.randrange(len(body))
            body[at : at + chance.randrange(2)] = chance.choice(
                [b"", chance.randbytes(1), body[at : at + 1] * 2]
            )
        whole = made.field(13, bytes(body))
        try:
            odd = Oddities()
            verify_message(bytes(body), 0, len(body), load_message_shape("Metric"), odd)
            is_whole = not odd.first
        except Malformed:
            is_whole = False
        kept += is_whole
        expected = without_source + whole + source if is_whole else identity
        assert repair_result(identity + whole, KERNEL) == expected, bytes(body)
        assert _is_taken(bytes(body)) is is_whole
    assert 1000 < kept < 3000


def _is_taken(body: bytes) -> bool:
    odd = Oddities()
    try:
        _verify_metric(body, 0, len(body), odd)
    except Malformed:
        return False
    return not odd.first


# --- the frames of a file


def _file(*frames: bytes) -> bytes:
    return b"NVR\0" + made.frame(made.field(1, 7)) + b"".join(frames)


def _checked(tmp_path: Path, data: bytes) -> container.ContainerVerdict:
    path = tmp_path / "made.ncu-rep"
    path.write_bytes(data)
    return check_report_bytes(path)


NAMES = list(made.METRICS)
STRINGS = b"".join(made.field(1, name) for name in NAMES)


def test_where_the_file_ends_is_said_in_bytes(tmp_path: Path) -> None:
    data = made.report([made.result(NAMES)], NAMES)
    cut = _checked(tmp_path, data[:-3])
    assert f"it needs at least {len(data):,} bytes" in cut.message
    assert _checked(tmp_path, b"NVR\0" + b"\x08\0\0").message.endswith("8 bytes")


def test_the_launch_that_is_damaged_is_counted_from_zero(tmp_path: Path) -> None:
    good = made.result(NAMES)
    bad = good.replace(made.field(8, 3), made.field(8, b"???"), 1)
    found = _checked(tmp_path, made.report([good, good, bad, bad], NAMES))
    assert found.message == "launch 2 is damaged: field 8 of the wrong type (and 1 more)"
    assert (found.launches, found.status, found.risky) == (4, "damaged", True)


def test_launches_that_were_announced_and_never_came_are_counted(tmp_path: Path) -> None:
    good = made.result(NAMES)
    whole = made.block([good, good, good], strings=STRINGS)
    cut = _file(made.block(session=made.details()), whole)[: -len(made.frame(good)) - 2]
    found = _checked(tmp_path, cut)
    assert (found.status, found.launches) == ("damaged", 3)


def test_graph_data_may_be_elsewhere(tmp_path: Path) -> None:
    frame = made.frame(made.result(NAMES))
    head = made.field(2, 1) + made.field(4, STRINGS) + made.field(5, len(frame))
    block = made.frame(head + made.field(10, 4)) + frame
    found = _checked(tmp_path, _file(block, made.block(session=made.details())))
    assert (found.status, found.launches) == ("ok", 1)


def test_the_versions_that_are_newer() -> None:
    newer = {
        v: container.is_newer_ncu(v) for v in ("2026.3.9", "2026.4", "2027.0.0", "2025.9", None)
    }
    assert list(newer.values()) == [False, True, True, False, False]


def test_the_first_version_that_is_said_stays(tmp_path: Path) -> None:
    data = made.report() + made.block(session=made.details("2024.1.0.0 (build 1)"))
    assert _checked(tmp_path, data).ncu_version == "2025.3.1.0"


def test_a_copy_of_a_whole_report_has_every_launch_once(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.ncu-rep", tmp_path / "b.ncu-rep"
    path.write_bytes(made.report([made.result(NAMES)] * 3, NAMES))
    for metrics_only in (False, True):
        write_readable_rest_of_report(path, copy, metrics_only)
        found = check_report_bytes(copy)
        assert (found.status, found.launches, found.ncu_version) == ("ok", 3, "2025.3.1.0")
    sizes = [struct.unpack_from("<I", copy.read_bytes(), 4)[0]]
    assert sizes == [2]
    assert all(a <= b for a, b in pairwise((copy.stat().st_size, path.stat().st_size)))


def test_a_block_may_be_exactly_as_long_as_its_frames_headers(tmp_path: Path) -> None:
    empty = made.frame(made.field(1, 2) + made.field(5, 8)) + made.frame(b"") * 2
    assert _checked(tmp_path, _file(empty)).status == "empty"
    short = made.frame(made.field(1, 2) + made.field(5, 7)) + made.frame(b"") * 2
    assert _checked(tmp_path, _file(short)).status == "damaged"


def _launch_of(*, ran: int | None = 1, kernel: str = "k") -> bytes:
    """A launch of the source with this id; None: it does not say of which."""
    said = made.field(15, b"" if ran is None else made.field(1, ran))
    return made.result(NAMES, kernel=kernel).replace(made.field(15, made.field(1, 1)), said)


def _code(number: int, text: str) -> bytes:
    return made.field(1, number) + made.field(4, text)


def _of_process(process: int, block: bytes) -> bytes:
    ours, theirs = (
        made.field(6, made.field(1, n) + made.field(2, "127.0.0.1") + made.field(3, "/app"))
        for n in (42, process)
    )
    assert ours in block
    return block.replace(ours, theirs)


def test_a_part_has_the_machine_code_of_the_kernels_in_it_and_of_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By process and number, each once; of a launch that does not say which, all of its process."""
    path = tmp_path / "made.ncu-rep"
    path.write_bytes(
        _file(
            made.block(sources=[_code(1, "code A"), _code(2, "code B"), _code(1, "code A")]),
            _of_process(43, made.block(sources=[_code(1, "code C")])),
            made.block([_launch_of(ran=1), _launch_of(ran=2)], strings=STRINGS),
            _of_process(43, made.block([_launch_of(ran=1)])),
            made.block([_launch_of(ran=None), _launch_of(ran=9)]),
            made.block(session=made.details()),
        )
    )
    monkeypatch.setattr(container, "PART", 1)
    for code in (True, False):
        held = []
        for copy, indices in container.split_report(path, tmp_path, code=code):
            data, found = copy.read_bytes(), check_report_bytes(copy)
            assert (found.status, found.launches) == ("ok", 1)
            held.append(
                (indices, [(c, n) for c in "ABC" if (n := data.count(b"code %c" % ord(c)))])
            )
        codes = [[("A", 1)], [("B", 1)], [("C", 1)], [("A", 1), ("B", 1)], []]
        assert held == [((n,), has if code else []) for n, has in enumerate(codes)]


def test_a_part_is_full_with_the_launch_that_makes_it_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "made.ncu-rep"
    path.write_bytes(made.report([made.result(NAMES)] * 5, NAMES))
    single, double = (
        next(container.split_report(path, tmp_path, {*range(n)}))[0].stat().st_size for n in (1, 2)
    )
    launch = double - single + container.LAUNCH
    for more, indices in ((0, [(0, 1), (2, 3), (4,)]), (1, [(0, 1, 2), (3, 4)])):
        monkeypatch.setattr(container, "PART", 2 * launch + more)
        assert [some for _, some in container.split_report(path, tmp_path)] == indices


def test_a_compressed_file_may_swell_a_hundred_times_or_to_what_is_no_burden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = made.report([made.result(NAMES)] * 3, NAMES)
    packed = zstandard.compress(whole)
    path = tmp_path / "made.ncu-repz"
    path.write_bytes(packed)
    times = len(whole) // len(packed)  # it swells a little more than that
    few, many = (times, times + 1), (len(whole) - 1, len(whole))
    said = {}
    for ratio, small in ((few[0], many[0]), (few[1], 1), (1, many[1])):
        monkeypatch.setattr(container, "RATIO", ratio)
        monkeypatch.setattr(container, "SMALL", small)
        container._walked.clear()
        said[ratio, small] = check_report_bytes(path).message
    assert said == {
        (few[0], many[0]): f"it needs at least {len(whole):,} bytes, and has at most "
        f"{len(whole) - 1:,}",
        (few[1], 1): "",
        (1, many[1]): "",
    }
    path.with_suffix(".ncu-rep").write_bytes(whole)  # as long as it is
    assert check_report_bytes(path.with_suffix(".ncu-rep")).status == "ok"


def test_so_many_blocks_with_nothing_in_them_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "HOLLOW", 5)
    hollow = made.block(session=made.details())
    assert _checked(tmp_path, made.report() + hollow * 3).status == "ok"  # two are in it
    assert _checked(tmp_path, made.report() + hollow * 4).message == (
        "more than 5 blocks with nothing in them"
    )


def test_the_sha256_and_the_size_are_of_the_whole_file_whatever_is_wrong_in_it(
    tmp_path: Path,
) -> None:
    whole = made.report([made.result(NAMES)] * 2, NAMES)
    packed = zstandard.compress(whole)
    sizes = {}
    for how, data in {
        "whole": whole,
        "cut": whole[:-3],
        "no report": b"text " * 9,
        "empty": b"",
        "packed": packed,
        "a frame too long": whole + b"\xff" * 99,
        "packed, cut": packed[:-9],
        "packed, ended": packed[:8],
    }.items():
        found = _checked(tmp_path, data)
        assert found.sha256 == hashlib.sha256(data).hexdigest(), how
        sizes[how] = found.size
    assert sizes["whole"] == sizes["packed"] == len(whole)  # not compressed
    assert sizes["empty"] == sizes["no report"] == 4


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"NVR\0", "the file ends before its last block does"),
        (
            _file(made.frame(made.field(2, 1) + made.field(5, 8))),
            "the file ends before its last block does",
        ),
        (zstandard.compress(b"NVR\0" * 99)[:6], "what is compressed in it ends at once"),
        (
            zstandard.compress(made.report())[:9] + b"\xff" * 40,
            "what is compressed in it is damaged",
        ),
        (
            _file(
                made.block([made.result(NAMES)], strings=STRINGS),
                made.block(session=made.field(2, 17)),
            ),
            "the session details after the first launch are damaged",
        ),
        (
            made.report([made.result(NAMES, extra=made.field(77, 1))], NAMES),
            "ncu 2025.3.1.0 does not write field 77 of KernelResult",
        ),
        (
            made.report([made.result(NAMES).replace(made.field(8, 3), b"")], NAMES),
            "launch 0 is damaged: a result that lacks a part",
        ),
        (
            made.report(
                [
                    made.result(
                        NAMES, extra=made.field(36, made.field(1, b"\xff") + made.field(2, b""))
                    )
                ],
                NAMES,
            ),
            "launch 0 is damaged: a text that is not UTF-8",
        ),
        (
            _file(made.block(sources=[made.field(4, 7)])),
            "a kernel's machine code is damaged: field 4 of the wrong type",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, data: bytes, said: str) -> None:
    found = _checked(tmp_path, data)
    assert (found.status, found.message.partition(" (and ")[0]) == ("damaged", said)


def test_a_name_that_became_a_number_is_no_name_and_the_launch_is_lost() -> None:
    whole = made.result(NAMES)
    name = made.field(6, "scale")
    assert whole.count(name) == 1
    assert repair_result(whole.replace(name, made.field(6, b"\xff")), KERNEL) is not None
    assert repair_result(whole.replace(name, made.field(6, 7)), KERNEL) is None
    assert repair_result(whole + made.field(6, 7), KERNEL) == repair_result(whole, KERNEL)
