"""A test that is marked `forks` runs in a fork of its worker: what it takes of memory goes with it.

ncu_report never gives back what it took to open a report. compute_in_fork does the same for what the
tests of a file share.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from _pytest.runner import runtestprotocol


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run a marked test in a fork and report here what it reported there."""
    if item.get_closest_marker("forks") is None:
        return None
    hooks = item.ihook
    hooks.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for data in run_in_fork(item, nextitem or item):
        report = item.config.hook.pytest_report_from_serializable(config=item.config, data=data)
        hooks.pytest_runtest_logreport(report=report)
    hooks.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    # Fixtures of the module or folder before that the next test does not share end now, as always.
    item.session._setupstate.teardown_exact(nextitem)
    return True


def run_in_fork(item: pytest.Item, nextitem: pytest.Item) -> list[dict[str, Any]]:
    """Return the reports of a test (setup, call, teardown) that a fork has run."""
    with TemporaryDirectory() as folder:
        answer = Path(folder, "reports.json")
        child = os.fork()
        if child == 0:
            run_and_write(item, nextitem, answer)
        _, status = os.waitpid(child, 0)
        if status or not answer.is_file():
            code = os.waitstatus_to_exitcode(status)
            return [describe_death(item, code)]
        return json.loads(answer.read_text("utf-8"))


def run_and_write(item: pytest.Item, nextitem: pytest.Item, answer: Path) -> None:
    """Run a test, write its reports, and end the process.

    What the next test shares stays as it is: a browser of the worker's is not the fork's to end.
    """
    status = 1
    with contextlib.suppress(BaseException):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        to_data = item.config.hook.pytest_report_to_serializable
        texts = [to_data(config=item.config, report=report) for report in reports]
        answer.write_text(json.dumps(texts), "utf-8")
        status = 0
    faulthandler.disable()
    os._exit(status)


def describe_death(item: pytest.Item, code: int) -> dict[str, Any]:
    """Return the report of a test whose fork ended without one."""
    report = pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords={},
        outcome="failed",
        longrepr=f"its fork ended with exit status {code} and without a report",
        when="call",
    )
    return item.config.hook.pytest_report_to_serializable(config=item.config, report=report)


def compute_in_fork(function: Callable[[], Any]) -> Any:
    """Return what a function returns, from a fork of this process."""
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        return pool.submit(function).result()
