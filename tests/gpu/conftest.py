"""Tests that need a GPU: skipped where there is none."""

import fcntl
import inspect
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

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


@pytest.fixture(autouse=True)
def machine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SharedMachine]:
    """Have a test that is marked `alone` wait for those of other workers, and them for it.

    Other programs on the host and on the GPU change what comes first, and what a launch costs.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    shared = SharedMachine(folder)
    if request.node.get_closest_marker("alone") is None:
        shared.share()
    else:
        shared.take_alone()
    yield shared
    shared.leave()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what runs one after another in one worker; end with what may want the machine alone."""
    items.sort(key=_choose_turn)


def _choose_turn(item: pytest.Item) -> int:
    if Path(__file__).parent not in item.path.parents or not isinstance(item, pytest.Function):
        return 0
    if item.get_closest_marker("alone") is not None:
        return 3
    if item.get_closest_marker("xdist_group") is not None:
        return 0
    return 2 if "machine" in inspect.signature(item.function).parameters else 1
