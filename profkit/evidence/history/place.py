"""A folder on this machine, or a URL that fsspec knows  ->  the history's files: list, read, write.

    history                     a folder, in git or on a shared disk
    s3://bucket/history         an object store, with fsspec and its package for it

Either way a file is there whole or not at all, and none is ever changed: readers see only names
that end in .parquet and begin with no dot, and a name gets its ending when its content is complete.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError, needing
from profkit.files import open_regular, write_bytes

if TYPE_CHECKING:
    import pyarrow.parquet as pq

ENDING = ".parquet"


@dataclass(frozen=True)
class HistoryPlace:
    """Where a history is."""

    url: str  # a path of this machine, or a URL of another kind

    @property
    def remote(self) -> bool:
        """Whether it is reached through fsspec."""
        return "://" in self.url

    @cached_property
    def filesystem(self) -> Any:
        """The file system in fsspec's terms; None of a folder of this machine.

        Raises:
            ProfkitError: fsspec, or its package for this kind of URL, is not installed.
        """
        return self._opened[0]

    def files(self, table: str) -> list[str]:
        """The table's files, sorted; none where there is no such folder yet.

        Raises:
            ProfkitError: The place cannot be reached.
        """
        if not self.remote:
            return sorted(map(str, (Path(self.url) / table).glob(f"[!.]*{ENDING}")))
        with self._reached():
            self.filesystem.invalidate_cache()
            found = self.filesystem.glob(f"{self._inside(table)}/[!.]*{ENDING}")
        return sorted(map(str, found))

    def metadata(self, file: str) -> pq.FileMetaData:
        """What a Parquet file says of itself.

        Raises:
            OSError, pyarrow.ArrowException: It cannot be read, or is none.
        """
        import pyarrow.parquet as pq

        if not self.remote:
            open_regular(file).close()  # a pipe with such a name would be waited for
        return pq.read_metadata(file, filesystem=self.filesystem)

    def write(self, table: str, name: str, content: bytes) -> None:
        """Put a file there, whole or not at all.

        Raises:
            ProfkitError: It cannot be written.
        """
        if not self.remote:
            write_bytes(Path(self.url) / table / f"{name}{ENDING}", content)
            return
        folder = self._inside(table)
        part = f"{folder}/.{name}.{secrets.token_hex(4)}"
        with self._reached():
            self.filesystem.makedirs(folder, exist_ok=True)
            self.filesystem.pipe_file(part, content)
            self.filesystem.mv(part, f"{folder}/{name}{ENDING}")

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        if not self.remote:
            return None, self.url
        with needing("fsspec", f"{self.url}: a history there"):
            from fsspec.core import url_to_fs
        try:
            filesystem, path = url_to_fs(self.url)
        except ImportError as error:  # which package, it says itself
            raise ProfkitError(f"{self.url}: {error}", "install what it names") from error
        except ValueError as error:
            hint = "a folder, or a URL that fsspec knows: s3://bucket/history"
            raise ProfkitError(f"{self.url}: {error}", hint) from error
        return filesystem, path

    def _inside(self, table: str) -> str:
        return str(PurePosixPath(self._opened[1]) / table)

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        """What a place that cannot be reached or written is for a user."""
        try:
            yield
        except OSError as error:
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            hint = "is it there, and may you write there?"
            raise ProfkitError(f"{self.url}: {why}", hint) from error
