"""Figures of each unit of the machine, at the borders where one answer becomes another."""

from __future__ import annotations

from math import inf, isnan, nan

import pytest

from profkit.model import launch as units
from profkit.model import resources
from profkit.model.launch import Launch, NotCollected, cache_resident, collected_metrics, idleness
from profkit.model.resources import BY_LIMITER, at_work, load_wait, next_limit, resource_use, uses
from profkit.model.roofline import ceilings, families, missing, points
from profkit.reports.figures import counted, share

FMA = {"fma_busy": 0.4, "alu_busy": 0.3, "fp16_busy": 0.1}


def mix(single: float, half: float, imad: float) -> dict[str, float]:
    return {**FMA, "inst_fp32": single, "inst_half": half, "inst_imad": imad, "fmaheavy_busy": 0.5}


@pytest.mark.parametrize(
    ("unit", "values", "busy"),
    [
        (units.tensor, {"tensor_busy": 0.5}, 0.5),
        (units.tensor, {"tensor_busy": 0.5, "inst_matrix": 0.0}, 0.0),
        (units.tensor, {"tensor_busy": 0.5, "inst_matrix": 1.0}, 0.5),
        # Who is most of what runs on the FMA pipe has it; FP32 where two are equal.
        (units.fp32_busy, mix(5, 5, 1), 0.4),
        (units.fp32_busy, mix(4, 5, 1), 0.0),
        (units.fp32_busy, mix(5, 1, 5), 0.4),
        (units.fp32_busy, mix(0, 0, 0), 0.4),
        (units.integer, mix(5, 1, 5), 0.3),
        (units.integer, mix(4, 1, 5), 0.5),
        (units.integer, mix(1, 5, 5), 0.3),
        (units.integer, {**mix(1, 1, 5), "alu_busy": 0.6}, 0.6),
        (units.integer, {"alu_busy": 0.3}, 0.3),
        (units.fp16, mix(1, 5, 5), 0.1),
        (units.fp16, mix(1, 5, 4), 0.4),
        (units.fp16, mix(5, 5, 1), 0.1),
        (units.fp16, {**mix(1, 5, 1), "fp16_busy": 0.6}, 0.6),
        (units.fp16, FMA, 0.1),
        # Without opcodes: half2 above half of the pipe, or a heavy half 1.6 times as full.
        (units.fp32_busy, FMA, 0.4),
        (units.fp32_busy, {**FMA, "fp16_busy": 0.2}, 0.4),
        (units.fp32_busy, {**FMA, "fp16_busy": 0.21}, 0.0),
        (units.fp32_busy, {**FMA, "fmaheavy_busy": 0.63}, 0.4),
        (units.fp32_busy, {**FMA, "fmaheavy_busy": 0.65}, 0.0),
        (units.integer, {**FMA, "fmaheavy_busy": 0.63}, 0.3),
        (units.integer, {**FMA, "fmaheavy_busy": 0.65}, 0.65),
        (units.integer, {**FMA, "fma_busy": 0.5, "fmaheavy_busy": 0.8}, 0.8),
        (units.fp32_busy, {**FMA, "fma_busy": 0.5, "fmaheavy_busy": 0.8}, 0.0),
        (units.integer, {**FMA, "fmaheavy_busy": 0.65, "alu_busy": 0.7}, 0.7),
        # L1TEX less what texture or shared memory explain.
        (units.l1, {"l1_busy": 0.8}, 0.8),
        (units.l1, {"l1_busy": 0.8, "texture_busy": 0.75}, 0.8),
        (units.l1, {"l1_busy": 0.8, "texture_busy": 0.76}, 0.0),
        (units.l1, {"l1_busy": 1.0, "texture_busy": 0.95}, 0.0),
        (units.l1, {"l1_busy": 0.8, "shared_busy": 0.55, "lsu_data_busy": 0.8}, 0.8),
        (units.l1, {"l1_busy": 0.8, "shared_busy": 0.57, "lsu_data_busy": 0.8}, 0.0),
        (units.l1, {"l1_busy": 0.8, "shared_busy": 0.7, "lsu_data_busy": 1.0}, 0.0),
        (
            units.l1,
            {"l1_busy": 0.8, "shared_busy": 0.6, "lsu_data_busy": 0.8, "lsu_in_busy": 0.7},
            0.7,
        ),
        (
            units.l1,
            {"l1_busy": 0.8, "shared_busy": 0.6, "lsu_data_busy": 0.8, "lsu_in_busy": 0.9},
            0.8,
        ),
        (
            units.l1,
            {"l1_busy": 0.8, "shared_busy": 0.6, "lsu_data_busy": 0.8, "lsu_in_busy": 0.66},
            0.0,
        ),
        # L2 with atomics: only the links that bring them are its own then.
        (units.l2, {"l2_cache_busy": 0.6}, 0.6),
        (units.l2, {"l2_cache_busy": 0.6, "l2_atomic_sectors": 4, "l2_sectors": 10}, 0.6),
        (units.l2, {"l2_cache_busy": 0.6, "l2_atomic_sectors": 5, "l2_sectors": 10}, 0.0),
        (
            units.l2,
            {
                "l2_cache_busy": 0.6,
                "l2_atomic_sectors": 5,
                "l2_sectors": 10,
                "l2_to_xbar_busy": 0.2,
                "xbar_to_l2_busy": 0.3,
            },
            0.3,
        ),
        (units.l2, {"l2_cache_busy": 0.6, "l2_atomic_sectors": 0.4, "l2_sectors": 0}, 0.6),
        (units.l2, {"l2_cache_busy": 0.6, "l2_atomic_sectors": 0.5, "l2_sectors": 0}, 0.0),
        (units.atomics_busy, {"l2_atomics_busy": 0.1, "l2_cache_busy": 0.6}, 0.1),
        (
            units.atomics_busy,
            {
                "l2_atomics_busy": 0.1,
                "l2_cache_busy": 0.6,
                "l2_atomic_sectors": 5,
                "l2_sectors": 10,
            },
            0.6,
        ),
        (
            units.atomics_busy,
            {
                "l2_atomics_busy": 0.1,
                "l2_cache_busy": 0.6,
                "l2_atomic_sectors": 5,
                "l2_sectors": 10,
                "l2_to_xbar_busy": 0.9,
                "xbar_to_l2_busy": 0.3,
                "l2_tag_busy": 0.2,
                "l2_data_busy": 0.4,
            },
            0.4,
        ),
        (
            units.atomics_busy,
            {
                "l2_atomics_busy": 0.1,
                "l2_cache_busy": 0.6,
                "l2_atomic_sectors": 5,
                "l2_sectors": 10,
                "l2_to_xbar_busy": 0.9,
                "xbar_to_l2_busy": 0.3,
            },
            0.1,
        ),
        (units.links, {"l2_to_xbar_busy": 0.2, "xbar_to_l2_busy": 0.3}, 0.3),
        # DRAM's bytes for each that missed L2, 1 to 2.
        (units.fetched, {}, 1.0),
        (units.fetched, {"dram_read": 150.0, "l2_read_hit": 0.5, "l2_read_bytes": 200.0}, 1.5),
        (units.fetched, {"dram_read": 900.0, "l2_read_hit": 0.5, "l2_read_bytes": 200.0}, 2.0),
        (units.fetched, {"dram_read": 50.0, "l2_read_hit": 0.5, "l2_read_bytes": 200.0}, 1.0),
        (units.fetched, {"dram_read": 150.0, "l2_read_hit": 1.0, "l2_read_bytes": 200.0}, 1.0),
    ],
)
def test_how_busy_a_unit_is(unit, values, busy):
    assert unit(Launch(values)) == pytest.approx(busy)


# --- coalescing


@pytest.mark.parametrize(
    ("values", "waste", "text"),
    [
        ({"excess_sectors": 0.75}, 0.75, "75 % of the sectors"),
        ({"global_load_sectors_per_request": 32.0}, 0.5, "32 sectors per request"),
        ({"global_load_sectors_per_request": 16.0}, 0.0, "16 sectors per request"),
        ({"global_load_sectors_per_request": 4.0}, 0.0, "4 sectors per request"),
        (
            {"global_load_sectors_per_request": 4.0, "global_store_sectors_per_request": 20.0},
            0.2,
            "20 sectors per request",
        ),
    ],
)
def test_sectors_that_are_wasted(values, waste, text):
    found, said = units.sector_waste(Launch(values))
    assert found == pytest.approx(waste)
    assert said.startswith(text)


BEHIND = {"global_load_sectors": 60.0, "global_store_sectors": 40.0, "l2_write_bytes": 40 * 32.0}


@pytest.mark.parametrize(
    ("values", "waste"),
    [
        ({}, 0.75),
        ({**BEHIND, "l2_read_bytes": 60 * 32.0}, 0.75),  # L1 hit nothing: all of it passes
        ({**BEHIND, "l2_read_bytes": 10 * 32.0}, 0.5),  # 25 are needed, 50 pass
        ({**BEHIND, "l2_read_bytes": 0.0, "l2_write_bytes": 20 * 32.0}, 0.0),  # fewer than that
        ({**BEHIND, "l2_read_bytes": 0.0, "l2_write_bytes": 0.0}, 0.75),
        ({**BEHIND, "l2_read_bytes": 900 * 32.0}, 0.75),  # never more than there is
    ],
)
def test_waste_that_l1_does_not_catch(values, waste):
    assert units._past_l1(Launch(values), 0.75) == pytest.approx(waste)


@pytest.mark.parametrize(
    ("sectors", "lines"), [(None, 1.0), (4.0, 1.0), (8.0, 1.0), (2.0, 2.0), (1.0, 4.0), (0.5, 4.0)]
)
def test_lines_that_l2_looks_up(sectors, lines):
    values = {} if sectors is None else {"l2_sectors_per_request": sectors}
    assert units._scatter(Launch(values)) == (1.0, lines)


TAGS = {
    "global_load_requests": 6.0,
    "global_store_requests": 2.0,
    "global_load_sectors": 100.0,
    "global_store_sectors": 60.0,
    "global_tag_requests": 40.0,
}


@pytest.mark.parametrize(
    ("values", "keep", "left"),
    [
        ({}, 0.3, 0.3),
        (TAGS, 0.3, 0.3),  # 12 lines of 40
        (TAGS, 0.5, 0.5),
        (TAGS, 0.1, 0.1),  # 8 requests at least, of 40: no more than is kept
        ({**TAGS, "global_tag_requests": 100.0}, 0.3, 0.12),
        ({**TAGS, "global_tag_requests": 100.0}, 0.1, 0.08),
        ({**TAGS, "global_tag_requests": 4.0}, 0.3, 0.3),  # fewer tags than needed: all stay
        (dict.fromkeys(TAGS, 0.0), 0.3, 0.0),
    ],
)
def test_work_of_l1_that_stays(values, keep, left):
    assert units._lines(Launch(values), keep) == pytest.approx(left)


@pytest.mark.parametrize(
    ("loads", "stores", "per", "left"),
    [
        (100.0, 100.0, 32.0, 0.125),  # the stores have all the waste there is: 4 of 32 stay
        (20.0, 100.0, 32.0, 0.4),  # 0.5 of 120 stay, 20 of them loads
        (0.0, 100.0, 32.0, 0.5),
        (100.0, 0.0, 8.0, 0.5),
        (100.0, 100.0, 4.0, 0.5),
        (100.0, 100.0, 2.0, 0.5),
    ],
)
def test_stores_may_have_all_the_waste(loads, stores, per, left):
    values = {
        "global_load_sectors": loads,
        "global_store_sectors": stores,
        "global_store_sectors_per_request": per,
        "l2_sectors_per_request": 4.0,
    }
    assert units._stores(Launch(values), 0.5) == pytest.approx(left)


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
    idle = idleness(Launch(values))
    assert (idle.average, idle.busiest) == pytest.approx((average, busiest))
    assert (idle.ends, idle.spread) == pytest.approx((1 - busiest, busiest - average))
    assert idle.assumed is assumed
    with pytest.raises(NotCollected):
        idleness(Launch({"grid_size": 66.0}))


def test_stores_that_travel_alone_are_packets_of_their_own():
    """A lone sector is 2 packets of the crossbar and a line of four is 5: 5/8 a sector."""
    values = {
        "global_load_sectors": 0.0,
        "global_store_sectors": 100.0,
        "global_store_sectors_per_request": 5.0,
    }
    for per_request, left in ((1.0, 0.625 * 0.9), (2.4, 0.625 * 0.9), (2.5, 0.9), (4.0, 0.9)):
        scattered = Launch({**values, "l2_sectors_per_request": per_request})
        assert units._stores(scattered, 0.9) == pytest.approx(left)
    assert units._stores(Launch(values), 0.9) == pytest.approx(0.9), "not collected: together"
    loaded = Launch({**values, "global_load_sectors": 1000.0})
    assert units._stores(loaded, 0.9) == pytest.approx(0.8), "4 of 5 sectors a request stay"


def test_each_level_without_the_waste():
    busy = {
        "dram_busy": 0.8,
        "l2_tag_busy": 0.4,
        "l2_to_xbar_busy": 0.6,
        "xbar_to_l2_busy": 0.1,
        "l1_busy": 0.5,
    }
    found = units.coalesced(Launch(busy), 0.75)
    assert found == pytest.approx({"dram": 0.2, "l2": 0.15, "l1": 0.125})
    del busy["l2_tag_busy"], busy["l1_busy"]
    assert units.coalesced(Launch(busy), 0.5) == pytest.approx({"dram": 0.4})
    tags = {**busy, "l2_tag_busy": 0.9, "l2_sectors_per_request": 4.0}
    assert units.coalesced(Launch(tags), 0.5)["l2"] == pytest.approx(0.45)


# --- near its peak


@pytest.mark.parametrize("limiter", BY_LIMITER)
def test_sure_likely_and_not_near(limiter):
    resource = BY_LIMITER[limiter]
    peak = resource.peak

    def near(value: float, **stalls: float) -> bool:
        busy = {"l2_cache_busy": value, "issue_busy": value, "dram_busy": value * 0.5}
        return resources._near(resource, value, Launch({**busy, **stalls}))

    middle = (peak.sure + peak.likely) / 2
    assert near(peak.sure)
    assert not near(peak.sure - 1e-9, stall_selected=0.9)
    assert not near(peak.likely - 1e-9)
    # No warp states: the middle of the two decides.
    assert near(middle)
    assert not near(middle - 1e-9)


@pytest.mark.parametrize(
    "limiter", [r.limiter for r in BY_LIMITER.values() if r.group == "compute"]
)
def test_warps_that_queue_make_it_near(limiter):
    resource = BY_LIMITER[limiter]
    queue, enough = f"stall_{resource.queue[0]}", resource.peak.queued

    def near(**stalls: float) -> bool:
        values = {"issue_busy": resources.READY, **stalls}
        return resources._near(resource, resource.peak.likely, Launch(values))

    assert near(**{queue: enough})
    assert not near(**{queue: enough - 1e-9})
    longer = enough / resources.FOREMOST
    assert near(**{queue: enough, "stall_barrier": longer - 1e-9})
    assert not near(**{queue: enough, "stall_barrier": longer + 1e-9})
    assert near(**{queue: enough, "stall_selected": 0.9})


def test_a_half_used_scheduler_needs_more():
    issue = BY_LIMITER["issue"]
    other = {"stall_wait": 0.1, "stall_barrier": 0.1}
    for busy, waiting, near in ((0.6, 0.31, True), (0.6, 0.29, False), (0.65, 0.21, True)):
        launch = Launch({"issue_busy": busy, "stall_not_selected": waiting, **other})
        assert resources._near(issue, 0.6, launch) is near


LOADS = {"stall_long_scoreboard": 0.8, "l2_cache_busy": 0.5, "dram_busy": 0.6}
COUNTS = {
    "warp_latency": 150.0,
    "instructions": 1e6,
    "inst_global_load": 8e4,
    "inst_async_copy": 0.0,
    "inst_texture": 0.0,
}


@pytest.mark.parametrize(
    ("limiter", "values", "queues"),
    [
        ("dram", LOADS, False),
        ("dram", {**LOADS, **COUNTS}, True),  # 0.8 x 150 x 1e6 / 8e4: 1,500 cycles
        ("dram", {**LOADS, **COUNTS, "warp_latency": 149.0}, False),
        ("dram", {**LOADS, "stall_drain": 0.1, "stall_lg_throttle": 0.1}, True),
        ("dram", {**LOADS, "stall_drain": 0.1, "stall_lg_throttle": 0.09}, False),
        ("dram", {**LOADS, "occupancy": 0.7}, True),
        ("dram", {**LOADS, "occupancy": 0.69}, False),
        ("dram", {**LOADS, "occupancy": 0.7, "stall_long_scoreboard": 0.79}, False),
        ("dram", {**LOADS, "occupancy": 0.7, "dram_busy": 0.59}, False),
        ("l2", {**LOADS, "stall_drain": 0.2}, False),  # DRAM is the busier one
        ("l2", {**LOADS, "stall_drain": 0.2, "dram_busy": 0.5}, False),
        ("l2", {**LOADS, "stall_drain": 0.2, "dram_busy": 0.49}, True),
        ("l2", {**LOADS, "occupancy": 0.9, "dram_busy": 0.49}, False),
    ],
)
def test_loads_that_stand_in_a_queue(limiter, values, queues):
    assert resources._loads_queue(BY_LIMITER[limiter], Launch(values)) is queues


def test_cycles_that_a_load_waits():
    assert load_wait(Launch({**LOADS, **COUNTS})) == pytest.approx(1500)
    three = {**COUNTS, "inst_async_copy": 4e4, "inst_texture": 4e4}
    assert load_wait(Launch({**LOADS, **three})) == pytest.approx(750)
    with pytest.raises(NotCollected):
        load_wait(Launch({**LOADS, **COUNTS, "inst_global_load": 0.0}))


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
    assert at_work(Launch(values)) == part


def test_a_use_is_of_the_time_at_work():
    found = resource_use(BY_LIMITER["xu"], Launch({"xu_busy": 0.45, "sm_active": 0.9}))
    assert found is not None
    assert (found.elapsed, found.share, found.near) == (0.45, pytest.approx(0.5), False)
    full = resource_use(BY_LIMITER["xu"], Launch({"xu_busy": 0.95, "sm_active": 0.9}))
    assert full is not None
    assert (full.share, full.near) == (1.0, True)
    over = resource_use(BY_LIMITER["xu"], Launch({"xu_busy": 1.2, "sm_active": 0.9}))
    assert over is not None
    assert over.share == 1.2
    assert resource_use(BY_LIMITER["xu"], Launch({})) is None


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
    assert [u.resource.limiter for u in uses(launch)][:2] in (["dram", "l2"], ["l2", "dram"])
    first = next_limit(launch)
    assert first is not None
    assert (first.limiter, first.elapsed, first.room) == ("dram", 0.8, pytest.approx(1.25))
    links = next_limit(launch, "dram")  # without DRAM L2 is its links alone
    assert links is not None
    assert (links.limiter, links.elapsed) == ("l2", 0.6)
    rest = next_limit(launch, "dram", "l2")
    assert rest is not None
    assert (rest.limiter, rest.room) == ("xu", 2.0)
    l2 = next_limit(launch, "dram", "xu")
    assert l2 is not None
    assert l2.elapsed == 0.6
    assert next_limit(Launch({})) is None
    idle = next_limit(Launch({"xu_busy": 0.0}))
    assert idle is not None
    assert idle.room == inf


def test_scattered_sectors_leave_dram_less_room():
    pairs = {"dram_busy": 0.5, "l2_read_hit": 0.0, "l2_read_bytes": 100.0}
    for read, room in ((180.0, 1.1), (179.0, 2.0), (100.0, 2.0)):
        found = next_limit(Launch({**pairs, "dram_read": read}))
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
        (fp32,) = ceilings({"cc": cc, "sm_count": 10.0, "sm_clock": 1e9, "sm_clock_max": 2e9})
        assert (fp32.value, fp32.clock, fp32.source) == (20e9 * lanes, 1e9, "device attributes")
    (slow,) = ceilings({"cc": "9.0", "sm_count": 10.0, "sm_clock_max": 2e9})
    assert (slow.value, slow.clock) == (40e9 * 128, 2e9)
    assert ceilings({"cc": "9.0", "sm_count": 10.0}) == ()
    assert ceilings({"cc": "9.0", "sm_clock": 1e9}) == ()
    assert ceilings({"peak_dram_device": 0.0, "peak_l2": 0.0}) == ()
    (dram,) = ceilings({"peak_dram": 0.5, "dram_clock": 7.0})
    assert (dram.value, dram.clock, dram.source) == (0.5, 7.0, "report")
    (device,) = ceilings({"peak_dram_device": 0.5})
    assert isnan(device.clock)
    assert collected_metrics({"a": nan, "b": 1, "cc": "9.0"}) == {"b": 1.0}


def test_which_precision_leads():
    rates = {"time": 1.0, "fp32_rate": 5.0, "tensor_ops_fp16": 5.0, "tensor_ops_int8": 0.0}
    assert families(rates) == ("tensor_fp16", "fp32")  # half of all is most of it
    assert families({**rates, "tensor_ops_fp16": 4.9}) == ("fp32", "tensor_fp16")
    assert families({**rates, "fp32_rate": 0.0, "tensor_ops_int8": 6.0}) == (
        "tensor_int8",
        "tensor_fp16",
    )
    near = {"fp32_rate": 4.0, "peak_fp32": 8.0, "fp64_rate": 3.0, "peak_fp64": 4.0}
    assert families(near) == ("fp64", "fp32")
    assert families({}) == ()


def test_a_point_needs_bytes_and_a_time():
    assert points({"fp32_rate": 1.0, "dram_rate": 0.0}) == ()
    (own,) = points({"time": 2.0, "dram_bytes": 6.0, "fp32_rate": 9.0})
    assert (own.moved, own.intensity, own.rate) == (3.0, 3.0, 9.0)
    for operations, moved in ((0.0, 1.0), (1.0, 0.0)):
        assert points({"time": 2.0}, operations=operations, compulsory=moved) == ()
    assert len(points({"time": 0.5}, operations=0.5, compulsory=0.5)) == 1
    assert points({"time": 0.0}, operations=0.5, compulsory=0.5) == ()


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
    assert bool(cache_resident(values)) is resident


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
    lack = missing({"time": 1.0, "fp32_rate": 1.0, "fp16_rate": 1.0, **values})
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
        assert any("half" in m.why for m in missing({**base, "inst_half": half})) is not known
    few = {**base, "inst_fp32": 0.0}
    for half, known in ((1.0, True), (1.1, False)):
        assert any("half" in m.why for m in missing({**few, "inst_half": half})) is not known


@pytest.mark.parametrize(
    ("l1", "copies", "noted"), [(0.49, 1.0, True), (0.5, 1.0, False), (0.49, 0.0, False)]
)
def test_borders_of_what_passes_l1_by(l1, copies, noted):
    launch = {"fp32_rate": 1.0, "l1_rate": l1, "l2_rate": 1.0, "inst_async_copy": copies}
    note = next(p.note for p in points(launch) if p.level == "l1")
    assert bool(note) is noted
    texture = {**launch, "inst_async_copy": 0.0, "inst_texture": copies}
    assert bool(next(p.note for p in points(texture) if p.level == "l1")) is noted


# --- a launch as rules see it, and its words


def test_a_launch_knows_what_was_collected():
    launch = Launch({"stall_wait": 0.5, "stall_barrier": nan, "time": 1.0})
    assert (launch.present("stall_"), "stall_barrier" in launch, len(launch)) == (
        ["stall_wait"],
        False,
        3,
    )
    assert launch.known("stall_wait", "time")
    assert not launch.known("stall_wait", "stall_barrier")
    launch.need("stall_wait")
    with pytest.raises(NotCollected) as lacking:
        launch.need("stall_wait", "stall_barrier")
    assert lacking.value.metric == "stall_barrier"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.827, "82.7 %"),
        (1.0, "100 %"),
        (0.0, "0 %"),
        (0.9995, "100 %"),
        (0.9994, "99.9 %"),
        (0.005, "0.5 %"),
        (0.0123, "1.23 %"),
        (2.5, "250 %"),
    ],
)
def test_a_share_in_words(value, text):
    assert share(value) == text


def test_a_count_in_words():
    assert (counted(1, "block"), counted(0, "block"), counted(32, "SM")) == (
        "1 block",
        "0 blocks",
        "32 SMs",
    )
