"""Steps that repeat  ->  the operators of some of them, with the sizes of what they are called with.

A thread looks at what was launched; where the same stacks came again and again, the main thread is
asked to start torch's profiler of the CPU alone, for three repeats. <pid>.operators has a line of JSON
for each operator, behind one that tells the clocks apart: pairs of Python's clock and CUPTI's. From
when to when this slows the program, by CUPTI's clock, is written for the reader.

A program that moves its weights or its data to the GPU repeats a launch as well. So repeats count from
a number of launches on, and where a short one was recorded and others come later, those are recorded,
too: the file then has each recording behind the other.

<pid>.tensors says which tensors these operators were given, and whether a module holds them: what reads
nothing new in each step computes the same again. It is written when the program ends, and has each
recording behind a line of its own, too.

A CUDA graph is captured long before steps repeat, and what it replays is called by no operator. So the
profiler also runs while a graph is captured, on the thread that does: <pid>.captured is written alike.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import sys
import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any, TextIO

CountOrZero = int  # 0: not known, or none
Nanoseconds = int  # as they were recorded
Seconds = float
TensorMetadata = Any  # what torch's tree of events says of a tensor
TorchEvent = Any
TorchEvents = Any
TorchModule = Any  # the package torch, or a module of it
TorchResults = Any  # of torch's profiler, of which it makes events

FOLDER = os.environ.get("PROFKIT_TIMELINE", "")
ROW = 24  # bytes of a launch in <pid>-<thread>.launches
WORDS = 6  # of 32 bits, as many as that
CORRELATION, STACK, HOW = 2, 3, 5  # words of it
REPLAYS = 4  # in its `how`: a CUDA graph is launched
LOOKED_AT = 65536  # launches, the last ones: a step may have a sixth of them
# Launches that must be as those a repeat before: loops inside of a step are shorter. A replay of a
# graph stands for as many itself.
SURE = 512
LONG = 128  # launches of a repeat that is no loop inside of a step
BEFORE = 6  # repeats that must have been seen: the steps before are not slowed
MOST_RECORDINGS = 3  # in a program whose repeats are short, and others from time to time
# That are recorded: what is open where it begins or ends is seen in part. The program pauses when
# torch's profiler ends, and the longer, the more was recorded.
REPEATS = 3
CHUNK = 256  # bytes of launches that are compared at first
NO_REPLAYS = bytes(range(REPLAYS))  # of the bytes of a `how`
PAUSE = 0.1  # seconds between two looks; longer from look to look, while nothing repeats
LONGEST_PAUSE = 0.15
KNOWN_PAUSE = 1.0  # while what repeats was recorded already
REST = 50  # times what a look took is waited at least: no other thread runs Python meanwhile
SHORT_PAUSE = 0.002  # while the profiler runs: a step may be as short, and each is slowed
PATIENCE = 120.0  # seconds until it is given up
LOOP = 0.3  # seconds that repeats are recorded which have fewer launches than that
LONGEST = 20.0  # seconds that the profiler runs at most
AT_ONCE = 100  # operators that are written before other threads go on
# Of what was recorded, from where to where it is written: two of three repeats, in which each operator
# is whole at least once. Writing takes longer than recording, and slows the program as well.
FROM = 1 / 6
TO = 5 / 6
# That take memory or look at it another way, and launch nothing: where the clocks differ by a
# microsecond a call seems to be in one of them.
WORKLESS = frozenset(
    "aten::empty aten::empty_like aten::empty_strided aten::new_empty aten::resize_ aten::view "
    "aten::as_strided aten::expand aten::slice aten::select aten::t aten::transpose".split()
)
NO_STEPS = f"its steps were not seen to repeat {BEFORE} times, with {SURE} launches"
MEMORY = "[memory]"  # what torch calls the taking and giving back of memory
UNWRITTEN = WORKLESS | {MEMORY}
CAPTURES = 200  # graphs that are looked at while they are captured: a server has thousands
NOTHING = "99"  # of KINETO_LOG_LEVEL: above its own levels and its marks
READINGS = 10  # of the clocks, of which the closest counts
USERS_RANGE = 7  # torch's scope of what a program names itself: no operator
BACKWARD = 1  # torch's scope of a node of the backward pass
_Pending = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


def find_repeat_length(
    stack_numbers: array[int], fewest_repeats: int, stacks_of_replays: Iterable[int] = ()
) -> CountOrZero:
    """Find after how many launches the same stacks come again, to the end; 0 where they do not.

    Args:
        stack_numbers: Of launches, in order.
        fewest_repeats: How often they must have come.
        stacks_of_replays: The stacks that launch a CUDA graph.
    """
    if len(stack_numbers) < fewest_repeats:
        return 0
    size = stack_numbers.itemsize
    content = stack_numbers.tobytes()
    last_replay = count_launches_from_last(content, size, stacks_of_replays)
    # Whatever the step is, its last few launches came before: most of the rest is never looked at.
    tail = content[-(fewest_repeats - 1) * size :]
    at = len(content) - len(tail)
    nearest = at - len(stack_numbers) // fewest_repeats * size
    while (at := content.rfind(tail, nearest, at + len(tail) - 1)) >= 0:
        lag, rest = divmod(len(content) - len(tail) - at, size)
        if rest:
            continue
        checked = (fewest_repeats - 1) * lag
        if lag < last_replay:
            checked = max(checked, SURE)
        if checked + lag <= len(stack_numbers) and are_last_bytes_repeated(
            content, lag * size, checked * size
        ):
            return lag
    return 0


def are_last_bytes_repeated(content: bytes, lag: int, length: int) -> bool:
    """Return whether the last bytes are those that came before them.

    From the last ones on, ever more of them: where they are not, the end tells that soonest.
    """
    end = len(content)
    compared = 0
    share = CHUNK
    while compared < length:
        share = min(share, length - compared)
        low = end - compared - share
        high = end - compared
        if content[low:high] != content[low - lag : high - lag]:
            return False
        compared += share
        share *= 2
    return True


def count_launches_from_last(content: bytes, bytes_per_stack: int, replays: Iterable[int]) -> int:
    """Return how many launches there are from the last one of some stacks on; all and one for none.

    Args:
        content: The stacks of launches.
        bytes_per_stack: Bytes of each.
        replays: The stacks that are looked for.
    """
    count = len(content) // bytes_per_stack
    fewest = count + 1
    for stack in replays:
        wanted = stack.to_bytes(bytes_per_stack, sys.byteorder)
        at = content.rfind(wanted)
        while at >= 0 and at % bytes_per_stack:
            at = content.rfind(wanted, 0, at + bytes_per_stack - 1)
        if at >= 0:
            fewest = min(fewest, count - at // bytes_per_stack)
    return fewest


def count_written_rows(words: array[int]) -> int:
    """Return how many rows of launches are written: a file ends in zeros, and each has a number."""
    numbers = range(CORRELATION, len(words), WORDS)
    return bisect_left(numbers, True, key=lambda at: words[at] == 0)


class LaunchedStacks:
    """The stacks of what a thread launches, read as far as they are written.

    What has none, as all that a backward pass launches from a thread of its own, says of no step.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self.count = 0  # of those with a stack
        self.last = array("I")
        self.replays: set[int] = set()  # stacks that launch a CUDA graph

    def find_repeat_length(self) -> CountOrZero:
        """Find after how many launches they come again; 0 where they do not."""
        return find_repeat_length(self.last, BEFORE, self.replays)

    def is_no_loop_inside_step(self, lag: int) -> bool:
        """Return whether so many launches are no loop inside of a step."""
        content = self.last.tobytes()
        return lag >= LONG or lag >= count_launches_from_last(
            content, self.last.itemsize, self.replays
        )

    def is_all_replays(self, lag: int) -> bool:
        """Return whether so many last launches launch CUDA graphs, and nothing else."""
        return all(stack in self.replays for stack in self.last[-lag:])

    def read_new_rows(self) -> int:
        """Read what was written since; how many launches there are now."""
        with self.path.open("rb") as file:
            file.seek(self.rows * ROW)
            content = file.read(LOOKED_AT * ROW)
            while content:
                words = array("I")
                words.frombytes(content[: len(content) // ROW * ROW])
                written = count_written_rows(words)
                end = written * WORDS
                self.add_launches(words[STACK:end:WORDS], words[HOW:end:WORDS])
                self.rows += written
                if end < len(words):
                    break
                content = file.read(LOOKED_AT * ROW)
        return self.count

    def add_launches(self, stack_numbers: array[int], ways_of_launch: array[int]) -> None:
        """Take the next launches: their stacks, and how each was made.

        Steps do not go on meanwhile, and there may be a hundred thousand: none is looked at by itself,
        but where a graph is replayed.
        """
        if ways_of_launch.tobytes().translate(None, NO_REPLAYS):
            for stack, way in zip(stack_numbers, ways_of_launch, strict=True):
                if way & REPLAYS:
                    self.replays.add(stack)
        if stack_numbers.count(0):
            stack_numbers = array("I", filter(None, stack_numbers))
        self.last += stack_numbers
        self.count += len(stack_numbers)
        del self.last[:-LOOKED_AT]


def find_cupti_clock() -> Any:
    """Return CUPTI's function that reads its clock, of the library that the recorder has loaded."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")[2]
            if "libcupti.so" in path:
                return ctypes.CDLL(f"/{path}").cuptiGetTimestamp
    raise OSError("CUPTI is not loaded")


def is_in_backward() -> bool:
    """Return whether this thread is in autograd, which puts back what a thread has on when it ends."""
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "_engine_run_backward":
            return True
        frame = frame.f_back
    return False


class OperatorRecorder:
    """Records the operators of some steps."""

    def __init__(self, torch: TorchModule) -> None:
        self.torch = torch
        self.pid = os.getpid()  # a forked child has a copy of all this, and none of the threads
        self.profile: Any = None  # of torch, the last one
        self.is_running = False  # it records
        self.is_over = False  # nothing more is recorded
        self.is_of_steps = False  # what repeats is no loop inside of one, or before them
        self.is_complete = False  # all repeats that were wanted came, and each is long
        self.is_stopped = threading.Event()  # and what was is there
        self.results: Any = None  # of torch's profiler, until they are written
        # The same of all recordings, until the program ends; and where tensors are that modules hold.
        self.tensors: list[tuple[Any, set[int]]] = []
        self.clocks: list[tuple[int, int, int]] = []
        self.clock: Any = None
        self.is_profiling = threading.Lock()  # one profiler at a time, of a capture or of steps
        self.pause = SHORT_PAUSE  # while other threads go on; none when the program ends
        self.threads: dict[Path, LaunchedStacks] = {}  # by the file of a thread
        self.is_writing = threading.Lock()
        self.has_written = False
        # What the interpreter calls must live as long as it may do so.
        self._start = _Pending(self.start)
        self._stop = _Pending(self.stop)

    def watch(self) -> None:
        """Wait for steps that repeat, and record some of them; in a thread of its own."""
        from profkit_recorder_hook import TROUBLE, append_hook_line

        try:
            until = time.monotonic() + PATIENCE
            recorded: set[int] = set()  # stacks
            for _ in range(MOST_RECORDINGS):
                launches, lag = self.wait_for_repeat(until, recorded)
                if launches is None:
                    return
                seen = self.record_repeats(launches, lag)
                if not seen or self.is_of_steps:
                    return
                recorded |= seen
        except TROUBLE as error:
            append_hook_line("operators", repr(error))

    def record_repeats(self, launches: LaunchedStacks, lag: int) -> set[int]:
        """Record the operators of some repeats; the stacks of their launches, none if it cannot."""
        if launches.is_all_replays(lag):
            self.is_over = True  # no operator is called: those of graphs are of their captures
            return set()
        self.is_stopped.clear()
        until = time.monotonic() + LONGEST
        while not self.is_running and not self.is_over and time.monotonic() < until:
            self.call_in_main_thread(self._start)
            time.sleep(SHORT_PAUSE)
        if not self.is_running:
            self.is_over = True  # what waits to be started is not, either
            return set()
        before = launches.count
        has_all = self.wait_for_launches(launches, lag, until)
        seen = set(launches.last[-lag - (launches.count - before) :])
        self.is_complete = has_all and lag >= LONG
        while not self.is_stopped.wait(SHORT_PAUSE):
            self.call_in_main_thread(self._stop)
        self.write_operators()
        return seen

    def call_in_main_thread(self, call: Any) -> None:
        """Have the main thread call a function between two instructions."""
        ctypes.pythonapi.Py_AddPendingCall(call, None)

    def wait_for_launches(self, launches: LaunchedStacks, lag: int, deadline: Seconds) -> bool:
        """Wait for as many repeats as are recorded; whether they came.

        A short one may be a loop inside of a step.
        """
        begun = time.monotonic()
        count = launches.read_new_rows()
        while time.monotonic() < deadline:
            done = launches.read_new_rows() - count
            is_enough = done >= REPEATS * lag
            is_long = done >= SURE or time.monotonic() > begun + LOOP
            if is_enough and (self.is_of_steps or is_long):
                return True
            time.sleep(SHORT_PAUSE)
        return False

    def wait_for_repeat(
        self, deadline: Seconds, recorded: Set[int]
    ) -> tuple[LaunchedStacks | None, int]:
        """Return the thread that launches most, and after how many launches its step comes again.

        What was recorded may go on and come to an end: it is waited for, and looked at ever more seldom.
        """
        pause = PAUSE
        longest = LONGEST_PAUSE
        while time.monotonic() < deadline and not self.is_over:
            time.sleep(pause)
            began = time.thread_time()
            for path in Path(FOLDER).glob(f"{os.getpid()}-*.launches"):
                self.threads.setdefault(path, LaunchedStacks(path)).read_new_rows()
            launches = max(self.threads.values(), key=lambda own: own.count, default=None)
            lag = launches.find_repeat_length() if launches is not None else 0
            if launches is not None and lag:
                if not recorded >= set(launches.last[-lag:]):
                    self.is_of_steps = launches.is_no_loop_inside_step(lag)
                    return launches, lag
                longest = KNOWN_PAUSE
            took = time.thread_time() - began
            pause = max(min(1.1 * pause, longest), REST * took)
        return None, 0

    def start(self, _: object = None) -> int:
        """Start torch's profiler of the CPU; on the main thread, between two instructions."""
        from profkit_recorder_hook import TROUBLE, append_hook_line

        if self.is_running or self.is_stopped.is_set() or self.is_over or is_in_backward():
            return 0
        if not self.is_profiling.acquire(blocking=False):
            return 0  # a graph is captured: once more, when it is
        try:
            if self.torch._C._autograd._profiler_enabled():
                self.stop_for_good()
                self.is_profiling.release()
                return 0
            append_hook_line("disturbed", self.read_clocks()[1])
            # before it begins: our own is not the program's
            self.profile = self.make_cpu_profiler(profile_memory=True)
            self.profile.__enter__()
            self.clocks = [self.read_clocks()]
            self.is_running = True
        except TROUBLE as error:
            self.is_over = True
            self.is_stopped.set()
            self.is_profiling.release()
            append_hook_line("operators", repr(error))
        return 0

    def stop(self, _: object = None) -> int:
        """Stop it; on the main thread. What it saw is written by the thread that watches."""
        from profkit_recorder_hook import TROUBLE, append_hook_line

        if not self.is_running or is_in_backward():
            return 0
        self.is_running = False
        try:
            self.clocks.append(self.read_clocks())
            self.results = end_profile_and_get_events()
            self.tensors.append((self.results, find_tensors_held_by_modules(self.torch)))
        except TROUBLE as error:
            append_hook_line("operators", repr(error))
        self.is_stopped.set()
        self.is_profiling.release()
        return 0

    def make_cpu_profiler(self, profile_memory: bool = False) -> Any:
        """Return torch's profiler of the CPU; it does not run yet."""
        profiler = self.torch.autograd.profiler
        return profiler.profile(
            use_cpu=True, record_shapes=True, use_kineto=True, profile_memory=profile_memory
        )

    def stop_for_good(self) -> None:
        """End for good, because the program starts a profiler of its own."""
        from profkit_recorder_hook import append_hook_line

        if os.getpid() != self.pid:
            return
        if self.profile is None and not self.is_over:
            append_hook_line("operators", "the program runs a profiler of its own")
        self.is_over = True
        self.stop()

    def finish(self) -> None:
        """End what is still on when the program ends."""
        from profkit_recorder_hook import TROUBLE, append_hook_line

        if os.getpid() != self.pid:
            return
        if self.profile is None and not self.is_over:
            append_hook_line("operators", NO_STEPS)
        self.is_over = True
        self.stop()
        self.pause = 0.0
        try:
            self.write_operators()
            self.write_tensors()
        except TROUBLE as error:
            append_hook_line("operators", repr(error))

    def write_tensors(self) -> None:
        """Write a line for each operator with the tensors that it was given, recording by recording."""
        recordings = self.tensors
        self.tensors = []
        if not recordings:
            return
        target = f"{FOLDER}/{os.getpid()}.tensors"
        with open(f"{target}.part", "w", encoding="utf-8") as file:
            for number, (results, held) in enumerate(recordings, 1):
                file.write(json.dumps({"recording": number}) + "\n")
                # Whose memory it was between two recordings nobody saw: each has numbers of its own.
                for row in TensorNumbers(held).describe_events(results.experimental_event_tree()):
                    file.write(json.dumps(row) + "\n")
        os.replace(f"{target}.part", target)

    def read_clocks(self) -> tuple[Nanoseconds, Nanoseconds, Nanoseconds]:
        """Return Python's clock, CUPTI's, and Python's again, as close together as they were read.

        The first reading takes ten times as long as one right behind it, and most of that is before
        CUPTI looks at its clock: operators of a few microseconds would not hold their launches.
        """
        if self.clock is None:
            self.clock = find_cupti_clock()
        stamp = ctypes.c_uint64()
        readings = []
        for _ in range(READINGS):
            before = time.time_ns()
            self.clock(ctypes.byref(stamp))
            readings.append((before, stamp.value, time.time_ns()))
        return min(readings, key=lambda pair: pair[2] - pair[0])

    def write_operators(self) -> None:
        """Write a line for each operator, once; other threads go on after every few."""
        from profkit_recorder_hook import append_hook_line

        with self.is_writing:
            results = self.results
            self.results = None
            if results is None:
                return
            try:
                self.write_events(results.events())
            finally:
                append_hook_line("undisturbed", self.read_clocks()[1])

    def write_events(self, events: TorchEvents) -> None:
        """Write a line for each event into a file that is there when it is whole."""
        from profkit_recorder_hook import append_hook_line

        if not events:
            append_hook_line("operators", "torch's profiler saw none in the steps that it watched")
            return
        if self.is_complete:
            events = select_middle_events(events)
        target = Path(f"{FOLDER}/{os.getpid()}.operators")
        part = target.with_suffix(".operators.part")
        with part.open("w", encoding="utf-8") as file:
            if self.has_written:  # an earlier recording
                file.write(target.read_text(encoding="utf-8"))
            write_clocks_and_operators(file, self.clocks, events, self.pause)
        part.replace(target)
        self.has_written = True


class CaptureRecorder:
    """Records the operators of CUDA graphs while they are captured."""

    def __init__(self, steps: OperatorRecorder) -> None:
        self.steps = steps
        self.profile: Any = None
        self.thread = 0  # that captures: torch's profiler belongs to a thread
        self.slowed_from = 0  # by CUPTI's clock
        self.began: tuple[int, int, int] = (0, 0, 0)
        self.count = 0

    def watch(self, graphs: Any) -> None:
        """Have the profiler run from a capture's begin to its end."""
        kind = graphs.CUDAGraph
        begin: Callable[..., Any] = kind.capture_begin
        end: Callable[..., Any] = kind.capture_end

        def capture_begin(graph: Any, *args: Any, **named: Any) -> Any:
            self.start()
            is_begun = False
            try:
                result = begin(graph, *args, **named)
                is_begun = True
            finally:
                if not is_begun:
                    self.stop()
            return result

        def capture_end(graph: Any) -> Any:
            try:
                return end(graph)
            finally:
                self.stop()

        kind.capture_begin = capture_begin
        kind.capture_end = capture_end

    def start(self) -> None:
        """Start torch's profiler of the CPU, unless one runs."""
        from profkit_recorder_hook import TROUBLE, append_hook_line

        steps = self.steps
        if os.getpid() != steps.pid or self.count > CAPTURES:
            return
        self.count += 1
        if self.count > CAPTURES:
            append_hook_line("captures", f"those captured after the first {CAPTURES}")
            return
        if not steps.is_profiling.acquire(blocking=False):
            return
        try:
            if self.is_program_profiling():
                append_hook_line("captures", "those captured under the program's own profiler")
                steps.is_profiling.release()
                return
            self.slowed_from = steps.read_clocks()[1]
            self.thread = threading.get_ident()
            self.profile = steps.make_cpu_profiler()
            self.profile.__enter__()
            self.began = steps.read_clocks()
        except TROUBLE as error:
            append_hook_line("captures", repr(error))
            self.count = CAPTURES + 1
            self.profile = None
            steps.is_profiling.release()

    def is_program_profiling(self) -> bool:
        """Return whether a profiler runs that is none of ours."""
        module = sys.modules["torch.autograd.profiler"]
        on_thread = self.steps.torch._C._autograd._profiler_enabled()
        return bool(on_thread or getattr(module, "_is_profiler_enabled", False))

    def stop(self) -> None:
        """Stop it, and write what it saw: while a graph is captured nobody waits for a step."""
        from profkit_recorder_hook import TROUBLE, append_hook_line

        if self.profile is None or threading.get_ident() != self.thread:
            return
        self.profile = None
        steps = self.steps
        try:
            clocks = [self.began, steps.read_clocks()]
            events = end_profile_and_get_events().events()
            with open(f"{FOLDER}/{os.getpid()}.captured", "a", encoding="utf-8") as file:
                write_clocks_and_operators(file, clocks, events, 0.0)
        except TROUBLE as error:
            append_hook_line("captures", repr(error))
        append_hook_line("slowed", f"{self.slowed_from} {steps.read_clocks()[1]}")
        steps.is_profiling.release()


def end_profile_and_get_events() -> TorchResults:
    """End the profiler that runs on this thread; what it saw.

    Not by its __exit__, which makes a tree of all events before the program goes on.
    """
    module = sys.modules["torch.autograd.profiler"]
    results = module._disable_profiler()
    module._run_on_profiler_stop()
    return results


def write_clocks_and_operators(
    file: TextIO,
    clocks: Sequence[tuple[int, int, int]],
    events: TorchEvents,
    pause_seconds: Seconds,
) -> None:
    """Write what tells the clocks apart, and a line for each operator.

    Args:
        file: That is written.
        clocks: Pairs of them.
        events: Of torch's profiler.
        pause_seconds: Seconds that other threads may go on after every few.
    """
    file.write(json.dumps({"clocks": clocks}) + "\n")
    for number, event in enumerate(events):
        if event.scope() != USERS_RANGE and event.name() not in UNWRITTEN:
            file.write(json.dumps(describe_event(event)) + "\n")
        if pause_seconds and number % AT_ONCE == AT_ONCE - 1:
            time.sleep(pause_seconds)


def find_tensors_held_by_modules(torch: TorchModule) -> set[int]:
    """Find where the tensors are that modules hold: parameters, buffers, and other attributes."""
    held: set[int] = set()
    for found in gc.get_objects():
        if not issubclass(type(found), torch.nn.Module):
            continue
        own = vars(found)
        values = [*own.get("_parameters", {}).values(), *own.get("_buffers", {}).values()]
        for value in own.values():
            if type(value) in {list, tuple}:
                values += value
            else:
                values.append(value)
        for value in values:
            if issubclass(type(value), torch.Tensor):
                with contextlib.suppress(RuntimeError, NotImplementedError):  # it has no memory
                    held.add(value.untyped_storage().data_ptr())
    return held


class TensorNumbers:
    """Numbers the tensors that operators are given, by where their memory is and since when."""

    def __init__(self, held: Container[int]) -> None:
        self.held = held  # where the tensors are that modules hold
        self.count = 0
        self.numbers: dict[int, int] = {}

    def assign_number_to_memory(self, pointer: int) -> int:
        """Return the number of memory that is taken now."""
        self.count += 1
        self.numbers[pointer] = self.count
        return self.count

    def describe_tensor(self, tensor: TensorMetadata) -> tuple[int, int, int]:
        """Return a tensor's number, whether a module holds it, and 1 + its dimensions on the CPU."""
        pointer = getattr(tensor, "storage_data_ptr", None)
        if not pointer:
            return 0, 0, 0  # it has no memory yet
        if pointer not in self.numbers:
            self.assign_number_to_memory(pointer)
        on_cpu = 0
        if tensor.device.type == "cpu":
            on_cpu = 1 + tensor.dim
        return self.numbers[pointer], int(pointer in self.held), on_cpu

    def describe_events(self, events: Sequence[TorchEvent]) -> Iterator[list[Any]]:
        """Yield of each operator its start, end, thread, name, tensors, what it made, and its numbers.

        A list of tensors is a list of those. Memory that is taken has no name, and no tensors.

        Args:
            events: The roots of torch's tree of events.
        """
        waiting = list(events)
        listed: list[tuple[int, int, int, Any]] = []
        while waiting:
            event = waiting.pop()
            waiting += event.children
            listed.append((event.start_time_ns, -event.end_time_ns, len(listed), event))
        for start, negative_end, _, event in sorted(listed):
            kind, fields = event.typed
            when = [start, -negative_end, event.start_tid]
            if kind.name == "Allocation" and fields.alloc_size > 0:
                yield [*when, "", [], [self.assign_number_to_memory(fields.ptr)], ""]
            elif kind.name == "Allocation":
                self.numbers.pop(fields.ptr, None)
            elif kind.name == "TorchOp" and int(fields.scope) != USERS_RANGE:
                yield [*when, event.name, *self.describe_inputs(fields.inputs)]

    def describe_inputs(self, inputs: Sequence[Any]) -> tuple[list[Any], list[int], str]:
        """Return the tensors of an operator's inputs, nothing that it made, and the numbers in words."""
        tensors: list[Any] = []
        numbers = []
        for given in inputs:
            if isinstance(given, list):
                tensors.append([self.describe_tensor(one) for one in given])
            elif hasattr(given, "storage_data_ptr"):
                tensors.append(self.describe_tensor(given))
            elif given is not None:
                numbers.append(str(given))
        return tensors, [], " ".join(numbers)


def select_middle_events(events: Sequence[TorchEvent]) -> list[TorchEvent]:
    """Keep of a thread's outermost events those that are whole in the middle, and what is in them.

    The middle by their count: the first ones may take long, because the profiler has just begun.
    """
    timed = sorted((event.start_ns(), -event.end_ns(), at) for at, event in enumerate(events))
    if not timed:
        return []
    low = timed[int(FROM * len(timed))][0]
    high = timed[int(TO * len(timed))][0]
    outer: dict[int, tuple[int, bool]] = {}  # of each thread: until when it lasts, and is kept
    kept = []
    for start, negative_end, at in timed:
        event = events[at]
        thread = event.device_resource_id()
        until, is_kept = outer.get(thread, (0, False))
        if start >= until:
            until = -negative_end
            is_kept = low <= start and -negative_end <= high
            outer[thread] = until, is_kept
        if is_kept:
            kept.append(event)
    return kept


def describe_event(event: TorchEvent) -> dict[str, Any]:
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


def wait_for_steps_in_thread(torch: TorchModule) -> None:
    """Begin to wait for steps that repeat, and for graphs that are captured."""
    # Else it says of each process that another has CUPTI: that is the recorder, and meant so.
    os.environ.setdefault("KINETO_LOG_LEVEL", NOTHING)
    recorder = OperatorRecorder(torch)
    captures = CaptureRecorder(recorder)
    if "torch.cuda.graphs" in sys.modules:
        captures.watch(sys.modules["torch.cuda.graphs"])
    # A profiler that is still on when torch's libraries are unloaded ends the program by SIGSEGV.
    atexit.register(recorder.finish)
    thread = threading.Thread(target=recorder.watch, name="profkit", daemon=True)
    thread.start()
    module = sys.modules["torch.autograd.profiler"]
    prepare = module.profile._prepare_trace

    def prepare_trace(self: Any) -> Any:
        if self is not recorder.profile and self is not captures.profile:
            captures.stop()
            recorder.stop_for_good()  # two cannot be on at once, and the program's comes first
        return prepare(self)

    module.profile._prepare_trace = prepare_trace
