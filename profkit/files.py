"""Paths that somebody named  ->  files read within bounds, and files written whole or not at all.

Everything that profkit reads or writes by name goes through here. Read is only what is a regular
file once it is open: a pipe, a device or a socket would hang or never end. What is written is
made next to its place under a name that nobody can guess, reaches the disk, and is moved there: whoever
looks sees the old file or the new one, and of two writers the last whole one wins.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import fnmatch
import glob
import json
import os
import re
import resource
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from profkit.errors import ProfkitError, explain_resource_limit

if TYPE_CHECKING:
    from profkit.units import (
        ByteCount,
        ByteCountOrZero,
        Clause,
        FileDescriptor,
        GlobPattern,
        IsThroughLink,
        PlainValues,
        ProcessId,
        Seconds,
        UnreadableFolder,
    )


TEXT_LIMIT = 16 << 20  # bytes of a source, a record or a header: the largest seen is 1/20 of it
_LONG_PATH = 1000  # characters of a path that an error names whole
_NAME = 30  # characters kept of a long name, of up to 4 bytes: a folder takes 255 bytes
_YOUNG = 60.0  # seconds in which a leftover may be somebody's who is just about to lock it
_SYSTEM = ("/dev/", "/proc/")
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)

# --- how much of it ------------------------------------------------------------------------------


class ReadBudget:
    """What may be made of a file's bytes: its reader draws on it for all that it makes of them.

    A few bytes of a file can ask for any number of bytes here: what is packed, names that many rows
    share, things that lie one over the other. Three times the bytes, and a little for small files, is
    more than any file needs that a recorder wrote.
    """

    TIMES = 3
    SPARE = 32 << 20
    PACKED = 40  # times the bytes of a packed file become its bytes: 30 is the most that was seen
    NAME_MOST = 1 << 20  # characters of a name: those of kernels have some thousands
    DOCUMENT = 112 << 20  # instead of SPARE for a document that is read whole: 16 MB are its most
    CELL = 40  # bytes of a number or a short text of a table, as a value of Python
    # What a mark of JSON or TOML brings along, in bytes: half of all texts are keys, which are shared.
    MARKS = ((b",", 32), (b":", 40), (b'"', 28), (b"'", 28), (b"[", 64), (b"{", 184), (b"=", 100))

    def __init__(self, size: int, *, is_packed: bool = False, spare: int | None = None) -> None:
        """Allow what a file of so many bytes may take; `spare` is for small ones, SPARE when None."""
        self.left = self.SPARE if spare is None else spare
        self.raise_limit(size, is_packed=is_packed)
        self._texts: dict[str, str] = {}

    def raise_limit(self, size_bytes: ByteCount, *, is_packed: bool = False) -> None:
        """Allow what so many bytes more may take."""
        if is_packed:
            size_bytes *= self.PACKED
        self.left += self.TIMES * size_bytes

    def spend_rows(self, rows: int, columns: int, unpacked_bytes: ByteCount) -> None:
        """Take what a table takes that says it has so many rows, before any of it is unpacked."""
        self.spend_bytes(rows * columns * self.CELL + unpacked_bytes)

    def check_document(self, content: str | bytes) -> None:
        """Raise a BudgetSpent where a document, or the beginning of one, asks for more than there is.

        What is made of an event goes when the next one is read: nothing is taken.
        """
        if self._estimate_parsed_size(content) > self.left:
            self.spend_bytes(self.left + 1)

    def spend_document(self, content: str | bytes) -> None:
        """Take what the values of JSON or TOML take: `[],` is three bytes, and seventy as a list."""
        self.spend_bytes(self._estimate_parsed_size(content))

    def _estimate_parsed_size(self, content: str | bytes) -> ByteCount:
        size_bytes = 0
        for mark, bytes_of_mark in self.MARKS:
            if isinstance(content, str):
                size_bytes += bytes_of_mark * content.count(mark.decode())
            else:
                size_bytes += bytes_of_mark * content.count(mark)
        return size_bytes

    def spend_bytes(self, size_bytes: ByteCount) -> None:
        """Take so many bytes; a BudgetSpent where there are no more."""
        self.left -= size_bytes
        if self.left < 0:
            raise BudgetSpent("it asks for more memory than its bytes can need")

    def intern_text(self, text: str) -> str:
        """Return a name of the file, the same text for each that is equal; only the first one costs."""
        known = self._texts.get(text)
        if known is not None:
            return known
        if len(text) > self.NAME_MOST:
            raise BudgetSpent(f"it has a name of {len(text):,} characters")
        self.spend_bytes(len(text))
        self._texts[text] = text
        return text


_RESERVED = 256 << 20  # bytes of addresses that the allocator sets aside for two more threads
_LEAST = 16 << 20  # bytes of addresses that the standard library alone takes
# Bytes of memory that numpy, pandas and pyarrow take while they are imported: with less they crash, or
# ask again and again, for ever.
_LEAST_DATA = 120 << 20


def measure_memory_taken() -> ByteCountOrZero:
    """Return the bytes that this process has taken for itself; 0 where the system does not say."""
    return _read_own_memory_status("VmData")


def measure_processor_time(pid: ProcessId) -> Seconds | None:
    """Return the seconds of processors that a process has taken; None where the system does not say."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    user, system = words[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def measure_memory_left(reserved_bytes: ByteCount = _RESERVED) -> ByteCount | None:
    """Return the bytes that the limits of this process leave; None where there is no limit.

    Of addresses, so many are left out: what starts no thread needs none of them.
    """
    left = []
    data = resource.getrlimit(resource.RLIMIT_DATA)[0]
    if data != resource.RLIM_INFINITY:
        left.append(data - _read_own_memory_status("VmData"))
    addresses = resource.getrlimit(resource.RLIMIT_AS)[0]
    if addresses != resource.RLIM_INFINITY:
        left.append(addresses - _read_own_memory_status("VmSize") - reserved_bytes)
    return min(left, default=None)


def refuse_too_little_memory() -> None:
    """Refuse before anything is imported where a limit leaves less than any verb needs.

    With so little, modules of the interpreter and native ones fail in ways that say nothing of memory:
    hashlib prints a traceback for each hash that it cannot load, pyarrow ends the process.

    Raises:
        ProfkitError: `ulimit -v` leaves this process less than 16 MB of addresses; or --max-memory or
            `ulimit -d` less memory than the libraries take that verbs are written with.
    """
    addresses = resource.getrlimit(resource.RLIMIT_AS)[0]
    if (
        addresses != resource.RLIM_INFINITY
        and addresses - _read_own_memory_status("VmSize") < _LEAST
    ):
        raise ProfkitError("out of memory", "allow more: ulimit -v 1000000")
    data = resource.getrlimit(resource.RLIMIT_DATA)[0]
    if data != resource.RLIM_INFINITY and data - _read_own_memory_status("VmData") < _LEAST_DATA:
        raise ProfkitError("out of memory", "allow more: --max-memory 400M, or ulimit -d")


def _read_own_memory_status(name: str) -> ByteCountOrZero:
    """Return a number of bytes that Linux says of this process; 0 elsewhere."""
    try:
        lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    except OSError:
        return 0
    numbers = [int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")]
    return sum(numbers)


class BudgetSpent(ValueError):
    """What a file asks for is more than its bytes can need; the text is a clause."""


# --- looking -------------------------------------------------------------------------------------

# What the system says of a name that nothing is behind. Everything else (no permission, a disk that
# fails, a server that is gone) leaves open what is there: that is an error, never "no such file".
_NOTHING_THERE = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EBADF}
)


def make_read_error(path: str | Path, error: OSError) -> ProfkitError:
    """Return what a user is told of a name that the system does not let profkit look at."""
    why = error.strerror or str(error)
    if why == _OUTSIDE:
        hint = "name a file of that folder, by no link that leads out of it"
    elif (limit := explain_resource_limit(error)) is not None:
        hint = limit.hint
    elif error.errno in (errno.EACCES, errno.EPERM):
        hint = "ask its owner, or have it copied to where you may read (ls -ld shows who may)"
    else:
        hint = "check the path, and the disk that it is on"
    return ProfkitError(f"{shorten_path(path)}: {why}", hint)


def shorten_path(path: str | Path) -> str:
    """Return a path as an error names it: of a very long one, the beginning."""
    name = os.fspath(path)
    return name if len(name) <= _LONG_PATH else f"{name[:60]}..."


_OUTSIDE = "leads out of the folder that may be read"
_PACKAGE = os.path.dirname(os.path.realpath(__file__))
_INSIDE = "PROFKIT_INSIDE"  # the one folder that may be read, for the children of this process too


@contextlib.contextmanager
def confine_reading_to_folder(folder: str | Path) -> Iterator[None]:
    """Read nothing but what really lies in a folder, in this process and in those that it starts.

    A link that leads out of it is refused when it is looked at or opened, however it is reached.
    """
    with set_environment(_INSIDE, os.path.realpath(folder)):
        yield


@contextlib.contextmanager
def set_environment(name: str, value: str) -> Iterator[None]:
    """Let a variable of the environment have a value inside of the block."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _refuse_path_outside_limit(path: str | Path, opened: str | Path | None = None) -> None:
    """Raise an OSError where reading is confined to a folder, and a path leads to none in it.

    `opened`: a path of what is open, where something is: the first may lead elsewhere by now.
    """
    inside = os.environ.get(_INSIDE)
    if not inside:
        return
    real = os.path.realpath(opened or path)
    if Path(real).is_relative_to(inside) or Path(real).is_relative_to(_PACKAGE):
        return
    temporary = Path(os.path.realpath(tempfile.gettempdir()))
    if Path(real).is_relative_to(temporary):
        # What is unpacked of a report lies in a folder of our own for a while.
        first, *_ = (*Path(real).relative_to(temporary).parts, "")
        if first and _is_made_by_profkit(temporary / first):
            return
    raise OSError(errno.EXDEV, _OUTSIDE, os.fspath(path))


def get_path_status(path: str | Path) -> os.stat_result | None:
    """Return what is at a path, links followed; None where nothing is.

    Raises:
        ProfkitError: The system does not say: a folder above it may not be entered, say.
    """
    try:
        found = os.stat(path)
        _refuse_path_outside_limit(path)
        return found
    except ValueError:  # a NUL, or what is no character: no file has such a name
        return None
    except OSError as error:
        if error.errno in _NOTHING_THERE:
            return None
        raise make_read_error(path, error) from error


def is_path_there(path: str | Path) -> bool:
    """Return whether something is at a path; a ProfkitError as get_path_status."""
    return get_path_status(path) is not None


def is_file(path: str | Path) -> bool:
    """Return whether a regular file is at a path; a ProfkitError as get_path_status."""
    found = get_path_status(path)
    return found is not None and stat.S_ISREG(found.st_mode)


def is_folder(path: str | Path) -> bool:
    """Return whether a folder is at a path; a ProfkitError as get_path_status."""
    found = get_path_status(path)
    return found is not None and stat.S_ISDIR(found.st_mode)


def is_utf8_path(path: str | Path) -> bool:
    """Return whether a path can be written as UTF-8: a name of a file may be any bytes."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def is_link(path: str | Path) -> bool:
    """Return whether a link is at a path, wherever it leads."""
    return os.path.islink(path)


def is_readable(path: str | Path) -> bool:
    """Return whether this user may read what is at a path."""
    return _is_allowed(path, os.R_OK)


def is_writable(path: str | Path) -> bool:
    """Return whether this user may write what is at a path."""
    return _is_allowed(path, os.W_OK)


def is_executable(path: str | Path) -> bool:
    """Return whether this user may run what is at a path."""
    return _is_allowed(path, os.X_OK)


def _is_allowed(path: str | Path, access_mode: int) -> bool:
    try:
        return os.access(path, access_mode)
    except ValueError:  # a NUL, or what is no character
        return False


def get_file_size_or_zero(path: str | Path) -> ByteCountOrZero:
    """Return the bytes of a file; 0 where there is none. A ProfkitError as get_path_status."""
    found = get_path_status(path)
    return found.st_size if found is not None else 0


def list_folder_entries(folder: str | Path) -> list[Path]:
    """Return what a folder holds, sorted; nothing where there is no such folder.

    Raises:
        ProfkitError: It may not be read.
    """
    try:
        names = os.listdir(folder)
        _refuse_path_outside_limit(folder)
    except ValueError:
        return []
    except OSError as error:
        if error.errno in _NOTHING_THERE:
            return []
        raise make_read_error(folder, error) from error
    return [Path(folder, name) for name in sorted(names)]


def list_files_below(folder: str | Path) -> tuple[list[Path], list[UnreadableFolder]]:
    """Return everything below a folder that is no folder, sorted, and the folders that are closed.

    Links to folders are not followed, links to files are; those that lead nowhere are left out. What
    may not be looked at counts as a file: who opens it says why.
    """
    files: list[Path] = []
    unread: list[Path] = []
    waiting = [Path(folder)]
    while waiting:
        place = waiting.pop()
        try:
            entries = list_folder_entries(place)
        except ProfkitError:
            unread.append(place)
            continue
        for entry in entries:
            try:
                state = get_path_status(entry)
                if state is None:
                    continue
                if not stat.S_ISDIR(state.st_mode):
                    files.append(entry)
                elif not is_link(entry):
                    waiting.append(entry)
            except ProfkitError:
                files.append(entry)
    return sorted(files), sorted(unread)


def list_matching_paths(pattern: GlobPattern | Path) -> list[str]:
    """Return what a pattern of a shell matches, sorted; `**` stands for any folders, or none.

    No folder is looked into twice for the same part of the pattern: links that lead in a circle
    would give one file any number of names. What may not be read matches nothing.
    """
    start, pattern_parts = _split_fixed_folder_from_pattern(Path(pattern))
    matched: list[str] = []
    seen: set[tuple[int, int, int]] = set()
    waiting = [(start, 0)]
    behind_links: list[tuple[str, int]] = []  # a file gets its own name before that of a link
    while waiting or behind_links:
        place, at = waiting.pop() if waiting else behind_links.pop()
        if at == len(pattern_parts):
            matched.append(place)
            continue
        if not _is_first_visit(place or ".", at, seen):
            continue
        for step, link in _expand_pattern_part(place, pattern_parts, at):
            (behind_links if link else waiting).append(step)
    return sorted(set(matched))


def _split_fixed_folder_from_pattern(pattern: Path) -> tuple[str, tuple[str, ...]]:
    """Return the folder that a pattern begins with ("" for the current one), and what is left of it.

    Folders above that one are not looked into: they may lie outside of where reading is confined to.
    """
    parts = pattern.parts
    plain = 0
    while plain < len(parts) - 1 and not glob.has_magic(parts[plain]):
        plain += 1
    start = ""
    if plain:
        start = str(Path(*parts[:plain]))
    return start, parts[plain:]


def _is_first_visit(folder: str, part_index: int, seen: set[tuple[int, int, int]]) -> bool:
    """Return whether a folder is looked into for the first time with this part of a pattern."""
    with contextlib.suppress(OSError, ValueError):
        state = os.stat(folder)
        _refuse_path_outside_limit(folder)
        key = state.st_dev, state.st_ino, part_index
        if stat.S_ISDIR(state.st_mode) and key not in seen:
            seen.add(key)
            return True
    return False


def _list_matching_names(folder: str, pattern_part: str) -> list[str]:
    """List what in a folder fits a part of a pattern, from the last on; hidden ones if asked for."""
    names = os.listdir(folder or ".")
    if not pattern_part.startswith("."):
        names = [name for name in names if not name.startswith(".")]
    if pattern_part != "**":
        names = fnmatch.filter(names, pattern_part)
    return sorted(names, reverse=True)


def _expand_pattern_part(
    folder: str, parts: tuple[str, ...], part_index: int
) -> Iterator[tuple[tuple[str, int], IsThroughLink]]:
    """Yield where one part of a pattern leads from a folder, and whether through a link."""
    part = parts[part_index]
    if part == "**":
        if part_index + 1 < len(parts):
            yield (folder, part_index + 1), False
    elif not glob.has_magic(part):
        path = os.path.join(folder, part)
        if os.path.lexists(path):
            yield (path, part_index + 1), False
        return
    with contextlib.suppress(OSError):
        for name in _list_matching_names(folder, part):
            path = os.path.join(folder, name)
            link = os.path.islink(path)
            if part != "**":
                yield (path, part_index + 1), link
                continue
            yield (path, part_index), link
            if part_index + 1 == len(parts):
                yield (path, part_index + 1), link


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def expand_home(path: str | Path) -> Path:
    """Return a path with `~` or `~user` at its beginning made the home folder.

    A file may be called `~$notes` or `~x.ncu-rep`: where there is such a file, or no such user, the
    name is a name.
    """
    name = os.fspath(path)
    if _URL.match(name):
        raise ProfkitError(f"{name}: URLs are not read", "download it, and give the file's path")
    if not name.startswith("~"):
        return Path(path)
    of_another = not name.startswith("~/") and name != "~"
    if of_another and os.path.lexists(name):
        return Path(path)
    return Path(os.path.expanduser(name))


def get_home_folder() -> Path:
    """Return the home folder of this user; a ProfkitError where the system knows none."""
    home = os.path.expanduser("~")
    if home == "~":
        raise ProfkitError("this user has no home folder", "set HOME")
    return Path(home)


def resolve_path(path: str | Path) -> Path:
    """Return the absolute path that links lead to; of links in a circle the name itself.

    Raises:
        ProfkitError: It is no path, or relative to a current folder that is gone.
    """
    try:
        return Path(os.path.realpath(path))
    except FileNotFoundError as error:
        raise ProfkitError("the current folder is gone", "cd to one that is there") from error
    except ValueError as error:
        why = f"{shorten_path(path)!r}: cannot be a path: {error}"
        raise ProfkitError(why, "give the path of a file") from error
    except OSError as error:
        raise make_read_error(path, error) from error


def get_current_folder() -> Path:
    """Return the current folder; a ProfkitError where it is gone."""
    return resolve_path(".")


# --- reading -------------------------------------------------------------------------------------


def open_regular_file(path: str | Path) -> BufferedReader:
    """Open a file for reading.

    Raises:
        OSError: It cannot be opened, or is no regular file; strerror says which.
    """
    # Without O_NONBLOCK, a pipe that nobody writes to hangs before it can be looked at.
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except ValueError as error:  # a NUL, or what is no character
        raise OSError(errno.EINVAL, f"cannot be a path: {error}", repr(path)) from error
    try:
        if kind := _describe_irregular_file(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, f"is {kind}, not a file", os.fspath(path))
        _refuse_path_outside_limit(path, f"/proc/self/fd/{handle}")
    except OSError:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def read_bytes(path: str | Path, most_bytes: ByteCount = TEXT_LIMIT) -> bytes:
    """Return a file's content.

    Raises:
        OSError: As open_regular_file; or it is larger than `most_bytes` bytes.
    """
    with open_regular_file(path) as file:
        content = (
            file.read(most_bytes + 1) if os.fstat(file.fileno()).st_size <= most_bytes else None
        )
    if content is None or len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"is larger than {most_bytes / 1e6:.0f} MB", os.fspath(path))
    return content


def read_text(path: str | Path, most_bytes: ByteCount = TEXT_LIMIT) -> str:
    """Return a file's content as UTF-8.

    Raises:
        OSError: As read_bytes.
        UnicodeDecodeError: It is no UTF-8.
    """
    return read_bytes(path, most_bytes).decode("utf-8")


def read_json_or_toml_bytes(path: str | Path, most_bytes: ByteCount = TEXT_LIMIT) -> bytes:
    """Return the content of JSON or TOML that may be parsed: its values do not take too much memory.

    `[],` is three bytes, and seventy as a list of Python.

    Raises:
        OSError: As read_bytes.
        BudgetSpent: It asks for more memory than its bytes can need; a ValueError.
    """
    content = read_bytes(path, most_bytes)
    ReadBudget(len(content), spare=ReadBudget.DOCUMENT).spend_document(content)
    return content


def read_json(path: str | Path) -> PlainValues:
    """Return the JSON document in a file.

    Raises:
        OSError: As read_bytes.
        ValueError: It is no JSON, or nested deeper than anything that means something; or as
            read_json_or_toml_bytes.
    """
    try:
        return json.loads(read_json_or_toml_bytes(path))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _describe_irregular_file(stat_mode: int) -> Clause | None:
    """Return what a thing is, if it is no regular file."""
    if stat.S_ISREG(stat_mode):
        return None
    return next((name for is_it, name in _KINDS if is_it(stat_mode)), "something else")


# --- writing -------------------------------------------------------------------------------------


def verify_output_can_be_written(path: str | Path, inputs: Iterable[str | Path] = ()) -> Path:
    """Return a name that may be written to; it is checked before anything is read or computed.

    Raises:
        ProfkitError: It is a folder or a socket, may not be written, is one of the inputs, or its
            folder does not exist.
    """
    target = _follow_link(Path(path))
    place = os.path.realpath(target)
    if place in {os.path.realpath(i) for i in inputs}:
        raise ProfkitError(f"{path}: is one of the files to read", "name another file to write")
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise ProfkitError(
                f"{path}: its folder does not exist", f"mkdir -p {Path(path).parent}"
            ) from None
        mode = stat.S_IFREG
    except OSError as error:
        raise make_write_error(path, error) from error
    if stat.S_ISDIR(mode):
        raise ProfkitError(f"{path}: is a folder", "name a file in it")
    if stat.S_ISSOCK(mode) or stat.S_ISBLK(mode):
        raise ProfkitError(f"{path}: is {_describe_irregular_file(mode)}", "name a file to write")
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise ProfkitError(f"{path}: may not be written", "choose another name or folder")
    return Path(path)


@contextlib.contextmanager
def write_then_replace(path: str | Path) -> Iterator[Path]:
    """Give a file to write in the place of another, which it becomes when the block ends well.

    A link is followed; permissions of what was there are kept; a device or a pipe is written
    through, never replaced. When the block fails, nothing is left.

    Raises:
        ProfkitError: It cannot be written; an OSError of the block is one of these.
    """
    with _resolve_for_writing(path) as target:
        folder = find_temporary_folder() if _is_written_in_place(target) else target.parent
        folder.mkdir(parents=True, exist_ok=True)
        _refuse_unwritable_target(target)
        with make_temporary_folder(folder) as place:
            part = place / f".{target.stem[:_NAME]}.part"  # no reader's ending
            handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            try:
                yield part
                _replace_target(target, part, handle)
            finally:
                os.close(handle)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file whole or not at all; see write_then_replace.

    Raises:
        ProfkitError: It cannot be written.
    """
    with write_then_replace(path) as part:
        part.write_bytes(content)


def write_text(path: str | Path, content: str) -> None:
    """Write a text file whole or not at all; see write_then_replace. What is no character is escaped."""
    write_text_pieces(path, [content])


def write_text_pieces(path: str | Path, pieces: Iterable[str]) -> None:
    """Write the same, of a text that comes in pieces."""
    with write_then_replace(path) as part, part.open("wb") as written:
        for piece in pieces:
            written.write(piece.encode("utf-8", "backslashreplace"))


def open_new_log(path: str | Path) -> BinaryIO:
    """Return a file that is written as it comes, anew: what a program prints while it runs.

    Raises:
        OSError: It cannot be written, or what is there is no regular file.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    handle = os.open(path, flags, 0o666)
    if kind := _describe_irregular_file(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, f"is {kind}, not a file", os.fspath(path))
    os.ftruncate(handle, 0)
    return os.fdopen(handle, "wb")


def copy_file(source: str | Path, target: str | Path) -> None:
    """Copy a regular file; see write_then_replace.

    Raises:
        ProfkitError: The source cannot be read, or the copy not written.
    """
    with (
        write_then_replace(target) as part,
        open_regular_file(source) as original,
        part.open("wb") as copy,
    ):
        shutil.copyfileobj(original, copy)


def make_folder(path: str | Path) -> None:
    """Make a folder to write in, and those that it is in.

    Raises:
        ProfkitError: There can be none.
    """
    with _resolve_for_writing(path) as target:
        target.mkdir(parents=True, exist_ok=True)


def move_file(made_file: str | Path, path: str | Path) -> None:
    """Put a file that another program made, on the same disk, in the place of another.

    See `write_then_replace`.

    Raises:
        ProfkitError: It cannot be written there; the file that was made stays.
    """
    with _resolve_for_writing(path) as target, open_regular_file(made_file) as file:
        _refuse_unwritable_target(target)
        _replace_target(target, Path(made_file), file.fileno())
        with contextlib.suppress(FileNotFoundError):  # moved
            os.unlink(made_file)


def move_folder(made_folder: str | Path, path: str | Path) -> None:
    """Put a folder in the place of another, which goes; both are on the same disk.

    Raises:
        ProfkitError: It cannot be written there; what was there stays.
    """
    with _resolve_for_writing(path) as target:
        for entry in list_files_below(made_folder)[0]:
            with open_regular_file(entry) as file:
                os.fsync(file.fileno())
        old = Path(made_folder).with_name(f"{Path(made_folder).name}.old")
        if target.exists():
            os.rename(target, old)
        os.rename(made_folder, target)
        shutil.rmtree(old, ignore_errors=True)
        _sync_folder(target.parent)


@contextlib.contextmanager
def _resolve_for_writing(path: str | Path) -> Iterator[Path]:
    """Give the file that is really written; an OSError of the block says that it cannot be."""
    try:
        yield _follow_link(Path(path))
    except OSError as error:
        raise make_write_error(path, error) from error


def make_write_error(path: str | Path, error: OSError) -> ProfkitError:
    """Return what a user is told of a file that could not be written."""
    why = error.strerror or str(error)
    return ProfkitError(f"{path}: cannot be written: {why}", "make room, or name another place")


def _follow_link(path: Path) -> Path:
    """Return what a link leads to, also where that does not exist yet; but not out of /dev or /proc.

    /dev/stdout is a link to whatever stdout is: replacing that file would lose both.
    """
    if os.path.abspath(path).startswith(_SYSTEM) or not path.is_symlink():
        return path
    return Path(os.path.realpath(path))


def _is_written_in_place(target: Path) -> bool:
    """Return whether something is written into what is there, instead of taking its place."""
    special = os.path.abspath(target).startswith(_SYSTEM)
    return target.exists() and (special or not target.is_file())


def _refuse_unwritable_target(target: Path) -> None:
    if not _is_written_in_place(target) and target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "may not be written")  # a rename would not ask


def _replace_target(target: Path, finished_file: Path, handle: FileDescriptor) -> None:
    """Put a file, open as `handle`, in the place of another, or into a device or a pipe."""
    os.fsync(handle)
    if _is_written_in_place(target):
        _copy_into_device(finished_file, target)
        return
    with contextlib.suppress(FileNotFoundError):
        os.fchmod(handle, stat.S_IMODE(target.stat().st_mode))
    os.replace(finished_file, target)
    _sync_folder(target.parent)


def _copy_into_device(finished_file: Path, target: Path) -> None:
    """Write into a device or a pipe. One that nobody reads is an error, not a wait."""
    handle = os.open(target, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if _describe_irregular_file(os.fstat(handle).st_mode) in {"a folder", "a socket"}:
        os.close(handle)
        raise OSError(errno.EINVAL, "is not a file")
    os.set_blocking(handle, True)
    with finished_file.open("rb") as content, os.fdopen(handle, "wb") as out:
        shutil.copyfileobj(content, out)


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems know no fsync of a folder
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# --- what killed processes left ------------------------------------------------------------------


@contextlib.contextmanager
def make_temporary_folder(parent: str | Path | None = None) -> Iterator[Path]:
    """Give a folder of this process, gone afterwards; those of processes that were killed go first.

    Args:
        parent: Where; None takes the system's folder for temporary files. In another one its name
            begins with a dot.
    """
    place = Path(parent or find_temporary_folder())
    prefix = ".profkit-" if parent else "profkit-"
    _remove_abandoned_folders(place, prefix)
    try:
        made = tempfile.TemporaryDirectory(dir=place, prefix=prefix, ignore_cleanup_errors=True)
        with made as name:
            handle = _create_folder_lock(name)
            try:
                yield Path(name)
            finally:
                os.close(handle)
    except OSError as error:
        is_of_the_place = str(error.filename or place).startswith(str(place))
        if parent or error.errno not in _NO_ROOM or not is_of_the_place:
            raise
        hint = "make room there, or name another folder: TMPDIR=FOLDER"
        raise ProfkitError(f"{place}: cannot be written: {error.strerror}", hint) from error


# What a write fails with where there is no room for it: a disk, a quota, ulimit -f, a read-only disk.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
_LOCK = ".lock"  # in a temporary folder: held while its process lives, and says whose folder it is


def _create_folder_lock(name: str) -> FileDescriptor:
    """Return the handle whose lock says that a folder is in use; what it holds says whose it is."""
    handle = os.open(Path(name) / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.write(handle, _make_ownership_token(os.stat(name)))
    except OSError:
        os.close(handle)
        raise
    return handle


def find_temporary_folder() -> Path:
    """Return the system's folder for temporary files.

    Raises:
        ProfkitError: None can be written.
    """
    try:
        return Path(tempfile.gettempdir())
    except OSError as error:
        why = "no folder for temporary files can be written: TMPDIR, /tmp and /var/tmp were tried"
        hint = "make room in one of them, or name another: TMPDIR=FOLDER"
        raise ProfkitError(why, hint) from error


def _make_ownership_token(folder: os.stat_result) -> bytes:
    """Return what only profkit writes into a folder that it made, and of no other folder is true."""
    text = (
        "profkit made this folder for a while; what is in it can be removed.\n"
        f"folder {folder.st_dev}:{folder.st_ino} of user {folder.st_uid}\n"
    )
    return text.encode()


def _is_made_by_profkit(folder: Path) -> bool:
    """Return whether profkit made a folder: a name proves nothing, nor does a file called .lock.

    A copy of such a folder, or one that was moved to another disk, is somebody's own.
    """
    try:
        state = os.lstat(folder)
        token = _make_ownership_token(state)
        if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.geteuid():
            return False
        handle = os.open(folder / _LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return False
    try:
        is_plain = stat.S_ISREG(os.fstat(handle).st_mode)
        return is_plain and os.read(handle, len(token) + 1) == token
    except OSError:
        return False
    finally:
        os.close(handle)


def _remove_abandoned_folders(parent: Path, prefix: str) -> None:
    """Remove the folders of profkit in whose process nobody lives any more."""
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            folder = parent / name
            if name.startswith(prefix) and _is_made_by_profkit(folder) and _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    """Return whether nobody holds the lock of a folder that is not just being made."""
    try:
        if time.time() - folder.lstat().st_mtime < _YOUNG:
            return False
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = os.open(folder / _LOCK, flags)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
