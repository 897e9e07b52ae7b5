"""Files given to an executor: how many it holds, what is tried again, what is read here instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from profkit.errors import ProfkitError
from profkit.reports import cluster
from profkit.reports.cluster import iterate_results_by_path

READ, LOST = "tests.reports.crashing:dies", "tests.reports.crashing:pid"
Child = tuple[list[str], int]


class Executor:
    """Does each task at once; the first ones of each chunk fail with these errors."""

    def __init__(self, *errors: Exception, **about: Any) -> None:
        self.errors, self.chunks = errors, list[list[str]]()
        self.broken = False  # then it takes no task
        vars(self).update(about)

    def submit(self, function: Callable[..., Any], *given: Any) -> Future[Any]:
        tried = self.chunks.count(given[1])
        self.chunks.append(given[1])
        task: Future[Any] = Future()
        if tried < len(self.errors):
            if self.broken:
                raise self.errors[tried]
            task.set_exception(self.errors[tried])
        else:
            task.set_result(function(*given))
        return task


@pytest.fixture(autouse=True)
def children(monkeypatch: pytest.MonkeyPatch) -> list[Child]:
    """Items and number of children of each call: they read in no time."""
    called: list[Child] = []

    def isolated(_function: str, items: Sequence[str], jobs: int, _died: Any) -> list[str]:
        called.append(([*items], jobs))
        return [item.upper() for item in items]

    monkeypatch.setattr(cluster, "run_in_child_processes", isolated)
    monkeypatch.setattr(cluster, "count_processors_to_use", lambda: 7)
    return called


def _names(count: int) -> list[str]:
    return [f"r{n}" for n in range(count)]


def test_tasks_are_of_eight_files_and_each_reads_them_in_one_child(children: list[Child]) -> None:
    executor = Executor()
    found = dict(iterate_results_by_path(READ, _names(20), LOST, executor))
    assert found == {name: name.upper() for name in _names(20)}
    assert [len(chunk) for chunk in executor.chunks] == [8, 8, 4]
    assert children == [(chunk, 1) for chunk in executor.chunks]


@pytest.mark.parametrize(
    ("about", "tasks"),
    [
        ({"_max_workers": 1}, 8),
        ({"_max_workers": 6}, 12),
        ({}, 14),
        ({"_max_workers": None}, 14),
        ({"nthreads": lambda: {"host a": 2, "host b": 3}}, 10),
    ],
)
def test_two_tasks_a_worker_are_open_and_no_fewer_than_eight(
    about: dict[str, Any], tasks: int
) -> None:
    """Of a hundred thousand files only so many are held."""
    taken = 0

    def names() -> Iterator[str]:
        nonlocal taken
        for name in _names(400):
            taken += 1
            yield name

    found = iterate_results_by_path(READ, names(), LOST, Executor(**about))
    next(found)
    assert taken == tasks * cluster.CHUNK
    assert 1 + len([*found]) == taken == 400


class OneAtATime(Executor):
    """With eight tasks open, the oldest is done."""

    def __init__(self) -> None:
        super().__init__(_max_workers=1)
        self.open: list[tuple[Future[Any], list[str]]] = []

    def submit(self, function: Callable[..., Any], *given: Any) -> Future[Any]:
        self.open.append((Future(), given[1]))
        task = self.open[-1][0]
        if len(self.open) == 8:
            done, chunk = self.open.pop(0)
            done.set_result(function(given[0], chunk, given[2]))
        return task


def test_a_task_that_is_done_makes_room_for_one() -> None:
    names = iter(_names(400))
    found = iterate_results_by_path(READ, names, LOST, OneAtATime())
    assert [next(found)[0] for _ in range(17)] == _names(17)
    assert next(names) == f"r{8 * (8 + 2)}"


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_task_is_tried_twice_and_then_read_here(
    broken: bool, lost: int, children: list[Child]
) -> None:
    """A pool that is broken takes no task: that is one that was lost."""
    executor = Executor(*[RuntimeError("worker lost")] * lost, broken=broken)
    found = [*iterate_results_by_path(READ, _names(3), LOST, executor)]
    assert found == [(name, name.upper()) for name in _names(3)]
    assert len(executor.chunks) == min(lost + 1, 2)
    assert children == [(_names(3), 7 if lost == 2 else 1)]


def test_a_mistake_of_the_user_is_tried_once() -> None:
    executor = Executor(ProfkitError("wrong", "mend it"))
    with pytest.raises(ProfkitError, match="wrong"):
        list(iterate_results_by_path(READ, _names(3), LOST, executor))
    assert len(executor.chunks) == 1


def test_a_dask_client_is_asked_for_an_executor_that_remembers_no_result() -> None:
    """The same path may hold another file tomorrow."""
    asked: list[dict[str, Any]] = []
    executor = Executor()
    client = Executor(get_executor=lambda **how: asked.append(how) or executor)
    assert dict(iterate_results_by_path(READ, ["a"], LOST, client)) == {"a": "A"}
    assert (asked, executor.chunks, client.chunks) == ([{"pure": False}], [["a"]], [])


def test_what_takes_no_tasks_is_a_mistake() -> None:
    with pytest.raises(ProfkitError, match="client: a int takes no tasks") as caught:
        next(iterate_results_by_path(READ, ["a"], LOST, 7))
    assert "concurrent.futures executor" in (caught.value.hint or "")
