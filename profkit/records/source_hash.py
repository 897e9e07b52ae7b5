"""A source file and what it includes  ->  two hashes: of its code, and of its text to the letter.

A record goes stale with the code. Comments and layout are no code: the header's prose can be
corrected after the counters have spoken, and what was measured stays measured.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.files import read_bytes
from profkit.records.header import SPEAKS

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"\n\0]+)"', re.M)
_FOLDERS = re.compile(r'^"(?:[^"/]*/)+(?=[^"/]+\.cuh?"$)')
_LITERAL = r"""
    (?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"   # raw string
  | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+'                             # string, character
  | (?<!\w)\.?\d(?:[eEpP][+-]|'\w|[\w.])*                                 # number, 1'000 too
"""
_COMMENT = re.compile(rf"{_LITERAL}|(?P<comment>/\*.*?(?:\*/|\Z)|//(?:\\\n|[^\n])*)", re.S | re.X)
_TOKEN = re.compile(
    rf"""{_LITERAL} | (?P<line>\n) | [^\S\n]+ | \w+
  | <<=|>>=|<=>|->\*|\.\.\.|::|\+\+|--|->|<<|>>|&&|\|\||\#\#|[-+*/%&|^<>=!]=   # operators
  | (?P<directive>\#) | .
    """,
    re.S | re.X,
)


def code_hash(path: Path, keys: Mapping[str, str] | None = None) -> str:
    """sha256 of the code of a source file and of the files it includes, in order of inclusion.

    Where the files lie does not matter; a header that cannot be found is left to the compiler.

    `keys`: the keys of its header: those that decide what is compiled and run count as code.
    """
    decides = {k: v.split() for k, v in sorted((keys or {}).items()) if k not in SPEAKS}
    digest = hashlib.sha256(repr(decides).encode() if decides else b"")
    for file in _files(path.resolve(), set()):
        digest.update(b"%d:" % len(file[1]) + file[1])
    return digest.hexdigest()


def text_hash(path: Path) -> str:
    """sha256 of the same files to the letter: line tables follow comments and layout too."""
    digest = hashlib.sha256()
    for text, *_ in _files(path.resolve(), set()):
        digest.update(b"%d:" % len(text) + text)
    return digest.hexdigest()


def without_comments(text: str) -> str:
    """C++ source without its comments and layout: one token a line.

    A preprocessor directive ends with its line, so that end stays.
    """
    text = _COMMENT.sub(lambda m: " " if m["comment"] else m[0], text.replace("\r\n", "\n"))
    return "\n".join(_tokens(text.replace("\\\n", " ")))


def _tokens(text: str) -> Iterator[str]:
    fresh, directive = True, False  # nothing yet on this line; in a directive
    for token in _TOKEN.finditer(text):
        if token["line"]:
            if directive:
                yield ""
            fresh, directive = True, False
        elif not token[0].isspace():
            directive = directive or (fresh and token["directive"] is not None)
            fresh = False
            # A header's name is code, the way to it is not: files move between folders.
            yield _FOLDERS.sub('"', token[0]) if directive else token[0]


def _files(file: Path, seen: set[Path]) -> Iterator[tuple[bytes, bytes]]:
    """The text and the code of a file and of all that it includes with quotes, each once."""
    if file in seen or not file.is_file():
        return
    seen.add(file)
    stat = file.stat()
    try:
        text, bare, includes = _content(file, stat.st_mtime_ns, stat.st_size)
    except OSError as error:
        raise ProfkitError(f"{file}: {error.strerror}", "a kernel's source is text") from error
    yield text, bare
    for included in includes:
        yield from _files(included, seen)


@functools.lru_cache(maxsize=1024)
def _content(file: Path, _mtime: int, _size: int) -> tuple[bytes, bytes, tuple[Path, ...]]:
    text = read_bytes(file)
    decoded = text.decode("utf-8", "replace")
    bare = _COMMENT.sub(lambda m: " " if m["comment"] else m[0], decoded)
    includes = tuple((file.parent / n).resolve() for n in _INCLUDE.findall(bare))
    return text, without_comments(decoded).encode(), includes
