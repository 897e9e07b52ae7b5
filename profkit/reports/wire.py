"""Protobuf bytes  ->  fields, or Malformed; and the messages of a report, each described once.

Their numbers are those of the ProfilerReport*.proto files that Nsight Compute publishes in its
extras/FileFormat, and every field that a version up to NEWEST writes is here. All versions since 2020
write a message in one way: its fields in the order of their numbers, each once unless it is repeated,
and numbers as short as they can be. So a message of another form is damaged, or of a newer version.

A line, and those below it that are set in, is a message: its name, then its fields. A field is its
number, `!` where it must be there, `*` where it is repeated, and its kind: one of those in
WIRES, `text` (UTF-8, written by ncu), `bytes` (anything: paths, command lines and NVTX names are
the user's, in whatever encoding that system has; and messages that nobody reads, which the library
checks), or the name of another message. A message of which the name ends in `|` has one of its fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profkit.units import ByteOffset, Clause, ProtobufMessage


FieldAndNextOffset = tuple[
    int, int, int, int, int
]  # number, wire type, start, end (or value), next

# A field of a message: its number, its wire type, where its value begins and ends; of a varint the value
# itself, and 0.
NumberTypeStartEnd = tuple[int, int, int, int]
VARINT = 0
FIXED64 = 1
BYTES = 2
FIXED32 = 5
_SIZES = {FIXED64: 8, FIXED32: 4}
# The kinds of fields that hold no message, and their wire types.
WIRES = {
    "bool": VARINT,
    "uint32": VARINT,
    "int": VARINT,
    "float": FIXED32,
    "double": FIXED64,
    "text": BYTES,
    "bytes": BYTES,
}
_BITS = {"bool": 1, "uint32": 32}


class Malformed(Exception):
    """The bytes do not have the shape that Nsight Compute writes."""


class NotText(Malformed):
    """A text that is not UTF-8: whole but for that."""


class TruncatedFile(Malformed):
    """The file ends too early; `left` is what there is of its last frame."""

    def __init__(self, why: Clause, left: bytes) -> None:
        super().__init__(why)
        self.left = left


@dataclass
class MessageShape:
    """What a message may hold, by the numbers of its fields."""

    name: str
    has_one: bool = False  # of its fields, whichever that is
    wires: dict[int, int] = field(default_factory=dict)  # the wire type of every field
    plain: dict[int, int] = field(default_factory=dict)  # of those where nothing else is checked
    bits: dict[int, int] = field(default_factory=dict)  # of numbers with less than 64 of them
    texts: set[int] = field(default_factory=set)  # UTF-8 strings
    parts: dict[int, MessageShape] = field(default_factory=dict)  # messages, checked too
    required: set[int] = field(default_factory=set)
    repeated: set[int] = field(default_factory=set)

    def add_field(self, field_number: int, value_kind: str) -> None:
        """Add a field by its number and kind of value."""
        self.wires[field_number] = WIRES[value_kind]
        if value_kind in _BITS:
            self.bits[field_number] = _BITS[value_kind]
        elif value_kind == "text":
            self.texts.add(field_number)
        else:
            self.plain[field_number] = WIRES[value_kind]

    def add_submessage(self, field_number: int, part: MessageShape) -> None:
        """Add a field that is a message itself."""
        self.wires[field_number] = BYTES
        self.parts[field_number] = part


class Oddities:
    """What was seen that no known version of ncu writes, though it can be read: the first of it."""

    def __init__(self) -> None:
        self.first = ""

    def keep_first_oddity(self, oddity: str) -> None:
        """Keep the first oddity that is found."""
        self.first = self.first or oddity


def read_varint(data: bytes, offset: ByteOffset) -> tuple[int, ByteOffset]:
    """Return a varint and the offset behind it. IndexError at the end of the data."""
    value = shift = 0
    while True:
        byte = data[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
        shift += 7
        if shift > 63:
            raise Malformed("a number of more than 64 bits")


def _read_shortest_varint(data: ProtobufMessage, offset: ByteOffset) -> tuple[int, ByteOffset]:
    """Return a varint that is as short as it can be; as varint."""
    value, end = read_varint(data, offset)
    if not data[end - 1] and end - offset > 1:
        raise Malformed("a number with zeros in front")
    if value >> 64:
        raise Malformed("a number of more than 64 bits")
    return value, end


def read_field(data: ProtobufMessage, offset: ByteOffset, end: ByteOffset) -> FieldAndNextOffset:
    """Return the field at an offset: number, wire type, start, end (value, 0 if varint), next offset.

    Malformed where there is none, or it leaves the message that ends at `end`.
    """
    try:
        key = data[offset]
        offset = offset + 1
        if key > 0x7F:  # most keys and sizes are one byte
            key, offset = _read_shortest_varint(data, offset - 1)
        number = key >> 3
        wire = key & 7
        if wire == BYTES:
            size = data[offset]
            start = offset + 1
            if size > 0x7F:
                size, start = _read_shortest_varint(data, offset)
            offset = stop = start + size
        elif wire == VARINT:
            start = data[offset]
            offset = offset + 1
            if start > 0x7F:
                start, offset = _read_shortest_varint(data, offset - 1)
            stop = 0
        else:
            start = offset
            offset = stop = start + _SIZES[wire]
    except (IndexError, KeyError):
        raise Malformed("bytes that are no field") from None
    if offset > end or not number:
        raise Malformed("a field that leaves its message")
    return number, wire, start, stop, offset


def iterate_fields(
    data: ProtobufMessage, offset: ByteOffset, end: ByteOffset
) -> Iterator[NumberTypeStartEnd]:
    """Yield the fields of the message at [at, end), without the next offset.

    Malformed where they do not fill it exactly.
    """
    while offset < end:
        number, wire, start, stop, offset = read_field(data, offset, end)
        yield number, wire, start, stop


def verify_message(
    data: ProtobufMessage,
    offset: ByteOffset,
    end: ByteOffset,
    message: MessageShape,
    oddities: Oddities,
) -> None:
    """Raise Malformed unless the message at [at, end) has its shape, all the way down.

    `oddities` gets what only a newer ncu can have written.
    """
    seen: set[int] = set()
    before = 0
    while offset < end:
        number, wire, start, stop, offset = read_field(data, offset, end)
        if number <= before:
            verify_field_order(number, before, message, oddities)
        before = number
        seen.add(number)
        if message.plain.get(number) != wire:
            verify_field(data, (number, wire, start, stop), message, oddities)
    if not message.required <= seen:
        raise Malformed("a message that lacks a part")
    if message.has_one and len(seen) > 1:
        oddities.keep_first_oddity(f"a {message.name} with {len(seen)} values")


def verify_field_order(
    field_number: int, previous_number: int, message: MessageShape, oddities: Oddities
) -> None:
    """Check that a field may follow the one before it: protobuf writes them by their numbers."""
    if field_number < previous_number:
        oddities.keep_first_oddity(
            f"field {field_number} of {message.name} behind field {previous_number}"
        )
    elif field_number == previous_number and field_number not in message.repeated:
        oddities.keep_first_oddity(f"field {field_number} of {message.name} twice")


def verify_field(
    data: ProtobufMessage, field: NumberTypeStartEnd, message: MessageShape, oddities: Oddities
) -> None:
    """Check one field of a message; as verify_message."""
    number, wire, start, stop = field
    expected = message.wires.get(number)
    if expected is None:
        oddities.keep_first_oddity(f"field {number} of {message.name}")
    elif wire != expected:
        raise Malformed(f"field {number} of the wrong type")
    elif wire == VARINT:
        if start >> message.bits.get(number, 64):
            raise Malformed(f"field {number} is too large a number")
    elif number in message.parts:
        verify_message(data, start, stop, message.parts[number], oddities)
    elif number in message.texts:
        try:
            data[start:stop].decode()
        except UnicodeDecodeError:
            raise NotText("a text that is not UTF-8") from None


# The newest ncu whose fields are known here: what is strange in a report of a later one is only noted.
NEWEST = (2026, 3)

_MESSAGES = """
FileHeader: 1!uint32
BlockHeader: 1uint32 2uint32 3SessionDetails 4StringTable 5uint32 6ProcessInfo 7uint32 8uint32
  9uint32 10uint32
StringTable: 1*bytes
ProcessInfo: 1!uint32 2bytes 3bytes

SessionDetails: 1uint32 2int 3SystemInfo 4SystemInfo 5DeviceProperties 6*DeviceAttributes 7bytes
  8*VersionInfo 9ExecutableSettings 10ProfilerSettings 11bytes 12bool
SystemInfo: 1bytes 2bytes 3bytes 4bytes 5bytes 6int 7*IPAddress
IPAddress: 1!bytes 2int
DeviceProperties: 1*DeviceProperty
DeviceProperty: 1!bytes 2!bytes
DeviceAttributes: 1!uint32 2text 3*bytes
VersionInfo: 1!text 2!text
ExecutableSettings: 1!bytes 2bytes 3bytes 4bytes
ProfilerSettings: 1bool 2bool 3bool 4bytes 5FilterOptions 6OtherOptions 7bytes 8bytes
  9WarpSamplingOptions 10bool 11bytes 12bool 13PmSamplingOptions 14bytes 15bytes 16bool
FilterOptions: 1bytes 2bytes 3bytes 4uint32 5uint32 6uint32 7bytes
OtherOptions: 1bool 2bytes
WarpSamplingOptions: 1bool 2int 3int 4int
PmSamplingOptions: 1int 2int 3int 4int 5bool

Source: 1int 2bytes 3bytes 4bytes 5int 6uint32 7uint32 8SourceFiles 9RelocationData
SourceFiles: 1*SourceFile
SourceFile: 1!bytes 2bytes
RelocationData: 1*RelocationSymbol 2*RelocationSymbol
RelocationSymbol: 1bytes 2int 3uint32

KernelResult: 1!uint32 2!int 3!int 4!int 5!text 6!text 7!text 8!uint32 9!Dimensions 10!Dimensions
  11!Dimensions 12bytes 13*Metric 14int 15!Source 16int 17*Section 18*Comment 19*RuleResult 20bool
  21Nvtx 22uint32 23uint32 24SeriesInfo 25ClockStatus 26bytes 27bytes 28CpuStack 29int 30bool
  31bytes 32CpuStack 33bytes 34bytes 35float 36*Samples 37GraphInfo 38DeviceNvtx 39bytes
RangeResult: 1!uint32 2!int 3bytes 4*Metric 5int 6int 7*Section 8*Comment 9bool 10Nvtx 11uint32
  12ClockStatus 13bytes 14CpuStack 15*int 16bool 17CpuStack 18bytes 19bytes 20*RuleResult 21float
  22*Samples 23bytes
ListResult: 1!uint32 2!int 3bytes 4*Metric 5int 6int 7*Section 8*Comment 9bool 10Nvtx 11uint32
  12uint32 13ClockStatus 14bytes 15bytes 16CpuStack 17*int 18bytes 19uint32 20*ListLaunch
  21*RuleResult 22CpuStack 23bytes 24bytes 25float 26*Samples 27bytes
GraphResult: 1!uint32 2!int 3bytes 4*Metric 5int 6int 7*Section 8*Comment 9bool 10Nvtx 11uint32
  12uint32 13ClockStatus 14bytes 15bytes 16CpuStack 17*int 18bool 19CpuStack 20bytes 21bytes
  22*RuleResult 23float 24*Samples 25GraphInfo 26bytes
Dimensions: 1int 2int 3int
ListLaunch: 1Dimensions 2Dimensions
Comment: 1!CommentID 2!bytes 3!bytes
CommentID: 1!bytes
SeriesInfo: 1!uint32 2bytes
ClockStatus: 1!bool 2!bool
CpuStack: 1*CpuFrame 2int
CpuFrame: 1!bytes 2!int 3bytes 4bytes 5uint32
Samples: 1!text 2!SamplesOfAll
SamplesOfAll: 1*SamplesOfOne
SamplesOfOne: 1!uint32 2!bytes 3!bytes 4bytes
GraphInfo: 1int 2int 3uint32
DeviceNvtx: 1*DeviceNvtxEvent 2*DeviceNvtxRange 3bytes 4*DeviceNvtxInfo
DeviceNvtxEvent: 1!int 2!uint32 3!uint32 4!uint32
DeviceNvtxRange: 1!int 2!int 3!uint32 4!uint32
DeviceNvtxInfo: 1!uint32 2!bytes 3!bytes 4!uint32

Metric: 1!uint32 2MetricValue 3*MetricInstance 4int
MetricInstance: 1MetricValue 2!MetricValue 3*MetricValue
MetricValue|: 1text 2float 3double 4uint32 5int

Nvtx: 1*NvtxDomain 2*NvtxThread 3*NvtxStartEnd 4int 5int
NvtxDomain: 1!int 2!bytes 3*NvtxString 4*NvtxNames
NvtxString: 1!int 2!bytes
NvtxNames: 1!int 2*NvtxString
NvtxThread: 1!uint32 2*NvtxPushPop
NvtxPushPop: 1!int 3*NvtxPushed
NvtxPushed: 1!bytes 2NvtxAttributes 3int 4int
NvtxStartEnd: 1!int 3*NvtxStarted
NvtxStarted: 1!int 2!bytes 3NvtxAttributes 4int 5uint32
NvtxAttributes: 1!uint32 2!uint32 3!NvtxColor 4!NvtxPayload 5!NvtxMessage
NvtxColor: 1!int 2uint32
NvtxPayload: 1!int 2int 3int 4double 5uint32 6int 7float 8bytes
NvtxMessage: 1!int 2bytes 3int

Section: 1!bytes 2!bytes 3uint32 4bytes 5*bytes 6bytes 7bytes 8*bytes 9bytes 10bytes 11bytes
  12*bytes 13bytes

RuleResult: 1!bytes 2!bytes 3RuleBody 4bytes 5*SourceMarker
SourceMarker: 1int 2uint32 3int 4bytes 5int 6bytes
RuleBody: 1*RuleItem
RuleItem: 1RuleMessage 2Table 3BarChart 4HistogramChart 5LineChart 6Proposal 7RooflineChart
  8*FocusMetric 9SourceTable 10Speedup 11SuffixTable 12*RuleTable
RuleMessage: 1!bytes 2!int 3int 4bytes
Proposal: 1!bytes
FocusMetric: 1int 2bytes 3double 4int 5bytes
Speedup: 1int 2double
Table: 1bytes 2uint32 3!uint32 4int 5*bytes 6int 7int 8bytes
BarChart: 1bytes 2int 3bytes 4bytes 5*bytes 6int 7int 8int 9bytes
HistogramChart: 1bytes 2bytes 3bytes 4!bytes 5bytes
LineChart: 1bytes 2bytes 3bytes 4*bytes 5bytes 6bytes
RooflineChart: 1bytes 2bytes 3bytes 4*bytes 5*bytes 6*bytes 7bytes 8bytes
SourceTable: 1bytes 2uint32 3*bytes 4int 5bytes
SuffixTable: 1bytes 2!bytes 3!bytes 4int 5int 6bytes
RuleTable: 1bytes 2*bytes
"""


@cache
def _list_field_lines() -> dict[str, list[str]]:
    """Return the fields of each message, as they are written above."""
    lines = {}
    for line in _MESSAGES.replace("\n  ", " ").split("\n"):
        name, _, described = line.partition(": ")
        if described:
            lines[name] = described.split()
    return lines


@cache
def load_message_shape(name: str) -> MessageShape:
    """Return what a message may hold, with all the messages in it."""
    lines = _list_field_lines()
    shape = MessageShape(name, has_one=f"{name}|" in lines)
    for described in lines[f"{name}|" if shape.has_one else name]:
        kind = described.lstrip("0123456789!*")
        marked = described.removesuffix(kind)
        number = int(marked.rstrip("!*"))
        if marked.endswith("!"):
            shape.required.add(number)
        if marked.endswith("*"):
            shape.repeated.add(number)
        if kind in WIRES:
            shape.add_field(number, kind)
        else:
            shape.add_submessage(number, load_message_shape(kind))
    return shape


SESSION, NAMES, SIZE, PROCESS = 3, 4, 5, 6  # fields of a block header
# Its counters of the frames that follow, in their order.
SOURCES, RESULTS, RANGES, LISTS, GRAPHS, GRAPH_DATA = COUNTERS = (1, 2, 7, 8, 9, 10)
MERGED = 12  # field of a session: it was put together out of several reports
RESULT_SOURCE = 15  # field of a kernel's result: required, but it may be empty


@dataclass(frozen=True)
class ResultKind:
    """A kind of result and the numbers of the fields that all kinds have."""

    counter: int  # field of the block header that says how many follow
    name: str  # of its message
    metrics: int  # below 16 (a tag of one byte)
    nvtx: int  # the NVTX state
    samples: int  # the timed warp samples

    @property
    def message(self) -> MessageShape:
        """Return the shape of the kind's message."""
        return load_message_shape(self.name)


KINDS = (
    ResultKind(RESULTS, "KernelResult", metrics=13, nvtx=21, samples=36),
    ResultKind(RANGES, "RangeResult", metrics=4, nvtx=10, samples=22),
    ResultKind(LISTS, "ListResult", metrics=4, nvtx=10, samples=26),
    ResultKind(GRAPHS, "GraphResult", metrics=4, nvtx=10, samples=24),
)
