"""A tool's name  ->  where nvcc, ninja, ncu or compute-sanitizer is, and its version.

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
from typing import TYPE_CHECKING

from profkit.collect.process import Tool
from profkit.errors import ProfkitError
from profkit.files import (
    get_path_status,
    is_executable,
    list_folder_entries,
    read_json,
    resolve_path,
    write_text,
)

if TYPE_CHECKING:
    from profkit.units import PlainValues


_VERSION = {
    "nvcc": re.compile(r"release [\d.]+, V(\d+(?:\.\d+)+)"),
    "ncu": re.compile(r"Version (\d{4}(?:\.\d+)+)"),
    "compute-sanitizer": re.compile(r"Version (\d{4}(?:\.\d+)+)"),
}
_HINTS = {
    "nvcc": "install the CUDA toolkit, or put its bin folder on PATH",
    "ninja": "install it with: pip install ninja",
    "ncu": "install Nsight Compute (it comes with the CUDA toolkit), or put ncu on PATH",
    "cuobjdump": "it comes with the CUDA toolkit; put its folder on PATH",
    "compute-sanitizer": "it comes with the CUDA toolkit; put its folder on PATH",
}


def find_tool(name: str) -> Path | None:
    """Return where a tool is: PATH first, then where CUDA is usually installed."""
    if on_path := shutil.which(name):
        return Path(on_path)
    folders = []
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        home = os.environ.get(variable)
        if home:
            folders.append(Path(home) / "bin")
    folders.append(Path("/usr/local/cuda/bin"))
    if name == "ncu":
        folders += list_folder_entries("/opt/nvidia/nsight-compute")[::-1]
    if name == "ninja":  # the folder of its PyPI package need not be on PATH
        with contextlib.suppress(ImportError):
            import ninja

            folders = [Path(ninja.BIN_DIR)]
    for f in folders:
        if is_executable(f / name):
            return f / name
    return None


def require_tool(name: str) -> Path:
    """Return where a tool is; a ProfkitError that says how to install it where there is none."""
    path = find_tool(name)
    if path is None:
        raise ProfkitError(f"{name} was not found", _HINTS[name])
    return path


def require_tool_with_version(name: str, cache_folder: Path) -> Tool:
    """Return a tool that must be there; its version, kept in the folder `cache_folder`, but of ninja."""
    path = require_tool(name)
    if name not in _VERSION:
        return Tool(path, None)
    state = get_path_status(path)
    changed = ""
    if state:
        changed = f"{state.st_size}:{state.st_mtime_ns}"
    key = f"{resolve_path(path)}:{changed}"
    memory = cache_folder / "tools.json"
    known = read_cached_object(memory)
    if key not in known:
        known[key] = read_tool_version(name, path)
        write_text(memory, json.dumps(known, indent=1))
    return Tool(path, known[key])


def read_tool_version(name: str, path: Path) -> str | None:
    """Return the version that a tool tells; None where it tells none."""
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION[name].search(done.stdout + done.stderr)
    if match:
        return match[1]
    return None


def read_cached_object(path: Path) -> dict[str, PlainValues]:
    """Return what was kept in a file; empty where there is none, or it is no object."""
    try:
        known = read_json(path)
    except (OSError, ValueError):
        return {}
    if isinstance(known, dict):
        return known
    return {}
