"""What runs a user's file: it cannot change where profkit answers, however many run at once."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import ExitStack

import pytest

from profkit.evidence.users_code import confine_users_code


class _User(threading.Thread):
    """A thread in which a file runs from enter() to leave()."""

    def __init__(self) -> None:
        super().__init__()
        self.may_leave = threading.Event()
        self.has_entered = threading.Event()

    def run(self) -> None:
        with confine_users_code("file.py"):
            os.write(1, b"the file's\n")
            self.has_entered.set()
            self.may_leave.wait(300)

    def enter(self) -> None:
        self.start()
        assert self.has_entered.wait(300)

    def leave(self) -> None:
        self.may_leave.set()
        self.join(300)


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_files_that_run_at_once_leave_stdout_as_it_was(
    order: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    before = os._exit, sys.exit, sys.stdout, sys.stderr
    users = [_User(), _User()]
    for user in users:
        user.enter()
    for number in order:
        users[number].leave()
    os.write(1, b"profkit's answer\n")
    assert (os._exit, sys.exit, sys.stdout, sys.stderr) == before
    said = capfd.readouterr()
    assert said.out == "profkit's answer\n"
    assert said.err == "the file's\n" * 2


def test_a_file_that_runs_another_leaves_stdout_as_it_was(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with ExitStack() as files:
        for _ in range(3):
            files.enter_context(confine_users_code("file.py"))
        os.write(1, b"the file's\n")
        with pytest.raises(SystemExit):
            os._exit(0)
    os.write(1, b"profkit's answer\n")
    assert capfd.readouterr() == ("profkit's answer\n", "the file's\n")
