"""A repository's log  ->  the run records that were ever committed in it, each with its commit."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError
from profkit.evidence.tables import HistoryRun, make_run_row
from profkit.files import make_temporary_folder
from profkit.records.parts import Commit
from profkit.records.record import SCHEMA, parse_record
from profkit.records.store import Read

if TYPE_CHECKING:
    from profkit.units import CommitHash, ProblemAndVariant, Sha256


KERNELS = "kernels"
_ENVIRONMENT = ("PROFKIT_COMMIT", "GITHUB_SHA", "CI_COMMIT_SHA")


def find_ci_commit(environment: dict[str, str]) -> CommitHash | None:
    """Return the commit that a CI system says it works on; None without one."""
    for name in _ENVIRONMENT:
        if environment.get(name):
            return environment[name]
    return None


def read_current_commit(folder: Path) -> Commit | None:
    """Return the commit that a folder is at, and whether files differ from it; None without git."""
    try:
        head = _run_git(folder, "rev-parse", "HEAD").decode().strip()
        dirty = bool(_run_git(folder, "status", "--porcelain", "--", ".").strip())
        return Commit(commit=head, dirty=dirty)
    except (ProfkitError, OSError):
        return None


def resolve_commit_where_git_is(folder: Path, name: str) -> str:
    """Return the hash of a commit by any of its names; the name as it is without a repository."""
    try:
        _run_git(folder, "rev-parse", "--git-dir")
    except ProfkitError:
        return name
    try:
        question = "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        return _run_git(folder, *question).decode().strip()
    except ProfkitError as error:
        if re.fullmatch("[0-9a-f]{7,64}", name):
            return name
        why = f"--commit {name}: no commit of this repository"
        raise ProfkitError(why, "give its hash") from error


ReadHashes = Callable[[Path], Mapping[str, str]]


def list_committed_records(folder: Path, read_hashes: ReadHashes) -> Read[list[HistoryRun]]:
    """Return every version of every run record in the log of a folder of artifacts, oldest first.

    Of a record that does not say which code was measured, the commit is that of the code with the
    record's source hash, as the kernels were when the record was brought in; where they were others
    by then, the commit that brought it in, the nearest that is known. `read_hashes` knows of a folder
    of kernels the hash of each variant's source, by problem/variant.
    """
    runs: dict[str, HistoryRun] = {}
    problems = []
    if _run_git(folder, "rev-parse", "--is-shallow-repository").strip() == b"true":
        why = f"{folder}: a shallow clone, so older records are not in its log"
        problems.append(ProfkitError(why, "git fetch --unshallow, or fetch-depth: 0"))
    for commit, path in _iterate_changed_json_files(folder):
        content = _run_git(folder, "show", f"{commit}:{path}")
        sha256 = hashlib.sha256(content).hexdigest()
        if sha256 in runs or f'"{SCHEMA}"'.encode() not in content[:200]:
            continue
        try:
            record = parse_record(json.loads(content), Path(path))
            known = _read_code_hashes_at(folder, commit, read_hashes).get(
                f"{record.problem}/{record.variant}"
            )
            if known and known[0] == record.source_hash:
                runs[sha256] = make_run_row(record, sha256, known[1], "source")
            else:
                runs[sha256] = make_run_row(record, sha256, commit, "log")
        except (ValueError, ProfkitError) as error:
            problems.append(ProfkitError(f"{path} in {commit[:12]}: {error}", "it was left out"))
    return Read(list(runs.values()), problems)


@functools.lru_cache(maxsize=4)  # records come commit by commit
def _read_code_hashes_at(
    folder: Path, commit: CommitHash, read_hashes: ReadHashes
) -> dict[ProblemAndVariant, tuple[Sha256, CommitHash]]:
    """Return problem/variant -> hash of its code at a commit, and the last commit of kernels."""
    top = Path(_run_git(folder, "rev-parse", "--show-toplevel").decode().strip())
    last = _run_git(top, "log", "-1", "--format=%H", commit, "--", KERNELS).decode().strip()
    if not last:
        return {}
    with make_temporary_folder() as place:
        _write_kernels_of_commit(top, last, Path(place))
        try:
            hashes = read_hashes(Path(place) / KERNELS)
            return {name: (source_hash, last) for name, source_hash in hashes.items()}
        except (ProfkitError, OSError):  # of a layout that nobody reads today
            return {}


def _write_kernels_of_commit(repository: Path, commit: CommitHash, folder: Path) -> None:
    """Write the files of a commit's kernels into a folder, byte by byte as they were committed.

    `git archive` would run the filters that the repository's own configuration names.
    """
    paths: list[Path] = []
    blobs: list[str] = []
    for entry in _run_git(repository, "ls-tree", "-r", "-z", commit, "--", KERNELS).split(b"\0"):
        about, _, name = entry.partition(b"\t")
        mode, _, blob = about.decode().partition(" blob ")
        path = folder / os.fsdecode(name)
        if mode in ("100644", "100755") and ".." not in path.parts and path.is_relative_to(folder):
            paths.append(path)
            blobs.append(blob)
    # Of each: its name, its kind, how many bytes; a line end; these bytes; a line end.
    content = BytesIO(_run_git(repository, "cat-file", "--batch", stdin="\n".join(blobs).encode()))
    for path in paths:
        size = int(content.readline().split()[2])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.read(size))
        content.readline()


def _iterate_changed_json_files(folder: Path) -> Iterator[tuple[CommitHash, str]]:
    options = "--reverse", "--no-renames", "--diff-filter=AM", "--name-only", "--format=commit %H"
    log = _run_git(folder, "log", *options, "--", "*.json").decode("utf-8", "replace")
    commit = ""
    for line in log.splitlines():
        if line.startswith("commit "):
            commit = line.removeprefix("commit ")
        elif line:
            yield commit, line


# What a repository's own configuration could name to be run: a monitor of its files, hooks, a program
# that verifies signatures. Nor is anything fetched that a partial clone lacks.
_QUIET = (
    *("-c", "core.fsmonitor=false"),
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", "log.showSignature=false"),
    "--no-pager",
)
_OFFLINE = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0"}


def _run_git(folder: Path, *git_arguments: str, stdin: bytes = b"") -> bytes:
    try:
        done = subprocess.run(
            ["git", *_QUIET, "-C", str(folder), *git_arguments],
            input=stdin,
            capture_output=True,
            timeout=120,
            check=True,
            env={**os.environ, **_OFFLINE},
        )
    except FileNotFoundError as error:
        raise ProfkitError("git is not installed", "leave out --log") from error
    except subprocess.SubprocessError as error:
        stderr = getattr(error, "stderr", None) or b""
        text = stderr.decode("utf-8", "replace").strip().splitlines()
        raise ProfkitError(f"git in {folder}: {text[-1] if text else error}", "") from error
    return done.stdout
