"""Tests that need a GPU: skipped where there is none."""

import pytest

from profkit.errors import ProfkitError
from profkit.measure.cuda import device


@pytest.fixture(autouse=True, scope="session")
def _gpu() -> None:
    try:
        device.gpu()
    except ProfkitError as error:
        pytest.skip(error.message)
