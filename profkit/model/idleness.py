"""One launch  ->  how much of the time its SMs had no work, and whether that was counted or assumed.

The one measure of idleness: no border in microseconds. What begins and ends a launch, when even the
busiest SM has no work, is `ends`; what the average SM idles beside the busiest is `spread`.
"""

from __future__ import annotations

from dataclasses import dataclass

from profkit.model.launch import Launch, Threshold

_ENDS = (
    "Seconds in which no SM has work, counted on 430 launches by 1 - busiest: 1.4 to 2.7 us on H200, "
    "1.0 to 3.5 on 8.6, 8.9 and 12.0, 4.0 to 4.4 on B200. Idle time up to the most is taken for it "
    "where the busiest SM was not counted, and is said to be assumed."
)
ENDS = Threshold(1.5e-6, _ENDS)
ENDS_MOST = Threshold(5e-6, _ENDS)


@dataclass(frozen=True)
class Idleness:
    """Shares of the elapsed time."""

    average: float  # in which the average SM had work
    busiest: float  # in which the busiest SM had work; at least the average
    # The busiest SM was not counted (before ncu 2024.1): idle time as long as launches begin and end
    # is taken for that, the rest for SMs that finish before the busiest one.
    assumed: bool

    @property
    def ends(self) -> float:
        """In which not even the busiest SM had work."""
        return 1 - self.busiest

    @property
    def spread(self) -> float:
        """In which the busiest SM had work and the average one had not."""
        return self.busiest - self.average


def idleness(launch: Launch) -> Idleness:
    """How idle the SMs were.

    Raises:
        NotCollected: Neither the SMs' activity nor a duration was collected.
    """
    if "sm_active_max" in launch:
        busiest = min(1.0, launch["sm_active_max"])
        return Idleness(min(busiest, launch.get("sm_active", busiest)), busiest, assumed=False)
    if "sm_active" in launch:
        average = min(1.0, launch["sm_active"])
        return Idleness(average, _busiest(launch, average), assumed=True)
    launch.need("time")
    busiest = 1 - min(1.0, ENDS / launch["time"]) if launch["time"] > 0 else 1.0
    return Idleness(busiest, busiest, assumed=True)


def _busiest(launch: Launch, average: float) -> float:
    """The busiest SM where only the average one was counted."""
    if launch.known("grid_size", "sm_count") and launch["grid_size"] < launch["sm_count"]:
        return min(1.0, average * launch["sm_count"] / launch["grid_size"])  # the others had none
    time = launch.get("time", 0.0)
    return 1 - (min(1 - average, ENDS_MOST / time) if time > 0 else 0.0)
