from dataclasses import replace

import pytest

from profkit.lab.measure.bench import Times
from profkit.lab.measure.cuda.library import GraphLaunch
from profkit.records.parts import GpuState

IDLE = GpuState()
LAUNCH = GraphLaunch("kernel", (1, 1, 1), (32, 1, 1), 0, 0, 32, 1)


@pytest.mark.parametrize(
    ("warm", "eager", "host", "launches", "bound"),
    [
        (4.5, 6.8, 6.3, 1, True),  # asks for the device's properties each time
        (9.6, 25, 24, 1, True),  # through Python
        (1.1, 2.3, 2.2, 1, False),  # an empty kernel: any launch takes longer
        (4.5, 7.2, 6.9, 3, False),  # three launches, and nothing but them
        (20, 20.5, 6.3, 1, False),  # slow to start, but the kernel is slower
        (6.5, 6.8, 6.3, 1, False),  # as fast in a graph
        (4.5, 9.0, 3.5, 1, False),  # slower outside of a graph, but not for the host's sake
    ],
)
def test_host_bound(warm: float, eager: float, host: float, launches: int, bound: bool) -> None:
    times = Times("v1", "B", (warm,) * 30, (), 100, eager, host, 2.1, IDLE, IDLE)
    assert replace(times, launches=(LAUNCH,) * launches).is_host_bound is bound
