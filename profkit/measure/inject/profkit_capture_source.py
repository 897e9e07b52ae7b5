"""A kernel function of a running program  ->  a file that defines it alone.

What the function uses is found by name: modules are imported, constants written down, other kernel
functions of the same program taken along; those of a library that imports by itself are imported.
"""

from __future__ import annotations

import math
import re
import symtable
import sys
import textwrap
from types import ModuleType
from typing import Any

_LIBRARIES = ("triton", "torch")


class NotStandalone(Exception):
    """The function uses something that cannot be written into a file."""


def standalone(kernel: Any, unaligned: list[str]) -> tuple[str, str]:
    """The file's (imports, definitions); `unaligned`: parameters at no multiple of 16 bytes."""
    imports: dict[str, None] = {"import triton": None, "import triton.language as tl": None}
    bodies: dict[str, str] = {}
    _take(kernel, imports, bodies)
    name = kernel.fn.__name__
    marks = {
        "do_not_specialize": list(getattr(kernel, "do_not_specialize", ())),
        "do_not_specialize_on_alignment": sorted(
            {*map(str, getattr(kernel, "do_not_specialize_on_alignment", ())), *unaligned}
        ),
    }
    options = ", ".join(f"{k}={v!r}" for k, v in marks.items() if v)
    main = bodies.pop(name)
    if options:
        main = main.replace("@triton.jit\n", f"@triton.jit({options})\n", 1)
    return "\n".join(imports), "\n\n\n".join([*bodies.values(), main])


def _take(kernel: Any, imports: dict[str, None], bodies: dict[str, str]) -> None:
    function = kernel.fn
    name = function.__name__
    if name in bodies:
        return
    source = _source_of(kernel)
    bodies[name] = ""  # a function that uses itself ends here
    space = function.__globals__
    for used in sorted(_names(source) - {"tl", "triton"}):
        if used in space:
            _take_name(used, space[used], imports, bodies)
    del bodies[name]  # what is used comes first
    bodies[name] = f"@triton.jit\n{source}"


def _take_name(name: str, value: Any, imports: dict[str, None], bodies: dict[str, str]) -> None:
    module = getattr(getattr(value, "fn", value), "__module__", "") or ""
    if isinstance(value, ModuleType):
        imports[_import_of(value, name)] = None
    elif hasattr(value, "fn") and hasattr(value, "arg_names"):  # a JITFunction
        if module.partition(".")[0] in _LIBRARIES and name == value.fn.__name__:
            imports[f"from {module} import {name}"] = None
        elif name == value.fn.__name__:
            _take(value, imports, bodies)
        else:
            raise NotStandalone(f"{value.fn.__name__} is called {name}")
    elif type(value).__name__ == "constexpr":
        bodies.setdefault(name, f"{name} = tl.constexpr({_literal(value.value, name)})")
    elif isinstance(value, int | float | str | bool | None):
        bodies.setdefault(name, f"{name} = {_literal(value, name)}")
    elif module.partition(".")[0] in _LIBRARIES and hasattr(sys.modules.get(module), name):
        imports[f"from {module} import {name}"] = None
    else:
        raise NotStandalone(
            f"it uses {name}, a {type(value).__name__} of {module or 'the program'}"
        )


def _literal(value: Any, name: str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    if value is None or isinstance(value, int | float | str | bool):
        return repr(value)
    raise NotStandalone(f"{name} is a {type(value).__name__}")


def _import_of(module: ModuleType, name: str) -> str:
    full = module.__name__
    parent, _, last = full.rpartition(".")
    if full == name:
        return f"import {full}"
    return f"from {parent} import {last} as {name}" if parent else f"import {full} as {name}"


def _source_of(kernel: Any) -> str:
    """The function from its `def` on."""
    text = textwrap.dedent(kernel.src)
    start = re.search(r"^def\s", text, re.M)
    if start is None:
        raise NotStandalone("its source is not known")
    return text[start.start() :].rstrip()


def _names(source: str) -> set[str]:
    """The names that a function takes from its module: none of its parameters, none of its own."""
    whole = symtable.symtable(source, "kernel", "exec")
    names = {s.get_name() for s in whole.get_symbols() if s.is_referenced()}
    inner = list(whole.get_children())
    while inner:
        scope = inner.pop()
        inner += scope.get_children()
        names |= {s.get_name() for s in scope.get_symbols() if s.is_global()}
    return names


def is_tunable(name: str, value: Any) -> bool:
    """Whether an argument is a block size: a power of two by its name."""
    if not re.fullmatch(r"[A-Z][A-Z0-9_]*BLOCK[A-Z0-9_]*|BLOCK[A-Z0-9_]*", name):
        return False
    return isinstance(value, int) and value > 1 and value & (value - 1) == 0


def parameter(name: str, value: Any, named: dict[str, str]) -> dict[str, Any]:
    """How the launch function of the variant says an argument; `named`: parameter -> its array."""
    if name in named:
        return {"name": name, "array": named[name]}
    if value is None or isinstance(value, bool | int | float | str):
        return {"name": name, "value": value}
    if type(value).__name__ == "dtype" and hasattr(value, "primitive_bitwidth"):
        return {"name": name, "code": f"tl.{_DTYPES.get(str(value), str(value))}"}
    raise NotStandalone(f"its argument {name} is a {type(value).__name__}")


_DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
