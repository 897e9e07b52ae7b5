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
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from profkit.errors import ProfkitError

TEXT_LIMIT = 16 << 20  # bytes of a source, a record or a header: the largest seen is 1/20 of it
_NAME = 30  # characters kept of a long name, of up to 4 bytes: a folder takes 255 bytes
_YOUNG = 60.0  # seconds in which a leftover may be somebody's who is just about to lock it
_PART = re.compile(
    r"\..*\.[0-9a-f]{16}\.part(\..*)?", re.DOTALL
)  # up to 0.2.0, with its file's ending
_SYSTEM = ("/dev/", "/proc/")
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)

# --- reading -------------------------------------------------------------------------------------


def open_regular(path: str | Path) -> BufferedReader:
    """Open a file for reading.

    Raises:
        OSError: It cannot be opened, or is no regular file; strerror says which.
    """
    # Without O_NONBLOCK, a pipe that nobody writes to hangs before it can be looked at.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    kind = _kind(os.fstat(handle).st_mode)
    if kind:
        os.close(handle)
        raise OSError(errno.EINVAL, f"is {kind}, not a file", os.fspath(path))
    return os.fdopen(handle, "rb")


def read_bytes(path: str | Path, most: int = TEXT_LIMIT) -> bytes:
    """A file's content.

    Raises:
        OSError: As open_regular; or it is larger than `most` bytes.
    """
    with open_regular(path) as file:
        content = file.read(most + 1) if os.fstat(file.fileno()).st_size <= most else None
    if content is None or len(content) > most:
        raise OSError(errno.EFBIG, f"is larger than {most / 1e6:.0f} MB", os.fspath(path))
    return content


def read_text(path: str | Path, most: int = TEXT_LIMIT) -> str:
    """A file's content as UTF-8.

    Raises:
        OSError: As read_bytes.
        UnicodeDecodeError: It is no UTF-8.
    """
    return read_bytes(path, most).decode("utf-8")


def read_json(path: str | Path, most: int = TEXT_LIMIT) -> Any:
    """The JSON document in a file.

    Raises:
        OSError: As read_bytes.
        ValueError: It is no JSON, or nested deeper than anything that means something.
    """
    try:
        return json.loads(read_bytes(path, most))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _kind(mode: int) -> str | None:
    """What a thing is, if it is no regular file."""
    if stat.S_ISREG(mode):
        return None
    return next((name for is_it, name in _KINDS if is_it(mode)), "something else")


# --- writing -------------------------------------------------------------------------------------


def check_output(path: str | Path, inputs: Iterable[str | Path] = ()) -> Path:
    """A name that may be written to, before anything is read or computed.

    Raises:
        ProfkitError: It is a folder or a socket, may not be written, is one of the inputs, or its
            folder does not exist.
    """
    target = _target(Path(path))
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
        raise cannot_write(path, error) from error
    if stat.S_ISDIR(mode):
        raise ProfkitError(f"{path}: is a folder", "name a file in it")
    if stat.S_ISSOCK(mode) or stat.S_ISBLK(mode):
        raise ProfkitError(f"{path}: is {_kind(mode)}", "name a file to write")
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise ProfkitError(f"{path}: may not be written", "choose another name or folder")
    return Path(path)


@contextlib.contextmanager
def part_of(path: str | Path) -> Iterator[Path]:
    """A file to write in the place of another, which it becomes when the block ends well.

    A link is followed; permissions of what was there are kept; a device or a pipe is written
    through, never replaced. When the block fails, nothing is left.

    Raises:
        ProfkitError: It cannot be written; an OSError of the block is one of these.
    """
    with _writing(path) as target:
        folder = Path(tempfile.gettempdir()) if _is_through(target) else target.parent
        folder.mkdir(parents=True, exist_ok=True)
        _check_access(target)
        _sweep_parts(folder)
        part, handle = _new_part(folder, target)
        try:
            yield part
            _replace(target, part, handle)
        finally:
            with contextlib.suppress(OSError):  # moved; or the disk is as it is: the error counts
                part.unlink()
            os.close(handle)


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write a file whole or not at all; see part_of.

    Raises:
        ProfkitError: It cannot be written.
    """
    with part_of(path) as part:
        part.write_bytes(content)


def write_text(path: str | Path, content: str) -> None:
    """Write a text file whole or not at all; see part_of. What is no character is escaped."""
    write_bytes(path, content.encode("utf-8", "backslashreplace"))


def open_log(path: str | Path) -> BinaryIO:
    """A file that is written as it comes, anew: what a program prints while it runs.

    Raises:
        OSError: It cannot be written, or what is there is no regular file.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    handle = os.open(path, flags, 0o666)
    if kind := _kind(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, f"is {kind}, not a file", os.fspath(path))
    os.ftruncate(handle, 0)
    return os.fdopen(handle, "wb")


def copy_file(source: str | Path, path: str | Path) -> None:
    """Copy a regular file; see part_of.

    Raises:
        ProfkitError: The source cannot be read, or the copy not written.
    """
    with part_of(path) as part, open_regular(source) as original, part.open("wb") as copy:
        shutil.copyfileobj(original, copy)


def make_folder(path: str | Path) -> None:
    """A folder to write in, and those that it is in.

    Raises:
        ProfkitError: There can be none.
    """
    with _writing(path) as target:
        target.mkdir(parents=True, exist_ok=True)


def move_file(made: str | Path, path: str | Path) -> None:
    """Put a file that another program made, on the same disk, in the place of another; see part_of.

    Raises:
        ProfkitError: It cannot be written there; the file that was made stays.
    """
    with _writing(path) as target, open_regular(made) as file:
        _check_access(target)
        _replace(target, Path(made), file.fileno())
        with contextlib.suppress(FileNotFoundError):  # moved
            os.unlink(made)


def move_folder(made: str | Path, path: str | Path) -> None:
    """Put a folder in the place of another, which goes; both are on the same disk.

    Raises:
        ProfkitError: It cannot be written there; what was there stays.
    """
    with _writing(path) as target:
        for entry in filter(Path.is_file, Path(made).rglob("*")):
            with open_regular(entry) as file:
                os.fsync(file.fileno())
        old = Path(made).with_name(f"{Path(made).name}.old")
        if target.exists():
            os.rename(target, old)
        os.rename(made, target)
        shutil.rmtree(old, ignore_errors=True)
        _sync_folder(target.parent)


@contextlib.contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Hold others off that change the same file: they wait. The lock ends with the process.

    What is locked is the folder: nothing is left behind, and the file itself is replaced meanwhile.

    Raises:
        ProfkitError: There can be no such folder.
    """
    with _writing(path) as target:
        folder = target.absolute().parent
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def _writing(path: str | Path) -> Iterator[Path]:
    """What is really to be written; an OSError of the block says that it cannot be."""
    try:
        yield _target(Path(path))
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: str | Path, error: OSError) -> ProfkitError:
    """Return what a user is told of a file that could not be written."""
    why = error.strerror or str(error)
    return ProfkitError(f"{path}: cannot be written: {why}", "make room, or name another place")


def _target(path: Path) -> Path:
    """What a link leads to, also where that does not exist yet; but not out of /dev or /proc.

    /dev/stdout is a link to whatever stdout is: replacing that file would lose both.
    """
    if os.path.abspath(path).startswith(_SYSTEM) or not path.is_symlink():
        return path
    return Path(os.path.realpath(path))


def _is_through(target: Path) -> bool:
    """Whether something is written into what is there, instead of taking its place."""
    special = os.path.abspath(target).startswith(_SYSTEM)
    return target.exists() and (special or not target.is_file())


def _new_part(folder: Path, target: Path) -> tuple[Path, int]:
    """A new file, and a handle whose lock says that somebody is at it."""
    name = f".{target.stem[:_NAME]}.{os.urandom(8).hex()}.part"  # no reader's ending
    part = folder / name
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    handle = os.open(part, flags, 0o666)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return part, handle


def _check_access(target: Path) -> None:
    if not _is_through(target) and target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "may not be written")  # a rename would not ask


def _replace(target: Path, made: Path, handle: int) -> None:
    """Put a file, open as `handle`, in the place of another, or into a device or a pipe."""
    os.fsync(handle)
    if _is_through(target):
        _copy_through(made, target)
        return
    with contextlib.suppress(FileNotFoundError):
        os.fchmod(handle, stat.S_IMODE(target.stat().st_mode))
    os.replace(made, target)
    _sync_folder(target.parent)


def _copy_through(part: Path, target: Path) -> None:
    """Write into a device or a pipe. One that nobody reads is an error, not a wait."""
    handle = os.open(target, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if _kind(os.fstat(handle).st_mode) in {"a folder", "a socket"}:
        os.close(handle)
        raise OSError(errno.EINVAL, "is no file")
    os.set_blocking(handle, True)
    with part.open("rb") as content, os.fdopen(handle, "wb") as out:
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
def temporary_folder(parent: str | Path | None = None) -> Iterator[Path]:
    """A folder of this process, gone afterwards; those of processes that were killed go first.

    Args:
        parent: Where; None takes the system's folder for temporary files. In another one its name
            begins with a dot.
    """
    place, prefix = (
        (Path(parent), ".profkit-") if parent else (Path(tempfile.gettempdir()), "profkit-")
    )
    for left in place.glob(f"{prefix}*"):
        if _is_left(left / ".lock", left):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=place, prefix=prefix) as name:
        handle = os.open(Path(name) / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(handle)


def _sweep_parts(folder: Path) -> None:
    """Remove the parts of whatever file that nobody writes any more."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if _PART.fullmatch(entry.name) and _is_left(Path(entry.path)):
                os.unlink(entry.path)


def _is_left(lock: Path, thing: Path | None = None) -> bool:
    """Whether nobody holds the lock of a file that is not just being made."""
    try:
        if time.time() - (thing or lock).lstat().st_mtime < _YOUNG:
            return False
        handle = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
