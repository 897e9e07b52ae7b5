"""A Chrome trace (.json, .json.gz), however large  ->  its events one by one, and its header.

Kineto writes NaN and raw control characters, which strict parsers refuse, and people send traces
that were cut in the middle: events are decoded one at a time out of a window of text, so memory
stays bounded, and what is whole is read.
"""

from __future__ import annotations

import codecs
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from profkit.errors import ProfkitError
from profkit.files import ReadBudget, get_file_size_or_zero, open_regular_file

if TYPE_CHECKING:
    from profkit.units import Clause, TextOrEmpty


CHUNK = 1 << 22  # characters read at a time
PACKED_CHUNK = (
    1 << 15
)  # bytes of a packed file; what is left of them is copied for each piece of it
EVENT_MOST = 1 << 24  # characters of one event: more is no trace
LONG = 1 << 20  # characters of an event whose values are weighed before they are made
TEXT_MOST = 32 << 30  # characters in all: a gzip bomb ends here at the latest
_VALUE = 50  # bytes of the budget for a value, whether it is an event or of no use
HEADER_MOST = 1 << 24
RATIO_MOST = 400  # characters a packed byte: traces reach 30, a bomb 1,000
# Events that are begun at a time, of all threads together, and their characters.
OPEN_MOST = 1 << 16
OPEN_CHARACTERS = 1 << 22
Event = Mapping[str, Any]
_BEFORE = re.compile("[\ufeff \\t\\r\\n]+")
_BEFORE_VALUE = re.compile(r"[ \t\r\n:]+")
_BETWEEN = re.compile(r"[ \t\r\n,]+")


@dataclass
class ChromeTrace:
    """An open trace: iterate `events` once; `header` and `problem` are filled on the way."""

    path: Path
    header: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    budget: ReadBudget = field(init=False)  # of the file, once it is open
    characters: int = 0  # of the event that was given last

    def __post_init__(self) -> None:
        self.budget = ReadBudget(0)

    def read_events(self) -> Iterator[dict[str, Any]]:
        """Yield each event as it stands.

        Raises:
            ProfkitError: The file cannot be read, or is no Chrome trace.
            BudgetSpent: It holds more than its bytes can need.
        """
        try:
            with open_regular_file(self.path) as raw:
                window = _TextWindow(raw, self.path)
                self.budget = ReadBudget(window.size, is_packed=window.unpack is not None)
                yield from self._decode_events(window)
                if window.problem and not self.problem.startswith("cut"):
                    self.problem = window.problem
        except OSError as error:
            raise ProfkitError(
                f"{self.path}: {error.strerror or error}", "check that the file is readable"
            ) from error

    def make_unreadable_error(self, why: Clause) -> ProfkitError:
        """Return what is said of a file that is no trace; why is a clause."""
        return _make_no_trace_error(self.path, why)

    def _decode_events(self, window: _TextWindow) -> Iterator[dict[str, Any]]:
        self.header = _read_header(window, self.budget)
        decode = json.JSONDecoder(strict=False).raw_decode
        while True:
            window.skip_matching_characters(_BETWEEN)
            mark = window.peek_character()
            if mark in ("]", ""):
                if mark == "":
                    self.problem = "cut: its list of events has no end"
                else:
                    tail = _read_text_after_events(window)
                    if '"traceEvents"' in tail:
                        self.problem = "contains more than one trace: the first is read"
                    else:
                        self.header = {
                            **_parse_header_keys_after_events(tail, self.budget),
                            **self.header,
                        }
                return
            begin = window.at
            try:
                event, end = decode(window.text, begin)
            except RecursionError as error:
                raise _make_no_trace_error(self.path, "an event is nested too deeply") from error
            except ValueError:
                if len(window.text) - begin > LONG:
                    self.budget.check_document(window.text[begin:])
                if window.read_more():
                    continue
                self.problem = "cut or damaged in the middle of an event"
                return
            window.at = end
            self.budget.spend_bytes(_VALUE)
            if isinstance(event, dict):
                self.characters = end - begin
                yield event


class _TextWindow:
    """Text of a file that is read and unpacked on demand: what comes before `at` is forgotten."""

    def __init__(self, raw: IO[bytes], path: Path) -> None:
        self.raw, self.path, self.problem = (
            raw,
            path,
            "",
        )  # the problem: why the file ends too early
        self.text = ""
        self.at = 0
        self.total = 0
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        head = raw.read(2)
        raw.seek(0)
        self.unpack = None
        if head == b"\x1f\x8b":
            self.unpack = zlib.decompressobj(wbits=31)
        self.left = b""
        self.size = max(1, get_file_size_or_zero(path))

    def read_more(self) -> bool:
        """Read on; False at the end of the file, or where it is damaged."""
        if len(self.text) - self.at > EVENT_MOST:
            raise _make_no_trace_error(
                self.path, f"an event is longer than {EVENT_MOST:,} characters"
            )
        content = b"-"
        chunk = ""
        while content and not chunk and not self.problem:
            content = self._read_bytes()
            chunk = self.decoder.decode(content, final=not content)
        self.total += len(chunk)
        if self.total <= 1 << 26:
            most = TEXT_MOST
        else:
            most = min(TEXT_MOST, RATIO_MOST * self.size)
        if self.total > most:
            raise _make_no_trace_error(
                self.path, f"it unpacks to more than {self.total / 1e9:.1f} GB"
            )
        self.text = self.text[self.at :] + chunk
        self.at = 0
        return bool(chunk)

    def _read_bytes(self) -> bytes:
        """Return the next bytes of the text, and many: a file may be packed in pieces of one byte."""
        if self.unpack is None:
            return self.raw.read(CHUNK)
        pieces: list[bytes] = []
        size = 0
        while size < CHUNK and (piece := self._unpack_piece(self.unpack)):
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    def _unpack_piece(self, unpack: zlib._Decompress) -> bytes:
        while packed := self.left or self.raw.read(PACKED_CHUNK):
            if unpack.eof:
                self.unpack = unpack = zlib.decompressobj(wbits=31)  # another member
            try:
                out = unpack.decompress(packed, CHUNK)
            except zlib.error as error:
                self.problem = f"damaged: {error}"
                return b""
            self.left = unpack.unconsumed_tail or unpack.unused_data
            if out:
                return out
        if not unpack.eof:
            self.problem = "cut: its gzip has no end"
        return b""

    def skip_matching_characters(self, marks: re.Pattern[str]) -> None:
        """Move past characters that mean nothing here."""
        while True:
            if found := marks.match(self.text, self.at):
                self.at = found.end()
            if self.at < len(self.text) or not self.read_more():
                return

    def peek_character(self) -> TextOrEmpty:
        """Return the next character; empty at the end."""
        return self.text[self.at : self.at + 1]


def _read_text_after_events(window: _TextWindow) -> str:
    """Return what follows the events: more keys of the header, or another trace that was joined."""
    key = '"traceEvents"'
    tail = ""
    while True:
        tail += window.text[window.at :]
        window.at = len(window.text)
        if key in tail:
            return tail
        if len(tail) > HEADER_MOST:
            tail = tail[-len(key) :]
        if not window.read_more():
            return tail


def _parse_header_keys_after_events(tail: str, budget: ReadBudget) -> dict[str, Any]:
    """Read the keys of the header that were written behind the events; none of what is damaged."""
    text = "{" + tail.lstrip("] \t\r\n,")
    budget.check_document(text)
    try:
        keys, _ = json.JSONDecoder(strict=False).raw_decode(text)
    except (ValueError, RecursionError):
        return _salvage_gpus(text)
    return dict(keys)


def _read_header(window: _TextWindow, budget: ReadBudget) -> dict[str, Any]:
    """Return all keys before the events; the window stands after the bracket that opens them."""
    window.skip_matching_characters(_BEFORE)
    if window.peek_character() == "[":  # the form without a header
        window.at += 1
        return {"traceEvents": True}
    if window.peek_character() != "{":
        raise _make_no_trace_error(window.path, window.problem or "it is not JSON")
    key = '"traceEvents"'
    while (found := window.text.find(key, window.at)) < 0:
        if len(window.text) > HEADER_MOST or not window.read_more():
            raise _make_no_trace_error(window.path, "it has no traceEvents")
    head = window.text[window.at : found].rstrip().rstrip(",")
    window.at = found + len(key)
    window.skip_matching_characters(_BEFORE_VALUE)
    if window.peek_character() != "[":
        raise _make_no_trace_error(window.path, "its traceEvents are not a list")
    window.at += 1
    budget.check_document(head)
    try:
        header = json.loads(head + "}", strict=False)
    except (ValueError, RecursionError):
        header = _salvage_gpus(head)
    return {**header, "traceEvents": True}


def _salvage_gpus(head: str) -> dict[str, Any]:
    """Return the list of GPUs out of a header that is no JSON: some versions forget its commas."""
    at = head.find('"deviceProperties"')
    start = head.find("[", at)
    if at < 0 or start < 0:
        return {}
    try:
        devices, _ = json.JSONDecoder(strict=False).raw_decode(head, start)
    except (ValueError, RecursionError):
        return {}
    return {"deviceProperties": devices}


def _make_no_trace_error(path: Path, why: Clause) -> ProfkitError:
    return ProfkitError(
        f"{path}: cannot be read as a trace: {why}",
        "give a file written by torch.profiler's export_chrome_trace (.json, .json.gz)",
    )


class EventPairs:
    """Events that are written as a begin and an end (B, E): what was begun and not ended so far.

    By the format's rules they nest within each thread of a process, in the file's order: an end belongs
    to what began last, or to what it names. Arguments may be on both.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[object, object], _OpenEvents] = {}
        self._count = 0
        self._characters = 0
        self.unmatched = 0  # begins without an end, and ends without a begin

    def begin_event(self, event: Event, place_in_file: int, characters: int = 0) -> None:
        """Keep an event of so many characters, and its number in the file, until its end comes."""
        if self._count >= OPEN_MOST or self._characters + characters > OPEN_CHARACTERS:
            self.unmatched += 1
            return
        self._count += 1
        self._characters += characters
        own = self._open.setdefault(_get_process_and_thread(event), _OpenEvents())
        own.add_begin(_Begin(place_in_file, event, characters))

    def end_event(self, event: Event) -> tuple[int, dict[str, Any]] | None:
        """Return the whole event that one ends, and its begin's number; None where nothing was begun."""
        own = self._open.get(_get_process_and_thread(event))
        ended = own.pop_begin_of_name(event.get("name")) if own is not None else []
        if not ended:
            self.unmatched += 1
            return None
        self._count -= len(ended)
        self._characters -= sum(begin.characters for begin in ended)
        self.unmatched += len(ended) - 1  # begun inside of it, and not ended before it
        number, begin, _ = ended[-1]
        try:
            took = float(event["ts"]) - float(begin["ts"])
        except (TypeError, ValueError, KeyError, OverflowError):
            took = -1.0
        if not took >= 0:
            self.unmatched += 1
            return None
        joined = _join_arguments(begin, event)
        return number, {**begin, "ph": "X", "dur": took, "args": joined}

    def list_open_events(self) -> Iterator[tuple[int, Event]]:
        """Return what was begun and never ended."""
        for own in self._open.values():
            for number, event, _ in own.begins:
                yield number, event


class _Begin(NamedTuple):
    number: int  # in the file
    event: Event
    characters: int


class _OpenEvents:
    """What one thread has begun, the last one last, and how many there are of each name.

    Names are counted: an end that names nothing of it must not look at all of it.
    """

    def __init__(self) -> None:
        self.begins: list[_Begin] = []
        self._names: Counter[str] = Counter()

    def add_begin(self, begin: _Begin) -> None:
        self.begins.append(begin)
        self._names[_get_event_name(begin.event)] += 1

    def pop_begin_of_name(self, name: object) -> list[_Begin]:
        """Remove and return the begin that an end of a name ends, behind all that began after it."""
        if name and not self._names[_get_event_name({"name": name})]:
            return []
        popped: list[_Begin] = []
        while self.begins:
            begin = self.begins.pop()
            own = _get_event_name(begin.event)
            self._names[own] -= 1
            if not self._names[own]:
                del self._names[own]
            popped.append(begin)
            if not name or own == _get_event_name({"name": name}):
                break
        return popped


def _get_event_name(event: Event) -> str:
    """Return the name of an event as text: it may be any value of JSON."""
    name = event.get("name")
    return name if isinstance(name, str) else repr(name)


def _get_process_and_thread(event: Event) -> tuple[object, object]:
    """Return the process and thread of an event: numbers, or names."""
    process = event.get("pid")
    thread = event.get("tid")
    return (
        process if isinstance(process, int | str) else None,
        thread if isinstance(thread, int | str) else None,
    )


def _join_arguments(begin: Event, end: Event) -> dict[str, Any]:
    """Return the arguments of both: what both have is the end's."""
    joined: dict[str, Any] = {}
    for event in (begin, end):
        own = event.get("args")
        if isinstance(own, dict):
            joined.update(own)
    return joined
