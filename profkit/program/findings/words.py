"""The words of one form of a rule; they stand above the function that finds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What to do, in the words of what a program is written with."""

    others: str
    torch: str = ""  # empty: as others
    jax: str = ""

    def say_for(self, language: str) -> str:
        """Return what to do in a language: torch, jax or others."""
        by_language = {"torch": self.torch, "jax": self.jax}
        return by_language.get(language) or self.others

    def list_texts(self) -> list[str]:
        """Return all that it may say."""
        return [text for text in (self.torch, self.jax, self.others) if text]


@dataclass(frozen=True, kw_only=True)
class Words:
    """What is said of one form of a rule.

    A text may name {count}, how many kernels it is about, and {ms}, their milliseconds per step; what
    else it names, its function works out.
    """

    rule: str  # the id of the rule
    says: str
    advice: Advice
    # By the name of a case in which something else is to be done.
    instead: Mapping[str, Advice] = field(default_factory=dict)
    # It fixes whatever the cause (a captured graph): a special fix that saves about as much comes first.
    general: bool = False
    idle: bool = False  # what it saves is idle time, which a recorder inflates
    # Its change is a floor of this kind (kernel, run or transfer), and people get a known share of
    # floors; empty: the change has an interval of its own.
    floor: str = ""

    def list_advice(self) -> list[str]:
        """Return all that it may advise."""
        texts = self.advice.list_texts()
        for advice in self.instead.values():
            texts += advice.list_texts()
        return texts
