"""Tests that need a GPU: skipped where there is none."""

import subprocess
import sys

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
