"""What the user typed -> reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.records.paths import expand_paths


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    for name in ("b.ncu-rep", "a.ncu-repz", "sub/c.ncu-rep", "sub/notes.txt", "odd[1].ncu-rep"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (tmp_path / "none").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ("b.ncu-rep", ["b.ncu-rep"]),
        ("~/b.ncu-rep", ["b.ncu-rep"]),
        (".", ["a.ncu-repz", "b.ncu-rep", "odd[1].ncu-rep", "sub/c.ncu-rep"]),
        (Path("sub"), ["sub/c.ncu-rep"]),
        ("*.ncu-rep*", ["a.ncu-repz", "b.ncu-rep", "odd[1].ncu-rep"]),
        ("**/*.ncu-rep", ["b.ncu-rep", "odd[1].ncu-rep", "sub/c.ncu-rep"]),
        ("odd[1].ncu-rep", ["odd[1].ncu-rep"]),  # a file's name before a pattern
        ("s*", ["sub/c.ncu-rep"]),
        (["b.ncu-rep", "*.ncu-rep"], ["b.ncu-rep", "odd[1].ncu-rep"]),  # each once
        ("sub/notes.txt", ["sub/notes.txt"]),  # who names a file means it
        ("gone.ncu-rep", ["gone.ncu-rep"]),  # said by the reader, the others go on
    ],
)
def test_expand(folder: Path, patterns, names: list[str]) -> None:
    found = [Path(name) for name in expand_paths(patterns)]
    shown = [str(p.relative_to(folder) if p.is_absolute() else p) for p in found]
    assert sorted(shown) == sorted(names)


@pytest.mark.parametrize("pattern", ["*.nothing", "none", "n*e"])
def test_nothing_there(folder: Path, pattern: str) -> None:
    with pytest.raises(ProfkitError) as caught:
        expand_paths(["b.ncu-rep", pattern])
    assert pattern.rstrip("*e") in caught.value.message
    assert caught.value.hint


def test_nothing_asked() -> None:
    with pytest.raises(ProfkitError):
        expand_paths([])
