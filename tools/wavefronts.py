"""Do addresses that were worked out of machine code say how many wavefronts shared memory took?

    python tools/wavefronts.py [REPORT...]    # the committed ones where none is named

A line for each report that counted wavefronts by instruction: how many, the share of them at accesses
whose addresses were worked out and that ran with all their lanes, and how many of these wavefronts are
at accesses where the addresses say another number, by more than 5 %.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from profkit.reports.addresses import LaunchedCode  # noqa: E402
from profkit.reports.banks import SharedMemoryAccess, find_shared_memory_accesses  # noqa: E402
from profkit.reports.container import check_report_bytes  # noqa: E402
from profkit.reports.cubin import read_machine_code_of_report  # noqa: E402
from profkit.reports.reader import open_report_actions  # noqa: E402

LANES = 32


def main(words: list[str]) -> int:
    """Print the table; 1 where a tenth of a percent of the decoded wavefronts is wrong."""
    paths = words or [str(path) for path in sorted((ROOT / "artifacts").rglob("*.ncu-rep*"))]
    all_counted = all_decoded = all_wrong = 0.0
    for path in paths:
        counted = decoded = wrong = 0.0
        for kernel in open_kernels(path):
            shared = find_shared_memory_accesses(kernel)
            counted += shared.counted
            for access in shared.decoded:
                if runs_whole(kernel, access):
                    decoded += access.counted
                    wrong += 0.0 if access.is_prediction_right else access.counted
        if counted:
            print(f"{Path(path).name:60} {counted:14.0f} {decoded / counted:7.1%} {wrong:10.0f}")
        all_counted += counted
        all_decoded += decoded
        all_wrong += wrong
    if not all_counted:
        print("no report counted the wavefronts of its instructions")
        return 1
    print(f"{'all':60} {all_counted:14.0f} {all_decoded / all_counted:7.1%} {all_wrong:10.0f}")
    return int(all_wrong > all_decoded / 1000)


def open_kernels(path: str) -> Iterator[LaunchedCode]:
    """Yield the launches of a report, each good until the next is asked for."""
    code = read_machine_code_of_report(path)
    with open_report_actions(path) as open_launch:
        for number in range(check_report_bytes(path).launches):
            yield LaunchedCode(
                open_launch(number), lambda: code.functions, lambda: code.has_bounded_lines
            )


def runs_whole(kernel: LaunchedCode, access: SharedMemoryAccess) -> bool:
    """Return whether an access ran with all lanes of its warps whenever it ran."""
    lanes = kernel.sum_metrics_by_address({"thread_inst_executed_true": 1.0}) or {}
    return lanes.get(access.pc, 0.0) == LANES * access.requests


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
