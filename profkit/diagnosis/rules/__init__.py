"""Every rule, by id: one launch  ->  a hit or nothing, one file per hardware area.

One more rule is one more entry in the RULES of its file.
"""

from profkit.diagnosis.rule import Rule
from profkit.diagnosis.rules import checks, rest

ALL: tuple[Rule, ...] = (*rest.OTHERS, *rest.RULES, *checks.RULES)
BY_ID: dict[str, Rule] = {rule.id: rule for rule in ALL}
