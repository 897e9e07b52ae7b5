"""The arithmetic in v3's header against its compiler and its launcher."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from profkit.lab.measure.variants import build, dry, problem, variants
from profkit.lab.tune import task as gates

ROOT = Path(__file__).parents[2]
CONFIGS = [("32", "48", "2", "3"), ("128", "32", "4", "2"), ("32", "64", "4", "2")]


@pytest.mark.nvcc
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_what_v3_takes_is_what_its_launcher_asks_for(tmp_path: Path) -> None:
    v3 = variants.read_variant(ROOT / "kernels/attention/wmma/v3_registers_persistent.cu")
    the = problem.load_problem(variants.find_problem_folder_of_kernel(v3.path))
    configs = [
        v3.space.make_declared_config(dict(zip(v3.space.macros, c, strict=True))) for c in CONFIGS
    ]
    tuned = [v3.with_tunables(**c.values_by_macro) for c in configs]
    *good, bad = build.compile_variants_not_built_yet(tuned, ["90"], tmp_path)
    for made, config in zip(good, configs, strict=False):
        said = v3.space.evaluate_quantities(config)
        (one,) = dry.list_launches_by_dry_run(made, the, "D")
        assert (one.dynamic_smem, one.block[0]) == (said["smem"], said["threads"])
        assert gates.list_launched_kernels(made, the, "B") == ("void v3<64>(Attention)",)
        assert min(k.regs for k in made.kernels) >= said["regs"]
    # What the header's condition refuses does not compile either.
    assert v3.space.find_arithmetic_refusal(configs[2], "90", v3.budget) is not None
    reason = gates.find_build_refusal(gates.ReadyBuild(bad, None))
    assert reason is not None
    assert reason.kind == "does not compile"
    assert "whole strips of 16 rows" in reason.detail
    # Spills of a kernel that the case does not run are no reason; of one that it runs, they are.
    spilled = next(m for m in good if any(k.spills for k in m.kernels))
    assert gates.find_build_refusal(gates.ReadyBuild(spilled, ("void v3<64>(Attention)",))) is None
    refused = gates.find_build_refusal(gates.ReadyBuild(spilled, None))
    assert refused is not None
    assert refused.kind == "spills"
    assert len({gates.make_machine_code_key(m) for m in good}) == len(good)


@pytest.mark.slow
def test_nothing_to_tune_is_said_on_any_machine() -> None:
    pytest.importorskip("optuna")
    command = [sys.executable, "-m", "profkit", "tune", "--variant", "stage2", "--case", "B"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "stage2_tensor_pv.cu declares nothing to tune" in done.stderr
