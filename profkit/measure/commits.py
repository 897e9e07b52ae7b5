"""A repository's log  ->  the run records that were ever committed in it, each with its commit."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from profkit.errors import ProfkitError
from profkit.evidence.tables import HistoryRun, run_row
from profkit.files import temporary_folder
from profkit.measure.variants import variants
from profkit.records.parts import Commit
from profkit.records.record import SCHEMA, parse_record

KERNELS = "kernels"
_ENVIRONMENT = ("PROFKIT_COMMIT", "GITHUB_SHA", "CI_COMMIT_SHA")


def commit_at_hand(environment: dict[str, str]) -> str | None:
    """The commit that a CI system says it works on; None without one."""
    return next((environment[name] for name in _ENVIRONMENT if environment.get(name)), None)


def git_commit(folder: Path) -> Commit | None:
    """The commit that a folder is at, and whether files differ from it; None without git."""
    try:
        head = _git(folder, "rev-parse", "HEAD").decode().strip()
        return Commit(head, bool(_git(folder, "status", "--porcelain", "--", ".").strip()))
    except (ProfkitError, OSError):
        return None


def commit_named(folder: Path, name: str) -> str:
    """The hash of what somebody calls a commit: a hash, a tag, HEAD~2; as it is without a repository."""
    try:
        _git(folder, "rev-parse", "--git-dir")
    except ProfkitError:
        return name
    try:
        question = "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"
        return _git(folder, *question).decode().strip()
    except ProfkitError as error:
        if re.fullmatch("[0-9a-f]{7,64}", name):
            return name
        why = f"--commit {name}: no commit of this repository"
        raise ProfkitError(why, "give its hash") from error


def committed_runs(folder: Path) -> tuple[list[HistoryRun], list[ProfkitError]]:
    """Every version of every run record in the log of a folder of artifacts, oldest first.

    Of a record that does not say which code was measured, the commit is that of the code with the
    record's source hash, as the kernels were when the record was brought in; where they were others
    by then, the commit that brought it in, the nearest that is known.
    """
    runs: dict[str, HistoryRun] = {}
    problems = []
    if _git(folder, "rev-parse", "--is-shallow-repository").strip() == b"true":
        why = f"{folder}: a shallow clone, so older records are not in its log"
        problems.append(ProfkitError(why, "git fetch --unshallow, or fetch-depth: 0"))
    for commit, path in _changes(folder):
        content = _git(folder, "show", f"{commit}:{path}")
        sha256 = hashlib.sha256(content).hexdigest()
        if sha256 in runs or f'"{SCHEMA}"'.encode() not in content[:200]:
            continue
        try:
            record = parse_record(json.loads(content), Path(path))
            known = _code_at(folder, commit).get(f"{record.problem}/{record.variant}")
            if known and known[0] == record.source_hash:
                runs[sha256] = run_row(record, sha256, known[1], "source")
            else:
                runs[sha256] = run_row(record, sha256, commit, "log")
        except (ValueError, ProfkitError) as error:
            problems.append(ProfkitError(f"{path} in {commit[:12]}: {error}", "it was left out"))
    return list(runs.values()), problems


@functools.lru_cache(maxsize=4)  # records come commit by commit
def _code_at(folder: Path, commit: str) -> dict[str, tuple[str, str]]:
    """problem/variant -> hash of its code at a commit, and the last commit that touched kernels."""
    top = Path(_git(folder, "rev-parse", "--show-toplevel").decode().strip())
    last = _git(top, "log", "-1", "--format=%H", commit, "--", KERNELS).decode().strip()
    if not last:
        return {}
    with temporary_folder() as place:
        with tarfile.open(fileobj=BytesIO(_git(top, "archive", last, KERNELS))) as files:
            files.extractall(place, filter="data")
        try:
            known, _ = variants.survey(Path(place) / KERNELS)
            return {f"{v.problem}/{v.id}": (v.source_hash, last) for v in known}
        except (ProfkitError, OSError):  # of a layout that nobody reads today
            return {}


def _changes(folder: Path) -> Iterator[tuple[str, str]]:
    options = "--reverse", "--no-renames", "--diff-filter=AM", "--name-only", "--format=commit %H"
    log = _git(folder, "log", *options, "--", "*.json").decode("utf-8", "replace")
    commit = ""
    for line in log.splitlines():
        if line.startswith("commit "):
            commit = line.removeprefix("commit ")
        elif line:
            yield commit, line


def _git(folder: Path, *words: str) -> bytes:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, timeout=120, check=True
        )
    except FileNotFoundError as error:
        raise ProfkitError("git is not installed", "leave out --log") from error
    except subprocess.SubprocessError as error:
        stderr = getattr(error, "stderr", None) or b""
        text = stderr.decode("utf-8", "replace").strip().splitlines()
        raise ProfkitError(f"git in {folder}: {text[-1] if text else error}", "") from error
    return done.stdout
