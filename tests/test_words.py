"""What users read is plain English: the dialect is in no message, help text, page or document.

kernels/README.md is left out: the laboratory notes of the ladder.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.found import find_files

# What is not said -> what is said instead. Contracts (`fixes:`, `moves:`, JSON keys) keep theirs.
DIALECT = {
    r"mend|mends|mended|mending": "fix",
    r"at its roof": "near the hardware limit",
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
# English that was translated word by word -> what a native engineer writes. The decisions, which are
# notes of their day, are left out.
_COUNTED = (
    "lanes?|threads?|words?|bytes|sectors?|floats?|elements?|wavefronts?|blocks?|rows?|lines?|warps?"
    "|samples?|tokens|kernels?|times?|stores?|loads?|numbers?"
)
_TOTAL = (
    "request|cycle|lane|thread|access|warp|block|row|rank|second|instruction|metric|SM|step|card|probe"
    "|page"
)
TRANSLATED = {
    r"(?<!there )is no (?:JSON|PTX|zip|type|id|variant|number|file|text|part|finding|proof|timing|matrix"
    r"|multiple|instruction|attention|step|score|twin|column|list of)": "is not a",
    rf"(?:{_COUNTED}) an? (?:{_TOTAL})": "per",
    r"(?:go|goes|went|going) on (?:with|until|only|before|as)|cannot go on|others went on": "continue",
    r"(?:is|are) (?:there|in it) twice": "appears twice",
    r"anew": "again, re-",
    r"gives? what": "give the file that",
    r"what (?:is|was) said|(?:is|are|was|were|be) said": "is reported, is given",
    r"(?:brings?|brought) (?:less|more|nothing|no) ": "gains, helps",
    r"(?:take|takes|taken|taking) (?:\w+ )?away": "remove",
    r"of one name": "of the same model, with the same name",
    r"hangs? together": "are correlated",
    r"taken? (?:it )?for an?": "treated as, mistaken for",
    r"in turns": "interleaved, alternately",
    r"of (?:yours|theirs|ours)": "your own",
    r"as ever": "as usual",
    r"for besides|and others besides": "else, in addition",
    r"(?:looks?|asks?) whether": "check whether",
    r"what there is|that there (?:are|is)\b(?! none)": "the available",
    r"round (?:each|a|an|it|convolutions)": "around",
    r"(?:not|is|are|be) read whole": "complete, completely",
    r"known already": "already known",
    r"it was ended|had not ended": "was stopped, did not finish",
    r"behind the (?:first|last|command|launch)": "after",
    r"worked out of": "derived from",
    r"holds? (?:no|several) ": "contains",
    r"keeps? to its": "stays within",
    r"one more of|one more \w+ is": "to add a",
    r"(?:is|are|was|were) of (?:another|other|the same|two|several|no) ": "has, belongs to",
    r"(?<!collective )in (?:its|their) place(?! \()": "instead",
    r"differs from (?:it|that) in one": "differs only",
    r"the host waits itself": "the host is busy or waits",
    r"come more slowly than": "arrive too late",
    r"worst first": "sorted by expected saving",
    r"into another order": "another layout",
    r"who belongs where": "a one-hot matrix",
    r"shared places": "shared locations",
    r"are read on": "are used afterwards",
    r"in the mean": "on average",
    r"carry nothing": "are unused",
    r"not known as": "not checked because",
    r"of a part of it": "local",
    r"of which the export": "run nsys export",
    r"print it and leave": "show and exit",
    r"may this go in": "merge gate",
    r"would have been seen": "could have been detected",
    r"bring the rest|that lacks one says": "are optional; commands tell you",
    r"tried on what": "tested against",
    r"promises (?:much|no more)": "has a large expectation",
}
_TRANSLATED = [
    (re.compile(rf"(?<![-\w`.])(?:{pattern})(?![-\w`=(])", re.IGNORECASE), say)
    for pattern, say in TRANSLATED.items()
]
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


def _generated() -> Iterator[tuple[str, str]]:
    """Place and text of what else users read: notebooks, schemas, generators of pages, the Action."""
    for file in find_files(ROOT / "notebooks", "*.ipynb"):
        for number, cell in enumerate(json.loads(file.read_text("utf-8"))["cells"]):
            lines = "".join(cell["source"]).splitlines()
            if cell["cell_type"] == "code":
                lines = [line.partition("# ")[2] for line in lines]
            yield f"{file.relative_to(ROOT)}, cell {number}", "\n".join(lines)
    for file in find_files(ROOT / "profkit" / "schemas", "*.json"):
        for text in re.findall(r'"(?:description|title)": "(.*)"', file.read_text("utf-8")):
            yield str(file.relative_to(ROOT)), text
    for name in GENERATORS:
        yield from _strings(ROOT / "tools" / name)
    for name in ("profkit/SKILL.md", ".github/actions/profkit/action.yml"):
        for number, line in enumerate((ROOT / name).read_text("utf-8").splitlines(), 1):
            yield f"{name}:{number}", line


GENERATORS = ("build_site.py", "explained.py", "programs.py", "score.py", "long_description.py")


def _strings(file: Path) -> Iterator[tuple[str, str]]:
    """Place and text of each text in a source that is no docstring."""
    tree = ast.parse(file.read_text("utf-8"))
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in docstrings:
            continue
        if isinstance(node.value, str) and " " in node.value:
            yield f"{file.relative_to(ROOT)}:{node.lineno}", node.value


# A number and its % have a blank between them, as every number and its unit have; not in code.
_PERCENT = re.compile(r"(?<![\w.])\d[\d.,]*%(?![\w(])")
_PERCENT_FORMAT = re.compile(r":\.\d%\}")


def _shown() -> Iterator[tuple[str, str]]:
    """Place and text of what profkit printed: the short answers that are kept as text.

    Claims are sentences of their authors: recorded.txt is left out.
    """
    files = find_files(ROOT / "tests" / "goldens" / "text", "*.txt")
    for file in [file for file in files if file.stem != "recorded"]:
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            yield f"{file.relative_to(ROOT)}:{number}", line


def test_a_percentage_is_written_in_one_way() -> None:
    wrong = []
    for place, text in chain(_prose(), _messages(), _shown()):
        if ".html" not in place and "draw.py" not in place and _PERCENT.search(text):
            wrong.append(f"{place}: {text.strip()[:90]}")
    for file in find_files(ROOT / "profkit", "**/*.py"):
        is_template = "findings" in file.parts  # fill_sentence sets the blank
        if (
            not is_template
            and file.name != "figures.py"
            and _PERCENT_FORMAT.search(file.read_text())
        ):
            wrong.append(f"{file.relative_to(ROOT)}: say format_percent(...)")
    assert not wrong


def offenders(said: Iterator[tuple[str, str]]) -> list[str]:
    found = []
    for place, text in said:
        plain = text
        for phrase in ENGLISH:
            plain = plain.replace(phrase, "")
        rules = _RULES
        if not place.startswith("docs/decisions"):
            rules = [*_RULES, *_TRANSLATED]
        for rule, say in rules:
            if match := rule.search(plain):
                found.append(f"{place}: {match[0]!r}: say {say}: {text.strip()[:90]}")
    return found


def test_documents_and_pages_are_plain_english() -> None:
    assert not offenders(_prose())


@pytest.mark.slow
def test_messages_and_help_are_plain_english() -> None:
    assert not offenders(_messages())


def test_notebooks_schemas_and_generated_pages_are_plain_english() -> None:
    assert not offenders(_generated())


def test_the_worst_patterns_of_translated_english_are_held() -> None:
    assert len(TRANSLATED) >= 40
    said = "It is no JSON; 4 bytes a lane; the host waits itself; a table of what there is."
    assert len(offenders(iter([("here", said)]))) == 4
    assert not offenders(iter([("docs/decisions/001.md", said)]))


def test_the_dialect_is_noticed() -> None:
    said = "Mending it: held back by X, which stands beside Y at its roof; 3 ms a step."
    assert len(offenders(iter([("here", said.lower())]))) == 6
