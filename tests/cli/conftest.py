"""The command line in this process, and in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from profkit.cli.app import app
from tests.conftest import ROOT

REPORT = ROOT / "artifacts" / "copy.1GiB.ncu-rep"


@pytest.fixture
def run() -> Callable[..., object]:
    """profkit ARGS in this process: exit_code, stdout, stderr, exception."""
    return lambda *args: CliRunner().invoke(app, [str(a) for a in args])


@pytest.fixture
def shell() -> Callable[..., subprocess.CompletedProcess[str]]:
    """profkit ARGS as a process of its own."""

    def start(*args: object, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "profkit", *map(str, args)],
            capture_output=True,
            text=True,
            check=False,
            cwd=ROOT,
            timeout=120,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        )

    return start


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A real report whose kernel has the given name (of at most 50 bytes)."""
    folder = tmp_path_factory.mktemp("hostile")
    old = b"dram_copy(const float4 *, float4 *, unsigned long)"
    content = REPORT.read_bytes()
    assert old in content

    def make(name: str) -> Path:
        new = name.encode().ljust(len(old), b"x")
        assert len(new) == len(old)
        path = folder / f"{len(list(folder.iterdir()))}.ncu-rep"
        path.write_bytes(content.replace(old, new))
        return path

    return make
