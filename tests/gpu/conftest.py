"""Tests that need a GPU: skipped where there is none."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

# In a process of its own: other tests load a stand-in for the driver into theirs.
ASK = """
from profkit.errors import ProfkitError
from profkit.lab.measure.cuda import device
try:
    device.query_gpu()
except ProfkitError as error:
    print(error.message)
"""


@pytest.fixture(autouse=True, scope="session")
def _gpu() -> None:
    asked = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    if asked.stdout:
        pytest.skip(asked.stdout.strip())


@pytest.fixture(autouse=True)
def _machine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Have a test that is marked `alone` wait for those of other workers, and them for it.

    Other programs on the host and on the GPU change what comes first, and what a launch costs.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    is_alone = request.node.get_closest_marker("alone") is not None
    with (folder / "machine").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH)
        yield
