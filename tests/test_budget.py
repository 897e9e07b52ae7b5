"""What may be made of a file: in proportion to its bytes, of all that is made of them together."""

from __future__ import annotations

import pytest

from profkit.files import BudgetSpent, ReadBudget


def test_a_budget_is_one_for_all_that_is_drawn() -> None:
    budget = ReadBudget(0)
    budget.spend_bytes(budget.SPARE)
    budget.raise_limit(5)
    budget.spend_bytes(15)
    with pytest.raises(BudgetSpent, match="asks for more memory than its bytes can need"):
        budget.spend_bytes(1)


def test_a_packed_file_may_take_what_its_bytes_unpack_to() -> None:
    plain, packed = ReadBudget(1000), ReadBudget(1000, is_packed=True)
    assert packed.left - plain.left == 3 * 1000 * (ReadBudget.PACKED - 1)


def test_what_many_share_is_there_once_and_costs_once() -> None:
    budget = ReadBudget(0)
    name = "".join(["n"] * 1000)
    shared = {id(budget.intern_text("".join(["n"] * 1000))) for _ in range(100)}
    assert len(shared) == 1
    assert budget.left == budget.SPARE - len(name)
    with pytest.raises(BudgetSpent, match="a name of 1,048,577 characters"):
        budget.intern_text("n" * (budget.NAME_MOST + 1))
