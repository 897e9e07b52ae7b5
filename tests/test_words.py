"""What users read is plain English: the dialect is in no message, help text, page or document.

kernels/README.md is left out: the laboratory notes of the ladder.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT
from tests.found import find_files

# What is not said -> what is said instead. Contracts (`fixes:`, `moves:`, JSON keys) keep theirs.
DIALECT = {
    r"mend|mends|mended|mending": "fix",
    r"at its roof": "at the hardware limit",
    r"only less work helps": "cannot go faster without doing less work",
    r"held back|hold back|holds back": "limited by",
    r"stand|stands|stood": "is, are",
    r"beside": "next to, with, in parallel with",
    r"lie|lies|lay": "is, are",
    r"told|be told apart": "said, known",
    r"people who": "who",
    r"written out": "not fused",
    r"maker|makers": "origin",
    r"twin|twins": "A/A run, fixed copy",
    r"crew|crews": "GPU pool",
    r"rung|rungs": "variant, step",
    r"whoever": "whoever (once), who",
    r"the very": "this, itself",
    r"round the": "around the",
    r"the works|works of|works that": "kernels",
    r"(?:ms|µs|MB|bytes|copies|kernels|collectives|times|launches|one) an? (?:step|launch|call)": "per",
    r"an? (?:row|column|line|verdict|file|bar) an? (?:row|launch|metric|file|step|kernel)": "per",
    r"hinders?": "blocks",
    r"covers the works": "includes",
    r"promises of|promised gains?": "predictions",
    r"hope|hopes|hoped": "expectation",
    r"wishes": "requests",
    r"as it lies": "as it is",
}
_RULES = [(re.compile(rf"(?<![-\w`.])(?:{p})(?![-\w`=(])"), say) for p, say in DIALECT.items()]
# Phrases in which a word of these is English.
ENGLISH = ("whoever recorded it", "stands for", "stand for", "stands out", "stand out")
DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "artifacts/README.md",
    "profkit/REFERENCE.md",
)


def _prose() -> Iterator[tuple[str, str]]:
    """Place and text of every document and page."""
    files = [ROOT / name for name in DOCUMENTS]
    files += find_files(ROOT / "docs", "**/*.md")
    files += find_files(ROOT / "profkit" / "diagnosis", "**/*.md")
    files += find_files(ROOT / "profkit" / "program", "**/*.md")
    for file in files:
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            if not line.startswith("<!--"):
                yield f"{file.relative_to(ROOT)}:{number}", line
    for file in find_files(ROOT / "profkit" / "show" / "web", "*.html"):
        text = re.sub(r"\{[{%#].*?[}%#]\}|<[^>]*>", " ", file.read_text("utf-8"), flags=re.S)
        yield str(file.relative_to(ROOT)), text


def _messages() -> Iterator[tuple[str, str]]:
    """Place and text of every sentence in the source that is no docstring, and of the verbs' help."""
    for file in find_files(ROOT / "profkit", "**/*.py"):
        tree = ast.parse(file.read_text("utf-8"))
        helps = "verbs" in file.parts
        for node in ast.walk(tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                node.value.value = None  # a docstring
            if helps and isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield f"{file.relative_to(ROOT)}:{node.lineno}", ast.get_docstring(node) or ""
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and " " in text:
                yield f"{file.relative_to(ROOT)}:{node.lineno}", text


def offenders(said: Iterator[tuple[str, str]]) -> list[str]:
    found = []
    for place, text in said:
        plain = text
        for phrase in ENGLISH:
            plain = plain.replace(phrase, "")
        for rule, say in _RULES:
            if match := rule.search(plain):
                found.append(f"{place}: {match[0]!r}: say {say}: {text.strip()[:90]}")
    return found


def test_documents_and_pages_are_plain_english() -> None:
    assert not offenders(_prose())


@pytest.mark.slow
def test_messages_and_help_are_plain_english() -> None:
    assert not offenders(_messages())


def test_the_dialect_is_noticed() -> None:
    said = "Mending it: held back by X, which stands beside Y at its roof; 3 ms a step."
    assert len(offenders(iter([("here", said.lower())]))) == 6
