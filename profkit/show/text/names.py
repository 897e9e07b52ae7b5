"""A demangled kernel name of any length  ->  what tells it from others, in a given width.

Return type, parameter list and namespaces go first, then template arguments are cut down to their
own names, then words are left out of the middle; tile shapes (128x64) are left out last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from profkit.show.text.escape import escaped

_UNNAMED = re.compile(r"<unnamed>::|\(anonymous namespace\)::|\{anonymous\}::")
_CAST = re.compile(r"\((?:bool|char|short|int|long|(?:un)?signed(?: \w+)*|size_t)\)(?=[-\w])")
_LAMBDA = re.compile(
    r"(?:\[lambda[^\]]*\]|\{lambda[^}]*\}(?:#\d+\})?)(?:::operator ?\(\)\([^()]*\)(?: const)?)?"
)
_SPACES = re.compile(r"\b(?:\w+::)+(?=\w)")
_TILE = re.compile(r"\d+x\d+")
_OPEN, _CLOSE = "<([{", ">)]}"
_DULL = frozenset({"true", "false", "0", "1", "void", "array", "generated", "execute", "native"})
_LITERAL = re.compile(r"-?\d.*|float|double|int|long|char|bool|(__)?half|half_t|(__nv_)?bfloat16")
_LONGEST = 20_000  # beyond that a name is not C++ any more


def short(name: str, width: int) -> str:
    """Return a kernel name in at most `width` characters, safe to show."""
    plain = _LAMBDA.sub("lambda", name[:_LONGEST])
    function = _without_parameters(_CAST.sub("", _UNNAMED.sub("", plain)))
    qualified, arguments = _base_and_arguments(escaped(function))
    base, bare = _SPACES.sub("", qualified) or "(no name)", _SPACES.sub("", arguments)
    words = [w for w in map(_word, _split(bare)) if w and w not in _DULL]
    for head, inside in ((qualified, arguments), (qualified, bare), (base, bare)):
        full = f"{head}<{inside}>" if inside else head
        if full and len(full) <= width:
            return full
    named = f"{base}<{', '.join(words)}>"
    if words and len(named) <= width:
        # Where room is left, the start of the arguments in full says more than their names.
        room = width - len(base) - 3
        return named if width - len(named) < 12 else f"{base}<{bare[:room]}…>"
    types = ", ".join([w for w in words if not _LITERAL.fullmatch(w)] or dict.fromkeys(words))
    if not types or width < 20:
        return _squeeze(base, width)
    # PyTorch's elementwise kernels differ in their arguments only: half of the room is theirs.
    head = _squeeze(base, max(width // 2 - 1, width - 2 - len(types)))
    return f"{head}<{_squeeze(types, width - 2 - len(head))}>"


def _depths(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield index, character and how many brackets are open before it."""
    depth = 0
    for i, char in enumerate(text):
        if char in _CLOSE and text[i - 1 : i] != "-":  # "->" closes nothing
            depth = max(depth - 1, 0)
        yield i, char, depth
        if char in _OPEN:
            depth += 1


def _without_parameters(name: str) -> str:
    """Return `void f<int>(float *)` as `f<int>`; a name of another shape as it is."""
    cut = next((i for i, c, depth in _depths(name) if c == "(" and depth == 0 and i > 0), None)
    function = name if cut is None else name[:cut]
    blank = max((i for i, c, depth in _depths(function) if c == " " and depth == 0), default=-1)
    is_typed = cut is not None or "<" in function
    return function[blank + 1 :].strip() or name if is_typed else name


def _base_and_arguments(function: str) -> tuple[str, str]:
    """Split `ns::f<int, 4>` into `ns::f` and `int, 4`."""
    if not function.endswith(">"):
        return function, ""
    opening = max((i for i, c, depth in _depths(function) if c == "<" and depth == 0), default=0)
    return (function[:opening], function[opening + 1 : -1]) if opening else (function, "")


def _split(text: str) -> list[str]:
    cuts = [i for i, c, depth in _depths(text) if c == "," and depth == 0]
    edges = zip([-1, *cuts], [*cuts, len(text)], strict=True)
    return [text[a + 1 : b].strip() for a, b in edges]


def _word(argument: str) -> str:
    """Return the name of a template argument: `Traits<64, 128>` is Traits, `f(int)::lambda` is f."""
    outer = "".join(c for _, c, depth in _depths(argument) if depth == 0 and c not in "<>()[]{}")
    parts = [p for p in re.split(r"::| ", outer) if p and p not in {"lambda", "const", "*", "&"}]
    return parts[-1] if parts else outer


def _squeeze(text: str, width: int) -> str:
    """Leave words out of the middle until it fits: first, last and tile words stay longest."""
    if len(text) <= width:
        return text
    words = re.findall(r"[^_]+_*|_+", text[:2000])
    if len(text) > 2000 or len(words) < 2:
        return middle(text, width)
    worth = {i: _worth(words, i) for i in range(len(words))}
    kept: set[int] = set()
    for i in sorted(worth, key=lambda i: (-worth[i], i)):
        if len(_join(words, kept | {i})) <= width:
            kept.add(i)
    # Without its start it could be anything.
    return _join(words, kept) if 0 in kept else middle(text, width)


def _worth(words: list[str], i: int) -> float:
    word = words[i].strip("_")
    if i == 0:
        return 5
    if _TILE.search(word):
        return 4
    if i == 1:
        return 3
    if word in _DULL:
        return -1
    return (1.0 if word.isdigit() else 0.0) + (0.5 if i == len(words) - 1 else 1 - i / len(words))


def _join(words: list[str], kept: set[int]) -> str:
    out, last = "", -1
    for i in sorted(kept):
        out += ("" if i == last + 1 else "…") + words[i]
        last = i
    return out + ("" if last == len(words) - 1 else "…")


def middle(text: str, width: int) -> str:
    """Return start and end of a text, an ellipsis where the middle was."""
    if len(text) <= width:
        return text
    if width < 3:
        return text[:width]
    end = (width - 1) * 2 // 5
    return text[: width - 1 - end] + "…" + text[len(text) - end :]
