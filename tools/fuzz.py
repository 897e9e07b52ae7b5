"""Random damage  ->  inputs that profkit does not answer with a result or an error of its own.

    python tools/fuzz.py [--seconds 600] [--seed 0] [TARGET ...]

What breaks a target is kept in tests/data/fuzz, where a test tries it from then on. Each target is
told a text or bytes; it may return, or raise ProfkitError, within LIMIT seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from profkit.errors import ProfkitError

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "tests" / "data" / "fuzz"
LIMIT = 10  # seconds for one input
WORDS = ("bound", "==", "'memory'", "time", ">", "1e-5", "and", "not", "in", "[", "]", "(", ")", "*",
         "kernel", "9" * 400, "'a'", "-", "nan", ",", "or", "<=", "\\", "\n", "cc", "1/0")  # fmt: skip
KEYS = ("after:", "fixes:", "flags:", "tune:", "A=1,2", "budget:", "regs=9", "where:", "A>1",
        "arch:", "90a", "80+", "\n", "*/", "/*", "//", "takes:", "smem=A*2",
        "moves:", "x<0.5x")  # fmt: skip


def _container(content: bytes, folder: Path) -> None:
    from profkit.reports.container.container import check, repair

    path = folder / "x.ncu-rep"
    path.write_bytes(content)
    check(path)
    repair(path, folder / "left.ncu-rep", True)


def _header(content: bytes, folder: Path) -> None:
    from profkit.measure.variants.variants import read_variant

    path = folder / "v1_x.cu"
    path.write_bytes(content)
    variant = read_variant(path)
    _ = variant.source_hash, variant.space


def _where(content: bytes, _: Path) -> None:
    import pandas as pd

    from profkit.cli.inputs.select import where

    frame = pd.DataFrame({"kernel": ["a", "b"], "bound": ["memory", "x"], "time": [1e-5, float("nan")],
                          "cc": ["9.0", "8.0"]})  # fmt: skip
    where(frame, content.decode("utf-8", "replace"))


def _record(content: bytes, folder: Path) -> None:
    from profkit.records.record import read_record

    path = folder / "x.json"
    path.write_bytes(content)
    read_record(path).to_json()


def _csv(content: bytes, _: Path) -> None:
    import io

    import pandas as pd

    from profkit.show.text.spreadsheet import csv_text, plain_cell

    cells = content.decode("utf-8", "replace").replace("\0", "").replace("\r", "").split("|")
    text = csv_text(pd.DataFrame({"x": cells}))
    reading = {"keep_default_na": False, "dtype": str, "skip_blank_lines": False}
    back = pd.read_csv(io.StringIO(text), **reading)["x"]
    if [plain_cell(cell) for cell in back] != cells:
        raise AssertionError("a cell did not come back")


def _flags(content: bytes, _: Path) -> None:
    from profkit.measure.languages.flags import check_flags

    check_flags(content.decode("utf-8", "replace").split(), "x.cu")


TARGETS: dict[str, Callable[[bytes, Path], None]] = {
    "container": _container, "header": _header, "where": _where, "record": _record,
    "csv": _csv, "flags": _flags,
}  # fmt: skip


def seeds(target: str) -> list[bytes]:
    """What is damaged: real files, or words to be put together."""
    if target == "container":
        files = sorted((ROOT / "artifacts").rglob("*.ncu-rep*"), key=lambda p: p.stat().st_size)
        return [f.read_bytes() for f in files[:4]]
    if target == "header":
        files = sorted((ROOT / "kernels" / "attention").rglob("*.cu"))
        return [f.read_bytes()[:3000] for f in files[:6]] + [" ".join(KEYS).encode()]
    if target == "record":
        return [
            f.read_bytes() for f in sorted((ROOT / "artifacts" / "attention").rglob("*.json"))[:4]
        ]
    return [" ".join(WORDS).encode(), b"=1+1|@x|'-|\t|a", b"-O3 -DX=1 -Xptxas -v"]


def damaged(draw: random.Random, start: bytes, words: tuple[str, ...]) -> bytes:
    """A few random changes of one kind or another."""
    content = bytearray(start)
    for _ in range(draw.randint(1, 8)):
        at, kind = draw.randrange(len(content) + 1), draw.randrange(6)
        if kind == 0 and content:
            content[at % len(content)] = draw.randrange(256)
        elif kind == 1:
            content[at:at] = draw.randbytes(draw.randint(1, 9))
        elif kind == 2:
            del content[at : at + draw.choice((1, 7, 200, 5000))]
        elif kind == 3:
            content[at:at] = content[at : at + draw.choice((4, 60, 900))]
        elif kind == 4:
            content[at:at] = f" {draw.choice(words)} ".encode()
        else:
            content[at : at + 4] = draw.choice((b"\xff" * 4, b"\0" * 4, b"\x80" * 4, b"[[[[", b'"'))
    return bytes(content)


def inputs(target: str, draw: random.Random) -> Iterator[bytes]:
    """Without end."""
    starts, words = seeds(target), KEYS if target in {"header", "flags"} else WORDS
    while True:
        if target in {"where", "flags"} and draw.random() < 0.7:
            yield " ".join(draw.choices(words, k=draw.randint(1, 12))).encode()
        else:
            yield damaged(draw, draw.choice(starts), words)


def fault(target: str, content: bytes, folder: Path) -> str:
    """What is wrong with how an input is taken; empty when nothing is."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no answer within {LIMIT} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(LIMIT)
    try:
        TARGETS[target](content, folder)
    except ProfkitError:
        return ""
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return ""


def main(words: list[str]) -> int:
    """Try until the time is up; 1 if something broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=list(TARGETS))
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    tried, broken = dict.fromkeys(given.targets, 0), 0
    with tempfile.TemporaryDirectory() as name:
        for target in given.targets:
            until = time.monotonic() + given.seconds / len(given.targets)
            draw = random.Random(f"{target} {given.seed}")  # noqa: S311 - keeps no secret
            for content in inputs(target, draw):
                tried[target] += 1
                if why := fault(target, content, Path(name)):
                    broken += 1
                    keep(target, content, why)
                if time.monotonic() > until:
                    break
    print(json.dumps({"tried": tried, "broken": broken, "seed": given.seed}))
    return 1 if broken else 0


def keep(target: str, content: bytes, why: str) -> None:
    """Put an input where a test finds it."""
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{target}-{hashlib.sha256(content).hexdigest()[:12]}"
    path.write_bytes(content)
    print(f"{path.name}: {why[:300]}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
