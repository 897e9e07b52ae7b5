"""A changed copy of a dataclass or of a Struct."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec


def replace(one: Any, **changes: Any) -> Any:
    if isinstance(one, msgspec.Struct):
        return msgspec.structs.replace(one, **changes)
    return dataclasses.replace(one, **changes)
