"""The messages of a report, as far as they are checked: what may stand in which field.

Field numbers are those of ProfilerReport.proto and its kin in Nsight Compute's extras/FileFormat.
"""

from __future__ import annotations

from dataclasses import dataclass

from profkit.reports.container.wire import BYTES, FIXED32, FIXED64, VARINT, MessageShape

# A text is UTF-8 where ncu makes it. Paths, command lines and NVTX names are the user's own, in
# whatever encoding that system has: BYTES.


def _of(wire: int, *numbers: int) -> dict[int, int]:
    return dict.fromkeys(numbers, wire)


_VALUE = MessageShape({2: FIXED32, 3: FIXED64, **_of(VARINT, 4, 5)}, {1})
_ELEMENT = MessageShape(parts={1: _VALUE, 2: _VALUE, 3: _VALUE}, required={2})
METRIC = MessageShape(_of(VARINT, 1, 4), parts={2: _VALUE, 3: _ELEMENT}, required={1})
_ATTRIBUTES = MessageShape({1: VARINT, 3: BYTES}, {2}, required={1})
_SYSTEM = MessageShape({6: VARINT, **_of(BYTES, 1, 2, 3, 4, 5, 7)})
_VERSION = MessageShape(texts={1, 2}, required={1, 2})
_SESSION = MessageShape(
    {**_of(VARINT, 1, 2, 12), **_of(BYTES, 5, 7, 9, 10, 11)},
    parts={3: _SYSTEM, 4: _SYSTEM, 6: _ATTRIBUTES, 8: _VERSION},
)
FILE = MessageShape({1: VARINT}, required={1})
_PROCESS = MessageShape({1: VARINT, **_of(BYTES, 2, 3)}, required={1})
SESSION, NAMES, SIZE, PROCESS = 3, 4, 5, 6  # fields of a block header
# Its counters of the frames that follow, in their order.
SOURCES, RESULTS, RANGES, LISTS, GRAPHS, GRAPH_DATA = COUNTERS = (1, 2, 7, 8, 9, 10)
HEADER = MessageShape(
    {**_of(VARINT, *COUNTERS, SIZE), NAMES: BYTES}, parts={SESSION: _SESSION, PROCESS: _PROCESS}
)
SOURCE = MessageShape({**_of(VARINT, 1, 5, 6, 7), **_of(BYTES, 2, 3, 4, 8, 9)})

_DIMS = MessageShape(_of(VARINT, 1, 2, 3))
_PUSHED = MessageShape({**_of(BYTES, 1, 2), **_of(VARINT, 3, 4)}, required={1})
_STARTED = MessageShape({**_of(VARINT, 1, 4, 5), **_of(BYTES, 2, 3)}, required={1, 2})
_NVTX = MessageShape(
    _of(VARINT, 4, 5),
    parts={
        1: MessageShape({1: VARINT, **_of(BYTES, 2, 3, 4)}, required={1, 2}),
        2: MessageShape(
            {1: VARINT}, parts={2: MessageShape({1: VARINT}, parts={3: _PUSHED}, required={1})}
        ),
        3: MessageShape({1: VARINT}, parts={3: _STARTED}, required={1}),
    },
)
_PER_SM = MessageShape({1: VARINT, **_of(BYTES, 2, 3, 4)}, required={1, 2, 3})
_SAMPLES = MessageShape(texts={1}, parts={2: MessageShape(parts={1: _PER_SM})}, required={1, 2})

RESULT_SOURCE = 15  # field of a kernel's result: required, but it may be empty


@dataclass(frozen=True)
class Kind:
    """A kind of result and the numbers of the fields that all kinds have.

    Attributes:
        counter: Field of the block header that says how many follow.
        message: What it may hold.
        metrics: Number of the metrics, below 16 (a tag of one byte).
        nvtx: Number of the NVTX state.
        samples: Number of the timed warp samples.
    """

    counter: int
    message: MessageShape
    metrics: int
    nvtx: int
    samples: int


KINDS = (
    Kind(
        RESULTS,
        MessageShape(
            {
                **_of(VARINT, 1, 2, 3, 4, 8, 14, 16, 20, 22, 23, 29, 30),
                **_of(BYTES, 12, 13, 17, 18, 19, 24, 25, 26, 27, 28, 31, 32, 33, 34, 37, 38, 39),
                35: FIXED32,
            },
            {5, 6, 7},
            {9: _DIMS, 10: _DIMS, 11: _DIMS, RESULT_SOURCE: SOURCE, 21: _NVTX, 36: _SAMPLES},
            frozenset({*range(1, 12), RESULT_SOURCE}),
        ),
        metrics=13, nvtx=21, samples=36,
    ),
    Kind(
        RANGES,
        MessageShape(
            {
                **_of(VARINT, 1, 2, 5, 6, 9, 11, 15, 16),
                **_of(BYTES, 3, 4, 7, 8, 12, 13, 14, 17, 18, 19, 20, 23),
                21: FIXED32,
            },
            parts={10: _NVTX, 22: _SAMPLES},
            required={1, 2},
        ),
        metrics=4, nvtx=10, samples=22,
    ),
    Kind(
        LISTS,
        MessageShape(
            {
                **_of(VARINT, 1, 2, 5, 6, 9, 11, 12, 17, 19),
                **_of(BYTES, 3, 4, 7, 8, 13, 14, 15, 16, 18, 20, 21, 22, 23, 24, 27),
                25: FIXED32,
            },
            parts={10: _NVTX, 26: _SAMPLES},
            required={1, 2},
        ),
        metrics=4, nvtx=10, samples=26,
    ),
    Kind(
        GRAPHS,
        MessageShape(
            {
                **_of(VARINT, 1, 2, 5, 6, 9, 11, 12, 17, 18),
                **_of(BYTES, 3, 4, 7, 8, 13, 14, 15, 16, 19, 20, 21, 22, 25, 26),
                23: FIXED32,
            },
            parts={10: _NVTX, 24: _SAMPLES},
            required={1, 2},
        ),
        metrics=4, nvtx=10, samples=24,
    ),
)  # fmt: skip
