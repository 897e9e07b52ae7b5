"""A machine  ->  what is there to build, time and profile kernels, what is missing, and what to do."""

from __future__ import annotations

import importlib.util
import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from profkit.collect import ncu_output, tools
from profkit.errors import ProfkitError
from profkit.files import (
    is_path_there,
    is_writable,
    read_text,
)
from profkit.lab.measure.cuda import device
from profkit.lab.measure.languages.language import find_package_version, list_languages
from profkit.records.store import Document

PARAMETERS = Path("/proc/driver/nvidia/params")


@dataclass(frozen=True)
class Inspection:
    """One thing that was looked at."""

    name: str
    # ok; missing: something cannot be done without it; warning: it may get in the way
    status: Literal["ok", "missing", "warning"]
    detail: str
    advice: str = ""  # what to do about it; empty when ok


class DoctorDocument(
    Document, frozen=True, kw_only=True, tag_field="schema", tag="profkit.doctor/1"
):
    """What `profkit doctor --json` prints."""

    findings: tuple[Inspection, ...] = ()


def inspect_machine() -> list[Inspection]:
    """Look at everything; nothing here needs a GPU to be there, nor changes anything."""
    return [
        *_examine_gpu_driver_and_clocks(),
        *_examine_tool("nvcc", "building variants"),
        *_examine_tool("ninja", "building"),
        *_examine_languages(),
        *_examine_torch(),
        *_examine_tool("ncu", "profile; timing works without it"),
        *_examine_counters(),
        *_examine_ncu_lock(),
        *_examine_tool("compute-sanitizer", "check --sanitize"),
    ]


def _examine_gpu_driver_and_clocks() -> Iterator[Inspection]:
    try:
        gpu = device.add_gpu_uuid_and_driver(device.query_first_gpu())
    except ProfkitError as error:
        advice = "diagnose, triage, compare, report, explain and list work without one; "
        advice += "check, bench and profile need a machine with an NVIDIA GPU and its driver"
        yield Inspection("GPU", "missing", error.message, advice)
        return
    now = device.read_gpu_state(gpu.pci)
    yield Inspection("GPU", "ok", f"{gpu.name}, sm_{gpu.arch}, {gpu.sms} SMs")
    yield Inspection("driver", "ok", f"{gpu.driver or 'version unknown'}, for CUDA {gpu.cuda}")
    if gpu.driver is None:
        detail = "clocks, power and temperature cannot be read"
        yield Inspection("NVML", "warning", detail, "pip install nvidia-ml-py")
    elif now.throttle:
        detail = f"held down by {', '.join(now.throttle)}"
        advice = "let it cool, or see what else runs on it: nvidia-smi"
        yield Inspection("clocks", "warning", detail, advice)


def _examine_tool(name: str, use: str) -> Iterator[Inspection]:
    try:
        path = tools.require_tool(name)
    except ProfkitError as error:
        yield Inspection(name, "missing", f"not found; needed for {use}", error.hint)
        return
    if name == "ninja":  # any will do
        yield Inspection(name, "ok", str(path))
    elif (said := tools.read_tool_version(name, path)) is None:
        yield Inspection(name, "warning", f"{path} does not say its version", "does it start?")
    else:
        yield Inspection(name, "ok", f"{said} at {path}")


def _examine_languages() -> Iterator[Inspection]:
    for language in list_languages():
        lacking = language.missing()
        if lacking:
            what, _, advice = lacking.partition(": ")
            yield Inspection(language.name, "warning", f"{what}; needed for its variants", advice)
        elif not language.programs:
            yield Inspection(language.name, "ok", language.compiler({}))


def _examine_torch() -> Iterator[Inspection]:
    if importlib.util.find_spec("torch") is None:
        detail = "not installed: the SDPA references cannot run, everything else can"
        yield Inspection("torch", "warning", detail, "pip install torch")
    elif said := find_package_version("torch"):
        yield Inspection("torch", "ok", said)
    else:
        yield Inspection("torch", "warning", "installed without metadata", "reinstall it")


def _examine_counters() -> Iterator[Inspection]:
    allowed = can_read_counters(PARAMETERS)
    if allowed is None:
        detail = f"not known who may read them: {PARAMETERS} is not there"
        advice = "profkit profile says so if access is denied; it still times, and draws a roofline"
        yield Inspection("counters", "warning", detail, advice)
    elif allowed:
        yield Inspection("counters", "ok", "this user may read performance counters")
    else:
        detail = "only root may read performance counters"
        yield Inspection("counters", "missing", detail, ncu_output.PERMISSION)


def can_read_counters(driver_parameters_file: Path) -> bool | None:
    """Return whether this user may read performance counters; None if the driver does not say."""
    try:
        text = read_text(driver_parameters_file)
    except OSError:
        return None
    admin_only = re.search(r"^RmProfilingAdminOnly:\s*(\d)", text, re.M)
    if not admin_only:
        return None
    return admin_only[1] == "0" or os.geteuid() == 0


def _examine_ncu_lock() -> Iterator[Inspection]:
    lock = Path(tempfile.gettempdir()) / "nsight-compute-lock"
    if is_path_there(lock) and not is_writable(lock):
        yield Inspection("ncu lock", "missing", f"{lock} belongs to another user", ncu_output.LOCK)
    elif is_path_there(lock):
        yield Inspection("ncu lock", "ok", f"{lock} is there, and this user may take it")
    else:
        yield Inspection("ncu lock", "ok", "not held")
