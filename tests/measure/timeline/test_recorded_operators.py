"""When operators are recorded, without torch: steps that repeat, and whose business they are."""

from __future__ import annotations

import json
import os
import sys
import time
from array import array
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from profkit.collect import timeline

LAUNCH = 6  # words of a row: a number of autograd takes two


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("PROFKIT_TIMELINE", str(tmp_path))
    monkeypatch.syspath_prepend(str(timeline.INJECTED))
    import profkit_recorder_operators

    yield profkit_recorder_operators
    for name in ("operators", "hook", "inductor"):
        sys.modules.pop(f"profkit_recorder_{name}", None)


def write_launches(path: Path, stacks: list[int], replaying: int = 0) -> None:
    words = array("I")
    for number, stack in enumerate(stacks, 1):
        words.extend((0, 0, number, stack, 1, 4 if stack == replaying else 0))
    words.extend([0] * LAUNCH * 8)  # what was not written yet
    path.write_bytes(words.tobytes())


def test_a_step_repeats_only_after_it_came_often_enough(hook: Any, tmp_path: Path) -> None:
    """Launches of a backward pass have no stack: they look like a loop of one launch."""
    step = [*range(1, 201), *[0] * 900]
    path = tmp_path / "7-7.launches"
    write_launches(path, step * 5)
    launches = hook.LaunchedStacks(path)
    assert launches.read_new_rows() == 1000
    assert hook.find_repeat_length(launches.last, 6) == 0
    write_launches(path, step * 6)
    assert launches.read_new_rows() == 1200
    assert hook.find_repeat_length(launches.last, 6) == 200


def test_a_step_that_replays_a_graph_is_known_by_fewer_launches(hook: Any, tmp_path: Path) -> None:
    path = tmp_path / "7-7.launches"
    start, step = list(range(100, 700)), [1, 2, 3, 4]
    write_launches(path, [*start, *step * 20])
    launches = hook.LaunchedStacks(path)
    launches.read_new_rows()
    assert launches.find_repeat_length() == 0  # it may be a loop inside of a step
    write_launches(path, [*start, *step * 20], replaying=3)
    launches = hook.LaunchedStacks(path)
    launches.read_new_rows()
    assert launches.find_repeat_length() == 4
    assert launches.is_no_loop_inside_step(4)
    assert not launches.is_all_replays(4)
    write_launches(path, [*start, *step * 5], replaying=3)
    launches = hook.LaunchedStacks(path)
    launches.read_new_rows()
    assert launches.find_repeat_length() == 0  # not often enough
    write_launches(path, [*start, *[3] * 20], replaying=3)
    launches = hook.LaunchedStacks(path)
    launches.read_new_rows()
    assert launches.is_all_replays(launches.find_repeat_length())


def test_a_loop_before_the_steps_is_none_of_them(hook: Any, tmp_path: Path) -> None:
    """A dozen weights that are moved to the GPU are launches that repeat, from the first one on."""
    path = tmp_path / "7-7.launches"
    write_launches(path, [1] * 100)
    launches = hook.LaunchedStacks(path)
    launches.read_new_rows()
    assert launches.find_repeat_length() == 0
    write_launches(path, [1] * 600)
    launches.read_new_rows()
    assert launches.find_repeat_length() == 1
    assert not launches.is_no_loop_inside_step(1)


def find_repeat_slowly(stacks: list[int], times: int, replays: set[int], sure: int) -> int:
    """The definition: the least number of launches after which all that must come again does."""
    for lag in range(1, len(stacks) // times + 1):
        replayed = bool(replays.intersection(stacks[-lag:]))
        checked = max((times - 1) * lag, 0 if replayed else sure)
        begin = len(stacks) - checked
        if begin >= lag and stacks[begin:] == stacks[begin - lag : -lag]:
            return lag
    return 0


def test_the_least_repeat_is_found_whatever_was_launched(
    hook: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook, "SURE", 12)
    draw = Random(1)
    found = set()
    for _ in range(3000):
        words = [draw.choice((1, 1, 1, 2, 1 << 24, 256)) for _ in range(draw.randrange(1, 9))]
        before = [draw.choice((1, 2, 3)) for _ in range(draw.randrange(0, 30))]
        stacks = [*before, *words * draw.randrange(1, 9), *words[: draw.randrange(0, 4)]]
        replays = set(draw.sample((1, 2, 3, 65536), draw.randrange(0, 3)))
        slowly = find_repeat_slowly(stacks, 3, replays, 12)
        assert hook.find_repeat_length(array("I", stacks), 3, replays) == slowly, (stacks, replays)
        found.add(slowly)
    assert found >= set(range(8))
    assert hook.find_repeat_length(array("I"), 3) == 0


def test_a_look_is_cheap_where_most_launches_are_of_one_line(hook: Any) -> None:
    """The program waits meanwhile: 65,536 launches took 1.3 s when each distance was compared whole."""
    draw = Random(1)
    stacks = array("I", [draw.choice((7,) * 9 + (8,)) for _ in range(hook.LOOKED_AT)])
    began = time.thread_time()
    assert hook.find_repeat_length(stacks, hook.BEFORE, {8}) == 0
    assert time.thread_time() - began < 0.2


class Event:
    """An event of torch's profiler."""

    def __init__(self, name: str, start: int, end: int, thread: int = 1) -> None:
        self.name = name
        self.times = start, end
        self.thread = thread

    def start_ns(self) -> int:
        return self.times[0]

    def end_ns(self) -> int:
        return self.times[1]

    def device_resource_id(self) -> int:
        return self.thread


def test_of_three_steps_the_middle_is_written_in_whole_operators(hook: Any) -> None:
    """An operator with another in it, one on autograd's thread, a long one; the first step is slow."""
    events = []
    begin = 0
    for step, slow in enumerate((50, 1, 1)):
        for name, start, end, thread in (
            ("outer", 5, 30, 1),
            ("inner", 10, 20, 1),
            ("long", 40, 100, 1),
            ("backward", 50, 60, 2),
            ("in long", 90, 95, 1),
        ):
            events.append(
                Event(f"{name} {step}", begin + slow * start, begin + slow * end, thread=thread)
            )
        begin += 100 * slow
    across = [Event("across", 5195, 5400, thread=3), Event("in across", 5201, 5210, thread=3)]
    kept = {event.name for event in hook.select_middle_events([*across, *events[::-1]])}
    assert hook.select_middle_events([]) == []
    names = ("outer", "inner", "backward", "long", "in long")
    assert {f"{name} 1" for name in names} <= kept
    assert "across" not in kept
    assert "in across" not in kept
    assert not {"outer 0", "inner 0", "in long 2"} & kept  # at the ends


def test_a_forked_child_leaves_the_recording_to_its_parent(hook: Any, tmp_path: Path) -> None:
    recorder = hook.OperatorRecorder(None)
    results = SimpleNamespace(experimental_event_tree=lambda: [])
    recorder.tensors.append((results, set()))
    recorder.pid += 1
    recorder.finish()
    recorder.stop_for_good()
    assert not list(tmp_path.iterdir())
    recorder.pid -= 1
    recorder.finish()
    assert [path.name for path in tmp_path.glob("*.tensors")] == [f"{os.getpid()}.tensors"]
    (written,) = tmp_path.glob("*.hook")
    assert "not seen to repeat" in written.read_text()


def make_event(name: str) -> Any:
    """An event of torch's profiler as it is written."""
    facts = {"name": name, "scope": 0, "start_ns": 1, "end_ns": 2, "device_resource_id": 3}
    facts |= {"shapes": [], "dtypes": [], "sequence_nr": 4}
    return SimpleNamespace(**{key: lambda fact=fact: fact for key, fact in facts.items()})


def test_steps_are_recorded_behind_a_loop_that_came_before_them(
    hook: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A loop of many launches is recorded, then steps of few, and these once."""
    path = tmp_path / f"{os.getpid()}-7.launches"
    loop, steps = [1] * 600, [*range(2, 41)] * 20
    every = [[*loop, *loop], [*loop, *loop, *loop], [*loop, *loop, *loop, *steps]]
    stages = iter((*every, [*loop, *loop, *loop, *steps, *steps]))
    write_launches(path, loop)

    def launch_more() -> None:
        write_launches(path, next(stages))

    names = iter(("aten::copy_", "aten::mm"))

    def disable() -> Any:
        name = next(names)
        if name == "aten::copy_":
            launch_more()
        return SimpleNamespace(
            events=lambda: [make_event(name)],
            experimental_event_tree=lambda: [make_tree_event(name, 1, 2, [make_tensor(16)])],
        )

    profiler = SimpleNamespace(
        profile=lambda **_: SimpleNamespace(__enter__=launch_more),
        _disable_profiler=disable,
        _run_on_profiler_stop=lambda: None,
    )
    monkeypatch.setitem(sys.modules, "torch.autograd.profiler", profiler)
    own = SimpleNamespace(_autograd=SimpleNamespace(_profiler_enabled=lambda: False))
    torch = SimpleNamespace(
        _C=own,
        autograd=SimpleNamespace(profiler=profiler),
        nn=SimpleNamespace(Module=Module),
        Tensor=Tensor,
    )
    recorder = hook.OperatorRecorder(torch)
    monkeypatch.setattr(recorder, "call_in_main_thread", lambda call: call(None))
    monkeypatch.setattr(recorder, "read_clocks", lambda: (1, 2, 3))
    # The loop goes on for a while when it was recorded, and the steps until the end.
    looks = iter((0, 0, 1))
    monkeypatch.setattr(hook, "PATIENCE", 4)
    monkeypatch.setattr(hook, "LONGEST", 0.5)
    sleep = time.sleep

    def sleep_meanwhile(seconds: float) -> None:
        sleep(seconds)
        if seconds >= hook.PAUSE and recorder.tensors and next(looks, 0):
            launch_more()

    monkeypatch.setattr(hook.time, "sleep", sleep_meanwhile)
    recorder.watch()
    assert not list(tmp_path.glob("*.tensors"))
    recorder.finish()
    text = (tmp_path / f"{os.getpid()}.operators").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row.get("name", "clocks") for row in rows] == [
        "clocks",
        "aten::copy_",
        "clocks",
        "aten::mm",
    ]
    (written,) = tmp_path.glob("*.hook")
    assert written.read_text() == "disturbed\t2\nundisturbed\t2\n" * 2
    text = (tmp_path / f"{os.getpid()}.tensors").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["recording"] if isinstance(row, dict) else row[3] for row in rows] == [
        1,
        "aten::copy_",
        2,
        "aten::mm",
    ]
    # A tensor of each recording is the first there: what was at its place meanwhile is not known.
    assert rows[1][4] == rows[3][4] == [[1, 0, 0]]
    assert recorder.is_profiling.acquire(blocking=False)


class Graph:
    """As torch.cuda.CUDAGraph begins and ends a capture."""

    def capture_begin(self, fails: bool = False) -> None:
        if fails:
            raise RuntimeError("a capture runs")

    def capture_end(self) -> None:
        pass


def watch_captures(hook: Any, monkeypatch: pytest.MonkeyPatch, profiler: Any) -> tuple[Any, Graph]:
    """A torch whose profiler is ours, and a graph of it that is watched."""
    monkeypatch.setitem(sys.modules, "torch.autograd.profiler", profiler)
    own = SimpleNamespace(_autograd=SimpleNamespace(_profiler_enabled=lambda: False))
    torch = SimpleNamespace(_C=own, autograd=SimpleNamespace(profiler=profiler))
    captures = hook.CaptureRecorder(hook.OperatorRecorder(torch))
    monkeypatch.setattr(captures.steps, "read_clocks", lambda: (1, 2, 3))
    kind = type("OwnGraph", (Graph,), dict(vars(Graph)))
    captures.watch(SimpleNamespace(CUDAGraph=kind))
    return captures, kind()


def test_a_capture_that_fails_to_begin_leaves_no_profiler_on(
    hook: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []
    profile = SimpleNamespace(__enter__=lambda: said.append("on"))
    profiler = SimpleNamespace(
        _is_profiler_enabled=False,
        profile=lambda **_: profile,
        _disable_profiler=lambda: said.append("off") or SimpleNamespace(events=list),
        _run_on_profiler_stop=lambda: None,
    )
    captures, graph = watch_captures(hook, monkeypatch, profiler)
    with pytest.raises(RuntimeError, match="a capture runs"):
        graph.capture_begin(fails=True)
    graph.capture_begin()
    graph.capture_end()
    assert said == ["on", "off", "on", "off"]
    assert captures.steps.is_profiling.acquire(blocking=False)
    (written,) = tmp_path.glob("*.hook")
    assert written.read_text() == "slowed\t2 2\n" * 2


def test_a_capture_under_a_profiler_of_the_program_is_left_to_it(
    hook: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profiler = SimpleNamespace(_is_profiler_enabled=True)
    captures, graph = watch_captures(hook, monkeypatch, profiler)
    graph.capture_begin()
    graph.capture_end()
    assert captures.steps.is_profiling.acquire(blocking=False)
    (written,) = tmp_path.glob("*.hook")
    assert "the program's own profiler" in written.read_text()


def make_tree_event(name: str, start: int, end: int, inputs: Any = (), size: int = 0) -> Any:
    """Return an event of torch's tree; without a name memory that is taken, or given back."""
    fields: Any = SimpleNamespace(inputs=list(inputs), scope=0)
    kind = "TorchOp"
    if not name:
        kind, fields = "Allocation", SimpleNamespace(ptr=inputs[0], alloc_size=size)
    return SimpleNamespace(
        name=name,
        start_time_ns=start,
        end_time_ns=end,
        start_tid=1,
        children=[],
        typed=(SimpleNamespace(name=kind), fields),
    )


def make_tensor(pointer: int, device: str = "cuda", dim: int = 2) -> Any:
    return SimpleNamespace(storage_data_ptr=pointer, device=SimpleNamespace(type=device), dim=dim)


def test_a_tensor_is_told_by_where_its_memory_is_and_since_when(hook: Any) -> None:
    weight, result = make_tensor(16), make_tensor(32)
    product = make_tree_event("aten::mm", 10, 20, [weight, [make_tensor(64, "cpu")], 2.0, None])
    product.children = [make_tree_event("", 12, 12, [32], 512)]
    events = [
        make_tree_event("aten::relu", 30, 40, [result]),
        product,
        make_tree_event("", 50, 50, [32], -512),
        make_tree_event("", 60, 60, [32], 512),  # the same place, and another tensor
        make_tree_event("aten::neg", 70, 80, [result]),
    ]
    rows = list(hook.TensorNumbers({16}).describe_events(events))
    assert rows[0] == [10, 20, 1, "aten::mm", [(1, 1, 0), [(2, 0, 3)]], [], "2.0"]
    assert [row[3] for row in rows] == ["aten::mm", "", "aten::relu", "", "aten::neg"]
    before, after = rows[2][4][0][0], rows[4][4][0][0]
    assert rows[1][5] == [before]
    assert rows[3][5] == [after]
    assert before != after


class Tensor:
    """Memory somewhere; none where there is no place."""

    def __init__(self, place: int) -> None:
        self.place = place

    def untyped_storage(self) -> Any:
        if not self.place:
            raise RuntimeError("no memory")
        return SimpleNamespace(data_ptr=lambda: self.place)


class Module:
    """What holds tensors."""


def test_tensors_that_modules_hold_are_found(hook: Any) -> None:
    model = Module()
    model._parameters = {"weight": Tensor(16), "bias": None}  # type: ignore[attr-defined]
    model._buffers = {"mean": Tensor(32)}  # type: ignore[attr-defined]
    model.data = (Tensor(48), 1)  # type: ignore[attr-defined]
    model.cache, alone = Tensor(0), Tensor(64)  # type: ignore[attr-defined]
    torch = SimpleNamespace(Tensor=Tensor, nn=SimpleNamespace(Module=Module))
    assert hook.find_tensors_held_by_modules(torch) == {16, 32, 48}
    assert alone.place == 64
