"""Files and an executor  ->  what other processes or hosts make of them, as they come.

An executor is what has `submit(function, *arguments)` and gives futures: one of concurrent.futures,
or a Dask client, whose `get_executor()` is taken. Every host has to see the files under the same
names. There each file is read in a child process of its worker, as it is here: a report that
crashes the library takes no worker with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

from profkit.errors import ProfkitError, require_package, summarize_error_in_one_line
from profkit.reports.isolated import (
    count_processors_to_use,
    import_function,
    iterate_results_of_child_processes,
    run_in_child_processes,
)

if TYPE_CHECKING:
    from profkit.units import DaskClientOrExecutor, FilePath


CHUNK = 8  # files of a task: few, so that all workers end together
_AHEAD = 2  # tasks submitted for each worker that is known
_TRIES = 2


def connect_to_dask_scheduler(address: str) -> DaskClientOrExecutor:
    """Return a Dask client of a scheduler, such as tcp://host:8786, or raise a ProfkitError."""
    with require_package("distributed", f"--on {address}"):
        from distributed import Client
    try:
        return Client(address, timeout=10)
    except (OSError, ValueError, TimeoutError) as error:
        hint = "start one with: dask scheduler, and dask worker ADDRESS"
        raise ProfkitError(f"--on {address}: {summarize_error_in_one_line(error)}", hint) from error


def require_executor(client: DaskClientOrExecutor) -> DaskClientOrExecutor:
    """Return what takes tasks; a ProfkitError of neither a Dask client nor an executor."""
    if hasattr(client, "get_executor"):
        return client.get_executor(pure=False)  # the same path may hold another file tomorrow
    if hasattr(client, "submit"):
        return client
    raise ProfkitError(
        f"client: a {type(client).__name__} takes no tasks",
        "give a dask.distributed.Client or a concurrent.futures executor",
    )


def iterate_results_by_path(
    function_path: str,
    paths: Iterable[str],
    path_of_function_for_dead: str,
    client: DaskClientOrExecutor = None,
    jobs: int | None = None,
) -> Iterator[tuple[FilePath, Any]]:
    """Yield path and result of a function of many paths as they are done, holding few at a time.

    `function_path`: its "module:name"; its result has to be picklable. `path_of_function_for_dead`:
    "module:name" of (path, why) -> the result for a file whose process died. `client`: None takes
    `jobs` processors of this machine, or all.
    """
    if client is not None:
        yield from _iterate_on_executor(function_path, paths, path_of_function_for_dead, client)
        return
    jobs = jobs or count_processors_to_use()
    answer_for_dead = import_function(path_of_function_for_dead)
    done = iterate_results_of_child_processes(function_path, iter(paths), jobs, answer_for_dead)
    with closing(done):
        for _, path, result in done:
            yield path, result


def _iterate_on_executor(
    function_path: str,
    paths: Iterable[str],
    path_of_function_for_dead: str,
    client: DaskClientOrExecutor,
) -> Iterator[tuple[FilePath, Any]]:
    """Do the same on a client's workers, some files at a time."""
    executor = require_executor(client)
    todo = iter(paths)
    chunks = iter(lambda: list(islice(todo, CHUNK)), [])
    most_open = max(8, _AHEAD * _count_workers(client))
    open_: dict[Future[Any], tuple[list[str], int]] = {}  # task -> its files, which try it is

    def submit_try(chunk: list[str], tried: int) -> None:
        task = _submit_chunk(executor, function_path, chunk, path_of_function_for_dead)
        open_[task] = chunk, tried

    while True:
        for chunk in islice(chunks, most_open - len(open_)):
            submit_try(chunk, 1)
        if not open_:
            return
        for call in wait(open_, return_when=FIRST_COMPLETED).done:
            chunk, tried = open_.pop(call)
            error = call.exception()
            if isinstance(error, ProfkitError):
                raise error
            if error is None:
                yield from call.result()
            elif tried < _TRIES:
                submit_try(chunk, tried + 1)
            else:  # its worker was lost twice, or the pool is broken: no file is lost for that
                jobs = count_processors_to_use()
                yield from _run_chunk_in_children(
                    function_path, chunk, path_of_function_for_dead, jobs
                )


def _submit_chunk(
    executor: DaskClientOrExecutor,
    function_path: str,
    paths: list[str],
    path_of_function_for_dead: str,
) -> Future[Any]:
    """Return a task; one that a broken pool does not take has failed."""
    try:
        task: Future[Any] = executor.submit(
            run_chunk_in_child, function_path, paths, path_of_function_for_dead
        )
    except RuntimeError as error:  # BrokenExecutor is one
        task = Future()
        task.set_exception(error)
    return task


def run_chunk_in_child(
    function_path: str, paths: Sequence[str], path_of_function_for_dead: str
) -> list[tuple[str, Any]]:
    """Do what a worker does: a few files, in a child process of its own."""
    return _run_chunk_in_children(function_path, paths, path_of_function_for_dead, 1)


def _run_chunk_in_children(
    function_path: str, paths: Sequence[str], path_of_function_for_dead: str, jobs: int
) -> list[tuple[str, Any]]:
    answer_for_dead = import_function(path_of_function_for_dead)
    results = run_in_child_processes(function_path, paths, jobs, answer_for_dead)
    return list(zip(paths, results, strict=True))


def _count_workers(client: DaskClientOrExecutor) -> int:
    """Return how many tasks the executor does at once, as far as it says."""
    if hasattr(client, "nthreads"):
        return sum(client.nthreads().values())
    return int(getattr(client, "_max_workers", None) or count_processors_to_use())
