"""Figures of each unit of the machine, at the borders where one answer becomes another."""

from __future__ import annotations

from math import inf, isnan, nan

import pytest

from profkit.model.launch import (
    Launch,
    NotCollected,
    explain_why_cache_resident,
    measure_idleness,
    select_collected_metrics,
)
from profkit.model.resources import (
    BY_LIMITER,
    compute_cycles_waited_per_load,
    compute_floored_working_share,
    find_busiest_resource_but,
    list_resource_uses,
    measure_resource_use,
)
from profkit.model.roofline import (
    list_ceilings,
    list_missing_metrics,
    list_precisions_dominant_first,
    list_roofline_points,
)

# --- idle SMs


@pytest.mark.parametrize(
    ("values", "average", "busiest", "assumed"),
    [
        ({"sm_active": 0.6, "sm_active_max": 0.9}, 0.6, 0.9, False),
        ({"sm_active": 1.2, "sm_active_max": 1.1}, 1.0, 1.0, False),
        ({"sm_active_max": 0.9}, 0.9, 0.9, False),
        # Idle time as long as a launch begins and ends, 5 us at most, is the launch's; the rest is tail.
        ({"sm_active": 0.6, "time": 1e-4}, 0.6, 0.95, True),
        ({"sm_active": 0.98, "time": 1e-4}, 0.98, 0.98, True),
        ({"sm_active": 0.6}, 0.6, 1.0, True),
        # Half of the SMs have a block: those were at work twice as long as the average.
        ({"sm_active": 0.4, "grid_size": 66.0, "sm_count": 132.0}, 0.4, 0.8, True),
        ({"sm_active": 0.7, "grid_size": 66.0, "sm_count": 132.0}, 0.7, 1.0, True),
        # Nothing but a duration: 1.5 us of it are ends.
        ({"time": 3e-6}, 0.5, 0.5, True),
        ({"time": 1e-6}, 0.0, 0.0, True),
    ],
)
def test_how_idle_the_sms_were(values, average, busiest, assumed):
    idle = measure_idleness(Launch(values))
    assert (idle.average, idle.busiest) == pytest.approx((average, busiest))
    assert (idle.share_without_any_work, idle.spread) == pytest.approx(
        (1 - busiest, busiest - average)
    )
    assert idle.assumed is assumed
    with pytest.raises(NotCollected):
        measure_idleness(Launch({"grid_size": 66.0}))


# --- near its peak

LOADS = {"stall_long_scoreboard": 0.8, "l2_cache_busy": 0.5, "dram_busy": 0.6}
COUNTS = {
    "warp_latency": 150.0,
    "instructions": 1e6,
    "inst_global_load": 8e4,
    "inst_async_copy": 0.0,
    "inst_texture": 0.0,
}


def test_cycles_that_a_load_waits():
    assert compute_cycles_waited_per_load(Launch({**LOADS, **COUNTS})) == pytest.approx(1500)
    three = {**COUNTS, "inst_async_copy": 4e4, "inst_texture": 4e4}
    assert compute_cycles_waited_per_load(Launch({**LOADS, **three})) == pytest.approx(750)
    with pytest.raises(NotCollected):
        compute_cycles_waited_per_load(Launch({**LOADS, **COUNTS, "inst_global_load": 0.0}))


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({}, 1.0),
        ({"sm_active": 0.9}, 0.9),
        ({"sm_active": 0.75}, 0.75),
        ({"sm_active": 0.2}, 0.75),
        ({"sm_active": 1.3}, 1.0),
    ],
)
def test_time_at_work(values, part):
    assert compute_floored_working_share(Launch(values)) == part


def test_a_use_is_of_the_time_at_work():
    found = measure_resource_use(BY_LIMITER["xu"], Launch({"xu_busy": 0.45, "sm_active": 0.9}))
    assert found is not None
    assert (found.elapsed, found.share, found.near) == (0.45, pytest.approx(0.5), False)
    full = measure_resource_use(BY_LIMITER["xu"], Launch({"xu_busy": 0.95, "sm_active": 0.9}))
    assert full is not None
    assert (full.share, full.near) == (1.0, True)
    over = measure_resource_use(BY_LIMITER["xu"], Launch({"xu_busy": 1.2, "sm_active": 0.9}))
    assert over is not None
    assert over.share == 1.2
    assert measure_resource_use(BY_LIMITER["xu"], Launch({})) is None


def test_what_binds_next():
    launch = Launch(
        {
            "dram_busy": 0.8,
            "l2_cache_busy": 0.7,
            "xu_busy": 0.5,
            "l2_to_xbar_busy": 0.6,
            "xbar_to_l2_busy": 0.1,
        }
    )
    assert [u.resource.limiter for u in list_resource_uses(launch)][:2] in (
        ["dram", "l2"],
        ["l2", "dram"],
    )
    first = find_busiest_resource_but(launch)
    assert first is not None
    assert (first.limiter, first.elapsed, first.room) == ("dram", 0.8, pytest.approx(1.25))
    links = find_busiest_resource_but(launch, "dram")  # without DRAM L2 is its links alone
    assert links is not None
    assert (links.limiter, links.elapsed) == ("l2", 0.6)
    rest = find_busiest_resource_but(launch, "dram", "l2")
    assert rest is not None
    assert (rest.limiter, rest.room) == ("xu", 2.0)
    l2 = find_busiest_resource_but(launch, "dram", "xu")
    assert l2 is not None
    assert l2.elapsed == 0.6
    assert find_busiest_resource_but(Launch({})) is None
    idle = find_busiest_resource_but(Launch({"xu_busy": 0.0}))
    assert idle is not None
    assert idle.room == inf


def test_scattered_sectors_leave_dram_less_room():
    pairs = {"dram_busy": 0.5, "l2_read_hit": 0.0, "l2_read_bytes": 100.0}
    for read, room in ((180.0, 1.1), (179.0, 2.0), (100.0, 2.0)):
        found = find_busiest_resource_but(Launch({**pairs, "dram_read": read}))
        assert found is not None
        assert found.room == pytest.approx(room)


# --- ceilings and the roofline's borders


def test_ceilings_by_the_device_s_attributes():
    of_cc = {
        "7.0": 64,
        "7.2": 64,
        "7.5": 64,
        "8.0": 64,
        "8.6": 128,
        "8.9": 128,
        "9.0": 128,
        "10.0": 128,
        "12.0": 128,
    }
    for cc, lanes in of_cc.items():
        (fp32,) = list_ceilings({"cc": cc, "sm_count": 10.0, "sm_clock": 1e9, "sm_clock_max": 2e9})
        assert (fp32.value, fp32.clock, fp32.source) == (20e9 * lanes, 1e9, "device attributes")
    (slow,) = list_ceilings({"cc": "9.0", "sm_count": 10.0, "sm_clock_max": 2e9})
    assert (slow.value, slow.clock) == (40e9 * 128, 2e9)
    assert list_ceilings({"cc": "9.0", "sm_count": 10.0}) == ()
    assert list_ceilings({"cc": "9.0", "sm_clock": 1e9}) == ()
    assert list_ceilings({"peak_dram_device": 0.0, "peak_l2": 0.0}) == ()
    (dram,) = list_ceilings({"peak_dram": 0.5, "dram_clock": 7.0})
    assert (dram.value, dram.clock, dram.source) == (0.5, 7.0, "report")
    (device,) = list_ceilings({"peak_dram_device": 0.5})
    assert isnan(device.clock)
    assert select_collected_metrics({"a": nan, "b": 1, "cc": "9.0"}) == {"b": 1.0}


def test_which_precision_leads():
    rates = {"time": 1.0, "fp32_rate": 5.0, "tensor_ops_fp16": 5.0, "tensor_ops_int8": 0.0}
    assert list_precisions_dominant_first(rates) == (
        "tensor_fp16",
        "fp32",
    )  # half of all is most of it
    assert list_precisions_dominant_first({**rates, "tensor_ops_fp16": 4.9}) == (
        "fp32",
        "tensor_fp16",
    )
    assert list_precisions_dominant_first({**rates, "fp32_rate": 0.0, "tensor_ops_int8": 6.0}) == (
        "tensor_int8",
        "tensor_fp16",
    )
    near = {"fp32_rate": 4.0, "peak_fp32": 8.0, "fp64_rate": 3.0, "peak_fp64": 4.0}
    assert list_precisions_dominant_first(near) == ("fp64", "fp32")
    assert list_precisions_dominant_first({}) == ()


def test_a_point_needs_bytes_and_a_time():
    assert list_roofline_points({"fp32_rate": 1.0, "dram_rate": 0.0}) == ()
    (own,) = list_roofline_points({"time": 2.0, "dram_bytes": 6.0, "fp32_rate": 9.0})
    assert (own.moved, own.intensity, own.rate) == (3.0, 3.0, 9.0)
    for operations, moved in ((0.0, 1.0), (1.0, 0.0)):
        assert (
            list_roofline_points(
                {"time": 2.0}, declared_operations=operations, compulsory_bytes=moved
            )
            == ()
        )
    assert (
        len(list_roofline_points({"time": 0.5}, declared_operations=0.5, compulsory_bytes=0.5)) == 1
    )
    assert list_roofline_points({"time": 0.0}, declared_operations=0.5, compulsory_bytes=0.5) == ()


@pytest.mark.parametrize(
    ("values", "resident"),
    [
        ({"dram_bytes": 49.0, "declared_bytes": 100.0}, True),
        ({"dram_bytes": 50.0, "declared_bytes": 100.0}, False),
        ({"dram_bytes": 99.0, "threads": 100.0, "l2_hit": 0.91}, True),
        ({"dram_bytes": 100.0, "threads": 100.0, "l2_hit": 0.91}, False),
        ({"dram_bytes": 99.0, "threads": 100.0, "l2_hit": 0.9}, False),
        ({"dram_bytes": 0.4, "threads": 0.5, "l2_hit": 0.91}, True),
        ({"dram_bytes": 0.0, "threads": 0.0, "l2_hit": 0.91}, False),
    ],
)
def test_borders_of_residence(values, resident):
    assert bool(explain_why_cache_resident(values)) is resident


@pytest.mark.parametrize(
    ("values", "counted"),
    [
        ({"tensor_busy": 0.05}, True),
        ({"tensor_busy": 0.051}, False),
        ({"tensor_busy": 0.9, "inst_matrix": 0.0}, True),
        ({"inst_matrix": 0.5}, False),
        ({"tensor_busy": 0.9, "tensor_ops": 0.0}, True),
    ],
)
def test_tensor_operations_that_were_not_counted(values, counted):
    lack = list_missing_metrics({"time": 1.0, "fp32_rate": 1.0, "fp16_rate": 1.0, **values})
    assert any("matrix" in m.why for m in lack) is not counted


def test_half_precision_that_was_not_counted():
    base = {
        "time": 1.0,
        "fp32_rate": 1.0,
        "tensor_ops": 0.0,
        "instructions": 100.0,
        "inst_fp32": 3.0,
    }
    for half, known in ((3.0, True), (3.1, False)):
        assert (
            any("half" in m.why for m in list_missing_metrics({**base, "inst_half": half}))
            is not known
        )
    few = {**base, "inst_fp32": 0.0}
    for half, known in ((1.0, True), (1.1, False)):
        assert (
            any("half" in m.why for m in list_missing_metrics({**few, "inst_half": half}))
            is not known
        )


@pytest.mark.parametrize(
    ("l1", "copies", "noted"), [(0.49, 1.0, True), (0.5, 1.0, False), (0.49, 0.0, False)]
)
def test_borders_of_what_passes_l1_by(l1, copies, noted):
    launch = {"fp32_rate": 1.0, "l1_rate": l1, "l2_rate": 1.0, "inst_async_copy": copies}
    note = next(p.note for p in list_roofline_points(launch) if p.level == "l1")
    assert bool(note) is noted
    texture = {**launch, "inst_async_copy": 0.0, "inst_texture": copies}
    assert bool(next(p.note for p in list_roofline_points(texture) if p.level == "l1")) is noted


# --- a launch as rules see it


def test_a_launch_knows_what_was_collected():
    launch = Launch({"stall_wait": 0.5, "stall_barrier": nan, "time": 1.0})
    assert (launch.list_metrics_with_prefix("stall_"), "stall_barrier" in launch, len(launch)) == (
        ["stall_wait"],
        False,
        3,
    )
    assert launch.has_collected("stall_wait", "time")
    assert not launch.has_collected("stall_wait", "stall_barrier")
    launch.require_collected("stall_wait")
    with pytest.raises(NotCollected) as lacking:
        launch.require_collected("stall_wait", "stall_barrier")
    assert lacking.value.metric == "stall_barrier"
