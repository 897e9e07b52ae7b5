"""Steps that repeat  ->  the operators of some of them, with the sizes of what they are called with.

Off unless it was asked for (PROFKIT_OPERATORS=1). A thread looks at what
was launched; where the same stacks come again and again, the main thread is asked to start torch's
profiler of the CPU alone, for four repeats. <pid>.operators has a line of JSON for each operator,
behind one that tells the clocks apart: pairs of Python's clock and CUPTI's.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import sys
import threading
import time
from array import array
from pathlib import Path
from typing import Any

FOLDER = os.environ.get("PROFKIT_TIMELINE", "")
ROW = 24  # bytes of a launch in <pid>-<thread>.launches
CORRELATION, STACK = 2, 3  # words of it
LOOKED_AT = 4096  # launches, the last ones
SURE = 512  # launches that must be as those a repeat before: loops inside of a step are shorter
REPEATS = 4  # that are recorded: what is open where it begins or ends is seen in part
PAUSE = 0.1  # seconds between two looks
SHORT_PAUSE = 0.002  # while the profiler runs: a step may be as short, and each is slowed
PATIENCE = 120.0  # seconds until it is given up
LONGEST = 20.0  # seconds that the profiler runs at most
AT_ONCE = 200  # operators that are written before other threads go on
BACKWARD = 1  # torch's scope of a node of the backward pass
_Pending = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


def find_repeat(stacks: array[int]) -> int:
    """Find after how many launches the same stacks come again, to the end; 0 where they do not."""
    size = stacks.itemsize
    content = stacks.tobytes()
    for lag in range(1, len(stacks) // 3 + 1):
        checked = max(2 * lag, min(SURE, len(stacks) - lag))
        last = content[-checked * size :]
        before = content[-(checked + lag) * size : -lag * size]
        if len(before) == len(last) and before == last:
            return lag
    return 0


class Launches:
    """The stacks of what a thread launches, read as far as they are written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self.last = array("I")

    def read_on(self) -> int:
        """Read what was written since; how many launches there are now."""
        with self.path.open("rb") as file:
            file.seek(self.count * ROW)
            content = file.read(LOOKED_AT * ROW)
            while content:
                words = array("I")
                words.frombytes(content[: len(content) // ROW * ROW])
                for at in range(0, len(words), ROW // words.itemsize):
                    if not words[at + CORRELATION]:
                        return self.count
                    self.last.append(words[at + STACK])
                    self.count += 1
                del self.last[:-LOOKED_AT]
                content = file.read(LOOKED_AT * ROW)
        return self.count


def find_clock() -> Any:
    """Return CUPTI's function that reads its clock, of the library that the recorder has loaded."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if "libcupti.so" in path:
                return ctypes.CDLL(f"/{path}").cuptiGetTimestamp
    raise OSError("CUPTI is not loaded")


def is_in_backward() -> bool:
    """Whether this thread is inside of autograd, which puts back what a thread has on when it ends."""
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "_engine_run_backward":
            return True
        frame = frame.f_back
    return False


class OperatorRecorder:
    """Records the operators of some steps, once."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.profile: Any = None
        self.is_over = False
        self.results: Any = None  # of torch's profiler, until they are written
        self.clocks: list[tuple[int, int, int]] = []
        self.clock: Any = None
        self.pause = PAUSE / 5  # while other threads go on; none when the program ends
        self.is_writing = threading.Lock()
        # What the interpreter calls must live as long as it may do so.
        self._start = _Pending(self.start)
        self._stop = _Pending(self.stop)

    def watch(self) -> None:
        """Wait for steps that repeat, and record some of them; in a thread of its own."""
        from profkit_recorder_hook import TROUBLE, append_hook_line

        try:
            launches, lag = self.wait_for_repeat()
            if launches is None:
                append_hook_line("operators", "no step was seen to repeat")
                return
            until = time.monotonic() + LONGEST
            while self.profile is None and not self.is_over and time.monotonic() < until:
                ctypes.pythonapi.Py_AddPendingCall(self._start, None)
                time.sleep(SHORT_PAUSE)
            enough = launches.read_on() + REPEATS * lag
            while launches.read_on() < enough and time.monotonic() < until:
                time.sleep(SHORT_PAUSE)
            while not self.is_over:
                ctypes.pythonapi.Py_AddPendingCall(self._stop, None)
                time.sleep(SHORT_PAUSE)
            self.write_operators()
        except TROUBLE as error:
            append_hook_line("operators", repr(error))

    def wait_for_repeat(self) -> tuple[Launches | None, int]:
        """Return the thread that launches most, and after how many launches its step comes again."""
        until = time.monotonic() + PATIENCE
        threads: dict[Path, Launches] = {}
        while time.monotonic() < until:
            time.sleep(PAUSE)
            for path in Path(FOLDER).glob(f"{os.getpid()}-*.launches"):
                threads.setdefault(path, Launches(path)).read_on()
            launches = max(threads.values(), key=lambda own: own.count, default=None)
            lag = find_repeat(launches.last) if launches is not None else 0
            if lag:
                return launches, lag
        return None, 0

    def start(self, _: object = None) -> int:
        """Start torch's profiler of the CPU; on the main thread, between two instructions."""
        from profkit_recorder_hook import TROUBLE, append_hook_line

        if self.profile is not None or self.is_over or is_in_backward():
            return 0
        try:
            if self.torch._C._autograd._profiler_enabled():
                self.is_over = True
                append_hook_line("operators", "the program runs a profiler of its own")
                return 0
            profile = self.torch.autograd.profiler.profile(
                use_cpu=True, record_shapes=True, use_kineto=True
            )
            profile.__enter__()
            self.clocks.append(self.read_clocks())
            self.profile = profile
        except TROUBLE as error:
            self.is_over = True
            append_hook_line("operators", repr(error))
        return 0

    def stop(self, _: object = None) -> int:
        """Stop it; on the main thread. What it saw is written by the thread that watches."""
        from profkit_recorder_hook import TROUBLE, append_hook_line

        if self.profile is None or self.is_over or is_in_backward():
            return 0
        self.is_over = True
        try:
            self.clocks.append(self.read_clocks())
            # Not by its __exit__, which makes a tree of all events before the program goes on.
            module = sys.modules["torch.autograd.profiler"]
            self.results = module._disable_profiler()
            module._run_on_profiler_stop()
        except TROUBLE as error:
            append_hook_line("operators", repr(error))
        return 0

    def finish(self) -> None:
        """End what is still on when the program ends."""
        from profkit_recorder_hook import TROUBLE, append_hook_line

        self.stop()
        self.pause = 0.0
        try:
            self.write_operators()
        except TROUBLE as error:
            append_hook_line("operators", repr(error))

    def read_clocks(self) -> tuple[int, int, int]:
        """Return Python's clock, CUPTI's, and Python's again."""
        stamp = ctypes.c_uint64()
        if self.clock is None:
            self.clock = find_clock()
        before = time.time_ns()
        self.clock(ctypes.byref(stamp))
        return before, stamp.value, time.time_ns()

    def write_operators(self) -> None:
        """Write a line for each operator, once; other threads go on after every few."""
        with self.is_writing:
            results, self.results = self.results, None
            if results is None:
                return
            events = results.events()
            if not events:
                raise RuntimeError("torch's profiler saw no operator")
            target = f"{FOLDER}/{os.getpid()}.operators"
            with open(f"{target}.part", "w", encoding="utf-8") as file:
                file.write(json.dumps({"clocks": self.clocks}) + "\n")
                for number, event in enumerate(events):
                    file.write(json.dumps(describe_event(event)) + "\n")
                    if self.pause and number % AT_ONCE == AT_ONCE - 1:
                        time.sleep(self.pause)
            os.replace(f"{target}.part", target)


def describe_event(event: Any) -> dict[str, Any]:
    """Say what is wanted of an operator."""
    return {
        "name": event.name(),
        "start": event.start_ns(),
        "end": event.end_ns(),
        "thread": event.device_resource_id(),
        "shapes": event.shapes(),
        "types": event.dtypes(),
        "sequence": event.sequence_nr(),
        "backward": event.scope() == BACKWARD,
    }


def watch_operators(torch: Any) -> None:
    """Begin to wait for steps that repeat."""
    recorder = OperatorRecorder(torch)
    # A profiler that is still on when torch's libraries are unloaded ends the program by SIGSEGV.
    atexit.register(recorder.finish)
    thread = threading.Thread(target=recorder.watch, name="profkit", daemon=True)
    thread.start()
    module = sys.modules["torch.autograd.profiler"]
    enter = module.profile.__enter__

    def enter_profile(self: Any) -> Any:
        if recorder.profile is not None and self is not recorder.profile:
            recorder.stop()  # two profilers cannot be on at once, and the program's comes first
        return enter(self)

    module.profile.__enter__ = enter_profile
