"""When operators are recorded, without torch: steps that repeat, and whose business they are."""

from __future__ import annotations

import sys
from array import array
from pathlib import Path
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
