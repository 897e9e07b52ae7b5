"""Requests and events of a worker  ->  lines of JSON, and back with their types.

One request is one line; a worker answers with any number of events and one Ready. What an event
holds is the dataclass that the worker made: nothing is a dict on either side of the border.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from profkit.measure.check.bench import Times
from profkit.measure.check.check import Check
from profkit.measure.cuda.device import Gpu
from profkit.measure.cuda.library import GraphLaunch


class WorkerMessage(msgspec.Struct, frozen=True, tag=True):
    """What goes over the border; its class is its tag."""


class Entry(msgspec.Struct, frozen=True):
    """A variant, or a reference of the problem."""

    name: str  # the variant's id or the reference's name
    library: str | None = None  # the variant's library; None of a reference
    grid: str | None = None  # the variant's `inputs:` key


# --- requests ------------------------------------------------------------------------------------


class Open(WorkerMessage, frozen=True):
    """The first request: take the GPU, load the problem and the tools."""

    problem: str
    build: str
    support: str


class Prepare(WorkerMessage, frozen=True):
    """Compute inputs and references of cases; load `reference` at `case` if there is one."""

    checks: tuple[tuple[str, int], ...]
    grid: str | None = None
    case: str | None = None
    reference: str | None = None


class Judge(WorkerMessage, frozen=True):
    """Check a variant on (case, seed) pairs; if it is correct at `case`, list its launches there."""

    entry: Entry
    checks: tuple[tuple[str, int], ...]
    case: str | None = None


class Measure(WorkerMessage, frozen=True):
    """Load entries at a case and list their launches; time them in turns where `rounds` is given."""

    entries: tuple[Entry, ...]
    case: str
    cold: bool = False  # whether to time with a cold L2 too
    rounds: tuple[int, int] | None = None  # how many at first, and at most; None times nothing


Request = Open | Prepare | Judge | Measure

# --- events --------------------------------------------------------------------------------------


class Opened(WorkerMessage, frozen=True):
    gpu: Gpu


class Begun(WorkerMessage, frozen=True):
    """What is being done now; whoever holds a name when the worker is lost is to blame."""

    what: str
    name: str = ""
    case: str = ""

    def __str__(self) -> str:
        return " ".join(word for word in (self.what, self.name, self.case) if word)


class Checked(WorkerMessage, frozen=True):
    check: Check  # of a variant, or of a reference at one case


class Listed(WorkerMessage, frozen=True):
    name: str
    launches: tuple[GraphLaunch, ...]  # of one call


class Timed(WorkerMessage, frozen=True):
    times: Times


class Refused(WorkerMessage, frozen=True):
    """An entry that cannot run at a case; the others go on."""

    name: str
    message: str


class Failed(WorkerMessage, frozen=True):
    """The request came to nothing. With `lost` the worker ends: its CUDA context is gone."""

    message: str
    hint: str = ""
    lost: bool = False


class Ready(WorkerMessage, frozen=True):
    """The request is done."""


Event = Opened | Begun | Checked | Listed | Timed | Refused | Failed | Ready
read_request: Callable[[bytes], Request] = msgspec.json.Decoder(Request).decode  # of one line
read_event: Callable[[bytes], Event] = msgspec.json.Decoder(Event).decode


def encode(message: Request | Event) -> bytes:
    """One line, with its end."""
    return msgspec.json.encode(message) + b"\n"
