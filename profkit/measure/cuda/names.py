"""Mangled names of kernels  ->  demangled ones, and the short one under which both compare."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path


def base_name(name: str) -> str:
    """The function's own name, of a demangled or mangled one: no namespaces, no arguments."""
    if m := re.match(r"_ZN?((?:\d+\w+)+)", name):
        rest, last = m[1], ""
        while n := re.match(r"(\d+)", rest):
            end = n.end() + int(n[1])
            last, rest = rest[n.end() : end], rest[end:]
        return last
    depth, plain = 0, []
    for c in (
        name.removeprefix("void ").replace("(anonymous namespace)", "_").replace("<unnamed>", "_")
    ):
        depth += c in "<("
        if not depth:
            plain.append(c)
        depth -= c in ">)"
    return "".join(plain).rsplit("::", 1)[-1].strip().rsplit(" ", 1)[-1]


def demangle(names: Iterable[str]) -> Mapping[str, str]:
    """Mangled  ->  demangled names; a name stays as it is where there is no demangler."""
    mangled = list(names)
    filt = shutil.which("c++filt") or shutil.which("cu++filt")
    if not mangled or filt is None:
        return {m: m for m in mangled}
    done = subprocess.run(
        [Path(filt)], input="\n".join(mangled), capture_output=True, text=True, check=False
    )
    plain = done.stdout.splitlines()
    if len(plain) != len(mangled):
        return {m: m for m in mangled}
    return dict(zip(mangled, plain, strict=True))
