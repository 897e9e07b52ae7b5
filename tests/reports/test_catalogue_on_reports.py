"""The catalogue on real reports: what is where, and does what we compute agree with ncu."""

from math import isnan
from pathlib import Path

import pandas as pd
import pytest

from profkit.reports.metrics import CATALOGUE

pytestmark = pytest.mark.slow

RECORD = {"declared_operations", "declared_bytes", "declared_exps"}


def _table(runs: pd.DataFrame) -> pd.DataFrame:
    """Metric x report: in what share of a report's launches the metric has a value."""
    return runs.groupby("report")[list(CATALOGUE)].agg(lambda column: column.notna().mean()).T


def test_prints_metric_by_report(corpus_runs):
    table = _table(corpus_runs[corpus_runs.status == "ok"])
    names = [Path(str(report)).name.split("_")[:4] for report in table.columns]
    print("\n" + "\n".join(f"{i:2d} {' '.join(parts)}" for i, parts in enumerate(names)))
    for metric, row in table.iterrows():
        print("".join("X" if v == 1 else "o" if v > 0 else "." for v in row), metric)
    assert table.loc["sm_count"].min() == 1
    assert set(table.index[table.max(axis=1) == 0]) <= RECORD | {"constant_hit"}


def test_a_full_report_of_the_committed_ones_has_nearly_everything(own_runs):
    have = own_runs[own_runs.variant == "sdpa-cudnn"][list(CATALOGUE)].notna().all()
    absent = {name for name in CATALOGUE if not have[name]} - RECORD
    # cuDNN moves data by TMA: there are no sectors per request of ordinary loads.
    assert not [n for n in absent if "per_request" not in n and n != "shared_step"]


def test_shares_stay_shares(own_runs, corpus_runs):
    both = pd.concat([own_runs, corpus_runs], ignore_index=True)
    for name, metric in CATALOGUE.items():
        if metric.unit == "share":
            values = both[name].dropna()
            assert (values >= 0).all(), name
            # One block for 2 us: ncu divides by the few cycles of a pass that saw less.
            assert (values[both.time.loc[values.index] > 5e-6] <= 1.1).all(), name


def test_warp_states_sum_to_one(own_runs, corpus_runs):
    both = pd.concat([own_runs, corpus_runs], ignore_index=True)
    states = [c for c in both.columns if c.startswith("stall_")]
    sums = both[states].sum(axis=1)[both.stall_selected.notna()]
    assert len(sums) > 20
    assert sums.between(0.999, 1.001).all()


@pytest.mark.parametrize(
    ("first", "second", "off"),
    [("dram_rate", "dram_bytes/time", 0.06), ("peak_dram", "peak_dram_device", 0.6)],
)
def test_what_is_counted_twice_agrees(own_runs, first, second, off):
    top, _, bottom = second.partition("/")
    other = own_runs[top] / (own_runs[bottom] if bottom else 1.0)
    long = own_runs.time > 2e-5
    ratio = (own_runs[first] / other)[long].dropna()
    assert len(ratio) > 5
    assert ratio.between(1 - off, 1 + off).all()


def test_copy_moves_what_it_copies(own_runs):
    copy = own_runs[own_runs.variant == "copy"].iloc[0]
    assert copy.dram_bytes == pytest.approx(2 * 2**30, rel=0.02)
    assert copy.global_load_sectors_per_request == 16  # 16 bytes per thread, coalesced
    assert copy.excess_sectors == 0


def test_tensor_operations_are_the_workloads(own_runs):
    cudnn = own_runs[(own_runs.variant == "sdpa-cudnn") & (own_runs.case == "C")].iloc[0]
    assert cudnn.tensor_ops_fp16 == 4 * 4 * 16 * 2048**2 * 64
    product = own_runs[own_runs.variant == "matmul"].iloc[0]
    assert product.tensor_ops_fp16 == 2 * 4096**3
    assert product.inst_matrix > 0


def test_elementwise_kernels_are_not_tensor_work(own_runs, corpus_runs):
    both = pd.concat([own_runs, corpus_runs], ignore_index=True)
    quiet = both[both.inst_matrix == 0]
    assert len(quiet) > 20
    hopper = quiet[quiet.cc == "9.0"]
    assert (hopper.tensor_busy.dropna() < 0.01).all()  # the clean counter of 9.0


@pytest.mark.forks
def test_register_step_agrees_with_ncu_s_own_table():
    ncu_report = pytest.importorskip("ncu_report")
    from profkit.reports.metrics import RAW_NAMES, evaluate_metrics
    from tests.conftest import committed, others

    seen = 0
    for path in others() + [p for p in committed() if p.suffix == ".ncu-rep"]:
        for action in ncu_report.load_report(str(path))[0]:
            table = action.metric_by_name("launch__occupancy_per_register_count")
            raw = {}
            for name in RAW_NAMES:
                metric = action.metric_by_name(name)
                if (
                    metric is not None
                    and metric.has_value()
                    and not isinstance(metric.value(), str)
                ):
                    raw[name] = float(metric.value())
            values = evaluate_metrics(raw)
            if table is None or not table.num_instances() or isnan(values["registers_step"]):
                continue
            keys = table.correlation_ids()
            warps = {
                int(keys.as_uint64(i)): table.as_double(i) for i in range(table.num_instances())
            }
            block = -(-values["block_size"] // 32)
            other = min(values[m] for m in ("limit_shared", "limit_warps", "limit_blocks"))
            if other <= values["limit_registers"]:
                continue  # another limiter binds: the table does not move with registers
            at = int(values["registers"] - values["registers_step"])
            assert warps[at] >= (values["limit_registers"] + 1) * block
            assert warps[at + 1] < (values["limit_registers"] + 1) * block
            seen += 1
    assert seen >= 1
