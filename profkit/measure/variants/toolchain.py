"""A machine  ->  where nvcc, ninja, ncu and compute-sanitizer are, and which versions.

Asking a tool for its version starts a process; the answer is kept under the build folder and
holds as long as the tool's path, size and modification time do.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from profkit.errors import ProfkitError
from profkit.files import write_text
from profkit.measure.languages.language import CompilerProgram

_VERSION = {
    "nvcc": re.compile(r"release [\d.]+, V(\d+(?:\.\d+)+)"),
    "ncu": re.compile(r"Version (\d{4}(?:\.\d+)+)"),
    "compute-sanitizer": re.compile(r"Version (\d{4}(?:\.\d+)+)"),
}
_HINTS = {
    "nvcc": "install the CUDA toolkit, or put its bin folder on PATH",
    "ninja": "install it with: pip install ninja",
    "ncu": "install Nsight Compute (it comes with the CUDA toolkit), or put ncu on PATH",
    "compute-sanitizer": "it comes with the CUDA toolkit; put its folder on PATH",
}


Tool = CompilerProgram  # a program that profkit starts; version is None if it did not say


def find_tool(name: str) -> Path | None:
    """Where a tool is: PATH first, then where CUDA is usually installed."""
    if on_path := shutil.which(name):
        return Path(on_path)
    homes = [os.environ.get(k) for k in ("CUDA_HOME", "CUDA_PATH")]
    folders = [Path(h) / "bin" for h in homes if h] + [Path("/usr/local/cuda/bin")]
    if name == "ncu":
        folders += sorted(Path("/opt/nvidia/nsight-compute").glob("*"), reverse=True)
    if name == "ninja":  # the folder of its PyPI package need not be on PATH
        with contextlib.suppress(ImportError):
            import ninja

            folders = [Path(ninja.BIN_DIR)]
    return next((f / name for f in folders if os.access(f / name, os.X_OK)), None)


def need_tool(name: str) -> Path:
    path = find_tool(name)
    if path is None:
        raise ProfkitError(f"{name} was not found", _HINTS[name])
    return path


def tool(name: str, cache: Path) -> Tool:
    """Return a tool that must be there; its version, kept in the folder `cache`, but of ninja."""
    path = need_tool(name)
    if name not in _VERSION:
        return Tool(path, None)
    stat = path.resolve().stat()
    key = f"{path.resolve()}:{stat.st_size}:{stat.st_mtime_ns}"
    memory = cache / "tools.json"
    known = kept_json(memory)
    if key not in known:
        known[key] = version(name, path)
        write_text(memory, json.dumps(known, indent=1))
    return Tool(path, known[key])


def version(name: str, path: Path) -> str | None:
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION[name].search(done.stdout + done.stderr)
    return match[1] if match else None


def kept_json(path: Path) -> dict[str, Any]:
    """What was kept in a file; empty where there is none, or it is no object."""
    try:
        known = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
