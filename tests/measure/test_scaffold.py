"""profkit new: what it writes can be listed and built as it stands."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.errors import ProfkitError
from profkit.lab.measure.variants import problem, variants
from profkit.lab.measure.variants.problem import (
    get_template_file_by_language,
    write_files_of_new_problem,
)
from tests.conftest import ROOT


@pytest.mark.parametrize("language", sorted(get_template_file_by_language()))
def test_a_new_problem_is_whole(tmp_path: Path, language: str) -> None:
    made = write_files_of_new_problem("row-sum", language, tmp_path / "kernels")
    folder = made[0].parent
    (variant,) = variants.read_all_variants(tmp_path / "kernels")
    assert (variant.id, variant.problem, variant.path.parent) == ("first", "row-sum", folder)
    assert variant.language.name.lower() == language
    assert variant.space.macros[0] == "BLOCK"
    assert problem.is_complete_problem_folder(folder)
    loaded = problem.load_problem(folder)
    case = loaded.get_case("n31")
    (wanted,) = loaded.module.reference(case, loaded.module.inputs(case, 0))
    assert wanted.shape == loaded.module.outputs(case)[0][0]
    text = "".join(path.read_text() for path in made)
    assert "@" not in text.replace("@triton", "")
    assert variants.find_kernels_dir(tmp_path / "kernels") == tmp_path / "kernels"


def test_there_is_a_template_for_each_language_that_ships() -> None:
    assert set(get_template_file_by_language()) == {"cuda", "triton"}


@pytest.mark.parametrize(
    ("name", "language", "says"),
    [
        ("../x", "cuda", "a folder's"),
        ("common", "cuda", "a folder's"),
        ("x", "tritn", "--language tritn"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path: Path, name: str, language: str, says: str) -> None:
    with pytest.raises(ProfkitError, match=says) as caught:
        write_files_of_new_problem(name, language, tmp_path)
    assert caught.value.hint
    assert not list(tmp_path.iterdir())


def test_nothing_is_written_over(tmp_path: Path) -> None:
    made, *_ = write_files_of_new_problem("x", "cuda", tmp_path)
    made.write_text("mine")
    with pytest.raises(ProfkitError, match="is there already"):
        write_files_of_new_problem("x", "triton", tmp_path)
    assert made.read_text() == "mine"


def test_the_wheel_brings_what_a_cuda_variant_includes() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert '"kernels/common/variant.cuh" = "profkit/lab/measure/variants/variant.cuh"' in text


@pytest.mark.slow
@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_a_new_cuda_problem_compiles(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "profkit"]
    subprocess.run([*command, "new", "x"], cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run(
        [*command, "check", "--build-only", "--all", "--arch", "90"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    assert b"scaled_sum" in done.stdout
