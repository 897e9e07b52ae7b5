"""Tests that need a GPU: skipped where there is none."""

import fcntl
import inspect
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# In a process of its own: other tests load a stand-in for the driver into theirs.
ASK = """
from profkit.errors import ProfkitError
from profkit.lab.measure.cuda import device
try:
    device.query_first_gpu()
except ProfkitError as error:
    print(error.message)
"""

IN_ONE_WORKER = {"test_bad_kernels.py"}  # which measures all of them, once


@pytest.fixture(autouse=True, scope="session")
def _gpu() -> None:
    asked = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    if asked.stdout:
        pytest.skip(asked.stdout.strip())


class SharedMachine:
    """The GPU and its host, which the workers of a run share through two locked files.

    A test that wants the machine for itself closes the gate first, so that no other begins meanwhile.
    """

    def __init__(self, folder: Path) -> None:
        self._gate = (folder / "gate").open("w")
        self._use = (folder / "use").open("w")

    def share(self) -> None:
        """Wait until nobody has the machine alone."""
        self._lock(fcntl.LOCK_SH)

    def take_alone(self) -> None:
        """Wait until no other test uses the machine."""
        self._lock(fcntl.LOCK_EX)

    def _lock(self, kind: int) -> None:
        fcntl.flock(self._use, fcntl.LOCK_UN)
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        fcntl.flock(self._use, kind)
        fcntl.flock(self._gate, fcntl.LOCK_UN)

    def leave(self) -> None:
        self._gate.close()
        self._use.close()

    def repeat_alone_if_wrong(self, check: Callable[[], None]) -> None:
        """Check beside other tests, and once more alone if that fails.

        Beside others a kernel and the host are slower than alone, each by another factor, and what
        a program loses most by is another thing then.
        """
        try:
            check()
        except AssertionError as error:
            print(f"wrong beside others: {error}")
            self.take_alone()
            check()


MACHINE = pytest.StashKey[SharedMachine]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Have a test that is marked `alone` wait for those of other workers, and them for it.

    Other programs on the host and on the GPU change what comes first, and what a launch costs. The wait
    comes before all fixtures: what a file's fixture builds and measures disturbs others, too.
    """
    if not _is_of_this_folder(item):
        return (yield)
    shared = SharedMachine(_make_folder_of_locks())
    if item.get_closest_marker("alone") is None:
        shared.share()
    else:
        shared.take_alone()
    item.stash[MACHINE] = shared
    try:
        return (yield)
    finally:
        shared.leave()


def _is_of_this_folder(item: pytest.Item) -> bool:
    return Path(__file__).parent in item.path.parents


def _make_folder_of_locks() -> Path:
    """Return the folder in which all workers of all runs of this user meet."""
    folder = Path(tempfile.gettempdir(), f"profkit-machine-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@pytest.fixture
def machine(request: pytest.FixtureRequest) -> SharedMachine:
    """The machine that this test has, for one that may want it for itself later."""
    return request.node.stash[MACHINE]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest; end with what may want the machine alone.

    Who wants it alone waits for the longest test that runs, and all others wait for him.
    """
    items.sort(key=_choose_turn)


def _choose_turn(item: pytest.Item) -> int:
    if not _is_of_this_folder(item) or not isinstance(item, pytest.Function):
        return 0
    if item.get_closest_marker("alone") is not None:
        return 3
    if item.get_closest_marker("long") is not None:
        return 0
    return 2 if "machine" in inspect.signature(item.function).parameters else 1


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run in one worker the files whose tests share a fixture that takes a minute.

    Marks cannot say so: pytest-xdist 3.8 writes a group into a name that pytest 9.2 no longer reads.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return find_unit(nodeid)

    return ByFile(config, log)


def find_unit(node_id: str) -> str:
    """Return what of a test's name tests have in common that run in one worker."""
    path = node_id.partition("::")[0]
    if Path(path).name in IN_ONE_WORKER:
        return path
    return node_id
