"""A kernel's file  ->  title, free text and keys of the comment at its top; hashes of its code.

The contract is the header itself: the first line is the title in every table, then free text,
then `key: value` pairs, several to a line if you like. A key that nobody knows is free text unless
it is nearly a known one, which is a mistake that must not pass in silence.

A record goes stale with the code. Comments and layout are no code: the header's prose can be
corrected after the counters have spoken, and what was measured stays measured.
"""

from __future__ import annotations

import functools
import hashlib
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from profkit.errors import ProfkitError
from profkit.files import BudgetSpent, ReadBudget, get_path_status, read_bytes, resolve_path

if TYPE_CHECKING:
    from profkit.units import CppText, MacroName, Sha256, SmArch


T = TypeVar("T")
_LEADING = re.compile(r"\A\s*(?:/\*(?P<block>.*?)\*/|(?P<lines>(?:[ \t]*//[^\n]*\n?)+))", re.S)
_KEY = re.compile(r"(?:^|(?<=\s))([a-z][a-z-]*):(?=\s|$)")
_SIZE = {"": 1, "K": 1024, "M": 1024 * 1024}


@dataclass(frozen=True)
class Budget:
    """The most that ptxas may use for one kernel function; None where nothing was promised."""

    regs: int | None = None  # registers per thread
    smem: int | None = None  # shared memory per block in bytes, static and dynamic together
    spills: int | None = None  # bytes of spill stores and loads together
    stack: int | None = None  # bytes of stack frame per thread


# Whether a key decides what is compiled or run, and so counts as code in the source's hash; or only
# speaks of the kernel, and then whether a run record keeps it.
Use = Literal["code", "prose", "recorded"]


class Key(Generic[T]):
    """One key of a header: what it means, how its text is read ("" where there is none), its use.

    A key more is one line in Header: its name there, with `-` for `_`, is what a file says.
    """

    def __init__(self, meaning: str, read: Callable[[str], T], use: Use = "code") -> None:
        self.meaning = meaning
        self.read = read
        self.use = use
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name.replace("_", "-")

    @overload
    def __get__(self, header: None, owner: type) -> Key[T]: ...

    @overload
    def __get__(self, header: VariantHeader, owner: type) -> T: ...

    def __get__(self, header: VariantHeader | None, owner: type) -> T | Key[T]:
        if header is None:
            return self
        return self.read(header.keys.get(self.name, ""))


def split_into_ids(value: str) -> tuple[str, ...]:
    """Return a list of ids, parted by commas or blanks; `-`, an en dash and `none` are empty."""
    named = []
    for w in re.split(r"[,\s]+", value):
        if w and w not in ("-", "–", "none"):
            named.append(w)
    return tuple(named)


def get_first_word(value: str) -> str | None:
    """Return the first of several words; None without one."""
    return next(iter(split_into_ids(value)), None)


def get_nonempty_text(value: str) -> str | None:
    """Return the text; None where it is empty."""
    return value or None


@dataclass(frozen=True)
class VariantHeader:
    """The comment that begins a variant's file: a title, prose and keys."""

    title: str = ""
    text: str = ""
    # as written. Each known one is an attribute too, read: fixes-not is `fixes_not`
    keys: Mapping[str, str] = field(default_factory=dict)

    after = Key("the variant that this one changes, by id", get_first_word, "recorded")
    fixes = Key(
        "rules that fire for `after` and are clear for this one", split_into_ids, "recorded"
    )
    fixes_not = Key(
        "rules that this variant was meant to clear and provably does not",
        split_into_ids,
        "recorded",
    )
    moves = Key(
        "what the counters will do against `after`: stall_barrier<0.5x inst_matrix>2x",
        split_into_ids,
        "recorded",
    )
    moves_not = Key("what they were to do and provably do not", split_into_ids, "recorded")
    case = Key(
        "the case that fixes and moves speak of; without it, every case",
        get_nonempty_text,
        "recorded",
    )
    flags = Key("further nvcc flags", str.split)
    arch = Key("80+ (that or newer), 90a (exactly that), or a list: 80,89", get_nonempty_text)
    tune = Key("tunable macros and their values: BLOCK_M=16,32,64 STAGES=2,3", str, "prose")
    where = Key("what tunables must satisfy: BLOCK_M % (16 * WARPS) == 0, STAGES > 1", str, "prose")
    takes = Key(
        "what a block takes: threads=32*WARPS smem=256*BLOCK_M (bytes), or any other name",
        str.split,
        "prose",
    )
    steer = Key(
        "which way a rule asks a tunable to go: grid-too-small=BLOCK_M- barrier-wait=WARPS-",
        str.split,
        "prose",
    )
    watch = Key(
        "metrics that a better choice of tunables moves, and which way: stall_barrier- sm_active+",
        str.split,
        "prose",
    )
    budget = Key("what ptxas may use at most: regs=128 smem=64K spills=0 stack=0", str, "prose")
    inputs = Key(
        "the grid that the inputs are on, for formats narrower than fp16: e4m3", get_nonempty_text
    )
    twin = Key(
        "a copy that differs in exactly one thing: a variant, or `yes` for -DPROFKIT_TWIN",
        get_nonempty_text,
    )
    output = Key(
        "what a kernel without a reference must give: finite, or as its fixed copy: same, close",
        get_nonempty_text,
    )
    also = Key("rules that must fire on it too, with its cause", split_into_ids, "prose")
    tolerance = Key("how close a kernel and its fixed copy must be, in norm", get_nonempty_text)
    relieves = Key("what the fixed copy does instead", get_nonempty_text, "prose")
    bound = Key(
        "what this kernel is bound by, where that is known by construction",
        get_nonempty_text,
        "prose",
    )
    limiter = Key("the limiter that goes with the bound", get_nonempty_text, "prose")
    cause = Key("the rule that must be named first on it", get_nonempty_text, "prose")
    declares = Key(
        "what the workload needs, as metric=number: declared_bytes=1073741824", str.split
    )
    caught_by = Key(
        "the check that must catch it, for kernels that are wrong on purpose",
        get_nonempty_text,
        "prose",
    )

    def to_json(self) -> dict[str, Any] | None:
        """Return what a record keeps of it: the title and each recorded key; None of no header."""
        if self == VariantHeader():
            return None
        recorded: dict[str, Any] = {"title": self.title}
        for name, key in _KEYS.items():
            if key.use == "recorded":
                value = getattr(self, name)
                recorded[key.name] = list(value) if isinstance(value, tuple) else value
        return recorded

    @staticmethod
    def from_record(recorded: Mapping[str, Any]) -> VariantHeader:
        """Return a header from what a run record keeps; what is of another kind is not there."""
        keys = {}
        for key in _KEYS.values():
            value = None
            if key.use == "recorded":
                value = recorded.get(key.name)
            if isinstance(value, list):
                value = " ".join(word for word in value if isinstance(word, str))
            if isinstance(value, str) and value:
                keys[key.name] = value
        title = recorded.get("title")
        return VariantHeader(title if isinstance(title, str) else "", keys=keys)


_KEYS: dict[str, Key[Any]] = {n: k for n, k in vars(VariantHeader).items() if isinstance(k, Key)}
KEYS: dict[str, str] = {key.name: key.meaning for key in _KEYS.values()}
SPEAKS = frozenset(key.name for key in _KEYS.values() if key.use != "code")


LONGEST = 64 << 10  # characters that a header may have: the longest seen has 3,000


def parse_header(source_text: str, file_name: str) -> VariantHeader:
    """Return the header of a source file's text; a ProfkitError where no comment begins it."""
    comment = _LEADING.match(source_text[:LONGEST])
    if not comment:
        hint = "begin the file with a comment of at most 64 KB: its first line is the title"
        raise ProfkitError(f"{file_name} has no header", hint)
    return parse_header_lines(strip_comment_marks(comment), file_name)


def parse_header_lines(lines_of_comment: Sequence[str], file_name: str) -> VariantHeader:
    """Read a header whose comment marks are gone; `file_name` is what an error calls the file."""
    lines = [line.strip() for line in lines_of_comment]
    while lines and not lines[0]:
        lines.pop(0)
    if not lines:
        raise ProfkitError(f"{file_name} has an empty header", "its first line is the title")
    text: list[str] = []
    keys: dict[str, str] = {}
    for line in lines[1:]:
        pairs = split_line_into_keys_and_values(line, file_name)
        for key, value in pairs:
            if key in keys:
                keys[key] = f"{keys[key]} {value}".strip()
            else:
                keys[key] = value
        if not pairs:
            text.append(line)
    return VariantHeader(lines[0].strip(), "\n".join(text).strip(), keys)


def strip_comment_marks(match: re.Match[str]) -> list[str]:
    """Return the lines of a comment without its marks."""
    if match["block"] is not None:
        return [re.sub(r"^\s*\*(?=\s|$)", "", line) for line in match["block"].splitlines()]
    return [re.sub(r"^\s*//", "", line) for line in match["lines"].splitlines()]


def split_line_into_keys_and_values(line: str, file_name: str) -> list[tuple[str, str]]:
    """Return (key, value) of a header's line; a ProfkitError for a key that looks misspelt."""
    first = _KEY.match(line)
    if not first:
        return []
    starts: list[re.Match[str]] = []
    for match in _KEY.finditer(line):
        if match[1] in KEYS:
            starts.append(match)
            continue
        gap = len(line[: match.start()]) - len(line[: match.start()].rstrip())
        begins = not starts or gap >= 2  # two blanks part pairs; one is inside a value
        if begins and (near := get_close_matches(match[1], KEYS, n=1, cutoff=0.75)):
            hint = f"did you mean '{near[0]}:' ({KEYS[near[0]]})?"
            raise ProfkitError(f"{file_name}: unknown key '{match[1]}:' in the header", hint)
        if not starts:
            return []
    ends = [*(s.start() for s in starts[1:]), len(line)]
    return [(s[1], line[s.end() : end].strip()) for s, end in zip(starts, ends, strict=True)]


def parse_budget_limits(value: str, file_name: str) -> Budget:
    """Parse `regs=128 smem=64K spills=0 stack=0` into registers and bytes."""
    known = [f.name for f in fields(Budget)]
    limits: dict[str, int] = {}
    for word in split_into_ids(value):
        part = re.fullmatch(r"([a-z]+)=(\d{1,12})([KM]?)", word, re.ASCII)
        if not part or part[1] not in known:
            hint = f"write e.g. regs=128 smem=64K spills=0 stack=0 (known: {', '.join(known)})"
            raise ProfkitError(f"{file_name}: cannot read '{word}' in 'budget:'", hint)
        limits[part[1]] = int(part[2]) * _SIZE[part[3]]
    return Budget(**limits)


def parse_values_of_tunables(value: str, file_name: str) -> dict[MacroName, tuple[str, ...]]:
    """Parse `BLOCK_M=16,32 STAGES=2,3` into macro -> values, the default first."""
    tunables: dict[str, tuple[str, ...]] = {}
    for word in value.replace(";", " ").split():
        macro, equals, values = word.partition("=")
        options = tuple(v for v in values.split(",") if v)
        if not equals or not options or not re.fullmatch(r"[A-Za-z_]\w*", macro, re.ASCII):
            hint = "write e.g. BLOCK_M=16,32,64"
            raise ProfkitError(f"{file_name}: cannot read '{word}' in 'tune:'", hint)
        tunables[macro] = options
    return tunables


def list_value_combinations(
    tunables: Mapping[MacroName, tuple[str, ...]],
) -> list[dict[MacroName, str]]:
    """Return every choice of one value per macro, the defaults first."""
    combinations = []
    for values in product(*tunables.values()):
        combinations.append(dict(zip(tunables, values, strict=True)))
    return combinations


def choose_compile_target(arch_key: str | None, arch: SmArch, file_name: str) -> SmArch | None:
    """Return what to compile for (`90`, `90a`), or None if the header rules the architecture out.

    `arch_key`: the `arch:` key: `80+`, `90a`, `80,89`; None allows everything. `arch`: `90`, or `90a`.
    """
    if not arch_key:
        return arch
    number = int(arch.rstrip("af"))
    for word in split_into_ids(arch_key):
        part = re.fullmatch(r"(?:sm_)?(\d{1,4})([af]?)(\+?)", word, re.ASCII)
        if not part:
            raise ProfkitError(f"{file_name}: cannot read '{word}' in 'arch:'", KEYS["arch"])
        if (part[3] and number >= int(part[1])) or number == int(part[1]):
            if number == int(part[1]):
                return f"{number}{part[2]}"
            return str(number)
    return None


# Hashes of the code.

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"\n\0]+)"', re.M)
_FOLDERS = re.compile(r'^"(?:[^"/]*/)+(?=[^"/]+\.cuh?"$)')
_LITERAL = r"""
    (?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?(?:\)(?P=delimiter)"|\Z)  # raw string, or the rest
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


def hash_cpp_code_with_includes(path: Path, keys: Mapping[str, str] | None = None) -> Sha256:
    """Return sha256 of the code of a source file and of the files it includes, in order of inclusion.

    Where the files lie does not matter; a header that cannot be found is left to the compiler.

    `keys`: the keys of its header: those that decide what is compiled and run count as code.
    """
    decides = {}
    for k, v in sorted((keys or {}).items()):
        if k not in SPEAKS:
            decides[k] = v.split()
    digest = hashlib.sha256(repr(decides).encode() if decides else b"")
    for file in walk_included_files(resolve_path(path), set()):
        digest.update(b"%d:" % len(file[1]) + file[1])
    return digest.hexdigest()


def hash_cpp_text_with_includes(path: Path) -> Sha256:
    """Return sha256 of the same files to the letter: line tables follow comments and layout too."""
    digest = hashlib.sha256()
    for text, *_ in walk_included_files(resolve_path(path), set()):
        digest.update(b"%d:" % len(text) + text)
    return digest.hexdigest()


def encode_code_tokens(text: CppText) -> bytes:
    """Return C++ source without its comments and layout: one token a line, as UTF-8.

    A preprocessor directive ends with its line, so that end stays. All tokens as texts of Python would
    take twenty times the bytes of the file.
    """
    text = _COMMENT.sub(lambda m: " " if m["comment"] else m[0], text.replace("\r\n", "\n"))
    encoded = bytearray()
    for token in iterate_code_tokens(text.replace("\\\n", " ")):
        encoded += token.encode()
        encoded += b"\n"
    return bytes(encoded[:-1])


def iterate_code_tokens(text: CppText) -> Iterator[str]:
    """Yield the words of code that has no comments; '' where a directive's line ends."""
    fresh, directive = True, False  # nothing yet on this line; in a directive
    for token in _TOKEN.finditer(text):
        if token["line"]:
            if directive:
                yield ""
            fresh = True
            directive = False
        elif not token[0].isspace():
            directive = directive or (fresh and token["directive"] is not None)
            fresh = False
            # A header's name is code, the way to it is not: files move between folders.
            if directive:
                yield _FOLDERS.sub('"', token[0])
            else:
                yield token[0]


def walk_included_files(file: Path, files_already_read: set[Path]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the text and the code of a file and of all that it includes with quotes, each once."""
    waiting = [file]
    while waiting:
        file = waiting.pop()
        state = get_path_status(file)
        if file in files_already_read or state is None or not stat.S_ISREG(state.st_mode):
            continue
        files_already_read.add(file)
        try:
            text, bare, includes = read_tokenized_file(file, state.st_mtime_ns, state.st_size)
        except OSError as error:
            raise ProfkitError(f"{file}: {error.strerror}", "a kernel's source is text") from error
        except BudgetSpent as error:
            raise ProfkitError(f"{file}: {error}", "a kernel's source is plain text") from error
        yield text, bare
        waiting += reversed(includes)  # the first of them next, with all that it includes


_COPIES = 4  # of a source's text, which are there at the same time


@functools.lru_cache(maxsize=1024)
def read_tokenized_file(
    file: Path, _mtime: int, _size: int
) -> tuple[bytes, bytes, tuple[Path, ...]]:
    """Return a file's bytes, its tokens without comments, and the files that it includes."""
    text = read_bytes(file)
    decoded = text.decode("utf-8", "replace")
    # One letter that is no ASCII makes the text, and what is made of it, up to four times as large.
    ReadBudget(len(text)).spend_bytes(_COPIES * sys.getsizeof(decoded))
    bare = _COMMENT.sub(lambda m: " " if m["comment"] else m[0], decoded)
    includes = tuple(resolve_path(file.parent / n) for n in _INCLUDE.findall(bare))
    return text, encode_code_tokens(decoded), includes
