"""One call and its code, on the GPU that this process holds: loaded, run once, counted."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.lab.ablation import assemble, footprint, launches, survey, timeline
from profkit.lab.ablation.accesses import PtxAccess
from profkit.lab.ablation.footprint import Region
from profkit.lab.ablation.launches import WHOLE, CapturedCall, LoadedCode, Replay, Shape
from profkit.lab.ablation.ptx import PtxEdits, PtxModule, parse_ptx_module
from profkit.lab.ablation.readdress import TABLE
from profkit.lab.measure import bench
from profkit.lab.measure.bench import Subject, Times
from profkit.lab.measure.cuda import device, library

if TYPE_CHECKING:
    from profkit.units import CudaStream, FirstAndMostRounds, MachineCode, PtxText


WATCH = 20.0  # times the original's time that a rewritten kernel may take
_LEAST_WATCH = 2.0  # seconds: the first launch of a module loads it


@dataclass(frozen=True)
class Conditions:
    """How a call is measured."""

    gpu: device.Gpu
    tools: library.Support
    folder: Path  # where machine code is kept
    arch: str
    flags: tuple[str, ...]  # of ptxas
    rounds: tuple[int, int] = bench.ROUNDS
    watch: float = WATCH
    fast: str = ""  # the PTX of the same source with fast math, where there is one
    refused: Mapping[str, str] = field(default_factory=dict)  # what lost a process, and how


class AblationLab:
    """One call and its code, on the GPU that this process holds."""

    def __init__(
        self, call: Callable[[CudaStream], None], reset: Callable[[], None], conditions: Conditions
    ) -> None:
        self.on = conditions
        self.reset = reset
        self.limit_registers = functools.cache(self._cap_registers_to_occupancy)
        self.call: CapturedCall = launches.capture_call(call)
        self.stream = device.create_non_blocking_stream()
        began = time.perf_counter()
        Replay(self.call).enqueue_call(self.stream)
        device.wait_for_gpu_or_stream(self.stream)
        self.seconds = time.perf_counter() - began  # of one call, roughly

    def assemble_text(self, text: PtxText, flags: Sequence[str] | None = None) -> MachineCode:
        """Return machine code; `flags` in the place of the kernel's own."""
        if flags is None:
            flags = self.on.flags
        return assemble.assemble_ptx(text, self.on.arch, flags, self.on.folder)

    def load_module(
        self,
        module: PtxModule,
        code: MachineCode,
        table_bytes: bytes = b"",
        table_name: str = TABLE,
    ) -> LoadedCode:
        """Return machine code of the module's kernels, with its own table and the original's arrays."""
        names = [name for name in module.kernels if name in self.call.names]
        loaded = launches.load_code(code, names)
        for launch in self.call.kernel_launches:
            if launch.name in loaded.functions:
                launches.copy_allowed_shared_memory(launch, loaded)
                launches.copy_globals(launch, loaded, module.variables)
        if table_bytes:
            launches.write_global(loaded.module, table_name, table_bytes)
        return loaded

    def run_on_initial_arrays(self, replay: Replay) -> None:
        """Make a call once, on what the arrays held at first; ProfkitError if it does not end."""
        self.reset()
        device.wait_for_gpu_or_stream()
        launches.run_with_timeout(
            replay.enqueue_call, self.stream, max(_LEAST_WATCH, self.on.watch * self.seconds)
        )
        device.wait_for_gpu_or_stream()

    def time_calls(
        self,
        calls: Mapping[str, Callable[[CudaStream], None]],
        first_and_most_rounds: FirstAndMostRounds | None = None,
        with_cold_l2: bool = False,
    ) -> dict[str, Times]:
        """Return the times of calls that take turns."""
        subjects = [_make_subject(name, call) for name, call in calls.items()]
        taken = bench.time_subjects_in_turns(
            subjects,
            "",
            self.on.gpu,
            self.on.tools,
            with_cold_l2=with_cold_l2,
            first_and_most_rounds=first_and_most_rounds or self.on.rounds,
        )
        return {times.name: times for times in taken}

    def _cap_registers_to_occupancy(self, text: PtxText) -> PtxModule:
        """Return rewritten PTX, held to as many registers as let the original's blocks fit."""
        module = parse_ptx_module(text)
        changes = PtxEdits(module)
        for launch in self.call.kernel_launches:
            if launch.name in module.kernels:
                blocks = max(1, launch.count_blocks())
                changes.require_min_blocks(module.kernels[launch.name], launch.threads, blocks)
        return parse_ptx_module(changes.write_edited_module())

    def run_counting_copy(
        self,
        module: PtxModule,
        accesses: Sequence[PtxAccess],
        code: MachineCode,
        table_bytes: bytes,
        shape: Shape = WHOLE,
    ) -> Sequence[int]:
        """The counters of a counting copy after one call, or after one of so many blocks of it."""
        loaded = self.load_module(module, code, table_bytes)
        first = survey.make_initial_counters(module, accesses)
        launches.write_global(loaded.module, survey.COUNTS, launches.pack_64_bit_words(first))
        for launch in self.call.kernel_launches:
            if shape.more_shared:
                size = launch.smem + shape.more_shared
                launches.allow_dynamic_shared_memory(loaded.functions[launch.name], size)
        self.run_on_initial_arrays(Replay(self.call, loaded.functions, shape=shape))
        place = launches.find_global(loaded.module, survey.COUNTS, 8 * len(first))
        words = launches.download_64_bit_words(place, len(first))
        launches.unload_code(loaded)
        return words

    def count_touched_sectors(
        self,
        module: PtxModule,
        regions: Sequence[Region],
        code: MachineCode,
        shape: Shape,
    ) -> int:
        """Return how many sectors of the regions a marking copy touches, by one of so many blocks."""
        places = [device.allocate_device_memory(region.sectors) for region in regions]
        for place, region in zip(places, regions, strict=True):
            device.fill_device_memory(place, 0, region.sectors)
        loaded = self.load_module(module, code, launches.pack_64_bit_words(places), footprint.MAPS)
        self.run_on_initial_arrays(Replay(self.call, loaded.functions, shape=shape))
        touched = 0
        for place, region in zip(places, regions, strict=True):
            touched += launches.download_bytes(place, region.sectors).count(1)
            device.free_device_memory(place)
        launches.unload_code(loaded)
        return touched

    def record_block_timeline(
        self, module: PtxModule, code: MachineCode
    ) -> timeline.BlockTimeline | None:
        """Return when the blocks ran; None where more than one kernel or too many blocks did."""
        launched = self.call.kernel_launches
        if len(launched) != 1 or launched[0].blocks > timeline.MOST_BLOCKS:
            return None
        size = 8 * timeline.FIELDS * launched[0].blocks
        place = device.allocate_device_memory(size)
        loaded = self.load_module(module, code, launches.pack_64_bit_words([place]), timeline.PLACE)
        for _ in range(2):  # the first run loads the module
            device.fill_device_memory(place, 0, size)
            self.run_on_initial_arrays(Replay(self.call, loaded.functions))
        words = launches.download_64_bit_words(place, size // 8)
        launches.unload_code(loaded)
        device.free_device_memory(place)
        return timeline.parse_block_timeline(words, self.on.gpu.sms)


def _make_subject(name: str, call: Callable[[CudaStream], None]) -> Subject:
    def time_plainly(n: int, stream: CudaStream) -> bench.PlainCall:
        return bench.time_plain_calls(
            lambda: bench.measure_host_seconds(lambda: call(stream), n), n, stream
        )

    return Subject(name, call, bench.capture_replay, time_plainly)
