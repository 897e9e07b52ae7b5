"""What the tests of kernels share."""

import os

import pytest

from tests.kernels import emulated


@pytest.fixture(scope="session", autouse=True)
def _emulator_s_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The emulator's headers and objects are made once for all workers of this session."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "emulated"
    folder.mkdir(exist_ok=True)
    emulated.SHARED[:] = [folder]
