"""When operators are recorded, without torch: steps that repeat, and whose business they are."""

from __future__ import annotations

import sys
from array import array
from pathlib import Path
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


def write_launches(path: Path, stacks: list[int]) -> None:
    words = array("I")
    for number, stack in enumerate(stacks, 1):
        words.extend((0, 0, number, stack, 1, 0))
    words.extend([0] * LAUNCH * 8)  # what was not written yet
    path.write_bytes(words.tobytes())


def test_a_step_repeats_only_after_it_came_often_enough(hook: Any, tmp_path: Path) -> None:
    """Launches of a backward pass have no stack: they look like a loop of one launch."""
    step = [*range(1, 201), *[0] * 900]
    path = tmp_path / "7-7.launches"
    write_launches(path, step * 5)
    launches = hook.Launches(path)
    assert launches.read_on() == 1000
    assert hook.find_repeat(launches.last, 6) == 0
    write_launches(path, step * 6)
    assert launches.read_on() == 1200
    assert hook.find_repeat(launches.last, 6) == 200


def test_a_forked_child_leaves_the_recording_to_its_parent(hook: Any, tmp_path: Path) -> None:
    recorder = hook.OperatorRecorder(None)
    recorder.pid += 1
    recorder.finish()
    recorder.leave_to_program()
    assert not list(tmp_path.glob("*.hook"))
    recorder.pid -= 1
    recorder.finish()
    (written,) = tmp_path.glob("*.hook")
    assert "not seen to repeat" in written.read_text()


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
