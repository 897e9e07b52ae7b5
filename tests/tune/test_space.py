"""What a header may say about tuning, and what arithmetic refuses."""

import contextlib
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.errors import ProfkitError
from profkit.lab.measure.cuda import resources
from profkit.lab.measure.variants import tunables, variants
from profkit.lab.measure.variants.tunables import MOST_THREADS
from profkit.records.header import Budget, VariantHeader

ROOT = Path(__file__).parents[2]
V3 = ROOT / "kernels/attention/wmma/v3_registers_persistent.cu"


def space(**keys: str) -> tunables.Space:
    return tunables.read_tunable_space(VariantHeader("T", keys=keys), Path("x.cu"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * 4", 14),
        ("-(A - 1) // 2", -4),
        ("A % 4 == 0", 1),
        ("1 < A <= 8", 1),
        ("8 != A", 0),
        ("A * B - 1", 23),
    ],
)
def test_arithmetic(text: str, value: int) -> None:
    assert tunables.parse_checked_expression(text, "x").evaluate_with({"A": 8, "B": 3}) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('id')",
        "A.real",
        "A[0]",
        "A()",
        "lambda: 1",
        "1 if A else 2",
        "A ** 9",
        "9 << 9",
        "A and B",
        "'x' * 9",
        "1.5",
        "True",
        "[A]",
        "",
        "A +",
        "A = 1",
        "(" * 150,
        "A in B",
        "not A",
        "(yield)",
        "f'{A}'",
        "A * " * 60 + "A",
        "A == (B == 1)",
        "~A",
        "º",
        "Å + 1",
    ],
)
def test_nothing_else_is_arithmetic(text: str) -> None:
    with pytest.raises(ProfkitError, match="x: "):
        tunables.parse_checked_expression(text, "x")


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = tunables.parse_checked_expression(text, "x")
    except ProfkitError:
        return
    with contextlib.suppress(ZeroDivisionError):
        found.evaluate_with(dict.fromkeys(found.names, 3))
    assert all(name in text for name in found.names)


def test_a_space_is_its_choices_the_defaults_first() -> None:
    s = space(tune="M=64,16,32 W=2,1 KIND=a,b", where="M % W == 0, M > 16", takes="threads=32*W")
    assert s.default.values_by_macro == {"M": "64", "W": "2", "KIND": "a"}
    assert s.default.flags == ("-DM=64", "-DW=2", "-DKIND=a")
    assert s.default.name == "64-2-a"
    assert s.list_all_configs_even_refused()[0] == s.default
    assert len(s.list_all_configs_even_refused()) == 12
    assert s.ordered_values["M"] == ("16", "32", "64")
    assert s.ordered_values["KIND"] == ("a", "b")
    small = s.make_declared_config({"M": "16", "W": "2", "KIND": "b"})
    assert small.ranks == (0, 1, 1)
    assert s.get_config_at(small.ranks) == small
    assert s.evaluate_quantities(s.default) == {"M": 64, "W": 2, "threads": 64}
    reason = s.find_arithmetic_refusal(small, "90", Budget())
    assert reason is not None
    assert reason.kind == "M > 16"
    assert s.find_arithmetic_refusal(s.default, "90", Budget()) is None


@pytest.mark.parametrize(
    ("takes", "budget", "kind"),
    [
        ("threads=32*W", Budget(), "threads of a block"),
        ("smem=65536*W", Budget(), "shared memory of a block"),
        ("smem=1024*W", Budget(smem=16 << 10), "shared budget"),
        ("regs=8*W", Budget(), "registers of a thread"),
        ("regs=3*W", Budget(regs=64), "register budget"),
        ("regs=100 threads=16*W", Budget(), None),
        ("regs=200 threads=16*W", Budget(), "registers of an SM"),
    ],
)
def test_what_cannot_exist_is_refused_with_its_kind(
    takes: str, budget: Budget, kind: str | None
) -> None:
    s = space(tune="W=1,40", takes=takes)
    assert s.find_arithmetic_refusal(s.make_declared_config({"W": "1"}), "90", budget) is None
    found = s.find_arithmetic_refusal(s.make_declared_config({"W": "40"}), "90", budget)
    assert (found and found.kind) == kind


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"tune": "M=1,1"}, "a value twice"),
        ({"tune": "M=1,2", "where": "N > 1"}, "N is not a number"),
        ({"tune": "M=a,b", "where": "M > 1"}, "M is not a number"),
        ({"tune": "M=1,2", "where": "M + 1"}, "compares nothing"),
        ({"tune": "M=1,2", "takes": "smem=M>1"}, "is a condition"),
        ({"tune": "M=1,2", "takes": "smem 64"}, "cannot read 'smem'"),
        ({"tune": "M=1,2", "steer": "membar=N+"}, "'steer:' names N"),
        ({"tune": "M=1,2", "steer": "membar=M"}, "cannot read 'M'"),
        ({"tune": "M=1,2", "watch": "sm_active"}, "cannot read 'sm_active'"),
        ({"tune": " ".join(f"A{i}=1,2,3,4" for i in range(9))}, "more than 100000"),
    ],
)
def test_mistakes_name_the_file_and_the_key(keys: dict[str, str], says: str) -> None:
    with pytest.raises(ProfkitError, match=r"x\.cu") as caught:
        space(**keys)
    assert says in caught.value.message


def test_division_by_zero_is_a_mistake_of_the_header() -> None:
    s = space(tune="M=1,0", where="8 % M == 0")
    with pytest.raises(ProfkitError, match="divides by zero at M=0"):
        s.find_arithmetic_refusal(s.make_declared_config({"M": "0"}), "90", Budget())


def test_v3_declares_its_space() -> None:
    v3 = variants.read_variant(V3)
    refused = Counter(
        reason.kind
        if (reason := v3.space.find_arithmetic_refusal(c, "90", v3.budget))
        else "possible"
        for c in v3.space.list_all_configs_even_refused()
    )
    assert set(v3.space.values) == {"BLOCK_M", "BLOCK_N", "WARPS", "STAGES"}
    assert v3.space.default.values_by_macro == {
        "BLOCK_M": "64",
        "BLOCK_N": "64",
        "WARPS": "4",
        "STAGES": "2",
    }
    assert 100 < refused["possible"] < len(v3.space.list_all_configs_even_refused())
    assert refused["shared memory of a block"] > 0
    assert (
        max(
            v3.space.evaluate_quantities(c)["threads"]
            for c in v3.space.list_all_configs_even_refused()
        )
        <= MOST_THREADS
    )


def test_every_variant_that_can_be_tuned_has_rules_metrics_and_defaults_that_exist() -> None:
    from profkit.lab.tune.steer import map_rules_to_directions
    from profkit.reports.metrics import CATALOGUE

    every = variants.read_all_variants(ROOT / "kernels")
    tunable = [v for v in every if v.space.values]
    assert len(tunable) >= 4
    for v in tunable:
        map_rules_to_directions(v.space)
        assert {d.name for d in v.space.watch} <= set(CATALOGUE)
        for arch in resources.LIMITS:
            if v.choose_compile_target_for(arch) and int(arch) >= 90:
                assert v.space.find_arithmetic_refusal(v.space.default, arch, v.budget) is None
