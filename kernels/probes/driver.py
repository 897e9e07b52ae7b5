"""Built probes  ->  checked and timed, or launched for ncu to see, in this process.

Started by record.py with a task file. Everything that touches the GPU is profkit.lab.measure's: memory,
graphs, timing in turns, ranges for the profiler.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import problem

from profkit.lab.measure import bench, subjects
from profkit.lab.measure.cuda import device, library
from profkit.lab.measure.cuda.library import Args

ROUNDS = 15, 15  # timed replays, main and twin in turn


@dataclass(frozen=True)
class Item:
    """One build of a probe.

    Attributes:
        probe: Its id.
        which: main or twin.
        library: Its library.
    """

    probe: str
    which: str
    library: str

    def __str__(self) -> str:
        return f"{self.probe}.{self.which}"


@dataclass(frozen=True)
class Task:
    """What a child is told.

    Attributes:
        do: time or profile.
        support: The library of support.cu.
        items: What to do it with; for timing, main and twin of a probe stand together.
    """

    do: str
    support: str
    items: tuple[Item, ...]


class Buffers:
    """The six buffers of every probe, on the device, and what its one function is given."""

    def __init__(self) -> None:
        self.addresses = [device.allocate_device_memory(problem.BYTES) for _ in range(6)]
        for which in (0, 1, 3):
            self._fill(self.addresses[which], problem.tile(which))
        step = problem.TILE // 4
        for first in range(0, problem.WORDS, step):
            self._put(self.addresses[2] + 4 * first, problem.cycle(first, step))
        self.reset()

    def arguments(self, stream: int) -> Args:
        """ProfkitArgs for a launch on a stream."""
        values = problem.arguments()
        args = Args(scale=values["scale"], causal=values["causal"], stream=stream)
        args.input[:] = self.addresses[:4]
        args.out[:] = self.addresses[4:]
        args.size[: len(values["size"])] = values["size"]
        return args

    def reset(self) -> None:
        """Poison out[0], zero out[1]."""
        for address, byte in zip(self.addresses[4:], (0xFF, 0), strict=True):
            device.fill_device_memory(address, byte, problem.BYTES)

    def result(self) -> np.ndarray:
        """The first TILE bytes of out[0]."""
        words = np.empty(problem.TILE // 4, dtype=np.uint32)
        device.copy_to_host(words.ctypes.data, self.addresses[4], words.nbytes)
        return words

    def _put(self, address: int, content: np.ndarray) -> None:
        device.copy_to_device(address, content.ctypes.data, content.nbytes)

    def _fill(self, address: int, content: np.ndarray) -> None:
        """Repeat a tile over a whole buffer."""
        self._put(address, content)
        done = content.nbytes
        while done < problem.BYTES:
            device.copy_on_device(address + done, address, done)
            done *= 2


class Driver:
    """What the process holds: the GPU, the buffers, the tools, a stream."""

    def __init__(self, task: Task) -> None:
        self.gpu = device.make_first_gpu_current()
        self.buffers = Buffers()
        self.tools = library.Support(Path(task.support), self.gpu)
        self.stream = device.create_non_blocking_stream()

    def load(self, item: Item) -> ctypes.CDLL:
        """A probe's library, called once so that nothing is loaded or set up later."""
        loaded = library.load_launcher_library(Path(item.library))
        self.call(loaded)
        return loaded

    def call(self, loaded: ctypes.CDLL) -> None:
        """One launch, waited for."""
        library.call_launcher(loaded, self.buffers.arguments(self.stream))
        device.wait_for_gpu_or_stream()

    def time(self, items: list[Item], keys: dict[str, str]) -> dict[str, Any]:
        """Check a probe and its twin, then time them in turn: medians in seconds, all samples."""
        loaded = {item.which: self.load(item) for item in items}
        words = {}
        for which, lib in loaded.items():
            self.buffers.reset()
            self.call(lib)
            words[which] = self.buffers.result()
        record: dict[str, Any] = {"fault": problem.faults(words["main"], words.get("twin"), keys)}
        timed = [
            subjects.run_launcher_subject(which, lib, self.buffers.arguments, self.tools)
            for which, lib in loaded.items()
        ]
        measured = bench.time_subjects_in_turns(
            timed, items[0].probe, self.gpu, self.tools, False, ROUNDS
        )
        for times in measured:
            record[times.name] = float(f"{float(np.median(times.warm)):.4g}")
            record[f"{times.name}_samples"] = [float(f"{s:.4g}") for s in times.warm]
        return record

    def profile(self, item: Item) -> None:
        """Launch once between profiler start and stop, in an NVTX range that names it."""
        loaded = self.load(item)
        device.call_driver("cuProfilerStart")
        self.tools.push_nvtx_range(f"profkit:{item.probe}:{item.which}")
        self.call(loaded)
        self.tools.pop()
        device.call_driver("cuProfilerStop")


def work(task_file: Path) -> None:
    """Do a list of things, saying before and after each what was done."""
    given = json.loads(task_file.read_text())
    task = Task(given["do"], given["support"], tuple(Item(**item) for item in given["items"]))
    with task_file.with_suffix(".log").open("w") as log:

        def tell(**line: Any) -> None:
            log.write(json.dumps(line) + "\n")
            log.flush()

        driver = Driver(task)
        if task.do == "profile":
            _profile(driver, task, tell)
        else:
            _time(driver, task, tell)


def _profile(driver: Driver, task: Task, tell: Callable[..., None]) -> None:
    for item in task.items:
        tell(start=str(item))
        driver.profile(item)
        tell(done=str(item), record=None)


def _time(driver: Driver, task: Task, tell: Callable[..., None]) -> None:
    paths = problem.probes()
    for probe in dict.fromkeys(item.probe for item in task.items):
        tell(start=probe)
        items = [item for item in task.items if item.probe == probe]
        tell(done=probe, record=driver.time(items, dict(problem.header(paths[probe]))))


if __name__ == "__main__":
    work(Path(sys.argv[1]))
