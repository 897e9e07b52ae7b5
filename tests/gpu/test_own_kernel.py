"""The kernels of notebook 04, in a folder of their own as a user has them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.gpu.test_profile import profkit

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mine")
    shutil.copytree(ROOT / "notebooks" / "own", folder, dirs_exist_ok=True)
    (folder / "common").mkdir()
    shutil.copy(ROOT / "kernels" / "common" / "variant.cuh", folder / "common")
    return folder


def test_both_are_right_at_every_size(kernels: Path) -> None:
    said = json.loads(profkit("check", "--all", "--kernels", str(kernels), "--json"))
    assert {c["variant"]: c["status"] for c in said["checks"]} == {
        "thread": "right",
        "warp": "right",
    }


def test_the_second_keeps_its_promise(kernels: Path) -> None:
    where = ("--artifacts", str(kernels / "artifacts"))
    profkit("profile", "--all", "--case", "wide", "--kernels", str(kernels), *where)
    said = json.loads(profkit("compare", "thread", "warp", *where, "--json"))
    (change,) = said["changes"]
    assert change["time"]["answer"] == "faster"
    assert [(p["rule"], p["kept"]) for p in change["promises"]] == [("uncoalesced-access", True)]
