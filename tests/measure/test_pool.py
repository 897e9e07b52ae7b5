"""Threads that cannot begin: CPython waits for such a one for ever."""

from __future__ import annotations

import pytest

from profkit.collect import process
from profkit.errors import ProfkitError


def test_a_pool_runs_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "is_memory_limited", lambda: True)
    with process.make_thread_pool(3, "named") as pool:
        assert list(pool.map(abs, range(-20, 0))) == list(range(20, 0, -1))


@pytest.mark.parametrize("how", ["never begins", "is refused"])
def test_threads_that_cannot_begin_are_an_error_and_no_endless_wait(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def start(*_: object) -> None:
        if how == "is refused":
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(process, "is_memory_limited", lambda: True)
    monkeypatch.setattr(process, "start_new_thread", start)
    monkeypatch.setattr(process, "_BEGIN", 0.01)
    with pytest.raises(ProfkitError, match="3 threads cannot begin"):
        process.make_thread_pool(3)
