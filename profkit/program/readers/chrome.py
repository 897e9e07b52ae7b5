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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, Any

from profkit.errors import ProfkitError
from profkit.files import ReadBudget, get_size, open_regular

CHUNK = 1 << 22  # characters read at a time
EVENT_MOST = 1 << 24  # characters of one event: more is no trace
TEXT_MOST = 32 << 30  # characters in all: a gzip bomb ends here at the latest
_VALUE = 50  # bytes of the budget for a value, whether it is an event or of no use
HEADER_MOST = 1 << 24
RATIO_MOST = 400  # characters a packed byte: traces reach 30, a bomb 1,000
OPEN_MOST = 1 << 16  # events that are begun at a time, of all threads together
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

    def __post_init__(self) -> None:
        self.budget = ReadBudget(0)

    def read_events(self) -> Iterator[dict[str, Any]]:
        """Each event as it stands.

        Raises:
            ProfkitError: The file cannot be read, or is no Chrome trace.
            BudgetSpent: It holds more than its bytes can need.
        """
        try:
            with open_regular(self.path) as raw:
                window = _Window(raw, self.path)
                self.budget = ReadBudget(window.size, is_packed=window.unpack is not None)
                yield from self._decode_events(window)
                if window.problem and not self.problem.startswith("cut"):
                    self.problem = window.problem
        except OSError as error:
            raise ProfkitError(
                f"{self.path}: {error.strerror or error}", "check that the file is readable"
            ) from error

    def make_unreadable_error(self, why: str) -> ProfkitError:
        """Return what is said of a file that is no trace; why is a clause."""
        return _make_no_trace_error(self.path, why)

    def _decode_events(self, window: _Window) -> Iterator[dict[str, Any]]:
        self.header = _read_header(window)
        decode = json.JSONDecoder(strict=False).raw_decode
        while True:
            window.skip_matching_characters(_BETWEEN)
            mark = window.peek_character()
            if mark in ("]", ""):
                if mark == "":
                    self.problem = "cut: its list of events has no end"
                else:
                    tail = _read_tail(window)
                    if '"traceEvents"' in tail:
                        self.problem = "contains more than one trace: the first is read"
                    else:
                        self.header = {**_read_keys_behind(tail), **self.header}
                return
            try:
                event, end = decode(window.text, window.at)
            except RecursionError as error:
                raise _make_no_trace_error(self.path, "an event is nested too deeply") from error
            except ValueError:
                if window.read_more():
                    continue
                self.problem = "cut or damaged in the middle of an event"
                return
            window.at = end
            self.budget.spend_bytes(_VALUE)
            if isinstance(event, dict):
                yield event


class _Window:
    """Text of a file that is read and unpacked on demand: what comes before `at` is forgotten."""

    def __init__(self, raw: IO[bytes], path: Path) -> None:
        self.raw, self.path, self.problem = (
            raw,
            path,
            "",
        )  # the problem: why the file ends too early
        self.text, self.at, self.total = "", 0, 0
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        head = raw.read(2)
        raw.seek(0)
        self.unpack = None
        if head == b"\x1f\x8b":
            self.unpack = zlib.decompressobj(wbits=31)
        self.left = b""
        self.size = max(1, get_size(path))

    def read_more(self) -> bool:
        """Read on; False at the end of the file, or where it is damaged."""
        if len(self.text) - self.at > EVENT_MOST:
            raise _make_no_trace_error(
                self.path, f"an event is longer than {EVENT_MOST:,} characters"
            )
        content, chunk = b"-", ""
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
        if self.unpack is None:
            return self.raw.read(CHUNK)
        while packed := self.left or self.raw.read(CHUNK // 16):
            if self.unpack.eof:
                self.unpack = zlib.decompressobj(wbits=31)  # another member
            try:
                out = self.unpack.decompress(packed, CHUNK)
            except zlib.error as error:
                self.problem = f"damaged: {error}"
                return b""
            self.left = self.unpack.unconsumed_tail or self.unpack.unused_data
            if out:
                return out
        if not self.unpack.eof:
            self.problem = "cut: its gzip has no end"
        return b""

    def skip_matching_characters(self, marks: re.Pattern[str]) -> None:
        """Move past characters that mean nothing here."""
        while True:
            if found := marks.match(self.text, self.at):
                self.at = found.end()
            if self.at < len(self.text) or not self.read_more():
                return

    def peek_character(self) -> str:
        """Return the next character; empty at the end."""
        return self.text[self.at : self.at + 1]


def _read_tail(window: _Window) -> str:
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


def _read_keys_behind(tail: str) -> dict[str, Any]:
    """Read the keys of the header that were written behind the events; none of what is damaged."""
    text = "{" + tail.lstrip("] \t\r\n,")
    try:
        keys, _ = json.JSONDecoder(strict=False).raw_decode(text)
    except (ValueError, RecursionError):
        return _salvage_gpus(text)
    return dict(keys)


def _read_header(window: _Window) -> dict[str, Any]:
    """All keys before the events; the window stands after the bracket that opens them."""
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


def _make_no_trace_error(path: Path, why: str) -> ProfkitError:
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
        self._open: dict[tuple[object, object], list[tuple[int, Event]]] = {}
        self._count = 0
        self.unmatched = 0  # begins without an end, and ends without a begin

    def begin_event(self, event: Event, number: int) -> None:
        """Keep an event, and its number in the file, until its end comes."""
        if self._count >= OPEN_MOST:
            self.unmatched += 1
            return
        self._count += 1
        self._open.setdefault(_get_process_and_thread(event), []).append((number, event))

    def end_event(self, event: Event) -> tuple[int, dict[str, Any]] | None:
        """Return the whole event that one ends, and its begin's number; None where nothing was begun."""
        stack = self._open.get(_get_process_and_thread(event), [])
        at = _find_matching_begin(stack, event.get("name"))
        if at is None:
            self.unmatched += 1
            return None
        number, begin = stack[at]
        self.unmatched += len(stack) - at - 1  # begun inside of it, and not ended before it
        self._count -= len(stack) - at
        del stack[at:]
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
        return chain.from_iterable(self._open.values())


def _get_process_and_thread(event: Event) -> tuple[object, object]:
    """Return the process and thread of an event: numbers, or names."""
    process, thread = event.get("pid"), event.get("tid")
    return (
        process if isinstance(process, int | str) else None,
        thread if isinstance(thread, int | str) else None,
    )


def _find_matching_begin(stack: list[tuple[int, Event]], name: object) -> int | None:
    """Return which event that was begun one of a name ends; the last where it has no name."""
    if not stack:
        return None
    if not name:
        return len(stack) - 1
    for at in reversed(range(len(stack))):
        if stack[at][1].get("name") == name:
            return at
    return None


def _join_arguments(begin: Event, end: Event) -> dict[str, Any]:
    """Return the arguments of both: what both have is the end's."""
    joined: dict[str, Any] = {}
    for event in (begin, end):
        own = event.get("args")
        if isinstance(own, dict):
            joined.update(own)
    return joined
